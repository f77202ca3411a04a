//! Checks: what is whole, what lacks something, what cannot be had now, and what is lost; with and without reading.

use std::time::Duration;

use author::{AuthorError, State};
use crypto::{Class, Classified, PeerId, RecordId, Suite};
use testkit::network::Fault;
use testkit::time;

use crate::network::{Net, noise, put};

/// The holders of the fragments of a content of one stripe, with the fragments' ids.
async fn fragments(
    net: &Net,
    author: &author::Author,
    address: RecordId,
) -> Vec<(RecordId, PeerId)> {
    let info = author.info(address).await.unwrap();
    let of = info.fragments.iter().filter(|one| one.stripe.is_some());
    let held: Vec<_> = of.map(|one| (one.id, one.holders[0].peer)).collect();
    assert!(held.iter().all(|(id, peer)| holds(net, id, peer)));
    held
}

fn holds(net: &Net, id: &RecordId, peer: &PeerId) -> bool {
    net.peers.iter().any(|one| one.id == *peer && one.memory.holds(id))
}

fn lose(net: &Net, (id, peer): &(RecordId, PeerId)) {
    assert!(net.peers.iter().any(|one| one.id == *peer && one.memory.lose(id)));
}

#[test]
fn a_stripe_is_full_then_lacking_then_lost() {
    time::run(1, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let address = put(&author, &noise(1, 100_000)).await.unwrap().address;
        let held = fragments(&net, &author, address).await;
        for percent in [0, 100] {
            let checked = author.check(address, percent).await.unwrap();
            assert_eq!((checked.state, checked.survives, checked.missing), (State::Full, 4, 0));
            assert_eq!((checked.records, checked.stripes, checked.counts), (2, 1, [3, 0, 0, 0]));
            assert_eq!(checked.profile.unwrap().to_string(), "4/8");
            assert_eq!(checked.read, 8 * u64::from(percent) / 100, "{checked:?}");
        }
        for (lost, fragment) in held.iter().enumerate().take(5) {
            lose(&net, fragment);
            let checked = author.check(address, 100).await.unwrap();
            let state = if lost < 4 { State::Lacking } else { State::Lost };
            let survives = 4_u32.saturating_sub(1 + lost as u32);
            assert_eq!((checked.state, checked.survives), (state, survives), "{checked:?}");
            assert_eq!((checked.missing, checked.read), (1 + lost as u64, 7 - lost as u64));
            assert!(checked.wrong.is_empty(), "nobody said that it had them");
        }
        assert_eq!(author.window_bytes().0, 0);
    });
}

#[test]
fn peers_that_are_away_make_nothing_lost() {
    time::run(2, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let address = put(&author, &noise(1, 100_000)).await.unwrap().address;
        let held = fragments(&net, &author, address).await;
        held[..4].iter().for_each(|(_, peer)| net.network.set(peer, Fault::Down));
        let checked = author.check(address, 0).await.unwrap();
        assert_eq!((checked.state, checked.survives), (State::Lacking, 0), "{checked:?}");
        lose(&net, &held[4]);
        let checked = author.check(address, 0).await.unwrap();
        assert_eq!(checked.state, State::Unavailable, "{checked:?}");
        net.network.heal();
        env.clock.sleep(Duration::from_secs(120)).await;
        let checked = author.check(address, 0).await.unwrap();
        assert_eq!((checked.state, checked.survives), (State::Lacking, 3));
    });
}

/// What a holder only claims is found by reading, and only by reading.
#[test]
fn a_rotten_fragment_is_found_by_reading_and_its_holder_named() {
    time::run(3, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let address = put(&author, &noise(1, 100_000)).await.unwrap().address;
        let held = fragments(&net, &author, address).await;
        let (id, peer) = held[6];
        assert!(net.peers.iter().any(|one| one.id == peer && one.memory.rot(&id)));
        let believed = author.check(address, 0).await.unwrap();
        assert_eq!(
            (believed.state, believed.read),
            (State::Full, 0),
            "a fragment is one peer's word"
        );
        let read = author.check(address, 100).await.unwrap();
        assert_eq!((read.state, read.survives, read.read), (State::Lacking, 3, 7), "{read:?}");
        assert_eq!(read.wrong.iter().map(|one| (one.id, one.peer)).collect::<Vec<_>>(), [held[6]]);
    });
}

#[test]
fn a_part_is_read_of_what_is_long() {
    time::run(4, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let options =
            author::PutOptions { profile: Some("1/2".parse().unwrap()), ..Default::default() };
        let content = noise(1, 80 << 20);
        let progress = std::sync::Arc::new(author::NoProgress);
        let address = author.put(&content[..], options, progress).await.unwrap().address;
        let checked = author.check(address, 50).await.unwrap();
        assert_eq!((checked.state, checked.stripes), (State::Full, 40));
        assert!((2 * 8..2 * 32).contains(&checked.read), "half of 40 stripes: {}", checked.read);
    });
}

#[test]
fn copies_are_counted_and_read_too() {
    time::run(5, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        let address = put(&author, &noise(1, 3 << 20)).await.unwrap().address;
        let checked = author.check(address, 100).await.unwrap();
        assert_eq!((checked.state, checked.survives, checked.read), (State::Full, 2, 2 * 3));
        let info = author.info(address).await.unwrap();
        let page = &info.fragments[3];
        for (lost, holder) in page.holders.iter().enumerate() {
            lose(&net, &(page.id, holder.peer));
            let checked = author.check(address, 0).await.unwrap();
            let state = if lost < 2 { State::Lacking } else { State::Lost };
            assert_eq!((checked.state, checked.missing), (state, 1 + lost as u64));
        }
    });
}

#[test]
fn what_cannot_be_opened_is_an_error() {
    time::run(6, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let (author, other) = (net.user("ada"), net.user("ben"));
        let address = put(&author, b"a letter").await.unwrap().address;
        assert!(matches!(other.check(address, 0).await, Err(AuthorError::NotForUs { .. })));
        let nothing = author.check(RecordId::new([7; 32]), 0).await.unwrap_err();
        assert_eq!(nothing.class(), Class::NotFound);
        let small = author.check(address, 100).await.unwrap();
        assert_eq!((small.state, small.profile, small.survives), (State::Full, None, 4));
    });
}
