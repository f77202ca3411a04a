//! Who can open what.

use std::time::Duration;

use author::{AuthorError, SHARED_AT_ONCE};
use crypto::{Class, Classified, ReaderKey, Suite};
use env::calls::CallError;
use testkit::network::{Fault, key};
use testkit::time;

use crate::network::{Net, get, noise, put, put_to, try_get};

#[test]
fn a_reader_opens_what_was_shared_and_nobody_else_does() {
    for suite in Suite::ALL {
        time::run(1, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let (ada, ben, eve) = (net.user("ada"), net.user("ben"), net.user("eve"));
            let content = noise(5, 3 << 20);
            let own = put(&ada, &content).await.unwrap();
            let shared = ada.share(own.address, ben.reader_keys()[7]).await.unwrap();
            assert_ne!(shared, own.address);
            assert!(get(&ben, shared).await.unwrap().0 == content);
            for (user, address) in [(&ben, own.address), (&eve, own.address), (&eve, shared)] {
                let (bytes, got) = try_get(user, address).await;
                let error = got.unwrap_err();
                assert!(matches!(error, AuthorError::NotForUs { .. }), "{error:?}");
                assert_eq!((error.class(), bytes.len()), (Class::Denied, 0));
            }
            let refused = eve.share(shared, eve.reader_keys()[0]).await.unwrap_err();
            assert!(matches!(refused, AuthorError::NotForUs { .. }));
            // A reader shares on.
            let further = ben.share(shared, eve.reader_keys()[0]).await.unwrap();
            assert!(get(&eve, further).await.unwrap().0 == content);
        });
    }
}

#[test]
fn a_put_shares_at_once_and_every_envelope_has_keys_of_its_own() {
    for suite in Suite::ALL {
        time::run(2, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let (ada, ben) = (net.user("ada"), net.user("ben"));
            let readers = [ben.reader_keys()[0], ben.reader_keys()[1], ben.reader_keys()[0]];
            let report = put_to(&ada, b"to three", &readers).await.unwrap();
            let again = put_to(&ada, b"to three", &readers[..1]).await.unwrap();
            assert_eq!(report.envelopes.iter().map(|to| to.reader).collect::<Vec<_>>(), readers);
            for envelope in &report.envelopes {
                assert_eq!(get(&ben, envelope.address).await.unwrap().0, b"to three");
            }
            // In libri-1 a pair of keys seals one EEK in its life: no author key comes twice.
            let mut authors: Vec<_> =
                net.shared.log.borrow().iter().map(|(publication, _)| publication.author).collect();
            assert_eq!(authors.len(), 4 + 2);
            authors.sort_unstable();
            authors.dedup();
            assert_eq!(authors.len(), 4 + 2);
            assert_ne!(report.entry, again.entry, "the same content twice has nothing in common");
        });
    }
}

#[test]
fn a_home_made_of_the_words_opens_everything() {
    time::run(3, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ada = net.user("ada");
        let first = put(&ada, b"first").await.unwrap().address;
        for _ in 0..3 {
            put(&ada, b"more").await.unwrap();
        }
        let last = put(&ada, b"last").await.unwrap().address;
        let words = ada.home().words();
        let dir = net.home_dir("restored");
        let entropy = env.entropy.as_ref();
        author::Home::import(&dir, &words, None, crate::network::PASSPHRASE, entropy).unwrap();
        let restored = net.user("restored");
        assert_eq!(restored.reader_keys(), ada.reader_keys());
        for (address, content) in [(first, &b"first"[..]), (last, b"last")] {
            assert_eq!(get(&restored, address).await.unwrap().0, content);
        }
        // And what it puts does not repeat a key.
        put(&restored, b"new").await.unwrap();
        let log = net.shared.log.borrow().clone();
        let keys: std::collections::BTreeSet<ReaderKey> =
            log.iter().map(|(publication, _)| publication.reader).collect();
        assert_eq!(keys.len(), log.len());
    });
}

#[test]
fn what_is_no_address_is_told() {
    time::run(4, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let ada = net.user("ada");
        let report = put(&ada, &noise(1, 100_000)).await.unwrap();
        let missing = get(&ada, crypto::RecordId::new([7; 32])).await.unwrap_err();
        assert_eq!(missing.class(), Class::NotFound);
        let entry = get(&ada, report.entry).await.unwrap_err();
        assert!(matches!(entry, AuthorError::NotAnAddress { found: "entry", .. }), "{entry:?}");
        assert_eq!(entry.class(), Class::Invalid);
        let many = vec![ada.reader_keys()[0]; author::READERS_MAX + 1];
        let error = put_to(&ada, b"x", &many).await.unwrap_err();
        assert!(matches!(error, AuthorError::TooManyReaders(_)));
    });
}

/// Reader keys of nobody, all different.
fn strangers(count: usize) -> Vec<ReaderKey> {
    (0..count).map(|n| ReaderKey::new(key("reader", n).public())).collect()
}

#[test]
fn many_readers_are_shared_with_in_parts_of_bounded_size() {
    for suite in Suite::ALL {
        time::run(5, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let (ada, ben) = (net.user("ada"), net.user("ben"));
            let address = put(&ada, b"to all").await.unwrap().address;
            let mut readers = strangers(2 * SHARED_AT_ONCE);
            readers.push(ben.reader_keys()[3]);
            let before = net.network.total();
            let mut told = Vec::new();
            let report =
                ada.share_all(address, &readers, None, |one| told.push(one)).await.unwrap();
            assert_eq!((report.shared, report.failed, report.untried), (readers.len(), 0, 0));
            assert_eq!(told.iter().map(|one| one.reader).collect::<Vec<_>>(), readers);
            let calls = net.network.total() - before;
            assert!(calls < 100, "{calls} calls for {} readers", readers.len());
            ada.walker().drain(Duration::from_secs(10)).await;
            let full = told.iter().filter_map(|one| Some(one.copies.as_ref()?.reached().is_full()));
            assert_eq!(full.filter(|full| *full).count(), readers.len());
            let last = told.pop().unwrap().outcome.unwrap();
            assert_eq!(get(&ben, last).await.unwrap().0, b"to all");
            let log = net.shared.log.borrow().clone();
            let mut authors: Vec<_> = log.iter().map(|(news, _)| news.author).collect();
            authors.sort_unstable();
            authors.dedup();
            assert_eq!(authors.len(), log.len(), "each envelope has a key of its own");
            // Who cannot open it cannot share it, and nothing is told.
            let refused =
                ben.share_all(address, &readers, None, |_| unreachable!()).await.unwrap_err();
            assert!(matches!(refused, AuthorError::NotForUs { .. }));
        });
    }
}

#[test]
fn each_reader_s_outcome_is_told_and_a_network_that_is_gone_is_not_asked_for_all() {
    time::run(6, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Holdfast1);
        let ada = net.user("ada");
        let address = put(&ada, b"to all").await.unwrap().address;
        let readers = strangers(3 * SHARED_AT_ONCE);
        // Too few peers take it for some seconds: it is tried again.
        let refused = CallError::ReadOnly { reason: "full".to_owned() };
        let two: Vec<_> = net.peers.iter().take(2).map(|peer| peer.id).collect();
        two.iter().for_each(|peer| net.network.set(peer, Fault::Writes(refused.clone())));
        let healed = async {
            env.clock.sleep(Duration::from_secs(1)).await;
            net.network.heal();
        };
        let mut told = Vec::new();
        let sharing = ada.share_all(address, &readers[..10], None, |one| told.push(one));
        let (report, ()) = futures::join!(sharing, healed);
        assert_eq!(report.unwrap().shared, 10);
        let is_full = |one: &author::Shared| one.copies.as_ref().unwrap().reached().is_full();
        // One of three takes none: enough for each, and not all.
        net.network.set(&two[0], Fault::Writes(refused.clone()));
        let mut told = Vec::new();
        let report =
            ada.share_all(address, &readers[..10], None, |one| told.push(one)).await.unwrap();
        ada.walker().drain(Duration::from_secs(10)).await;
        assert_eq!((report.shared, told.iter().any(is_full)), (10, false));

        two.iter().for_each(|peer| net.network.set(peer, Fault::Writes(refused.clone())));
        let mut told = Vec::new();
        let report = ada.share_all(address, &readers, None, |one| told.push(one)).await.unwrap();
        let all = (report.shared, report.failed, report.untried);
        assert_eq!(all, (0, SHARED_AT_ONCE, 2 * SHARED_AT_ONCE));
        assert_eq!(told.len(), SHARED_AT_ONCE);
        assert!(told.iter().all(|one| matches!(one.outcome, Err(AuthorError::Store { .. }))));
    });
}
