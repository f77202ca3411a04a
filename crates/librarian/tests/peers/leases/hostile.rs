//! Clients and peers that try to have others' records dropped, to keep what nobody pays for, or to be given back what they never
//! paid; and disks and callers that fail in between.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crypto::{LeaseId, OrgId, Pass};
use store::{Journal, MemoryStore};
use testkit::network::LeaseLie;

use super::*;

impl Client {
    /// A client whose pass has a quota, or one of several of an organisation.
    async fn with(town: &Town, name: &str, organisation: usize, quota: u64) -> Self {
        let secret = key(name, organisation);
        let client = ClientKey::new(secret.public());
        let of = &town.community.organisations[organisation];
        let now = town.env.clock.unix_s();
        let (tier, from, until) = (Tier::Known, now - 1800, now + 1800);
        let organisation = OrgId::new(of.public());
        let pass = Pass { client, organisation, tier, quota, from, until };
        let network = town.community.genesis.network();
        let pass = pass.sign(of, &network);
        let calls = town.network.calls(secret.public());
        for number in 0..town.peers.len() {
            let to = town.at(number);
            introduce(&calls, &to, Credential::Client(pass.clone())).await.unwrap();
        }
        Self { secret, pass, calls, network }
    }

    fn lease_of(&self, town: &Town, leaf: Leaf, seconds: u64) -> Shown {
        let from = town.env.clock.unix_s();
        let terms = Terms { redundancy: 3, from, until: from + seconds };
        lease::sign(&[leaf], terms, &self.pass, &self.secret, &self.network).unwrap()
    }

    async fn end(&self, town: &Town, peer: usize, shown: &Shown) -> Result<LeaseAnswer, CallError> {
        let words = LeaseRequest::Forget(vec![self.forget(town, shown)]);
        self.calls.lease(&town.at(peer), words, LIMIT).await
    }
}

#[test]
fn a_quota_is_given_back_for_what_was_charged_and_no_byte_more() {
    testkit::time::run(20, |env| async move {
        let mut town = town_with(&env, 2, |_| {}).await;
        let client = Client::with(&town, "charged", 1, 10_000).await;
        let used = |town: &Town| {
            let (all, _) = town.peers[0].stored_bytes();
            let own = all.iter().find(|(of, _)| *of == ClientKey::new(client.secret.public()));
            own.map_or(0, |(_, bytes)| *bytes)
        };
        let (kept, gone, repaired) = (page(1, 2000), page(2, 500), page(3, 3000));
        let lease = client.lease(&town, &[&kept], SPAN_S);
        client.store(&town, 0, &kept, vec![lease]).await.unwrap();
        let large = Leaf { place: gone.place, bytes: lease::LEAF_BYTES_MAX };
        let large = client.lease_of(&town, large, SPAN_S);
        client.store(&town, 0, &gone, vec![large.clone()]).await.unwrap();
        // A peer brings a copy of what this client pays for: nobody's quota is charged for that.
        let copy = client.lease(&town, &[&repaired], SPAN_S);
        let (peer, to) = (town.peer_calls(1), town.at(0));
        let stored = peer.store_leased(&to, vec![repaired.clone()], vec![copy.clone()], LIMIT);
        stored.await.unwrap().remove(0).unwrap();
        let kept_bytes = kept.bytes.len() as u64;
        assert_eq!(used(&town), kept_bytes + gone.bytes.len() as u64);
        // Renewed, so that the first lease's end is not the record's.
        let longer = client.lease(&town, &[&gone], 3 * SPAN_S);
        client.ask(&town, 0, LeaseRequest::Show(vec![longer.clone()])).await;
        client.end(&town, 0, &large).await.unwrap();
        assert!(town.stores[0].holds(&gone.id));
        assert_eq!(used(&town), kept_bytes + gone.bytes.len() as u64, "it is here still");
        client.end(&town, 0, &longer).await.unwrap();
        client.end(&town, 0, &copy).await.unwrap();
        assert!(!town.stores[0].holds(&gone.id) && !town.stores[0].holds(&repaired.id));
        assert_eq!(used(&town), kept_bytes);
        // Who was charged is known after a restart too.
        let (counts, _) = town.peers[0].stored_bytes();
        town.restart_with(0, |options| options.stored_bytes = counts).await;
        env.clock.sleep(Duration::from_secs(SPAN_S + 1800)).await;
        assert!(!town.stores[0].holds(&kept.id));
        assert_eq!(used(&town), 0);
    });
}

/// Its bytes are here and charged, though its caller was told that it failed: they are given back once, when its lease ends.
#[test]
fn a_quota_is_given_back_once_for_an_envelope_whose_publication_could_not_be_logged() {
    testkit::time::run(31, |env| async move {
        let mut town = Town::empty(&env, 2, 1);
        let disk = FaultyDisk::new(1);
        let log = Journal::open(Arc::new(disk.clone()), env.clone(), "news", Default::default());
        let shop = Arc::new(Shop::new(Arc::new(MemoryStore::new())));
        town.peers.push(town.start_over(0, shop.clone(), log.unwrap(), |_| {}).await);
        town.stores.push(shop);
        let client = Client::with(&town, "charged", 1, 10_000).await;
        let used = |town: &Town| {
            let (all, _) = town.peers[0].stored_bytes();
            let own = all.iter().find(|(of, _)| *of == ClientKey::new(client.secret.public()));
            own.map_or(0, |(_, bytes)| *bytes)
        };
        let (kept, failed, refused) = (page(1, 2000), envelope(1, 0).0, envelope(2, 0).0);
        let [of_kept, of_failed, of_refused] =
            [&kept, &failed, &refused].map(|record| client.lease(&town, &[record], SPAN_S));
        client.store(&town, 0, &kept, vec![of_kept]).await.unwrap();
        let kept_bytes = kept.bytes.len() as u64;
        disk.fail_syncs(1);
        client.store(&town, 0, &failed, vec![of_failed.clone()]).await.unwrap_err();
        assert!(town.stores[0].holds(&failed.id));
        assert_eq!(used(&town), kept_bytes + failed.bytes.len() as u64);
        client.store(&town, 0, &refused, vec![of_refused]).await.unwrap_err();
        assert!(!town.stores[0].holds(&refused.id), "nobody would be told of it");
        assert_eq!(used(&town), kept_bytes + failed.bytes.len() as u64);
        client.end(&town, 0, &of_failed).await.unwrap();
        assert!(!town.stores[0].holds(&failed.id));
        assert_eq!(used(&town), kept_bytes);
    });
}

#[test]
fn nobodys_leases_keep_another_from_renewing_its_own() {
    testkit::time::run(21, |env| async move {
        let town = town_with(&env, 1, |_| {}).await;
        let owner = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = owner.lease(&town, &[&record], SPAN_S);
        owner.store(&town, 0, &record, vec![shown]).await.unwrap();
        let mut refusals = 0;
        for number in 0..40 {
            let other = Client::with(&town, &format!("other {number}"), 0, 0).await;
            let long = LeaseRequest::Show(vec![other.lease(&town, &[&record], 300 * SPAN_S)]);
            refusals += usize::from(other.calls.lease(&town.at(0), long, LIMIT).await.is_err());
        }
        assert_eq!(refusals, 32, "eight of an organisation");
        // Every week another, longer one: none is refused, and the account is what it was.
        for week in 1..40 {
            let longer = owner.lease(&town, &[&record], SPAN_S + week);
            let taken = owner.ask(&town, 0, LeaseRequest::Show(vec![longer.clone()])).await;
            assert_eq!(taken, LeaseAnswer::Show(vec![vec![true]]), "week {week}");
            let told = owner.look(&town, 0, &record).await.leases;
            assert_eq!(told[0], longer, "the asker's own are told first");
        }
        assert_eq!(town.peers[0].status().leases.by_organisation.len(), 2);
        assert_eq!(paid(&town, 0, 1), record.bytes.len() as u64);
    });
}

#[test]
fn what_is_acknowledged_without_a_lease_is_not_dropped_with_anothers() {
    testkit::time::run(22, |env| async move {
        let town = town_with(&env, 2, |_| {}).await;
        let (client, other) = (Client::new(&town, 1).await, Client::new(&town, 0).await);
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 600);
        client.store(&town, 0, &record, vec![shown.clone()]).await.unwrap();
        refused(&other.store(&town, 0, &record, Vec::new()).await, "under a lease alone");
        // So is a peer, which may store it for such a client.
        let copy = town.peer_calls(1).store(&town.at(0), record.clone(), LIMIT).await;
        refused(&copy, "under a lease alone");
        // Both at once, whichever comes first: what was acknowledged stays.
        let mut stayed = 0;
        for seed in 10..30 {
            let record = page(seed, 500);
            let shown = vec![client.lease(&town, &[&record], 600)];
            let bare = other.store(&town, 0, &record, Vec::new());
            let leased = client.store(&town, 0, &record, shown);
            let bare = match seed % 2 {
                0 => futures::join!(bare, leased).0,
                _ => futures::join!(leased, bare).1,
            };
            if bare.is_ok() {
                stayed += 1;
            }
            env.clock.sleep(Duration::from_secs(1800)).await;
            assert_eq!(town.stores[0].holds(&record.id), bare.is_ok(), "seed {seed}: {bare:?}");
        }
        assert!((1..20).contains(&stayed), "{stayed} of both orders");
    });
}

#[test]
fn what_could_not_be_dropped_is_dropped_later_though_its_caller_went_away() {
    testkit::time::run(23, |env| async move {
        let town = town_with(&env, 1, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let records: Vec<Record> = (0..3).map(|seed| page(seed, 500)).collect();
        let mut leases = Vec::new();
        for record in &records {
            let shown = client.lease(&town, &[record], 300 * SPAN_S);
            client.store(&town, 0, record, vec![shown.clone()]).await.unwrap();
            leases.push(shown);
        }
        // The disk takes no removals: the word is not answered, and when it comes again it is done.
        town.stores[0].stuck.store(true, Ordering::SeqCst);
        assert!(client.end(&town, 0, &leases[0]).await.is_err());
        let again = client.store(&town, 0, &records[0], Vec::new()).await;
        assert!(matches!(again, Err(CallError::Busy { .. })), "{again:?}");
        town.stores[0].stuck.store(false, Ordering::SeqCst);
        let known = client.end(&town, 0, &leases[0]).await;
        assert_eq!(known, Ok(LeaseAnswer::Forget(vec![Forgotten::Known])));
        assert!(!town.stores[0].holds(&records[0].id), "it is known, so it is gone");
        // Or by the next sweep.
        town.stores[0].stuck.store(true, Ordering::SeqCst);
        assert!(client.end(&town, 0, &leases[1]).await.is_err());
        town.stores[0].stuck.store(false, Ordering::SeqCst);
        env.clock.sleep(Duration::from_secs(900)).await;
        assert!(!town.stores[0].holds(&records[1].id));
        // A caller that goes away half-way.
        {
            let ends = client.end(&town, 0, &leases[2]);
            futures::pin_mut!(ends);
            for _ in 0..4 {
                let polled = futures::poll!(ends.as_mut());
                assert!(polled.is_pending(), "it is half-way");
                env.clock.sleep(Duration::ZERO).await;
            }
        }
        env.clock.sleep(Duration::from_millis(10)).await;
        assert!(!town.stores[0].holds(&records[2].id));
        assert_eq!(town.stores[0].stats_records(), 3, "the words alone");
    });
}

#[test]
fn what_the_disk_cannot_read_keeps_no_other_lease_from_ending() {
    testkit::time::run(28, |env| async move {
        let town = town_with(&env, 1, |_| {}).await;
        let (client, other) = (Client::new(&town, 1).await, Client::new(&town, 0).await);
        let records: Vec<Record> = (0..6).map(|seed| page(seed, 500)).collect();
        let is_there = |at: usize| town.stores[0].holds(&records[at].id);
        let unreadable = |ids: &[usize]| {
            let ids = ids.iter().map(|at| records[*at].id).collect();
            *town.stores[0].unreadable.lock().unwrap() = ids;
        };
        let mut leases = Vec::new();
        for (at, record) in records.iter().enumerate() {
            let payer = if at == 5 { &other } else { &client };
            let shown = payer.lease(&town, &[record], if at < 3 { 600 } else { 300 * SPAN_S });
            payer.store(&town, 0, record, vec![shown.clone()]).await.unwrap();
            leases.push(shown);
        }
        // One of three that end at one time.
        unreadable(&[0]);
        env.clock.sleep(Duration::from_secs(1800)).await;
        assert_eq!([0, 1, 2].map(is_there), [true, false, false]);
        // One of two words of a call, whose caller hears of it; who speaks of others does not.
        let (client, other) = (Client::new(&town, 1).await, Client::new(&town, 0).await);
        unreadable(&[0, 3]);
        let words = [3, 4].map(|at: usize| client.forget(&town, &leases[at])).to_vec();
        let to = town.at(0);
        let forget = || client.calls.lease(&to, LeaseRequest::Forget(words.clone()), LIMIT);
        let said = forget().await;
        assert!(said.is_err(), "{said:?}");
        assert_eq!([3, 4].map(is_there), [true, false]);
        let ended = other.end(&town, 0, &leases[5]).await;
        assert_eq!(ended, Ok(LeaseAnswer::Forget(vec![Forgotten::Ended])));
        assert!(!is_there(5));
        assert!(forget().await.is_err(), "one of its own is there still");
        // It can be read again.
        unreadable(&[]);
        env.clock.sleep(Duration::from_secs(900)).await;
        assert_eq!([0, 3].map(is_there), [false, false]);
    });
}

/// Fragments go before the header that lists them, which a power cut may part; and where that is damaged they go too.
#[test]
fn what_nobody_pays_for_of_a_stripe_goes_with_its_header_though_that_is_damaged() {
    for damaged in [false, true] {
        testkit::time::run(29, move |env| async move {
            let town = town_with(&env, 1, |_| {}).await;
            let client = Client::new(&town, 1).await;
            let stripes = [1, 2].map(|seed| testkit::network::stripe(seed, 2, 3, 1_000));
            for (stripe, spans) in stripes.iter().zip([1, 300]) {
                let leaf = Leaf { place: stripe.header.place, bytes: 1 << 20 };
                let lease = client.lease_of(&town, leaf, spans * SPAN_S);
                let records = [vec![stripe.header.clone()], stripe.fragments.clone()].concat();
                let to = town.at(0);
                let stored = client.calls.store_leased(&to, records, vec![lease], LIMIT);
                assert!(stored.await.unwrap().iter().all(Result::is_ok));
            }
            let shop = &town.stores[0];
            let header = stripes[0].header.id;
            shop.damaged.lock().unwrap().extend(damaged.then_some(header));
            env.clock.sleep(Duration::from_secs(SPAN_S + 1800)).await;
            let removed = shop.removed.lock().unwrap().clone();
            let last = removed.iter().position(|id| *id == header).unwrap();
            for fragment in &stripes[0].fragments {
                assert!(removed[..last].contains(&fragment.id), "damaged: {damaged}");
            }
            let paid = [vec![stripes[1].header.clone()], stripes[1].fragments.clone()].concat();
            assert!(paid.iter().all(|record| shop.holds(&record.id)));
        });
    }
}

/// Where the store cannot say where a fragment lives, it may be another stripe's: what it says once it can decides.
#[test]
fn a_fragment_that_cannot_be_read_now_is_not_dropped_for_a_stripe_it_is_not_kept_for() {
    testkit::time::run(34, |env| async move {
        let town = town_with(&env, 2, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let page = |number| testkit::network::page(crypto::Suite::Holdfast1, number, 1_000);
        let shared = page(1);
        // The second's page came with the first, and lives there.
        let stripes =
            [2, 3].map(|number| testkit::network::stripe_of(vec![shared.clone(), page(number)], 3));
        let mut leases = Vec::new();
        for stripe in &stripes {
            let leaf = Leaf { place: stripe.header.place, bytes: 1 << 20 };
            let lease = client.lease_of(&town, leaf, 300 * SPAN_S);
            let records = [vec![stripe.header.clone()], stripe.fragments.clone()].concat();
            // A peer brings them: no client is charged, so nobody needs to know how long they are.
            let (peer, to) = (town.peer_calls(1), town.at(0));
            let stored = peer.store_leased(&to, records, vec![lease.clone()], LIMIT).await;
            assert!(stored.unwrap().iter().all(Result::is_ok));
            leases.push(lease);
        }
        let shop = &town.stores[0];
        let (header, own) = (stripes[1].header.id, stripes[1].fragments[1].id);
        *shop.unreadable.lock().unwrap() = [shared.id].into();
        let ended = client.end(&town, 0, &leases[1]).await;
        assert!(ended.is_err(), "{ended:?}");
        assert!([shared.id, header, own].iter().all(|id| shop.holds(id)), "none of it is known");
        shop.unreadable.lock().unwrap().clear();
        env.clock.sleep(Duration::from_secs(900)).await;
        assert!(!shop.holds(&header) && !shop.holds(&own));
        let paid = [vec![stripes[0].header.clone()], stripes[0].fragments.clone()].concat();
        assert!(paid.iter().all(|record| shop.holds(&record.id)), "they are paid for");
    });
}

/// A town that drops what others hold, and a client whose pass has a quota.
async fn dropping(env: &env::Env, peers: usize) -> (Town, Client) {
    let mut town = Town::empty(env, 3, peers);
    for _ in 0..peers {
        town.start_next(|options| {
            crate::repair::quick(options);
            options.keeping.as_mut().unwrap().surplus_after = Duration::from_secs(30);
        })
        .await;
    }
    let all = |town: &Town| town.peers.iter().all(|peer| peer.directory().view().len() == peers);
    town.until("all know all", all).await;
    let client = Client::with(&town, "charged", 1, 100_000).await;
    (town, client)
}

#[test]
fn copies_beyond_the_networks_number_are_dropped_and_given_back_unless_they_are_paid_for() {
    testkit::time::run(29, |env| async move {
        const PEERS: usize = 9;
        let (town, client) = dropping(&env, PEERS).await;
        let (few, many) = (envelope(1, 0).0, envelope(2, 0).0);
        let wanted = crate::repair::wanted(&town, few.kind);
        assert!(wanted < PEERS, "{wanted}");
        let leaf = |record: &Record| Leaf { place: record.place, bytes: record.bytes.len() as u64 };
        let from = env.clock.unix_s();
        let lease = |record: &Record, redundancy: usize| {
            let terms = Terms { redundancy: redundancy as u32, from, until: from + 300 * SPAN_S };
            let (pass, secret) = (&client.pass, &client.secret);
            lease::sign(&[leaf(record)], terms, pass, secret, &client.network).unwrap()
        };
        let (for_few, for_all) = (lease(&few, wanted), lease(&many, PEERS));
        for peer in 0..PEERS {
            client.store(&town, peer, &few, vec![for_few.clone()]).await.unwrap();
            client.store(&town, peer, &many, vec![for_all.clone()]).await.unwrap();
        }
        let all: Vec<usize> = (0..PEERS).collect();
        town.until("what nobody pays for is dropped", |town| {
            crate::repair::copies_of(town, &all, &few.id) == wanted
        })
        .await;
        env.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(crate::repair::copies_of(&town, &all, &few.id), wanted);
        assert_eq!(crate::repair::copies_of(&town, &all, &many.id), PEERS, "all are paid for");
        for peer in all {
            let of = ClientKey::new(client.secret.public());
            let (counts, _) = town.peers[peer].stored_bytes();
            let used = counts.iter().find(|(client, _)| *client == of).map_or(0, |(_, used)| *used);
            let here = [&few, &many].into_iter().filter(|one| town.stores[peer].holds(&one.id));
            assert_eq!(used, here.map(|one| one.bytes.len() as u64).sum::<u64>(), "peer {peer}");
        }
    });
}

/// Who does not say who pays is waited for once, and others are asked: as long as they have what lacks, nothing waits for it.
#[test]
fn who_is_silent_about_who_pays_keeps_nobody_from_others() {
    testkit::time::run(30, |env| async move {
        let (mut town, client) = dropping(&env, 3).await;
        let records: Vec<Record> = (0..40).map(|seed| envelope(seed, 0).0).collect();
        let silent = 1;
        let asked: Arc<Mutex<u32>> = Arc::default();
        let count = Arc::clone(&asked);
        let lie: LeaseLie = Arc::new(move |request, _| {
            let LeaseRequest::Of(_) = request else { return None };
            *count.lock().unwrap() += 1;
            Some(Err(CallError::TimedOut { address: "peer".to_owned(), limit: LIMIT }))
        });
        town.network.lie_of_leases(&town.peers[silent].peer(), lie);
        let had = town.take_down(2).await;
        for record in &records {
            let shown = client.lease(&town, &[record], 300 * SPAN_S);
            for peer in 0..2 {
                client.store(&town, peer, record, vec![shown.clone()]).await.unwrap();
            }
        }
        town.bring_back_with(2, had, crate::repair::quick).await;
        town.until("all are fetched", |town| {
            records.iter().all(|record| town.stores[2].holds(&record.id))
        })
        .await;
        let asked = *asked.lock().unwrap();
        assert!(asked <= 2, "the silent one was asked {asked} times");
    });
}

#[test]
fn a_lease_whose_bytes_reach_into_its_pass_is_not_taken_for_a_good_one() {
    testkit::time::run(24, |env| async move {
        let town = town_with(&env, 1, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let good = client.lease(&town, &[&record], SPAN_S);
        client.store(&town, 0, &record, vec![good.clone()]).await.unwrap();
        let (lease, end) = good.lease.split_at(good.lease.len() - 1);
        let (lease, pass) = (Bytes::copy_from_slice(lease), [end, &good.pass[..]].concat().into());
        let moved = Shown { lease, pass, ..good };
        let shown = client.calls.lease(&town.at(0), LeaseRequest::Show(vec![moved]), LIMIT).await;
        assert!(matches!(shown, Err(CallError::Invalid { .. })), "{shown:?}");
    });
}

#[test]
fn words_of_a_peer_that_has_more_than_a_round_hears_are_heard_to_the_last() {
    testkit::time::run(25, |env| async move {
        let town = town_with(&env, 2, |leases| leases.ask = Duration::from_secs(1)).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        client.store(&town, 0, &record, vec![shown.clone()]).await.unwrap();
        let word = client.forget(&town, &shown);
        let start: Arc<Mutex<Option<u64>>> = Arc::default();
        // A word a millisecond, and the one that ends it is the hundredth.
        let lie: LeaseLie = Arc::new(move |request, _| {
            let LeaseRequest::Tombstones { since_ms, .. } = request else { return None };
            let start = *start.lock().unwrap().get_or_insert(*since_ms);
            let behind = since_ms.saturating_sub(start);
            let forgets = if behind == 100 { vec![word.clone()] } else { Vec::new() };
            let next = (behind < 100).then(|| (since_ms + 1, LeaseId::new([1; 32])));
            Some(Ok(LeaseAnswer::Tombstones { forgets, next }))
        });
        town.network.lie_of_leases(&town.peers[1].peer(), lie);
        town.until("the last is heard", |town| !town.stores[0].holds(&record.id)).await;
    });
}

/// Two peers that mend, and a record of a client's that one of them has.
async fn mending(env: &env::Env) -> (Town, Client, Record, Shown) {
    let mut town = Town::empty(env, 2, 2);
    for _ in 0..2 {
        town.start_next(|options| options.keeping = Some(KeepingOptions::default())).await;
    }
    let all = |town: &Town| town.peers.iter().all(|peer| peer.directory().view().len() == 2);
    town.until("all know all", all).await;
    let client = Client::new(&town, 1).await;
    let record = page(1, 500);
    let shown = client.lease(&town, &[&record], 300 * SPAN_S);
    (town, client, record, shown)
}

#[test]
fn a_copy_is_not_fetched_while_its_holder_does_not_say_who_pays() {
    testkit::time::run(26, |env| async move {
        let (town, client, record, shown) = mending(&env).await;
        for answer in [
            Err(CallError::Busy { retry_after: Duration::from_secs(1) }),
            Ok(LeaseAnswer::Of(vec![PlaceLeases::default()])),
        ] {
            let lie: LeaseLie = Arc::new(move |request, _| match request {
                LeaseRequest::Of(_) => Some(answer.clone()),
                _ => None,
            });
            town.network.lie_of_leases(&town.peers[0].peer(), lie);
            let _ = client.store(&town, 0, &record, vec![shown.clone()]).await;
            env.clock.sleep(Duration::from_secs(900)).await;
            assert!(!town.stores[1].holds(&record.id), "who pays for it was lost");
        }
        town.network.heal();
        town.until("it is fetched", |town| town.stores[1].holds(&record.id)).await;
        let client = Client::new(&town, 1).await;
        assert_eq!(client.look(&town, 1, &record).await.leases, [shown]);
    });
}

/// Who lets a lease end, signs for too few bytes, or ends it by its word, keeps nothing of others from being mended: of those that a
/// peer passes on the ones count that hold.
#[test]
fn a_lease_that_does_not_count_keeps_no_other_from_being_passed_on() {
    testkit::time::run(32, |env| async move {
        let town = town_with(&env, 2, |_| {}).await;
        let (owner, other) = (Client::new(&town, 1).await, Client::new(&town, 0).await);
        let records: Vec<Record> = (1..5).map(|seed| page(seed, 500)).collect();
        let good: Vec<Shown> =
            records.iter().map(|record| owner.lease(&town, &[record], 300 * SPAN_S)).collect();
        let of = |record: &Record, seconds| other.lease(&town, &[record], seconds);
        let few = Leaf { place: records[1].place, bytes: 10 };
        let mut forged = of(&records[2], 300 * SPAN_S);
        forged.lease = forged.lease.slice(..forged.lease.len() - 1);
        let ended = of(&records[3], 200 * SPAN_S);
        other.store(&town, 0, &records[3], vec![ended.clone()]).await.unwrap();
        other.end(&town, 0, &ended).await.unwrap();
        assert!(!town.stores[0].holds(&records[3].id));
        let bad =
            [of(&records[0], SPAN_S), other.lease_of(&town, few, 300 * SPAN_S), forged, ended];
        env.clock.sleep(Duration::from_secs(2 * SPAN_S)).await;
        let (peer, to) = (town.peer_calls(1), town.at(0));
        let brought = async |record: &Record, leases: Vec<Shown>| {
            let call = peer.store_leased(&to, vec![record.clone()], leases, LIMIT);
            call.await.and_then(|mut outcomes| outcomes.remove(0))
        };
        let owner = Client::new(&town, 1).await;
        for (number, ((record, bad), good)) in records.iter().zip(bad).zip(good).enumerate() {
            let alone = brought(record, vec![bad.clone()]).await;
            let is_here = town.stores[0].holds(&record.id);
            assert!(alone.is_err() && !is_here, "{number}: {alone:?}");
            let both = brought(record, vec![bad.clone(), good.clone()]).await;
            assert_eq!(both, Ok(StoreOutcome::Stored));
            assert_eq!(owner.look(&town, 0, record).await.leases, [good]);
            assert!(
                brought(record, vec![bad]).await.is_err(),
                "one that is there makes it no better"
            );
        }
    });
}

#[test]
fn a_peer_that_says_it_needs_no_lease_does_not_bring_back_what_was_forgotten() {
    testkit::time::run(27, |env| async move {
        let (town, client, record, shown) = mending(&env).await;
        for peer in 0..2 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
        }
        let lie: LeaseLie = Arc::new(|request, answer| match request {
            LeaseRequest::Tombstones { .. } => {
                Some(Ok(LeaseAnswer::Tombstones { forgets: Vec::new(), next: None }))
            }
            LeaseRequest::Of(_) => {
                let LeaseAnswer::Of(mut places) = answer?.clone() else { return None };
                for place in &mut places {
                    (place.unleased, place.leases) = (place.held, Vec::new());
                }
                Some(Ok(LeaseAnswer::Of(places)))
            }
            _ => None,
        });
        town.network.lie_of_leases(&town.peers[1].peer(), lie.clone());
        town.network.lie_of_leases(&town.peers[0].peer(), lie);
        client.end(&town, 0, &shown).await.unwrap();
        env.clock.sleep(Duration::from_secs(1800)).await;
        assert!(town.stores[1].holds(&record.id), "it was told by nobody");
        assert!(!town.stores[0].holds(&record.id), "it came back");
    });
}
