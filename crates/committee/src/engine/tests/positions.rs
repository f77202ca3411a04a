//! What a client's own fresh read is made of: members' positions, and reads that wait for the highest of them.

use std::collections::BTreeSet;

use super::*;
use crate::Position;
use crate::position::{are_members, quorum};

#[test]
fn enough_positions_cover_what_was_answered_before() {
    simulated(31, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.context.sleep(Duration::from_secs(3)).await;
        let outcome = members.ask(&[0, 1], set(key, None, version(1), &[5])).await;
        let Ok(Outcome::Accepted { height }) = outcome else { panic!("{outcome:?}") };
        let (group, nonce) = (members.charter.group.clone(), [5; 32]);
        let mut said = Vec::new();
        for which in 0..4 {
            let position = members.handle(which).how_far(nonce).await.expect("it votes");
            let position = Position::decode(&position.encode()).expect("our own");
            position.verify(&nonce, &NETWORK, &group).expect("its word");
            assert!(position.verify(&[6; 32], &NETWORK, &group).is_err());
            said.push(position);
        }
        let distinct: BTreeSet<MemberId> = said.iter().map(|one| one.member).collect();
        assert_eq!((distinct.len(), quorum(4)), (4, 3));
        for left_out in 0..4 {
            let three = said.iter().enumerate().filter(|(which, _)| *which != left_out);
            let at = three.map(|(_, position)| position.at()).max().expect("three");
            for which in 0..4 {
                let read = members.handle(which).read_at(key, "main", at).await.expect("in time");
                let certified = read.verify(&NETWORK, &group, &key, "main").expect("certified");
                assert!(read.certificate.round() >= at && certified.header.height >= height);
                assert_eq!(certified.head.map(|head| head.version), Some(version(1)));
                let mut named = members.charter.members();
                assert!(are_members(&certified.header, &named));
                named.pop();
                assert!(!are_members(&certified.header, &named));
            }
        }
        // A view that does not come is not waited for without end.
        let far = members.handle(0).read_at(key, "main", (0, u64::MAX)).await;
        assert!(matches!(far, Err(CommitteeError::Busy { .. })), "{far:?}");
    });
}

#[test]
fn while_the_epoch_may_be_over_nobody_tells_how_far_it_is() {
    simulated(34, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        // With slow disks the last block of the epoch is above the tip for long.
        members.slow_last = Duration::from_secs(8);
        for which in 0..4 {
            members.kill(which).await;
        }
        members.run(&[0, 1, 2, 3]).await;
        members.context.sleep(Duration::from_secs(3)).await;
        assert!(members.handle(0).how_far([5; 32]).await.is_ok(), "before anything is asked");
        for which in 0..3 {
            members.handle(which).refresh().await.expect("a member may ask");
        }
        // For longer than a new epoch takes to its first notarisation.
        let (mut silent, mut fresh) = (0, Vec::new());
        for _ in 0..300 {
            let handle = members.handle(0);
            if silent == 40 {
                let reader = handle.clone();
                let task = members
                    .context
                    .child("reader")
                    .spawn(move |_| async move { reader.read_fresh(key, "main").await });
                fresh.push(task);
            }
            let epoch = handle.status().await.expect("it runs").epoch;
            match handle.how_far([5; 32]).await {
                Err(CommitteeError::Busy { .. }) => silent += 1,
                Ok(_) if silent > 0 && epoch == 1 => break,
                said => drop(said.expect("it says so")),
            }
            members.context.sleep(Duration::from_millis(100)).await;
        }
        assert!(silent >= 50, "{silent}");
        members.until(1, &[0, 1, 2, 3]).await;
        let read = fresh.pop().expect("it was asked").await.expect("it ends").expect("answered");
        assert!(read.certificate.round() >= (1, 0), "it waited for the next epoch");
        assert!(members.handle(0).how_far([5; 32]).await.is_ok(), "and it goes on");
    });
}

#[test]
fn reads_whose_callers_are_gone_keep_no_room_from_others() {
    simulated(33, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.context.sleep(Duration::from_secs(3)).await;
        let handle = members.handle(0);
        let view = handle.status().await.expect("it runs").view;
        // As many as may wait, for a view that comes when they would long be late; nobody waits.
        for _ in 0..64 {
            let asked = (0..64).map(|_| handle.read_at(key, "main", (0, view + 60)));
            let asked = Box::pin(futures::future::join_all(asked));
            let short = members.context.sleep(Duration::from_millis(2));
            let left = futures::future::select(asked, Box::pin(short)).await;
            assert!(matches!(left, futures::future::Either::Right(_)), "they wait");
        }
        let view = handle.status().await.expect("it runs").view;
        let read = handle.read_at(key, "main", (0, view + 2)).await.expect("there is room");
        assert!(read.certificate.round() >= (0, view + 2));
        // Those whose callers do wait are not turned out for others.
        let waiting: Vec<_> = (0..4_096)
            .map(|_| {
                let handle = handle.clone();
                members.context.child("reader").spawn(move |_| async move {
                    handle.read_at(key, "main", (0, view + 60)).await.map(drop)
                })
            })
            .collect();
        members.context.sleep(Duration::from_secs(1)).await;
        let view = handle.status().await.expect("it runs").view;
        let busy = handle.read_at(key, "main", (0, view + 2)).await;
        assert!(matches!(busy, Err(CommitteeError::Busy { .. })), "{busy:?}");
        drop(waiting);
    });
}

#[test]
fn a_member_that_forgot_its_votes_says_nothing_of_how_far_it_is() {
    simulated(32, async |context| {
        let mut members = Members::start(context, 4).await;
        members.known().await;
        members.kill(3).await;
        members.context.remove("m3-votes-0", None).await.expect("it voted");
        members.run(&[3]).await;
        members.context.sleep(Duration::from_secs(5)).await;
        let position = members.handle(3).how_far([5; 32]).await;
        assert!(matches!(position, Err(CommitteeError::Busy { .. })), "{position:?}");
        assert!(members.handle(2).how_far([5; 32]).await.is_ok());
    });
}
