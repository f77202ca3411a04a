//! Leases of contents: shown by a put, seen, renewed, and ended with all that they held.

use std::sync::Arc;
use std::time::Duration;

use author::{Author, AuthorError, NoProgress, PutOptions};
use crypto::{Class, Classified};
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
