//! Leases of contents: shown by a put, seen, renewed, and ended with all that they held.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use author::{Author, AuthorError, NoProgress, PutOptions, State};
use crypto::keyring::paid::PAID_ROW_BYTES;
use crypto::lease::{self, Leaf, Shown, Terms};
use crypto::{Class, Classified, ClientKey, PeerId, Place, ReaderKey, RecordId, SecretKey, Tier};
use document::Kind;
use env::calls::leases::{LeaseAnswer, LeaseRequest, PlaceLeases};
use env::calls::{CallError, Calls, Credential, Endpoint, IntroduceRequest};
use placement::Profile;
use testkit::network::{Fault, LeaseLie, key};
use testkit::time::run;

use crate::town::Town;

const SPAN_S: u64 = 3600;

fn records(town: &Town) -> u64 {
    town.peers.iter().map(|peer| peer.status().store.records).sum()
}

async fn put(author: &Author, content: &[u8], seconds: Option<u64>) -> author::PutReport {
    let options = PutOptions { lease_seconds: seconds, ..PutOptions::default() };
    let report = author.put(content, options, Arc::new(NoProgress)).await.unwrap();
    author.walker().drain(Duration::from_secs(60)).await;
    report
}

/// Bytes that all peers say are paid for.
fn paid(town: &Town) -> u64 {
    let all = town.peers.iter().map(|peer| peer.status().leases.by_organisation);
    all.flat_map(|of| of.into_values().map(|payer| payer.bytes)).sum()
}

#[test]
fn letters_and_files_in_stripes_are_paid_for_and_gone_when_they_are_forgotten() {
    run(1, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let letter = put(&ada, b"a letter", Some(30 * SPAN_S)).await;
        let file = put(&ada, &vec![7; 300_000], Some(30 * SPAN_S)).await;
        let now = env.clock.unix_s();
        let until = letter.until.unwrap();
        assert!((now + 30 * SPAN_S - 60..=now + 30 * SPAN_S + 120).contains(&until));
        for peer in &town.peers {
            let status = peer.status();
            assert_eq!(status.leases.places > 0, status.store.records > 0);
        }
        let before = records(&town);
        let bytes: u64 = town.peers.iter().map(|peer| peer.status().store.bytes).sum();
        assert!((bytes..bytes * 2).contains(&paid(&town)), "{} of {bytes}", paid(&town));
        for address in [letter.address, file.address] {
            let payment = ada.payment(address).await.unwrap();
            assert!(!payment.unleased && payment.leases.len() == 1 && payment.leases[0].own);
            assert_eq!(payment.until, Some(payment.leases[0].until));
        }
        assert_eq!(ada.paid().await.unwrap().len(), 2);

        let ended = ada.forget(file.address).await.unwrap();
        assert!(ended.key_forgotten && ended.unreached.is_empty() && ended.kept == 0, "{ended:?}");
        assert!(ended.reached.len() >= 8, "{ended:?}");
        let left = records(&town);
        assert!(left < before && left > 0);
        let error = ada.get(file.address, &mut Vec::new(), None, Arc::new(NoProgress)).await;
        assert!(matches!(error, Err(AuthorError::Fetch { .. })), "{error:?}");
        ada.get(letter.address, &mut Vec::new(), None, Arc::new(NoProgress)).await.unwrap();
        assert_eq!(ada.paid().await.unwrap().into_keys().collect::<Vec<_>>(), [letter.address]);

        ada.forget(letter.address).await.unwrap();
        assert_eq!((records(&town), paid(&town)), (0, 0));
    });
}

#[test]
fn what_is_renewed_outlives_what_is_not_and_others_may_pay_too() {
    run(2, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let (short, long) = (
            put(&ada, b"short", Some(SPAN_S)).await,
            put(&ada, &vec![7; 300_000], Some(SPAN_S)).await,
        );
        let renewed = ada.renew(long.address, Some(10 * SPAN_S)).await.unwrap();
        assert!(renewed.untaken == 0 && renewed.refused.is_none(), "{renewed:?}");
        assert!(renewed.until > long.until.unwrap());
        let spent = paid(&town);
        env.clock.sleep(Duration::from_secs(SPAN_S + 1800)).await;
        let ada = town.payer("ada", 0).await;
        assert!(paid(&town) < spent);
        let error = ada.get(short.address, &mut Vec::new(), None, Arc::new(NoProgress)).await;
        assert_eq!(error.unwrap_err().class(), Class::NotFound);
        let mut back = Vec::new();
        ada.get(long.address, &mut back, None, Arc::new(NoProgress)).await.unwrap();
        assert!(back == vec![7; 300_000]);

        // A reader of another organisation, who pays for it too.
        let ben = town.payer("ben", 1).await;
        let shared = ada.share(long.address, ben.reader_keys()[0]).await.unwrap();
        let renewed = ben.renew(shared, Some(5 * SPAN_S)).await.unwrap();
        assert_eq!(renewed.untaken, 0, "{renewed:?}");
        let ended = ada.forget(long.address).await.unwrap();
        assert!(ended.kept > 0, "{ended:?}");
        let mut back = Vec::new();
        ben.get(shared, &mut back, None, Arc::new(NoProgress)).await.unwrap();
        assert!(back == vec![7; 300_000], "the other's lease holds it");
    });
}

#[test]
fn a_holder_that_was_away_is_named_and_hears_of_it() {
    run(3, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.payer("ada", 0).await;
        let letter = put(&ada, b"a letter", None).await;
        let away = town.peers.iter().find(|peer| peer.status().store.records > 0).unwrap();
        town.cut(&[away.peer()]);
        let ended = ada.forget(letter.address).await.unwrap();
        assert_eq!(ended.unreached.iter().collect::<Vec<_>>(), [&away.peer()]);
        assert!(away.status().store.records > 0);
        town.cut(&[]);
        for _ in 0..100 {
            env.clock.sleep(Duration::from_secs(60)).await;
            if away.status().store.records == 0 {
                return;
            }
        }
        panic!("it was not told: {:?}", away.status().leases);
    });
}

#[test]
fn whoever_has_no_pass_cannot_renew_or_forget() {
    run(4, |env| async move {
        let town = Town::new(&env, 3).await;
        let ada = town.payer("ada", 0).await;
        let letter = put(&ada, b"a letter", None).await;
        let stranger = town.author("ada", 0, false).await;
        for error in [
            stranger.renew(letter.address, None).await.unwrap_err(),
            stranger.forget(letter.address).await.unwrap_err(),
        ] {
            assert!(matches!(error, AuthorError::NoPass), "{error}");
        }
    });
}

const LIMIT: Duration = Duration::from_secs(10);

/// A client of its own, that asks and shows what it likes.
struct Raw {
    calls: Arc<dyn Calls>,
    secret: SecretKey,
    pass: bytes::Bytes,
}

impl Raw {
    async fn new(town: &Town, env: &env::Env) -> Self {
        let secret = key("raw", 0);
        let client = ClientKey::new(secret.public());
        let pass = town.community.pass(client, 1, Tier::Known, env);
        let calls = town.network.calls(secret.public());
        for member in &town.community.members {
            let to = Endpoint::of(member.peer, member.address.clone());
            let request = IntroduceRequest::new(Credential::Client(pass.clone()), 0);
            calls.introduce(&to, request, LIMIT).await.unwrap();
        }
        Self { calls, secret, pass }
    }

    async fn ask(&self, town: &Town, number: usize, request: LeaseRequest) -> LeaseAnswer {
        let member = &town.community.members[number];
        let to = Endpoint::of(member.peer, member.address.clone());
        self.calls.lease(&to, request, LIMIT).await.unwrap()
    }

    /// What a peer says of where a record lives.
    async fn look(&self, town: &Town, number: usize, id: RecordId) -> PlaceLeases {
        match self.ask(town, number, LeaseRequest::Of(vec![id.into()])).await {
            LeaseAnswer::Of(mut places) => places.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn lease(&self, town: &Town, now: u64, leaf: Leaf) -> Shown {
        let terms = Terms { redundancy: 1, from: now, until: now + 300 * SPAN_S };
        let network = town.community.genesis.network();
        lease::sign(&[leaf], terms, &self.pass, &self.secret, &network).unwrap()
    }
}

/// A holder that tells these leases of every place, besides what is true.
fn tells(more: Vec<Shown>) -> LeaseLie {
    Arc::new(move |_, answer| {
        let LeaseAnswer::Of(mut places) = answer?.clone() else { return None };
        for place in &mut places {
            place.held = true;
            place.leases.extend(more.iter().cloned());
        }
        Some(Ok(LeaseAnswer::Of(places)))
    })
}

fn holders(town: &Town) -> Vec<PeerId> {
    let has = town.peers.iter().filter(|peer| peer.status().store.records > 0);
    has.map(|peer| peer.peer()).collect()
}

#[test]
fn a_holder_that_tells_leases_of_other_contents_gets_no_words_that_end_them() {
    run(5, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.payer("ada", 0).await;
        let mine = put(&ada, b"to be forgotten", Some(30 * SPAN_S)).await;
        let other = put(&ada, b"to be kept", Some(90 * SPAN_S)).await;
        let raw = Raw::new(&town, &env).await;
        let mut of_other = Vec::new();
        for number in 0..5 {
            of_other.extend(raw.look(&town, number, other.address).await.leases);
        }
        assert!(!of_other.is_empty());
        // As they are, and as if they had a leaf for what is asked about.
        let moved = of_other.iter().map(|shown| {
            let mut moved = shown.clone();
            moved.leaves[0].leaf.place = mine.address.into();
            moved
        });
        let lies: Vec<Shown> = of_other.iter().cloned().chain(moved).collect();
        town.network.lie_of_leases(&holders(&town)[0], tells(lies));
        let payment = ada.payment(mine.address).await.unwrap();
        assert_eq!((payment.leases.len(), payment.until), (1, mine.until), "{payment:?}");
        let ended = ada.forget(mine.address).await.unwrap();
        assert_eq!((ended.leases, ended.key_forgotten), (1, true), "{ended:?}");
        let mut back = Vec::new();
        ada.get(other.address, &mut back, None, Arc::new(NoProgress)).await.unwrap();
        assert_eq!(back, b"to be kept");
        assert_eq!(ada.payment(other.address).await.unwrap().until, other.until);
    });
}

#[test]
fn a_renewal_that_too_few_holders_took_is_no_success() {
    run(6, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let file = put(&ada, &vec![7; 300_000], Some(SPAN_S)).await;
        let noted = ada.paid().await.unwrap();
        let whole = town.peers.len();
        // All but one take nothing that they are shown, and say so.
        let nothing: LeaseLie = Arc::new(|_, answer| match answer? {
            LeaseAnswer::Show(held) => {
                let none = held.iter().map(|of| vec![false; of.len()]);
                Some(Ok(LeaseAnswer::Show(none.collect())))
            }
            _ => None,
        });
        for peer in &town.peers[..whole - 1] {
            town.network.lie_of_leases(&peer.peer(), Arc::clone(&nothing));
        }
        let renewed = ada.renew(file.address, Some(10 * SPAN_S)).await.unwrap();
        assert!(renewed.untaken > 0 && !renewed.is_whole(), "{renewed:?}");
        assert_eq!(ada.paid().await.unwrap(), noted, "it is noted as it was");
        town.network.heal();
        town.cut(&[town.peers[0].peer()]);
        let renewed = ada.renew(file.address, Some(10 * SPAN_S)).await.unwrap();
        assert_eq!((renewed.untaken, renewed.unreached.len()), (0, 1), "{renewed:?}");
        assert!(!renewed.is_whole());
        assert_eq!(ada.paid().await.unwrap(), noted);
        town.cut(&[]);
        let renewed = ada.renew(file.address, Some(10 * SPAN_S)).await.unwrap();
        assert!(renewed.is_whole(), "{renewed:?}");
        assert_eq!(ada.paid().await.unwrap()[&file.address], renewed.until);
    });
}

/// A reader's envelope has an address of its own, which the home knows: what is renewed is what others were given too.
#[test]
fn what_was_shared_is_renewed_with_all_else_and_not_beyond_its_content() {
    run(10, |env| async move {
        let town = Town::new(&env, 9).await;
        let (ada, ben) = (town.payer("ada", 0).await, town.payer("ben", 1).await);
        let key = |number: usize| ben.reader_keys()[number];
        let options = PutOptions {
            lease_seconds: Some(SPAN_S),
            readers: vec![key(0)],
            ..PutOptions::default()
        };
        let put_to = ada.put(&b"a letter"[..], options, Arc::new(NoProgress)).await.unwrap();
        let mut shared = Vec::new();
        let readers = [key(1), key(2)];
        let sharing = ada.share_all(put_to.address, &readers, Some(SPAN_S), |one| shared.push(one));
        sharing.await.unwrap();
        let mut theirs: Vec<RecordId> =
            shared.into_iter().map(|one| one.outcome.unwrap()).collect();
        theirs.push(put_to.envelopes[0].address);
        assert_eq!(ada.paid().await.unwrap().len(), 4);
        // Nobody else's, and no other envelope of the reader's.
        let refused = ben.renew(put_to.address, None).await;
        assert!(matches!(refused, Err(AuthorError::NotForUs { .. })), "{refused:?}");
        for address in ada.paid().await.unwrap().into_keys() {
            let renewed = ada.renew(address, Some(10 * SPAN_S)).await.unwrap();
            assert!(renewed.is_whole(), "{renewed:?}");
        }
        let until = env.clock.unix_s() + 9 * SPAN_S;
        assert!(ada.paid().await.unwrap().values().all(|end| *end > until));
        env.clock.sleep(Duration::from_secs(3 * SPAN_S)).await;
        let (ada, ben) = (town.payer("ada", 0).await, town.payer("ben", 1).await);
        for address in &theirs {
            let mut back = Vec::new();
            ben.get(*address, &mut back, None, Arc::new(NoProgress)).await.unwrap();
            assert_eq!(back, b"a letter");
        }
        // Its content is forgotten: nobody pays for the way to it any longer.
        ada.forget(put_to.address).await.unwrap();
        for address in &theirs {
            assert_eq!(ada.renew(*address, None).await.unwrap_err().class(), Class::NotFound);
        }
        assert!(ada.paid().await.unwrap().is_empty());
    });
}

/// What was to be renewed too late is told once, and is no failure of each later renewal.
#[test]
fn what_is_gone_behind_the_end_of_its_lease_is_told_once_and_noted_no_more() {
    run(13, |env| async move {
        let town = Town::new(&env, 9).await;
        let (ada, ben) = (town.payer("ada", 0).await, town.payer("ben", 1).await);
        let long = put(&ada, b"a letter", Some(30 * SPAN_S)).await;
        let short = put(&ada, b"another", Some(SPAN_S)).await;
        let mut shared = Vec::new();
        let readers = [ben.reader_keys()[0], ben.reader_keys()[1]];
        let sharing = ada.share_all(long.address, &readers, Some(SPAN_S), |one| shared.push(one));
        sharing.await.unwrap();
        let mut over: Vec<RecordId> = shared.into_iter().map(|one| one.outcome.unwrap()).collect();
        over.push(short.address);
        let noted = ada.paid().await.unwrap();
        assert_eq!(noted.len(), 4);

        // While it is paid for, that no holder has it may be a lie or a loss: it is told each time.
        town.peers.iter().for_each(|peer| town.network.set(&peer.peer(), Fault::Deny));
        for address in over.iter().chain(&over) {
            let error = ada.renew(*address, None).await.unwrap_err();
            assert!(matches!(error, AuthorError::Fetch { .. }), "{error:?}");
            assert_eq!(error.class(), Class::NotFound);
        }
        assert_eq!(ada.paid().await.unwrap(), noted);
        town.network.heal();

        env.clock.sleep(Duration::from_secs(3 * SPAN_S)).await;
        let ada = town.payer("ada", 0).await;
        // Where holders cannot be asked nothing is certain.
        let all: Vec<PeerId> = town.peers.iter().map(|peer| peer.peer()).collect();
        town.cut(&all);
        for address in &over {
            assert_eq!(ada.renew(*address, None).await.unwrap_err().class(), Class::Unavailable);
        }
        assert_eq!(ada.paid().await.unwrap(), noted);
        town.cut(&[]);

        let ada = town.payer("ada", 0).await;
        for address in &over {
            let error = ada.renew(*address, None).await.unwrap_err();
            assert!(matches!(error, AuthorError::Gone { .. }), "{error:?}");
            assert_eq!(error.class(), Class::NotFound);
        }
        assert_eq!(ada.paid().await.unwrap().into_keys().collect::<Vec<_>>(), [long.address]);
        assert!(ada.renew(long.address, None).await.unwrap().taken > 0);
    });
}

/// A machine is lost with its notes: who pays is asked of the holders, of what this user put, shared and renewed.
#[test]
fn a_recovery_notes_all_that_this_user_pays_for_and_nothing_else() {
    run(12, |env| async move {
        let town = Town::new(&env, 9).await;
        let (ada, ben) = (town.payer("ada", 0).await, town.payer("ben", 1).await);
        let key = |author: &Author| author.reader_keys()[0];
        let options = PutOptions {
            lease_seconds: Some(SPAN_S),
            readers: vec![key(&ben)],
            ..PutOptions::default()
        };
        ada.put(&b"a letter"[..], options, Arc::new(NoProgress)).await.unwrap();
        put(&ada, &vec![7; 300_000], None).await;
        let unpaid = town.author("ada", 0, false).await;
        put(&unpaid, b"nobody pays for it", None).await;
        let theirs = put(&ben, b"of both", Some(SPAN_S)).await;
        let both = ben.share(theirs.address, key(&ada)).await.unwrap();
        ada.renew(both, Some(2 * SPAN_S)).await.unwrap();
        let theirs = put(&ben, b"of one", Some(SPAN_S)).await;
        ben.share(theirs.address, key(&ada)).await.unwrap();

        let noted = ada.paid().await.unwrap();
        assert_eq!(noted.len(), 4, "two contents, an envelope to another, and one of another's");
        let notes = ada.home().dir().join("paid");
        std::fs::remove_file(&notes).unwrap();
        let silent: LeaseLie = Arc::new(|_, _| Some(Err(CallError::NotFound)));
        for peer in &town.peers {
            town.network.lie_of_leases(&peer.peer(), Arc::clone(&silent));
        }
        let report = ada.recover(None, |_| ()).await.unwrap();
        assert_eq!((report.own, report.received), (3, 2), "{report:?}");
        assert_eq!((report.paid, report.unasked), (0, 3), "{report:?}");
        town.network.heal();
        for _ in 0..2 {
            let report = ada.recover(None, |_| ()).await.unwrap();
            assert_eq!((report.paid, report.unasked), (4, 0), "{report:?}");
            assert_eq!(ada.paid().await.unwrap(), noted);
        }
        let rows = std::fs::metadata(&notes).unwrap().len() / PAID_ROW_BYTES as u64;
        assert_eq!(rows, 4, "each is noted once");
    });
}

/// How many copies there should be is what the network keeps, or what is paid for where that is more, of each kind by itself.
#[test]
fn a_content_of_more_copies_than_the_networks_is_checked_and_renewed_as_one_of_so_many() {
    run(12, |env| async move {
        let town = Town::new(&env, 9).await;
        let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        for (copies, heads) in [(3, 5), (7, 7)] {
            let ada = town.payer("ada", 0).await;
            let profile = Some(Profile::Copies(copies));
            let options =
                PutOptions { profile, lease_seconds: Some(SPAN_S), ..PutOptions::default() };
            let put = ada.put(&content[..], options, Arc::new(NoProgress)).await.unwrap();
            ada.walker().drain(Duration::from_secs(60)).await;
            let wanted = async |ada: &Author| {
                let info = ada.info(put.address).await.unwrap();
                assert_eq!(info.profile, profile);
                let (pages, others): (Vec<_>, Vec<_>) =
                    info.fragments.iter().partition(|one| one.kind == Kind::Page);
                let told = |of: &[&author::Fragment], copies: u32| {
                    let held = |one: &&&author::Fragment| one.holders.len() == copies as usize;
                    assert!(of.iter().all(|one| held(&one)), "{of:?}");
                };
                told(&pages, copies);
                told(&others, heads);
                ada.check(put.address, 0).await.unwrap()
            };
            let checked = wanted(&ada).await;
            assert_eq!((checked.state, checked.missing), (State::Full, 0), "{checked:?}");
            assert_eq!(checked.survives, copies - 1);
            assert_eq!(checked.profile, profile);

            // Another year, signed while one is away, pays for as many.
            let info = ada.info(put.address).await.unwrap();
            let away = info.fragments.last().unwrap().holders[0].peer;
            town.cut(&[away]);
            let lacking = ada.check(put.address, 0).await.unwrap();
            assert_eq!(lacking.state, State::Lacking);
            assert!(lacking.missing > 0 && lacking.survives == copies - 2, "{lacking:?}");
            ada.renew(put.address, Some(100 * SPAN_S)).await.unwrap();
            town.cut(&[]);
            // What it has is paid for until the end of the first lease alone; so many are wanted all the same.
            env.clock.sleep(Duration::from_secs(2 * SPAN_S)).await;
            let ada = town.payer("ada", 0).await;
            let checked = ada.check(put.address, 0).await.unwrap();
            assert_eq!((checked.profile, checked.state), (profile, State::Lacking), "{checked:?}");
            assert_eq!(checked.missing, lacking.missing, "{checked:?}");
        }
    });
}

/// Copies that are too much for a while, after a peer was away, would stay if the renewal paid for them.
#[test]
fn a_renewal_pays_for_as_many_copies_as_were_paid_for() {
    run(9, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let letter = put(&ada, b"a letter", Some(SPAN_S)).await;
        let raw = Raw::new(&town, &env).await;
        let mut paid_for = None;
        for number in 0..9 {
            let told = raw.look(&town, number, letter.address).await.leases;
            paid_for =
                paid_for.max(told.iter().filter_map(|of| lease::redundancy(&of.lease)).max());
        }
        assert!((1..9).contains(&paid_for.unwrap()), "{paid_for:?}");
        // Each peer says that it has everything.
        let shown: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
        for peer in &town.peers {
            let shown = Arc::clone(&shown);
            let lie: LeaseLie = Arc::new(move |request, answer| {
                if let LeaseRequest::Show(all) = request {
                    let all = all.iter().filter_map(|of| lease::redundancy(&of.lease));
                    shown.lock().unwrap().extend(all);
                }
                let LeaseAnswer::Of(mut places) = answer?.clone() else { return None };
                places.iter_mut().for_each(|place| place.held = true);
                Some(Ok(LeaseAnswer::Of(places)))
            });
            town.network.lie_of_leases(&peer.peer(), lie);
        }
        ada.renew(letter.address, Some(10 * SPAN_S)).await.unwrap();
        let shown: Vec<u32> = shown.lock().unwrap().iter().copied().collect();
        assert_eq!(shown, [paid_for.unwrap()]);
    });
}

#[test]
fn a_strangers_leaf_does_not_say_what_a_renewal_pays_for() {
    run(7, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.payer("ada", 0).await;
        let file = put(&ada, &vec![7; 300_000], Some(30 * SPAN_S)).await;
        let before = paid(&town);
        let raw = Raw::new(&town, &env).await;
        let now = env.clock.unix_s();
        let place = file.address.into();
        let large = raw.lease(&town, now, Leaf { place, bytes: lease::LEAF_BYTES_MAX });
        let mut taken = 0;
        for number in 0..5 {
            let request = LeaseRequest::Show(vec![large.clone()]);
            if raw.ask(&town, number, request).await == LeaseAnswer::Show(vec![vec![true]]) {
                taken += 1;
            }
        }
        assert!(taken > 0);
        let strangers = taken * lease::LEAF_BYTES_MAX;
        assert_eq!(paid(&town), before + strangers);
        let renewed = ada.renew(file.address, Some(90 * SPAN_S)).await.unwrap();
        assert!(renewed.is_whole(), "{renewed:?}");
        assert_eq!(paid(&town), before + strangers, "the same bytes as when it was put");
    });
}

#[test]
fn a_key_is_kept_while_there_is_a_place_of_which_no_holder_heard() {
    run(8, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.payer("ada", 0).await;
        let letter = put(&ada, b"a letter", None).await;
        let refuse: LeaseLie = Arc::new(|request, _| match request {
            LeaseRequest::Forget(_) => Some(Err(CallError::NotFound)),
            _ => None,
        });
        for peer in holders(&town) {
            town.network.lie_of_leases(&peer, Arc::clone(&refuse));
        }
        let ended = ada.forget(letter.address).await.unwrap();
        assert!(ended.open > 0 && !ended.key_forgotten, "{ended:?}");
        assert_eq!(ada.paid().await.unwrap().len(), 1);
        town.network.heal();
        let ended = ada.forget(letter.address).await.unwrap();
        assert!(ended.open == 0 && ended.key_forgotten, "{ended:?}");
    });
}

/// Holders that refuse to end leases where the last that they were asked about were of places that are `deaf`.
fn refuse_where(town: &Town, deaf: impl Fn(&[Place]) -> bool + Send + Sync + 'static) {
    let refuses = AtomicBool::new(false);
    let lie: LeaseLie = Arc::new(move |request, _| match request {
        LeaseRequest::Of(asked) => {
            refuses.store(deaf(asked), Ordering::Release);
            None
        }
        LeaseRequest::Forget(_) if refuses.load(Ordering::Acquire) => {
            Some(Err(CallError::NotFound))
        }
        _ => None,
    });
    for peer in &town.peers {
        town.network.lie_of_leases(&peer.peer(), Arc::clone(&lie));
    }
}

#[test]
fn what_could_not_be_forgotten_whole_is_forgotten_by_the_next_try() {
    run(9, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let file = put(&ada, &vec![7; 300_000], Some(30 * SPAN_S)).await;
        // First nobody hears it of the stripe, then nobody of the entry.
        let (entry, envelope) = (Place::from(file.entry), Place::from(file.address));
        refuse_where(&town, move |asked| !asked.contains(&entry) && !asked.contains(&envelope));
        let ended = ada.forget(file.address).await.unwrap();
        assert!(ended.open > 0 && !ended.key_forgotten, "{ended:?}");
        assert_eq!(ada.payment(file.address).await.unwrap().until, file.until);
        refuse_where(&town, move |asked| asked.contains(&entry));
        let ended = ada.forget(file.address).await.unwrap();
        assert!(ended.open > 0 && !ended.key_forgotten, "{ended:?}");
        assert_eq!(ada.payment(file.address).await.unwrap().until, file.until);
        town.network.heal();
        let ended = ada.forget(file.address).await.unwrap();
        assert!(ended.open == 0 && ended.key_forgotten, "{ended:?}");
        assert_eq!((records(&town), paid(&town)), (0, 0));
        assert!(ada.paid().await.unwrap().is_empty());
    });
}

#[test]
fn a_content_that_is_gone_is_noted_as_paid_for_no_more() {
    run(10, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.payer("ada", 0).await;
        let letter = put(&ada, b"a letter", Some(30 * SPAN_S)).await;
        assert!(ada.forget(letter.address).await.unwrap().key_forgotten);
        let error = ada.forget(letter.address).await.unwrap_err();
        assert_eq!(error.class(), Class::NotFound);
        // As where the note was not written.
        ada.home().note_paid(&[1; 16], &letter.address, letter.until.unwrap()).unwrap();
        let ended = ada.forget(letter.address).await.unwrap();
        assert!(ended.places == 0 && !ended.key_forgotten, "{ended:?}");
        assert!(ada.paid().await.unwrap().is_empty());
    });
}

/// As one on a full disk.
#[test]
fn a_home_that_takes_no_note_ends_nothing_of_what_is_forgotten() {
    run(14, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let file = put(&ada, &vec![7; 300_000], Some(30 * SPAN_S)).await;
        let before = (records(&town), paid(&town));
        let notes = ada.home().dir().join("forgetting");
        std::fs::create_dir(&notes).unwrap();
        let error = ada.forget(file.address).await.unwrap_err();
        assert!(matches!(error, AuthorError::Io { .. }), "{error:?}");
        assert_eq!((records(&town), paid(&town)), before);
        let mut back = Vec::new();
        ada.get(file.address, &mut back, None, Arc::new(NoProgress)).await.unwrap();
        assert!(back == vec![7; 300_000]);
        std::fs::remove_dir(&notes).unwrap();
        let ended = ada.forget(file.address).await.unwrap();
        assert!(ended.open == 0 && ended.key_forgotten, "{ended:?}");
        assert_eq!((records(&town), paid(&town)), (0, 0));
        assert!(!notes.exists(), "nothing is left to forget");
    });
}

/// A program that is killed when the holders have dropped all of a content, and the home knows nothing of that yet.
#[test]
fn what_was_ended_and_not_noted_is_brought_to_its_end_by_the_next_try() {
    run(15, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.payer("ada", 0).await;
        let key_of_last = |author: &Author| {
            let counter = author.home().next_counter().unwrap() - 1;
            ReaderKey::new(author.home().keyring().own_reader(counter).public())
        };
        for key_is_gone in [false, true] {
            let letter = put(&ada, b"a letter", Some(30 * SPAN_S)).await;
            let key = key_of_last(&ada);
            ada.home().begin_forgetting(&letter.address, &key).unwrap();
            if key_is_gone {
                // A holder has it still, and it opens no more.
                assert!(ada.home().forget_counter(&key).unwrap());
            } else {
                // Another home of the same keyring ends it.
                let home = ada.home().dir();
                let dir = home.with_file_name("twin");
                std::fs::create_dir(&dir).unwrap();
                for name in ["keyring", "issued"] {
                    std::fs::copy(home.join(name), dir.join(name)).unwrap();
                }
                let twin = town.payer("twin", 0).await;
                assert!(twin.forget(letter.address).await.unwrap().key_forgotten);
                assert_eq!(records(&town), 0);
            }
            let ended = ada.forget(letter.address).await.unwrap();
            assert!(ended.places == 0 && ended.key_forgotten, "{ended:?}");
            assert!(ada.home().reader_secret(&key).unwrap().is_none());
            assert!(ada.paid().await.unwrap().is_empty());
            // It is brought to its end once.
            ada.forget(letter.address).await.unwrap_err();
        }
    });
}

#[test]
fn a_renewal_that_the_home_takes_no_note_of_is_one_and_says_so() {
    run(16, |env| async move {
        let town = Town::new(&env, 5).await;
        let (ada, ben) = (town.payer("ada", 0).await, town.payer("ben", 1).await);
        let letter = put(&ada, b"a letter", Some(SPAN_S)).await;
        let mut shared = Vec::new();
        let readers = [ben.reader_keys()[0]];
        let sharing = ada.share_all(letter.address, &readers, Some(SPAN_S), |one| shared.push(one));
        sharing.await.unwrap();
        let theirs = shared.remove(0).outcome.unwrap();
        let noted = ada.paid().await.unwrap();
        let (notes, aside) = (ada.home().dir().join("paid"), ada.home().dir().join("aside"));
        std::fs::rename(&notes, &aside).unwrap();
        std::fs::create_dir(&notes).unwrap();
        let renewed = ada.renew(letter.address, Some(10 * SPAN_S)).await.unwrap();
        assert!(renewed.is_whole() && !renewed.noted, "{renewed:?}");
        let payment = ada.payment(letter.address).await.unwrap();
        assert_eq!(payment.until, Some(renewed.until));
        std::fs::remove_dir(&notes).unwrap();
        std::fs::rename(&aside, &notes).unwrap();
        assert_eq!(ada.paid().await.unwrap(), noted);
        for address in [letter.address, theirs] {
            let renewed = ada.renew(address, Some(10 * SPAN_S)).await.unwrap();
            assert!(renewed.is_whole() && renewed.noted, "{renewed:?}");
            assert_eq!(ada.paid().await.unwrap()[&address], renewed.until);
        }
    });
}

#[test]
fn a_note_that_is_damaged_is_told_until_all_is_noted_anew() {
    run(17, |env| async move {
        let town = Town::new(&env, 9).await;
        let ada = town.payer("ada", 0).await;
        let [_, other] = [
            put(&ada, b"a letter", Some(30 * SPAN_S)).await,
            put(&ada, b"another", Some(30 * SPAN_S)).await,
        ];
        let noted = ada.paid().await.unwrap();
        assert_eq!(noted.len(), 2);
        let notes = ada.home().dir().join("paid");
        let mut rows = std::fs::read(&notes).unwrap();
        rows[PAID_ROW_BYTES / 2] ^= 1;
        std::fs::write(&notes, &rows).unwrap();
        for _ in 0..2 {
            let (left, damaged) = ada.paid_notes().await.unwrap();
            assert_eq!((left.into_keys().collect::<Vec<_>>(), damaged), (vec![other.address], 1));
        }
        // While a holder of what is not noted cannot be asked, it may be what the note was of.
        let silent: LeaseLie = Arc::new(|_, _| Some(Err(CallError::NotFound)));
        for peer in &town.peers {
            town.network.lie_of_leases(&peer.peer(), Arc::clone(&silent));
        }
        let report = ada.recover(None, |_| ()).await.unwrap();
        assert_eq!((report.unasked, report.noted), (1, false));
        town.network.heal();
        let report = ada.recover(None, |_| ()).await.unwrap();
        assert_eq!((report.unasked, report.noted), (0, true));
        assert_eq!(ada.paid_notes().await.unwrap(), (noted.clone(), 1), "who asked drops it");
        ada.drop_damaged_notes().await.unwrap();
        assert_eq!(ada.paid_notes().await.unwrap(), (noted, 0));
    });
}
