//! Leases: taken with records or refused by name, charged to who pays, ended by their time or a word, and not brought back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use crypto::lease::{self, Forget, Leaf, Shown, ShownLeaf, Terms};
use crypto::{ClientKey, NetworkId, SecretKey, Tier};
use document::Record;
use env::calls::leases::{Forgotten, LeaseAnswer, LeaseRequest, PlaceLeases};
use env::calls::{CallError, Calls, Credential, FindRequest, FindResponse, StoreOutcome};
use librarian::{KeepingOptions, LeaseSettings, LibrarianOptions};
use store::{LogOptions, LogStore};
use testkit::disk::FaultyDisk;
use testkit::network::{DirectNetwork, key};

use crate::town::{LIMIT, Shop, Town, envelope, introduce, page};

mod calendar;
mod copies;
mod hostile;
mod leaving;
mod mended;
mod silence;

/// Long enough for a lease that lasts as long as a test does, and short enough for virtual time.
const SPAN_S: u64 = 2 * 3600;

/// A client of an organisation, who signs its own leases.
struct Client {
    secret: SecretKey,
    pass: Bytes,
    calls: Arc<dyn Calls>,
    network: NetworkId,
}

impl Client {
    async fn new(town: &Town, organisation: usize) -> Self {
        let secret = key("payer", organisation);
        let client = ClientKey::new(secret.public());
        let pass = town.community.pass(client, organisation, Tier::Known, &town.env);
        let calls = town.network.calls(secret.public());
        for number in 0..town.peers.len() {
            let to = town.at(number);
            introduce(&calls, &to, Credential::Client(pass.clone())).await.unwrap();
        }
        Self { secret, pass, calls, network: town.community.genesis.network() }
    }

    fn lease(&self, town: &Town, records: &[&Record], seconds: u64) -> Shown {
        self.lease_for(town, records, seconds, 3)
    }

    /// A lease that pays for so many holders of each.
    fn lease_for(&self, town: &Town, records: &[&Record], seconds: u64, copies: u32) -> Shown {
        let leaves: Vec<Leaf> = records
            .iter()
            .map(|record| Leaf { place: record.place, bytes: record.bytes.len() as u64 })
            .collect();
        let from = town.env.clock.unix_s();
        let terms = Terms { redundancy: copies, from, until: from + seconds };
        lease::sign(&leaves, terms, &self.pass, &self.secret, &self.network).unwrap()
    }

    fn forget(&self, town: &Town, shown: &Shown) -> Bytes {
        let forget = Forget {
            lease: lease::id(&shown.lease).unwrap(),
            client: ClientKey::new(self.secret.public()),
            until: lease::until(&shown.lease).unwrap(),
            at: town.env.clock.unix_s(),
        };
        forget.sign(&self.secret, &self.network)
    }

    /// Stores one record with leases at one peer.
    async fn store(
        &self,
        town: &Town,
        peer: usize,
        record: &Record,
        leases: Vec<Shown>,
    ) -> Result<StoreOutcome, CallError> {
        let to = town.at(peer);
        let call = self.calls.store_leased(&to, vec![record.clone()], leases, LIMIT);
        call.await.and_then(|mut outcomes| outcomes.remove(0))
    }

    async fn ask(&self, town: &Town, peer: usize, request: LeaseRequest) -> LeaseAnswer {
        self.calls.lease(&town.at(peer), request, LIMIT).await.unwrap()
    }

    async fn look(&self, town: &Town, peer: usize, record: &Record) -> PlaceLeases {
        match self.ask(town, peer, LeaseRequest::Of(vec![record.place])).await {
            LeaseAnswer::Of(mut places) => places.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

/// What a peer says an organisation pays for.
fn paid(town: &Town, peer: usize, organisation: usize) -> u64 {
    let of = town.community.organisation(organisation).key.to_string();
    let leases = town.peers[peer].status().leases;
    leases.by_organisation.get(&of).map_or(0, |payer| payer.bytes)
}

fn refused(outcome: &Result<StoreOutcome, CallError>, says: &str) {
    let (Err(CallError::Invalid { reason }) | Err(CallError::Denied { reason })) = outcome else {
        panic!("{outcome:?} instead of: {says}")
    };
    assert!(reason.contains(says), "{reason:?} instead of {says:?}");
}

async fn town_with(env: &env::Env, peers: usize, change: impl Fn(&mut LeaseSettings)) -> Town {
    let mut town = Town::empty(env, 2, peers);
    for _ in 0..peers {
        town.start_next(|options: &mut LibrarianOptions| change(&mut options.leases)).await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == peers)
    })
    .await;
    town
}

#[test]
fn a_record_with_a_lease_is_charged_to_its_payer_and_gone_after_its_time() {
    testkit::time::run(1, |env| async move {
        let town = town_with(&env, 2, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (leased, bare) = (page(1, 500), page(2, 500));
        let shown = client.lease(&town, &[&leased], 3600);
        assert_eq!(
            client.store(&town, 0, &leased, vec![shown.clone()]).await,
            Ok(StoreOutcome::Stored)
        );
        assert_eq!(client.store(&town, 0, &bare, Vec::new()).await, Ok(StoreOutcome::Stored));
        let again = client.store(&town, 0, &leased, vec![shown.clone()]).await;
        assert_eq!(again, Ok(StoreOutcome::Present));
        assert_eq!((paid(&town, 0, 1), paid(&town, 0, 0)), (leased.bytes.len() as u64, 0));
        assert_eq!(town.peers[0].status().store.records, 2, "what is kept of leases is no record");
        let held = client.look(&town, 0, &leased).await;
        assert!(held.held && !held.unleased);
        assert_eq!(held.leases, [shown]);
        assert!(client.look(&town, 0, &bare).await.unleased);
        assert!(!client.look(&town, 1, &leased).await.held);

        env.clock.sleep(Duration::from_secs(3600 + 60)).await;
        assert!(town.stores[0].holds(&leased.id), "the clocks' allowance is not over");
        env.clock.sleep(Duration::from_secs(60 + 800)).await;
        assert!(!town.stores[0].holds(&leased.id));
        assert!(town.stores[0].holds(&bare.id));
        assert_eq!(paid(&town, 0, 1), 0);
        assert_eq!(town.stores[0].stats_records(), 1, "nothing is left of the lease");
    });
}

#[test]
fn hostile_leases_are_refused_by_name_and_nothing_is_kept() {
    testkit::time::run(2, |env| async move {
        let town = town_with(&env, 1, |_| {}).await;
        let (client, other) = (Client::new(&town, 1).await, Client::new(&town, 0).await);
        let (record, stranger) = (page(1, 500), page(2, 500));
        let good = client.lease(&town, &[&record], SPAN_S);
        let from = env.clock.unix_s();
        let sign = |leaves: &[Leaf], from: u64, pass: &Bytes, key: &SecretKey, of: &NetworkId| {
            let terms = Terms { redundancy: 3, from, until: from + SPAN_S };
            lease::sign(leaves, terms, pass, key, of).unwrap()
        };
        let leaf = good.leaves[0].leaf;
        let (pass, secret, network) = (&client.pass, &client.secret, &client.network);
        let wrong_path = {
            let both = client.lease(&town, &[&record, &stranger], SPAN_S);
            let mut leaves = both.leaves[..1].to_vec();
            leaves[0].path[0][0] ^= 1;
            Shown { leaves, ..both }
        };
        let grown = ShownLeaf { leaf: Leaf { bytes: 1 << 20, ..leaf }, ..good.leaves[0].clone() };
        let hostile = [
            (
                sign(&[leaf], from, pass, secret, &NetworkId::new([9; 32])),
                "not signed by the client",
            ),
            (sign(&[leaf], from, pass, &other.secret, network), "not signed by the client"),
            (sign(&[leaf], from, &other.pass, secret, network), "not signed by the client"),
            (Shown { pass: other.pass.clone(), ..good.clone() }, "another pass than"),
            (sign(&[leaf], from + 1801, pass, secret, network), "the lease's pass: valid from"),
            (wrong_path, "its path does not lead"),
            (Shown { leaves: vec![grown], ..good.clone() }, "its path does not lead"),
            (sign(&[Leaf { bytes: 9, ..leaf }], from, pass, secret, network), "for 9 bytes"),
            (client.lease(&town, &[&stranger], SPAN_S), "no record that lives there"),
        ];
        for (shown, says) in hostile {
            refused(&client.store(&town, 0, &record, vec![shown]).await, says);
        }
        // Of two records one is paid for.
        let both = vec![record.clone(), stranger.clone()];
        let call = client.calls.store_leased(&town.at(0), both, vec![good.clone()], LIMIT).await;
        refused(&call.map(|_| StoreOutcome::Stored), "none of the leases shown is for");
        assert_eq!(town.stores[0].stats_records(), 0);
        assert_eq!(paid(&town, 0, 1), 0);
        // A record that does not prove itself brings no account either.
        let forged = Record { bytes: Bytes::from(vec![1; 100]), ..record.clone() };
        refused(&client.store(&town, 0, &forged, vec![good.clone()]).await, "not a document");
        assert_eq!((town.stores[0].stats_records(), paid(&town, 0, 1)), (0, 0));
        assert_eq!(client.store(&town, 0, &record, vec![good]).await, Ok(StoreOutcome::Stored));
    });
}

#[test]
fn a_client_shows_a_lease_when_it_signed_it_and_a_peer_passes_on_an_old_one_to_its_payers_charge() {
    testkit::time::run(3, |env| async move {
        let town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 30 * SPAN_S);
        client.store(&town, 0, &record, vec![shown]).await.unwrap();
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;
        let client = Client::new(&town, 1).await;
        // As repair does it: the leases of the place at a holder, shown with the copy.
        let leases = client.look(&town, 0, &record).await.leases;
        assert_eq!(leases.len(), 1);
        refused(&client.store(&town, 1, &record, leases.clone()).await, "sign another");
        let repairer = town.peer_calls(0);
        let to = town.at(2);
        let copy = repairer.store_leased(&to, vec![record.clone()], leases, LIMIT);
        assert_eq!(copy.await.unwrap(), [Ok(StoreOutcome::Stored)]);
        assert_eq!(paid(&town, 2, 1), record.bytes.len() as u64, "the client's organisation pays");
        assert_eq!(paid(&town, 2, 0), 0, "and not the repairer's");
    });
}

#[test]
fn over_its_quota_an_organisation_is_refused_whoever_sends_and_a_renewal_is_free() {
    testkit::time::run(4, |env| async move {
        let bytes = page(1, 500).bytes.len() as u64;
        let town = town_with(&env, 2, |leases| leases.quota = Some(2 * bytes + 5)).await;
        let client = Client::new(&town, 1).await;
        let records = [page(1, 500), page(2, 500), page(3, 500)];
        for record in &records[..2] {
            let shown = client.lease(&town, &[record], SPAN_S);
            client.store(&town, 0, record, vec![shown]).await.unwrap();
        }
        let over = client.lease(&town, &[&records[2]], SPAN_S);
        let refusal = client.store(&town, 0, &records[2], vec![over.clone()]).await;
        refused(&refusal, "bytes here, and this is");
        let (peer, to) = (town.peer_calls(1), town.at(0));
        let from_peer = peer.store_leased(&to, vec![records[2].clone()], vec![over], LIMIT);
        refused(&from_peer.await.unwrap().remove(0), "free some");
        assert!(!town.stores[0].holds(&records[2].id));
        let longer = client.lease(&town, &[&records[0], &records[2]], 9 * SPAN_S);
        let taken = client.ask(&town, 0, LeaseRequest::Show(vec![longer])).await;
        assert_eq!(
            taken,
            LeaseAnswer::Show(vec![vec![true, false]]),
            "what is not here is not charged"
        );
        assert_eq!(paid(&town, 0, 1), 2 * bytes);
        let status = town.peers[0].status().leases;
        let payer = status.by_organisation.values().next().unwrap();
        assert_eq!(payer.quota, Some(2 * bytes + 5));
        // The first lease's time passes, the renewed record stays.
        env.clock.sleep(Duration::from_secs(SPAN_S + 1800)).await;
        assert!(town.stores[0].holds(&records[0].id) && !town.stores[0].holds(&records[1].id));
    });
}

#[test]
fn where_leases_are_demanded_a_client_without_one_is_told_so_and_peers_are_served() {
    testkit::time::run(5, |env| async move {
        let town = town_with(&env, 2, |leases| leases.demanded = true).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let bare = client.calls.store(&town.at(0), record.clone(), LIMIT).await;
        refused(&bare, "with a lease alone");
        refused(&client.store(&town, 0, &record, Vec::new()).await, "with a lease alone");
        let peer = town.peer_calls(1).store(&town.at(0), record.clone(), LIMIT).await;
        assert_eq!(peer, Ok(StoreOutcome::Stored));
        let other = page(2, 500);
        let shown = client.lease(&town, &[&other], SPAN_S);
        assert_eq!(client.store(&town, 0, &other, vec![shown]).await, Ok(StoreOutcome::Stored));
    });
}

#[test]
fn what_came_without_a_lease_stays_when_somebodys_lease_for_it_ends() {
    testkit::time::run(6, |env| async move {
        let town = town_with(&env, 1, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        client.calls.store(&town.at(0), record.clone(), LIMIT).await.unwrap();
        let shown = client.lease(&town, &[&record], 600);
        assert_eq!(client.store(&town, 0, &record, vec![shown]).await, Ok(StoreOutcome::Present));
        assert!(client.look(&town, 0, &record).await.unleased);
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert!(town.stores[0].holds(&record.id));
        assert_eq!(paid(&town, 0, 1), 0);
    });
}

#[test]
fn a_forgotten_record_goes_at_once_and_is_not_brought_back_by_who_was_away() {
    testkit::time::run(7, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (record, other) = (page(1, 500), envelope(1, 0).0);
        let (shown, kept) = (
            client.lease(&town, &[&record], 300 * SPAN_S),
            client.lease(&town, &[&other], 300 * SPAN_S),
        );
        for peer in 0..3 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
            client.store(&town, peer, &other, vec![kept.clone()]).await.unwrap();
        }
        // Peer 2 is away.
        let had = town.take_down(2).await;
        let thief = Client::new_at(&town, 0, &[0, 1]).await;
        let forged = thief.forget(&town, &shown);
        let word = client.forget(&town, &shown);
        for peer in 0..2 {
            let outcome = thief.ask(&town, peer, LeaseRequest::Forget(vec![forged.clone()])).await;
            assert_eq!(outcome, LeaseAnswer::Forget(vec![Forgotten::NotHere]), "another's lease");
            let outcome = client.ask(&town, peer, LeaseRequest::Forget(vec![word.clone()])).await;
            assert_eq!(outcome, LeaseAnswer::Forget(vec![Forgotten::Ended]));
            let again = client.ask(&town, peer, LeaseRequest::Forget(vec![word.clone()])).await;
            assert_eq!(again, LeaseAnswer::Forget(vec![Forgotten::Known]));
            assert!(!town.stores[peer].holds(&record.id));
            assert!(town.stores[peer].holds(&other.id));
        }
        refused(
            &client.store(&town, 0, &record, vec![shown.clone()]).await,
            "was ended by its client",
        );

        env.clock.sleep(Duration::from_secs(SPAN_S)).await;
        town.bring_back(2, had).await;
        assert!(town.stores[2].holds(&record.id), "it was away");
        town.until("the word reaches who was away", |town| !town.stores[2].holds(&record.id)).await;
        assert!(town.stores[2].holds(&other.id));
        let client = Client::new(&town, 1).await;
        let found = FindRequest { id: record.id, place: record.place };
        for peer in 0..3 {
            let answer = client.calls.find(&town.at(peer), found, LIMIT).await.unwrap();
            assert!(matches!(answer, FindResponse::Closest(_)), "peer {peer}");
        }
        // It is told on by who heard it late.
        let since_ms = env.clock.unix_ms() - 3_600_000;
        let (peer, to) = (town.peer_calls(0), town.at(2));
        let words = peer.lease(&to, LeaseRequest::Tombstones { since_ms, after: None }, LIMIT);
        assert_eq!(words.await, Ok(LeaseAnswer::Tombstones { forgets: vec![word], next: None }));
        let request = LeaseRequest::Tombstones { since_ms: 0, after: None };
        let asked = client.calls.lease(&to, request, LIMIT);
        assert!(matches!(asked.await, Err(CallError::Denied { .. })), "for peers alone");
        assert_eq!(town.peers[0].status().leases.ended, 1);
    });
}

/// It takes no records, and would else serve what was forgotten, and give it to whoever lacks a copy.
#[test]
fn a_peer_that_is_set_read_only_ends_leases_like_any_other() {
    testkit::time::run(78, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (asked, told, over, renewed) = (page(1, 500), page(2, 500), page(3, 500), page(5, 500));
        let long = [&asked, &told].map(|record| client.lease(&town, &[record], 300 * SPAN_S));
        let short = [&over, &renewed].map(|record| client.lease(&town, &[record], 3600));
        let records = [&asked, &told, &over, &renewed];
        for peer in 0..3 {
            for (record, shown) in records.into_iter().zip(long.iter().chain(&short)) {
                client.store(&town, peer, record, vec![shown.clone()]).await.unwrap();
            }
        }
        let had = town.take_down(2).await;
        let word = client.forget(&town, &long[1]);
        for peer in 0..2 {
            client.ask(&town, peer, LeaseRequest::Forget(vec![word.clone()])).await;
        }
        town.bring_back_with(2, had, |options: &mut LibrarianOptions| options.read_only = true)
            .await;
        assert_eq!(town.peers[2].status().read_only, Some("it is set to read-only"));
        let client = Client::new(&town, 1).await;
        let word = client.forget(&town, &long[0]);
        let outcome = client.ask(&town, 2, LeaseRequest::Forget(vec![word])).await;
        assert_eq!(outcome, LeaseAnswer::Forget(vec![Forgotten::Ended]));
        assert!(!town.stores[2].holds(&asked.id));
        town.until("it hears words", |town| !town.stores[2].holds(&told.id)).await;
        let again = client.store(&town, 2, &page(4, 500), Vec::new()).await;
        assert!(matches!(again, Err(CallError::ReadOnly { .. })), "{again:?}");
        let longer = client.lease(&town, &[&renewed], 300 * SPAN_S);
        let outcome = client.ask(&town, 2, LeaseRequest::Show(vec![longer])).await;
        assert_eq!(outcome, LeaseAnswer::Show(vec![vec![true]]));
        assert!(town.stores[2].holds(&over.id));
        env.clock.sleep(Duration::from_secs(3600 + 1000)).await;
        assert!(!town.stores[2].holds(&over.id), "its time is over");
        assert!(town.stores[2].holds(&renewed.id), "its time is longer");
    });
}

/// Who was told of the word asks nobody for it again: a peer that missed it must not give its lease to that one.
#[test]
fn a_lease_that_was_ended_elsewhere_is_not_taken_from_who_missed_the_word() {
    testkit::time::run(79, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (record, other) = (page(1, 500), page(2, 500));
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        let kept = client.lease(&town, &[&other], 300 * SPAN_S);
        for peer in [0, 2] {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
        }
        client.store(&town, 1, &other, vec![kept]).await.unwrap();
        let had = town.take_down(2).await;
        let word = client.forget(&town, &shown);
        let outcome = client.ask(&town, 0, LeaseRequest::Forget(vec![word])).await;
        assert_eq!(outcome, LeaseAnswer::Forget(vec![Forgotten::Ended]));
        // Peer 0 tells peer 1, which has nothing of it.
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert!(!town.stores[1].holds(&record.id));
        let passes_on = |town: &Town| {
            let (calls, to) = (town.peer_calls(2), town.at(1));
            let (record, shown) = (record.clone(), shown.clone());
            async move { calls.store_leased(&to, vec![record], vec![shown], LIMIT).await }
        };
        town.bring_back(2, had).await;
        let outcome = passes_on(&town).await.and_then(|mut outcomes| outcomes.remove(0));
        refused(&outcome, "was ended by its client");
        assert!(!town.stores[1].holds(&record.id));
        town.until("the word reaches who was away", |town| !town.stores[2].holds(&record.id)).await;
    });
}

#[test]
fn who_ran_and_heard_nobody_still_hears_what_was_ended_meanwhile() {
    testkit::time::run(73, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        for peer in 0..3 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
        }
        let all_heard = |town: &Town| town.peers[2].words_heard_ms() > 0;
        town.until("it heard all others", all_heard).await;
        let had = town.take_down(2).await;
        let heard = town.peers[2].words_heard_ms();
        let word = client.forget(&town, &shown);
        for peer in 0..2 {
            client.ask(&town, peer, LeaseRequest::Forget(vec![word.clone()])).await;
        }
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;

        // It runs for hours, hears nobody, and announces itself all the same.
        let away = [0, 1].map(|peer| town.community.members[peer].address.clone());
        away.iter().for_each(|address| town.network.remove(address));
        let known = town.peers[2].known_peers();
        let with = |known: Vec<Bytes>, heard| {
            move |options: &mut LibrarianOptions| {
                options.known_peers = known;
                options.words_heard_ms = Some(heard);
            }
        };
        town.bring_back_with(2, had, with(known, heard)).await;
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(town.peers[2].words_heard_ms(), heard, "nobody was heard");
        let had = town.take_down(2).await;
        let (known, heard) = (town.peers[2].known_peers(), town.peers[2].words_heard_ms());
        for peer in 0..2 {
            let member = &town.community.members[peer];
            town.network.serve(&member.address, member.peer, town.peers[peer].service());
        }
        town.bring_back_with(2, had, with(known, heard)).await;
        assert!(town.stores[2].holds(&record.id), "it was away");
        town.until("the word reaches it", |town| !town.stores[2].holds(&record.id)).await;
    });
}

/// A full disk keeps it from writing the word down: it is not counted as heard, and asked for again until it is kept.
#[test]
fn a_word_that_a_full_disk_did_not_take_is_asked_for_again() {
    testkit::time::run(76, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (record, other) = (page(1, 500), page(2, 500));
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        let kept = client.lease(&town, &[&other], 300 * SPAN_S);
        for peer in 0..3 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
            client.store(&town, peer, &other, vec![kept.clone()]).await.unwrap();
        }
        let had = town.take_down(2).await;
        for peer in 0..2 {
            let word = client.forget(&town, &shown);
            client.ask(&town, peer, LeaseRequest::Forget(vec![word])).await;
        }
        town.bring_back(2, had).await;
        town.stores[2].full.store(true, Ordering::SeqCst);
        let before = town.peers[2].words_heard_ms();
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;
        assert!(town.stores[2].holds(&record.id), "the word could not be kept");
        assert_eq!(town.peers[2].words_heard_ms(), before, "it was not heard");
        town.stores[2].full.store(false, Ordering::SeqCst);
        town.until("the word is kept", |town| !town.stores[2].holds(&record.id)).await;
        assert!(town.stores[2].holds(&other.id));
        let heard = |town: &Town| town.peers[2].words_heard_ms() > before;
        town.until("all others were heard", heard).await;
    });
}

impl Client {
    async fn new_at(town: &Town, organisation: usize, peers: &[usize]) -> Self {
        let secret = key("payer", organisation);
        let client = ClientKey::new(secret.public());
        let pass = town.community.pass(client, organisation, Tier::Known, &town.env);
        let calls = DirectNetwork::calls(&town.network, secret.public());
        for number in peers {
            let to = town.at(*number);
            introduce(&calls, &to, Credential::Client(pass.clone())).await.unwrap();
        }
        Self { secret, pass, calls, network: town.community.genesis.network() }
    }
}

#[test]
fn leases_are_read_back_after_a_restart() {
    testkit::time::run(8, |env| async move {
        let mut town = town_with(&env, 2, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let (one, two) = (page(1, 500), page(2, 700));
        let both = client.lease(&town, &[&one, &two], SPAN_S);
        let first = both.of(|place| *place == one.place).unwrap();
        let second = both.of(|place| *place == two.place).unwrap();
        client.store(&town, 0, &one, vec![first]).await.unwrap();
        client.store(&town, 0, &two, vec![second.clone()]).await.unwrap();
        let word = client.forget(&town, &client.lease(&town, &[&one], 77));
        let before = town.peers[0].status().leases;
        assert_eq!((before.leases, before.places), (1, 2));
        town.restart(0).await;
        assert_eq!(town.peers[0].status().leases, before);
        assert_eq!(town.peers[0].status().store.records, 2);
        let client = Client::new(&town, 1).await;
        assert_eq!(client.look(&town, 0, &two).await.leases, [second]);
        let unknown = client.ask(&town, 0, LeaseRequest::Forget(vec![word])).await;
        assert_eq!(unknown, LeaseAnswer::Forget(vec![Forgotten::NotHere]));
        env.clock.sleep(Duration::from_secs(SPAN_S + 1800)).await;
        assert_eq!(town.stores[0].stats_records(), 0, "records, lease and pass are gone");
    });
}

/// A peer over a log on a simulated disk, whose power goes at every step of the disk in turn: after each cut, what was
/// answered is there with its account, what was ended stays ended, and nothing is dropped that is paid for.
#[test]
fn power_cuts_leave_records_and_leases_together() {
    for cut in 0..24 {
        testkit::time::run(100 + cut, move |env| async move {
            let mut town = Town::empty(&env, 2, 1);
            let disk = FaultyDisk::new(cut);
            let start = |town: &Town, disk: &FaultyDisk| {
                let options = LogOptions { segment_bytes_max: 4 << 10, ..LogOptions::default() };
                let store = LogStore::open(Arc::new(disk.clone()), town.env.clone(), options);
                Arc::new(Shop::new(store.unwrap()))
            };
            let shop = start(&town, &disk);
            town.peers.push(town.start(0, shop.clone(), |_| {}).await);
            town.stores.push(shop);
            let client = Client::new(&town, 1).await;
            let records: Vec<Record> = (0..8).map(|seed| page(seed, 600)).collect();
            let (mut answered, mut ended) = (Vec::new(), Vec::new());
            disk.crash_after(3 + cut * 3);
            for (number, record) in records.iter().enumerate() {
                let shown = client.lease(&town, &[record], SPAN_S);
                if client.store(&town, 0, record, vec![shown.clone()]).await.is_err() {
                    break;
                }
                answered.push((record, shown.clone()));
                if number % 3 == 2 {
                    let word = client.forget(&town, &shown);
                    let request = LeaseRequest::Forget(vec![word]);
                    if client.calls.lease(&town.at(0), request, LIMIT).await.is_err() {
                        answered.pop();
                        break;
                    }
                    ended.push(answered.pop().unwrap());
                }
            }
            let disk = disk.crash();
            let shop = start(&town, &disk);
            let _ = town.peers[0].stop().await;
            town.peers[0] = town.start(0, shop.clone(), |_| {}).await;
            town.stores[0] = shop;
            let client = Client::new(&town, 1).await;
            let mut bytes = 0;
            for (record, shown) in &answered {
                assert!(town.stores[0].holds(&record.id), "cut {cut}: an answered record is lost");
                let held = client.look(&town, 0, record).await;
                assert_eq!(held.leases, std::slice::from_ref(shown), "cut {cut}");
                assert!(!held.unleased, "cut {cut}: it came with its lease");
                bytes += record.bytes.len() as u64;
            }
            for (record, shown) in &ended {
                assert!(!town.stores[0].holds(&record.id), "cut {cut}: it came back");
                let again = client.store(&town, 0, record, vec![shown.clone()]).await;
                refused(&again, "was ended by its client");
            }
            let paid = paid(&town, 0, 1);
            assert!((bytes..=bytes + 700).contains(&paid), "cut {cut}: {paid} paid of {bytes}");
            // What was not answered may be there: with its lease, so that it ends too.
            env.clock.sleep(Duration::from_secs(SPAN_S + 1800)).await;
            let left = records.iter().filter(|record| town.stores[0].holds(&record.id)).count();
            assert_eq!(left, 0, "cut {cut}: something is paid by nobody and stays");
            assert_eq!(crate::leases::paid(&town, 0, 1), 0);
        });
    }
}

/// Peers that mend what others lost bring nothing back that nobody pays for, though they do not all drop it at one moment; and
/// a copy that is fetched comes with what it is paid by.
#[test]
fn repair_passes_leases_on_and_brings_nothing_back() {
    testkit::time::run(9, |env| async move {
        let mut town = Town::empty(&env, 2, 3);
        for _ in 0..3 {
            town.start_next(|options| options.keeping = Some(KeepingOptions::default())).await;
        }
        let all = |town: &Town| town.peers.iter().all(|peer| peer.directory().view().len() == 3);
        town.until("all know all", all).await;
        let client = Client::new(&town, 1).await;
        let (record, gone) = (page(1, 500), page(2, 500));
        let shown = client.lease(&town, &[&record], SPAN_S);
        let word = client.lease(&town, &[&gone], 300 * SPAN_S);
        // Two of three have it; the third fetches it, and its payer is charged there too.
        for peer in 0..2 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
            client.store(&town, peer, &gone, vec![word.clone()]).await.unwrap();
        }
        town.until("the third fetches both", |town| {
            town.stores[2].holds(&record.id) && town.stores[2].holds(&gone.id)
        })
        .await;
        let bytes = (record.bytes.len() + gone.bytes.len()) as u64;
        assert_eq!((paid(&town, 2, 1), paid(&town, 2, 0)), (bytes, 0));
        let client = Client::new(&town, 1).await;
        assert!(!client.look(&town, 2, &record).await.unleased);
        // One is ended at two of the three alone.
        for peer in 0..2 {
            let word = client.forget(&town, &word);
            client.ask(&town, peer, LeaseRequest::Forget(vec![word])).await;
        }
        env.clock.sleep(Duration::from_secs(900)).await;
        assert!((0..3).all(|peer| !town.stores[peer].holds(&gone.id)), "it came back");
        assert!((0..3).all(|peer| town.stores[peer].holds(&record.id)));
        env.clock.sleep(Duration::from_secs(SPAN_S + 1200)).await;
        let left = (0..3).filter(|peer| town.stores[*peer].holds(&record.id)).count();
        assert_eq!(left, 0, "an ended lease's record was brought back");
        assert_eq!((0..3).map(|peer| paid(&town, peer, 1)).sum::<u64>(), 0);
    });
}
