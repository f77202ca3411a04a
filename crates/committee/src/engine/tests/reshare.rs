//! Members change while updates flow: on the engine's simulated machine, one seed a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use commonware_codec::Encode as _;
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_cryptography::bls12381::primitives::ops::threshold::{recover, sign_message};
use commonware_cryptography::bls12381::primitives::ops::verify_message;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_parallel::Sequential;
use commonware_runtime::{Blob as _, ReadOptions};

use super::liars::Liar;
use super::*;
use crate::engine::wire::Message;
use crate::handle::Phase;
use crate::members::{Ended, Wish};
use crate::{Answer, Read};

impl Members {
    /// Makes machines that follow.
    async fn follow(&mut self, which: &[usize]) {
        for one in which {
            let name = format!("m{one}");
            join(&self.context, &name, &self.charter).await.expect("an empty disk");
        }
        self.run(which).await;
    }

    fn places(&self, list: &[usize]) -> Vec<(MemberId, Option<SocketAddr>)> {
        let all = members(&self.starts).1;
        list.iter().map(|which| (all[*which].0, Some(all[*which].1))).collect()
    }

    /// Operators of members ask for a list.
    async fn want(&self, by: &[usize], list: &[usize]) {
        for which in by {
            let asked = self.handle(*which).reshare(self.places(list), None).await;
            asked.expect("a member may ask");
        }
    }

    async fn is_at(&self, which: usize, epoch: u64) -> bool {
        let handle = self.handle(which);
        let (Ok(status), Ok(changing)) = (handle.status().await, handle.changing().await) else {
            return false;
        };
        status.epoch == epoch && changing.phase == Phase::Rest && changing.has_share == status.votes
    }

    /// Waits until these run in an epoch and vote.
    pub(super) async fn until(&self, epoch: u64, list: &[usize]) {
        for _ in 0..600 {
            let mut there = 0;
            for which in list {
                let votes = self.handle(*which).status().await.expect("it runs").votes;
                there += usize::from(votes && self.is_at(*which, epoch).await);
            }
            if there == list.len() {
                return;
            }
            self.context.sleep(Duration::from_millis(200)).await;
        }
        for which in list {
            let handle = self.handle(*which);
            let (status, changing) = (handle.status().await, handle.changing().await);
            eprintln!("{which}: {status:?}\n   {changing:?}");
        }
        panic!("not all are in epoch {epoch}");
    }

    /// The bytes of a file of a member that does not run.
    async fn file(&self, which: usize, file: &[u8]) -> Vec<u8> {
        let partition = format!("m{which}-committee");
        let (blob, length) = self.context.open(&partition, file).await.expect("a file");
        let read = blob.read_at(0, length as usize, ReadOptions::default()).await.expect("read");
        read.coalesce().freeze().as_ref().to_vec()
    }

    async fn share(&self, which: usize, epoch: u64) -> Option<Share> {
        let name = format!("m{which}");
        files::share(&self.context, &name, epoch).await.expect("readable")
    }

    /// Sends updates on and on; how many were certified so far.
    fn load(&self, to: &[usize], key: ObjectKey) -> (Arc<AtomicUsize>, Arc<AtomicBool>) {
        let (done, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (Arc::clone(&done), Arc::clone(&stop));
        let handles: Vec<Handle> = to.iter().map(|which| self.handle(*which)).collect();
        let (group, id) = (self.charter.group.clone(), self.charter.rules.group);
        self.context.child("client").spawn(async move |context| {
            let mut number = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                let (new, branch) =
                    (version(1 + (number % 200) as u8), format!("b{}", number % 200));
                let receipts = vec![crate::proving::receipt(5, &new)];
                let operation = Operation::Set {
                    object: key,
                    branch: branch.into(),
                    expected: None,
                    new,
                    receipts,
                };
                let update = Update {
                    network: NETWORK,
                    group: id,
                    author: secret(1).public(),
                    id: (u128::from(number) << 64).to_be_bytes(),
                    last_valid: u64::MAX,
                    operation,
                };
                let submission = update.sign(&secret(1)).expect("good");
                let all = handles.iter().map(|one| one.update(submission.clone()));
                let answers = futures::future::join_all(all).await;
                for answer in answers.into_iter().flatten().flatten() {
                    answer.verify(&NETWORK, &group).expect("certified under the one key");
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                context.sleep(Duration::from_millis(40)).await;
            }
        });
        (done, stop)
    }
}

#[test]
fn four_members_become_seven_then_five_and_are_refreshed_under_one_key() {
    simulated(21, async |context| {
        let mut members = Members::start_of(context, 4, 7).await;
        let group = members.charter.group.clone();
        let key = members.known().await;
        let submission = members.update(set(key, None, version(1), &[5]));
        let before: Vec<Answer> = members.handle(0).update(submission).await.expect("answered");
        let before = before[0].encode();
        let (done, stop) = members.load(&[0, 1], key);

        members.follow(&[4, 5, 6]).await;
        members.want(&[0, 1, 2], &[0, 1, 2, 3, 4, 5, 6]).await;
        members.until(1, &[0, 1, 2, 3, 4, 5, 6]).await;
        let seven = done.load(Ordering::Relaxed);
        assert!(seven > 0, "updates flow meanwhile");

        members.want(&[0, 1, 4, 5, 6], &[0, 1, 4, 5, 6]).await;
        members.until(2, &[0, 1, 4, 5, 6]).await;
        members.context.sleep(Duration::from_secs(5)).await;
        for gone in [2, 3] {
            let status = members.handle(gone).status().await.expect("it follows");
            assert!(!status.votes && status.epoch == 2, "{status:?}");
            for epoch in 0..3 {
                assert!(members.share(gone, epoch).await.is_none(), "its share is gone");
            }
        }
        for which in [1, 4, 5, 6] {
            members.handle(which).refresh().await.expect("a member may ask");
        }
        members.until(3, &[0, 1, 4, 5, 6]).await;
        let five = done.load(Ordering::Relaxed);
        assert!(five > seven, "updates flow on");
        stop.store(true, Ordering::Relaxed);

        // What was certified before still holds, and what is certified now holds under the same key.
        let before = Answer::decode(&before).expect("our own");
        before.verify(&NETWORK, &group).expect("certified before");
        let after = members.handle(6).read_fresh(key, "main").await.expect("answered");
        let after = Read::decode(&after.encode()).expect("our own");
        let certified = after.verify(&NETWORK, &group, &key, "main").expect("certified now");
        assert_eq!(certified.head.map(|head| head.version), Some(version(1)));
        assert_eq!(after.certificate.header().epoch, 3);
        // One of five may be away.
        members.kill(5).await;
        let outcome = members.ask(&[0, 6], set(key, None, version(9), &[5])).await;
        assert!(matches!(outcome, Ok(Outcome::MovedOn { .. })), "{outcome:?}");
    });
}

#[test]
fn seven_founders_add_replace_and_refresh_as_often_as_they_like() {
    simulated(27, async |context| {
        let mut members = Members::start_of(context, 7, 9).await;
        members.known().await;
        members.follow(&[7, 8]).await;
        let eight = [0, 1, 2, 3, 4, 5, 6, 7];
        members.want(&[0, 1, 2, 3, 4, 5], &eight).await;
        members.until(1, &eight).await;
        let replaced = [0, 1, 2, 3, 4, 5, 7, 8];
        members.want(&[0, 1, 2, 3, 4, 5], &replaced).await;
        members.until(2, &replaced).await;
        for epoch in 3..5 {
            for which in 0..6 {
                members.handle(which).refresh().await.expect("a member may ask");
            }
            members.until(epoch, &replaced).await;
        }
    });
}

#[test]
fn of_members_that_stay_no_operator_says_where_they_are() {
    simulated(34, async |context| {
        let mut members = Members::start_of(context, 4, 5).await;
        members.known().await;
        members.follow(&[4]).await;
        let mut wanted = members.places(&[0, 1, 2, 3, 4]);
        wanted[..4].iter_mut().for_each(|(_, at)| *at = None);
        let nowhere: Vec<_> = wanted.iter().map(|(key, _)| (*key, None)).collect();
        let refused = members.handle(0).reshare(nowhere, None).await;
        assert!(matches!(refused, Err(CommitteeError::Members(_))), "{refused:?}");
        for which in 0..3 {
            members.handle(which).reshare(wanted.clone(), None).await.expect("a member may ask");
        }
        members.until(1, &[0, 1, 2, 3, 4]).await;
        let changing = members.handle(4).changing().await.expect("it runs");
        assert_eq!((changing.before.len(), changing.members.len()), (4, 5));
        // Nor of the one that came, once it is a member.
        wanted[4].1 = None;
        for which in [0, 1, 3, 4] {
            members.handle(which).reshare(wanted[1..].to_vec(), None).await.expect("asked");
        }
        members.until(2, &[1, 2, 3, 4]).await;
    });
}

#[test]
fn old_shares_are_overwritten_and_f_of_them_sign_nothing() {
    simulated(22, async |context| {
        let mut members = Members::start(context, 4).await;
        let group = members.charter.group.clone();
        let public = members.charter.outcome.public().clone();
        let mut old = Vec::new();
        let mut files = Vec::new();
        for which in 0..4 {
            old.push(members.share(which, 0).await.expect("a founder's"));
            files.push(members.file(which, b"share").await);
        }
        for which in 0..3 {
            members.handle(which).refresh().await.expect("a member may ask");
        }
        members.until(1, &[0, 1, 2, 3]).await;
        let mut new = Vec::new();
        for which in 0..4 {
            members.kill(which).await;
            let gone = members.file(which, b"share").await;
            assert_eq!(gone.len(), files[which].len(), "in place");
            assert!(gone.iter().all(|byte| *byte == 0), "the bytes are gone");
            assert!(members.file(which, b"dealings").await.is_empty(), "what was dealt is gone");
            new.push(members.share(which, 1).await.expect("a share of the new epoch"));
            let bytes = old[which].encode();
            assert_ne!(new[which].encode(), bytes, "it is another");
        }
        let made = |shares: &[&Share]| {
            let partials: Vec<_> = shares
                .iter()
                .map(|share| sign_message::<MinSig>(share, b"name", b"word"))
                .collect();
            let signature = recover(&public, &partials, &Sequential).ok()?;
            verify_message::<MinSig>(group.point().expect("a key"), b"name", b"word", &signature)
                .ok()
        };
        // f = 1 kept share of the old epoch: alone it is too few, with shares of the new one it fits nothing.
        assert!(made(&[&old[0]]).is_none());
        assert!(made(&[&old[0], &new[1], &new[2]]).is_none());
        assert!(made(&[&old[3], &new[0], &new[1]]).is_none());
        // f + 1 of them, one more than is assumed, still sign nothing.
        assert!(made(&[&old[0], &old[1], &new[2]]).is_none());
        // n - f of them would sign for ever: that is why they are overwritten.
        assert!(made(&[&old[0], &old[1], &old[2]]).is_some());
        assert!(made(&[&new[0], &new[1], &new[3]]).is_some(), "and so do n - f of now");
    });
}

#[test]
fn a_member_that_lost_its_disk_comes_back_with_a_refresh_and_one_is_replaced() {
    simulated(23, async |context| {
        let mut members = Members::start_of(context, 4, 5).await;
        let key = members.known().await;
        members.kill(3).await;
        for partition in ["m3-committee", "m3-votes-0", "m3-chain"] {
            members.context.remove(partition, None).await.expect("it was there");
        }
        members.follow(&[3]).await;
        members.context.sleep(Duration::from_secs(5)).await;
        assert!(!members.handle(3).status().await.expect("it runs").votes);
        for which in [0, 1, 2] {
            members.handle(which).refresh().await.expect("a member may ask");
        }
        members.until(1, &[0, 1, 2, 3]).await;
        // Another machine takes the place of one that is gone for good: it deals no more, and n - f do.
        members.kill(0).await;
        members.follow(&[4]).await;
        members.want(&[1, 2, 3], &[1, 2, 3, 4]).await;
        members.until(2, &[1, 2, 3, 4]).await;
        let outcome = members.ask(&[4, 1], set(key, None, version(1), &[5])).await;
        assert!(matches!(outcome, Ok(Outcome::Accepted { .. })), "{outcome:?}");
        // The one that was away follows when it comes back, without a vote, and forgets its share.
        members.run(&[0]).await;
        members.context.sleep(Duration::from_secs(10)).await;
        let status = members.handle(0).status().await.expect("it runs");
        assert!(!status.votes && status.epoch == 2, "{status:?}");
        assert!(members.share(0, 1).await.is_none(), "its share is overwritten");
    });
}

#[test]
fn a_round_that_shows_a_players_share_is_repeated_without_it() {
    simulated(24, async |context| {
        let mut members = Members::start_of(context, 4, 6).await;
        let key = members.known().await;
        members.follow(&[4]).await;
        // The sixth is not there at all.
        members.starts[5] = 1;
        let wanted = members.places(&[0, 1, 2, 3, 4, 5]);
        for which in 0..3 {
            let asked = members.handle(which).reshare(wanted.clone(), Some(5)).await;
            asked.expect("a member may ask");
        }
        members.until(1, &[0, 1, 2, 3, 4]).await;
        let changing = members.handle(0).changing().await.expect("it runs");
        assert_eq!(changing.number, 3, "the second round after the founding's number");
        assert_eq!((changing.ended, changing.members.len()), (Ended::Changed, 5));
        let outcome = members.ask(&[4, 1], set(key, None, version(1), &[5])).await;
        assert!(matches!(outcome, Ok(Outcome::Accepted { .. })), "{outcome:?}");
    });
}

#[test]
fn a_member_that_lies_in_a_round_neither_stops_nor_bends_it() {
    simulated(26, async |context| {
        let mut members = Members::start_of(context, 4, 5).await;
        let key = members.known().await;
        members.follow(&[4]).await;
        members.kill(3).await;
        members.starts[3] += 1;
        for which in [0, 1, 2, 4] {
            let places = super::members(&members.starts).1;
            members.handle(which).moved(places).await.expect("it runs");
        }
        let mut liar = Liar::new(&members, 3);
        // It wants another list, deals what is none, and acknowledges what nobody dealt.
        let rules = members.charter.rules.clone();
        let secret = super::members(&members.starts).0.swap_remove(3);
        let all = super::members(&members.starts).1;
        let list: Vec<_> = all.iter().map(|(key, _)| (*key, None)).collect();
        let wish = Wish::new(0, 2, 4, &list).expect("a list").sign(&rules, &secret);
        members.want(&[0, 1, 2], &[0, 1, 2, 4]).await;
        // Nor does it matter how far it says that it is.
        liar.say(Message::Here(u64::MAX).encode());
        let mut connected = Vec::new();
        for _ in 0..60 {
            let junk = Bytes::from(vec![7; 200]);
            for number in [1, 2, 3] {
                let [public, private] = [junk.clone(), junk.clone()];
                liar.say(Message::Dealt { number, public, private }.encode());
                liar.say(Message::Taken { number, acknowledgement: junk.clone() }.encode());
            }
            liar.say(Message::Wish(wish.clone()).encode());
            members.context.sleep(Duration::from_millis(200)).await;
            if members.handle(0).changing().await.expect("it runs").phase == Phase::Dealing {
                connected.push(liar.say(Message::Here(0).encode()));
            }
        }
        // Who deals what is none is cut off, for a minute.
        assert_eq!((connected.first(), connected.last()), (Some(&4), Some(&0)), "{connected:?}");
        members.until(1, &[0, 1, 2, 4]).await;
        let changing = members.handle(0).changing().await.expect("it runs");
        assert_eq!((changing.number, changing.members.len()), (2, 4), "in its first round");
        let outcome = members.ask(&[4, 1], set(key, None, version(1), &[5])).await;
        assert!(matches!(outcome, Ok(Outcome::Accepted { .. })), "{outcome:?}");
    });
}

#[test]
fn a_reshare_that_comes_to_nothing_leaves_the_epoch_as_it_is() {
    simulated(25, async |context| {
        let mut members = Members::start_of(context, 4, 6).await;
        let key = members.known().await;
        members.starts[5] = 1;
        // Too few ask: nothing begins.
        members.handle(0).reshare(members.places(&[0, 1, 2, 3, 5]), None).await.expect("asked");
        members.handle(1).reshare(members.places(&[0, 1, 2, 3, 5]), None).await.expect("asked");
        // Another list is another wish.
        members.handle(2).refresh().await.expect("asked");
        members.context.sleep(Duration::from_secs(12)).await;
        let changing = members.handle(0).changing().await.expect("it runs");
        assert_eq!((changing.phase, changing.number), (Phase::Asking, 1));
        assert_eq!(changing.missing.len(), 2, "it says who did not ask for the same");
        // Enough ask for a list of which one is not there, and all are wanted: it ends, and all goes on.
        for which in [1, 2, 3] {
            let wanted = members.places(&[0, 1, 2, 3, 5]);
            members.handle(which).reshare(wanted, Some(5)).await.expect("asked");
        }
        members.context.sleep(Duration::from_secs(40)).await;
        for which in 0..4 {
            let changing = members.handle(which).changing().await.expect("it runs");
            assert_eq!((changing.epoch, changing.number), (0, 2));
            assert_eq!((changing.ended, changing.phase), (Ended::FewPlayers, Phase::Rest));
        }
        members.kill(3).await;
        assert!(members.file(3, b"dealings").await.is_empty(), "nothing secret is left");
        members.run(&[3]).await;
        let outcome = members.ask(&[0, 1], set(key, None, version(1), &[5])).await;
        assert!(matches!(outcome, Ok(Outcome::Accepted { .. })), "{outcome:?}");
        // And the next one, under the next number, comes about.
        for which in [0, 1, 2] {
            members.handle(which).refresh().await.expect("asked");
        }
        members.until(1, &[0, 1, 2, 3]).await;
    });
}

#[test]
fn the_last_block_of_an_epoch_is_proposed_again_until_it_is_final() {
    simulated(27, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        // With slow disks its own round is lost: nobody votes to finalise it in time.
        members.slow_last = Duration::from_secs(8);
        for which in 0..4 {
            members.kill(which).await;
        }
        members.run(&[0, 1, 2, 3]).await;
        for which in 0..3 {
            members.handle(which).refresh().await.expect("a member may ask");
        }
        members.until(1, &[0, 1, 2, 3]).await;
        let outcome = members.ask(&[0, 1], set(key, None, version(1), &[5])).await;
        assert!(matches!(outcome, Ok(Outcome::Accepted { .. })), "{outcome:?}");
    });
}

#[test]
fn until_a_new_epoch_certifies_the_members_told_are_those_of_the_last_header() {
    simulated(29, async |context| {
        let mut members = Members::start_of(context, 4, 5).await;
        let key = members.known().await;
        // Asks each member for its list and for a read, which must name that list.
        let told = async |members: &Members, list: &[usize]| {
            let mut told = Vec::new();
            for which in list {
                let handle = members.handle(*which);
                let status = handle.status().await.expect("it runs");
                let read = handle.read(key, "main").await;
                // One that has just joined has nothing to show.
                let header = read.ok().map(|read| read.certificate.header().clone());
                if let Some(header) = header.filter(|header| header.height == status.height) {
                    let named = crate::position::are_members(&header, &status.members);
                    assert!(named, "{which} at {}: {status:?}", header.height);
                    assert_eq!(header.epoch, status.epoch);
                }
                told.push((status.epoch, status.members.len(), status.seated));
            }
            told
        };
        members.follow(&[4]).await;
        // The fifth takes the place of the fourth.
        members.want(&[0, 1, 2, 3], &[0, 1, 2, 4]).await;
        let mut phases = Vec::new();
        for _ in 0..3_000 {
            told(&members, &[0, 1, 2, 3, 4]).await;
            let phase = members.handle(0).changing().await.expect("it runs").phase;
            if phase == Phase::Entering {
                break;
            }
            members.context.sleep(Duration::from_millis(5)).await;
            phases.push(phase);
        }
        // Two of the new epoch are killed before it has certified anything: it stands still.
        members.kill(1).await;
        members.kill(2).await;
        members.context.sleep(Duration::from_secs(5)).await;
        let phase = members.handle(0).changing().await.expect("it runs").phase;
        assert_eq!(phase, Phase::Entering, "{phases:?}");
        let left = told(&members, &[0, 3, 4]).await;
        assert_eq!(left, [(0, 4, true), (0, 4, false), (0, 4, true)]);
        members.run(&[1, 2]).await;
        members.until(1, &[0, 1, 2, 4]).await;
        let left = told(&members, &[0, 1, 2, 4]).await;
        assert_eq!(left, [(1, 4, true); 4]);
        assert!(!members.handle(3).status().await.expect("it follows").seated);
    });
}

#[test]
fn a_member_whose_chain_is_behind_keeps_what_was_dealt_to_it() {
    simulated(28, async |context| {
        let mut members = Members::start_of(context, 4, 5).await;
        members.known().await;
        // The fifth comes while it is dealt.
        members.want(&[0, 1, 2, 3], &[0, 1, 2, 3, 4]).await;
        for _ in 0..100 {
            let changing = members.handle(0).changing().await.expect("it runs");
            if changing.phase == Phase::Dealing {
                break;
            }
            members.context.sleep(Duration::from_millis(100)).await;
        }
        members.context.sleep(Duration::from_millis(1_500)).await;
        // One dies, and its disk has lost what it knew of the chain, not what it acknowledged.
        members.kill(1).await;
        members.context.remove("m1-chain", None).await.expect("it was there");
        members.run(&[1]).await;
        members.context.sleep(Duration::from_secs(1)).await;
        members.follow(&[4]).await;
        members.until(1, &[0, 1, 2, 3, 4]).await;
        assert_eq!(members.handle(0).changing().await.expect("it runs").number, 2);
    });
}

/// How many seeds are run; `HOLD_SIM_SEEDS=n` runs n.
fn seeds() -> u64 {
    let wish = std::env::var("HOLD_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    wish.unwrap_or(6)
}

#[test]
fn members_killed_at_any_step_of_a_reshare_come_back_and_it_is_done() {
    for seed in 0..seeds() {
        simulated(100 + seed, async |context| {
            let mut members = Members::start_of(context, 4, 5).await;
            let key = members.known().await;
            let (done, stop) = members.load(&[0, 1], key);
            members.follow(&[4]).await;
            members.want(&[0, 1, 2, 3], &[0, 1, 2, 3, 4]).await;
            // Each run kills at other moments: after the wish, amid the dealing, about the change of epochs. Each third one is a
            // power cut: all of them at once.
            for kill in 0..5_u64 {
                let wait = 130 * (seed % 12 + 1) + (370 + 11 * seed) * kill;
                members.context.sleep(Duration::from_millis(wait)).await;
                let which: Vec<usize> = match seed % 3 == 2 && kill % 2 == 1 {
                    true => (0..5).collect(),
                    false => vec![((seed + 2 * kill) % 5) as usize],
                };
                for one in &which {
                    members.kill(*one).await;
                }
                members.context.sleep(Duration::from_millis(100 * (seed % 4))).await;
                members.run(&which).await;
            }
            stop.store(true, Ordering::Relaxed);
            assert!(done.load(Ordering::Relaxed) > 0, "{seed}");
            members.context.sleep(Duration::from_secs(30)).await;
            // A player that was away in its round is left out: it is asked for again.
            for _ in 0..4 {
                let changing = members.handle(0).changing().await.expect("it runs");
                if changing.epoch > 0 && changing.members.len() == 5 {
                    break;
                }
                let known: Vec<usize> = (0..5).collect();
                for which in known {
                    let places = members.places(&[0, 1, 2, 3, 4]);
                    // Whoever is no member does not ask.
                    let _ = members.handle(which).reshare(places, None).await;
                }
                members.context.sleep(Duration::from_secs(30)).await;
            }
            let changing = members.handle(0).changing().await.expect("it runs");
            assert_eq!((changing.epoch > 0, changing.members.len()), (true, 5), "seed {seed}");
            members.until(changing.epoch, &[0, 1, 2, 3, 4]).await;
            let outcome = members.ask(&[4, 1], set(key, None, version(1), &[5])).await;
            assert!(matches!(outcome, Ok(Outcome::Accepted { .. })), "{seed}: {outcome:?}");
        });
    }
}
