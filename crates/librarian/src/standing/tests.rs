//! Credentials of every wrong sort are refused, and what was learnt runs out.

use crypto::{ClientKey, Genesis, Organisation, SecretKey, Suite};

use super::*;

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes(&[n; 32]).expect("a scalar")
}

fn roster(organisations: &[u8]) -> Roster {
    let organisation = |n: &u8| Organisation {
        key: OrgId::new(secret(*n).public()),
        name: format!("organisation {n}"),
    };
    let genesis = Genesis {
        name: "test".to_owned(),
        suite: Suite::Holdfast1,
        organisations: organisations.iter().map(organisation).collect(),
        copies: None,
        created: 0,
        nonce: [7; 16],
    };
    Roster::first(&genesis.checked().expect("a genesis"))
}

fn pass(organisation: u8, client: u8, roster: &Roster) -> Bytes {
    Pass {
        client: ClientKey::new(secret(client).public()),
        organisation: OrgId::new(secret(organisation).public()),
        tier: Tier::Own,
        quota: 0,
        from: 1000,
        until: 2000,
    }
    .sign(&secret(organisation), &roster.network())
}

#[test]
fn a_pass_counts_for_its_own_key_network_and_time_alone() {
    let roster = roster(&[1, 2]);
    let key = secret(9).public();
    let check = |bytes: Bytes, now| vouch(Credential::Client(bytes), &key, &roster, now);
    assert!(matches!(check(pass(1, 9, &roster), 1500), Ok(Vouched::Client(_))));
    let denied = |result| matches!(result, Err(CallError::Denied { .. }));
    assert!(denied(check(pass(1, 8, &roster), 1500)), "another client's");
    assert!(denied(check(pass(1, 9, &roster), 2000)), "expired");
    assert!(denied(check(pass(1, 9, &roster), 100)), "not yet");
    assert!(denied(check(pass(3, 9, &roster), 1500)), "not in the roster");
    let other = super::tests::roster(&[1]);
    assert!(denied(check(pass(1, 9, &other), 1500)), "another network's");
    assert!(matches!(check(Bytes::from_static(b"junk"), 1500), Err(CallError::Invalid { .. })));
    // A pass is no announcement.
    let shown = Credential::Peer(pass(1, 9, &roster));
    assert!(vouch(shown, &key, &roster, 1500).is_err());
}

#[test]
fn every_single_wrong_byte_of_a_pass_is_refused() {
    let roster = roster(&[1]);
    let key = secret(9).public();
    let good = pass(1, 9, &roster);
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1;
        let credential = Credential::Client(bad.into());
        assert!(vouch(credential, &key, &roster, 1500).is_err(), "byte {at}");
    }
}

#[test]
fn a_standing_runs_out_with_its_pass() {
    let standings = Standings::new(10);
    let organisation = OrgId::new(secret(1).public());
    let client = Standing::Client { organisation, tier: Tier::Own, until: 2000, quota: 0 };
    standings.put(secret(9).public(), client);
    assert_eq!(standings.get(&secret(9).public(), 1999), Some(client));
    assert_eq!(standings.get(&secret(9).public(), 2000), None);
    assert_eq!(standings.get(&secret(9).public(), 1999), None, "it is gone for good");
}

#[test]
fn the_least_recently_used_is_forgotten() {
    let standings = Standings::new(8);
    let keys: Vec<_> = (1..=20).map(|n| secret(n).public()).collect();
    for key in &keys {
        standings.put(*key, Standing::Stranger);
        assert!(standings.get(&keys[0], 0).is_some(), "the first is used all the time");
        assert!(standings.lock().by_key.len() <= 8);
    }
    assert!(standings.get(&keys[19], 0).is_some());
    assert!(standings.get(&keys[1], 0).is_none());
}
