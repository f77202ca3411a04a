use std::sync::Arc;

use bytes::Bytes;
use crypto::{Announcement, CertificateError, PeerCertificate, PeerState, PublicKey, Revocation};
use testkit::network::{Community, community};
use testkit::time::{START_UNIX_S, run};

use super::*;
use crate::directory::{Directory, Learnt, Standing};
use crate::health::Health;
use crate::latency::Size;

const SLOT: Duration = Duration::from_secs(SLOT_S);

/// Announcement `sequence` of a member under a certificate with this capacity and end.
fn again(
    community: &Community,
    number: usize,
    (capacity, until): (u64, u64),
    sequence: u64,
) -> Bytes {
    let network = community.genesis.network();
    let member = &community.members[number];
    let certificate = PeerCertificate {
        peer: member.peer,
        organisation: member.organisation,
        addresses: vec![member.address.clone()],
        capacity,
        from: 0,
        until,
    };
    let organisation = &community.organisations[number % community.organisations.len()];
    let announcement = Announcement {
        certificate_bytes: certificate.sign(organisation, &network),
        certificate,
        sequence,
        p2p_addresses: Vec::new(),
        state: PeerState::Serving,
    };
    announcement.sign(&member.key, &network)
}

/// Takes the first announcements of these members.
fn learn(directory: &Directory, community: &Community, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let learnt = directory.learn(&community.members[number].announcement);
        assert_eq!(learnt.expect("it counts"), Learnt::New, "{number}");
    }
}

#[test]
fn of_an_organisation_that_changes_all_the_time_all_views_have_who_was_there_before() {
    run(1, |env| async move {
        let community = community(3, 240);
        let new = || Directory::new(community.genesis.clone(), env.clone(), None);
        let (one, other) = (new(), new());
        // Ten of each organisation, and in the next ten minutes seventy more of the first.
        for directory in [&one, &other] {
            learn(directory, &community, 0..30);
        }
        env.clock.sleep(FREE_FOR).await;
        let more: Vec<usize> = (30..240).step_by(3).collect();
        let few = more.iter().copied().take(CHANGES_MAX as usize);
        learn(&one, &community, few);
        assert_eq!(one.view().len(), 30 + CHANGES_MAX as usize, "so many count at once");
        learn(&one, &community, more.iter().copied().skip(CHANGES_MAX as usize));
        // Whoever hears it in another order comes to the same.
        learn(&other, &community, more.iter().rev().copied());
        let before = one.view();
        assert_eq!((before.len(), one.peers().len()), (30, 100));
        assert_eq!(before.candidates(), other.view().candidates());
        // What it changes besides changes no view: one leaves, which counts at once for all but its rank.
        let left = community.announce(0, PeerState::Left, 9);
        let grown = again(&community, 3, (7, u64::MAX), 9);
        for directory in [&one, &other] {
            assert_eq!(directory.learn(&left).expect("it counts"), Learnt::Newer);
            assert_eq!(directory.learn(&grown).expect("it counts"), Learnt::Newer);
            assert!(!directory.is_member(&community.peer(0)));
            let standing = directory.standing(&community.peer(0), Size::Small, false);
            assert_eq!(standing, Standing::Gone);
        }
        assert!(Arc::ptr_eq(&before, &one.view()), "no rank is computed anew");
        // Another organisation's peers count at once.
        learn(&one, &community, [31].into_iter());
        learn(&other, &community, [31].into_iter());
        assert_eq!((one.view().len(), other.view().len()), (31, 31));
        // It is hectic still where ten minutes begin; when such have passed in which it changed little, all counts.
        env.clock.sleep(SLOT).await;
        learn(&one, &community, [34].into_iter());
        learn(&other, &community, [34].into_iter());
        let leaves = community.announce(6, PeerState::Left, 9);
        for directory in [&one, &other] {
            directory.learn(&leaves).expect("it counts");
            assert_eq!(directory.view().len(), 32);
        }
        env.clock.sleep(SLOT - Duration::from_secs(1)).await;
        assert_eq!((one.view().len(), other.view().len()), (32, 32));
        env.clock.sleep(Duration::from_secs(1)).await;
        let after = one.view();
        assert_eq!(after.len(), 30 + 70 + 2 - 2);
        assert_eq!(after.candidates(), other.view().candidates());
        let grown = after.candidates().iter().find(|one| one.peer == community.peer(3));
        assert_eq!(grown.map(|one| one.weight), Some(7));
        // And calm again it changes at once.
        one.learn(&community.announce(9, PeerState::Left, 9)).expect("it counts");
        assert_eq!(one.view().len(), 99);
    });
}

#[test]
fn peers_that_are_revoked_one_after_the_other_leave_the_view_when_that_ends() {
    run(5, |env| async move {
        let community = community(3, 240);
        let new = || Directory::new(community.genesis.clone(), env.clone(), None);
        let (one, other) = (new(), new());
        for directory in [&one, &other] {
            learn(directory, &community, 0..240);
        }
        env.clock.sleep(FREE_FOR).await;
        let before = one.view();
        // Seventy of the eighty of the first organisation, each list with one more.
        let revoked: Vec<usize> = (0..240).step_by(3).take(CHANGES_MAX as usize + 6).collect();
        let organisation = community.organisation(0).key;
        let list = |count: usize| {
            let keys = revoked.iter().take(count);
            let keys: Vec<PublicKey> = keys.map(|number| *community.peer(*number).key()).collect();
            let list = Revocation { organisation, sequence: count as u64, keys };
            list.sign(&community.organisations[0], &community.genesis.network())
        };
        for count in 1..=revoked.len() {
            assert_eq!(one.revoke(&list(count)).expect("it counts").peers.len(), 1);
            let ranked = if count > CHANGES_MAX as usize { 240 } else { 240 - count };
            assert_eq!(one.view().len(), ranked, "after {count}");
        }
        // Whoever missed some of the lists comes to the same.
        for count in [7, 30, CHANGES_MAX as usize - 1, revoked.len()] {
            other.revoke(&list(count)).expect("it counts");
        }
        for directory in [&one, &other] {
            assert_eq!(directory.view().candidates(), before.candidates());
            assert_eq!(directory.peers().len(), 240 - revoked.len());
            // The rank alone is left to them.
            for number in &revoked {
                let peer = community.peer(*number);
                assert!(!directory.is_member(&peer) && directory.endpoint(&peer).is_none());
                assert_eq!(directory.health(&peer), Health::Away);
                let standing =
                    [true, false].map(|write| directory.standing(&peer, Size::Small, write));
                assert_eq!(standing, [Standing::Gone; 2]);
                let again = directory.learn(&community.members[*number].announcement);
                assert!(matches!(again, Err(CertificateError::Revoked(_))), "{again:?}");
            }
        }
        env.clock.sleep(SLOT * 2).await;
        for directory in [&one, &other] {
            assert_eq!(directory.view().len(), 240 - revoked.len());
        }
        assert_eq!(one.view().candidates(), other.view().candidates());
    });
}

#[test]
fn capacities_that_change_all_the_time_count_when_that_ends() {
    run(2, |env| async move {
        let community = community(2, 24);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        learn(&directory, &community, 0..24);
        env.clock.sleep(FREE_FOR).await;
        let first = directory.view();
        let of = |number: usize| community.peer(number);
        let weight = |number: usize| {
            let view = directory.view();
            let found = view.candidates().iter().find(|one| one.peer == of(number));
            found.map(|one| one.weight)
        };
        let mut taken = 0;
        for sequence in 2..10 {
            for number in (0..24).step_by(2) {
                let said = again(&community, number, (sequence, u64::MAX), sequence);
                assert_eq!(directory.learn(&said).expect("it counts"), Learnt::Newer);
                taken += 1;
                let expected = if taken > CHANGES_MAX { 1 << 40 } else { sequence };
                assert_eq!(weight(number), Some(expected), "after {taken}");
            }
        }
        assert_eq!(directory.view().candidates(), first.candidates());
        env.clock.sleep(SLOT * 2).await;
        assert!((0..24).all(|number| weight(number) == Some([9, 1 << 40][number % 2])));
    });
}

#[test]
fn a_program_that_begins_and_a_network_of_one_organisation_count_no_changes() {
    run(3, |env| async move {
        let most = CHANGES_MAX as usize + 10;
        let several = community(2, 2 * most);
        let directory = Directory::new(several.genesis.clone(), env.clone(), None);
        learn(&directory, &several, 0..2 * most);
        assert_eq!(directory.view().len(), 2 * most);
        let single = community(1, most);
        let directory = Directory::new(single.genesis.clone(), env.clone(), None);
        env.clock.sleep(FREE_FOR * 2).await;
        learn(&directory, &single, 0..most);
        assert_eq!(directory.view().len(), most);
    });
}

#[test]
fn what_changes_nobodys_rank_leaves_the_view_as_it_is() {
    run(4, |env| async move {
        let community = community(2, 4);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        learn(&directory, &community, 0..4);
        let view = directory.view();
        let same = || Arc::ptr_eq(&view, &directory.view());
        for (sequence, state) in
            (2..).zip([PeerState::ReadOnly, PeerState::Leaving, PeerState::Stopped])
        {
            let said = community.announce(0, state, sequence);
            assert_eq!(directory.learn(&said).expect("it counts"), Learnt::Newer);
            assert!(same(), "{state:?}");
        }
        // Nor does a certificate that ends earlier, before it does.
        let ends = again(&community, 1, (1 << 40, START_UNIX_S + 100), 2);
        assert_eq!(directory.learn(&ends).expect("it counts"), Learnt::Newer);
        assert!(same());
        env.clock.sleep(SLOT - Duration::from_secs(1)).await;
        assert!(same() && !directory.is_member(&community.peer(1)));
        let standing = directory.standing(&community.peer(1), Size::Small, true);
        assert_eq!(standing, Standing::Gone, "it keeps its rank, and nobody calls it");
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(directory.view().len(), 3);
        // A new one, and one who comes back after its end, change it.
        let again = again(&community, 1, (1 << 40, u64::MAX), 3);
        assert_eq!(directory.learn(&again).expect("it counts"), Learnt::Newer);
        assert_eq!(directory.view().candidates(), view.candidates());
        directory.learn(&community.announce(2, PeerState::Left, 2)).expect("it counts");
        assert_eq!(directory.view().len(), 3);
    });
}
