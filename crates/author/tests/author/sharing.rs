//! Who can open what.

use author::AuthorError;
use crypto::{Class, Classified, ReaderKey, Suite};
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
