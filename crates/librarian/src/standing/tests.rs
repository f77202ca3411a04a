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
        profile: None,
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
fn an_announcement_is_believed_without_a_check_only_as_it_was_verified_and_while_it_counts() {
    testkit::time::run(1, |mut env| async move {
        // Years pass, by hand.
        let clock = testkit::time::VirtualClock::new();
        env.clock = std::sync::Arc::new(clock.clone());
        let community = testkit::network::community(1, 2);
        let genesis = &community.genesis;
        let directory = Directory::new(genesis.clone(), env.clone(), None);
        let member = &community.members[0];
        let (key, shown) = (member.key.public(), member.announcement.clone());
        let before =
            |bytes: &Bytes| vouched_before(&Credential::Peer(bytes.clone()), &key, &directory);
        assert!(before(&shown).is_none(), "nobody verified it yet");
        directory.learn(&shown).expect("a member");
        assert!(matches!(before(&shown), Some(Vouched::Peer(bytes, _)) if bytes == shown));
        for at in 0..shown.len() {
            let mut other = shown.to_vec();
            other[at] ^= 1;
            assert!(before(&other.into()).is_none(), "byte {at}");
        }
        let other = community.members[1].announcement.clone();
        directory.learn(&other).expect("a member");
        assert!(before(&other).is_none(), "known, and of another key than the connection's");
        assert!(vouched_before(&Credential::Client(shown.clone()), &key, &directory).is_none());
        let until = directory.announcement(&member.peer).expect("known").certificate.until;
        let left = until - env.clock.unix_s();
        clock.advance(std::time::Duration::from_secs(left));
        assert!(before(&shown).is_none(), "it has run out");
        let late = vouch(Credential::Peer(shown), &key, &directory.roster(), env.clock.unix_s());
        assert!(matches!(late, Err(CallError::Denied { .. })));
    });
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
