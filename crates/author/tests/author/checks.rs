//! Checks: what is whole, what lacks something, what cannot be had now, and what is lost; with and without reading.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use author::{AuthorError, State};
use crypto::{Class, Classified, PeerId, RecordId, Suite};
use testkit::network::Fault;
use testkit::time;

use crate::network::{Net, noise, put};
use crate::peer::Peer;

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

/// Who claims all fragments of a stripe and has its own alone, or not even that, hides nobody who has them.
#[test]
fn who_claims_what_it_does_not_have_makes_no_check_say_lost() {
    time::run(9, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let address = put(&author, &noise(1, 100_000)).await.unwrap().address;
        let held = fragments(&net, &author, address).await;
        let is_liar = |id: &PeerId| held[..2].iter().any(|(_, peer)| peer == id);
        let liars: Vec<_> = net.peers.iter().filter(|one| is_liar(&one.id)).collect();
        assert_eq!(liars.len(), 2);
        for liar in &liars {
            liar.claims_all.store(true, Ordering::Release);
        }
        let told = author.info(address).await.unwrap();
        let told = told.fragments.iter().filter(|one| one.stripe.is_some());
        let told: Vec<_> = told.map(|one| (one.id, one.holders[0].peer)).collect();
        assert_eq!(told, held, "whose a fragment is comes before others that claim it");
        // One is lost, and another lies with a peer that it does not belong to, behind both liars' claims.
        lose(&net, &held[0]);
        let (moved, owner) = held[5];
        let owner = net.peers.iter().find(|one| one.id == owner).unwrap();
        let spare = |one: &&Arc<Peer>| held.iter().all(|(_, peer)| *peer != one.id);
        let spare = net.peers.iter().find(spare).unwrap();
        let record = owner.memory.all().into_iter().find(|record| record.id == moved).unwrap();
        spare.memory.keep(record);
        lose(&net, &held[5]);
        let read = author.check(address, 100).await.unwrap();
        assert_eq!((read.state, read.missing, read.survives), (State::Lacking, 1, 3), "{read:?}");
        let named: Vec<_> = read.wrong.iter().map(|one| one.peer).collect();
        assert!(named.contains(&held[0].1), "{named:?}");
        assert!(named.iter().all(is_liar), "{named:?}");
        assert_eq!(author.window_bytes().0, 0);
    });
}

/// An author whose parity is made up: every fragment proves itself, and none of the parity is worth anything.
struct MakesUp;

impl document::offline::stripes::Coder for MakesUp {
    fn encode(
        &self,
        _pages: &[&[u8]],
        parity: &mut [&mut [u8]],
    ) -> Result<(), document::offline::stripes::CodeFailure> {
        for (number, bytes) in parity.iter_mut().enumerate() {
            bytes.fill(7 + number as u8);
        }
        Ok(())
    }

    fn rebuild(
        &self,
        _n: u32,
        _bytes: usize,
        _given: &[(u32, bytes::Bytes)],
        _wanted: u32,
        _out: &mut [u8],
    ) -> Result<(), document::offline::stripes::CodeFailure> {
        Err("nothing is opened".into())
    }
}

/// Seals content to a user as another program might, and stores it.
async fn put_made_up(author: &author::Author, content: &[u8]) -> RecordId {
    let reader = author.home().keyring().readers()[0];
    let sealing = document::offline::Sealing {
        suite: Suite::Holdfast1,
        network: author.walker().directory().genesis().network(),
        author: &crypto::SecretKey::from_bytes(&[5; 32]).unwrap(),
        reader,
        eek: crypto::Eek::from_bytes(&[6; 108]),
        info: document::ContentInfo::default(),
        created_time: 1,
    };
    let mut records = Vec::new();
    let mut emit = |record| {
        records.push(record);
        Ok(())
    };
    let mut content = content;
    let sealed =
        document::offline::stripes::seal(sealing, (4, 8), &MakesUp, &mut content, &mut emit);
    let envelope = records.pop().unwrap();
    let entry = records.pop().unwrap();
    for stripe in records.chunks(9) {
        let (header, fragments) = (stripe[0].clone(), stripe[1..].to_vec());
        let stripe = walk::StripeRecords { header, fragments, threshold: 8 };
        assert_eq!(author.walker().store_stripe(stripe).await.unwrap().acked, 8);
    }
    for record in [entry, envelope] {
        let copies = author.walker().redundancy(record.kind);
        let mut rest = author.walker().store(record, copies).await.unwrap().rest;
        assert!(rest.wait(Duration::from_secs(10)).await.is_full());
    }
    sealed.unwrap().envelope
}

#[test]
fn parity_that_its_author_made_up_is_found_by_reading_and_counts_for_nothing() {
    time::run(7, |env| async move {
        let net = Net::new(&env, 3, 9, Suite::Holdfast1);
        let author = net.user("ada");
        let address = put_made_up(&author, &noise(1, 9 << 20)).await;
        assert!(crate::network::get(&author, address).await.unwrap().0 == noise(1, 9 << 20));
        let believed = author.check(address, 0).await.unwrap();
        assert_eq!((believed.state, believed.stripes), (State::Full, 2));
        let read = author.check(address, 100).await.unwrap();
        assert_eq!((read.state, read.survives, read.missing), (State::Lacking, 0, 8), "{read:?}");
        assert_eq!((read.miscoded.len(), read.read), (2, 16));
        assert!(read.wrong.is_empty(), "the holders are not to blame");
        // With a page gone nothing brings it back, though seven fragments are there.
        let info = author.info(address).await.unwrap();
        let page = info.fragments.iter().find(|one| one.number == Some(2)).unwrap();
        lose(&net, &(page.id, page.holders[0].peer));
        let read = author.check(address, 100).await.unwrap();
        assert_eq!((read.state, read.survives), (State::Lost, 0), "{read:?}");
        let (bytes, got) = crate::network::try_get(&author, address).await;
        assert!(got.is_err() && bytes.is_empty(), "a get says the same");
        assert_eq!(author.window_bytes().0, 0);
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
fn a_stripe_is_not_lost_while_enough_peers_near_it_are_away() {
    time::run(8, |env| async move {
        let net = Net::new(&env, 3, 12, Suite::Holdfast1);
        let author = net.user("ada");
        let options =
            author::PutOptions { profile: Some("4/8".parse().unwrap()), ..Default::default() };
        let progress = std::sync::Arc::new(author::NoProgress);
        let address = author.put(&noise(1, 100_000)[..], options, progress).await.unwrap().address;
        let held = fragments(&net, &author, address).await;
        held[..5].iter().for_each(|one| lose(&net, one));
        let holds = |peer: &PeerId| held.iter().any(|(_, of)| of == peer);
        let others = net.peers.iter().map(|peer| peer.id).filter(|peer| !holds(peer));
        others.for_each(|peer| net.network.set(&peer, Fault::Down));
        let checked = author.check(address, 0).await.unwrap();
        assert_eq!(checked.state, State::Unavailable, "{checked:?}");
        net.network.heal();
        env.clock.sleep(Duration::from_secs(120)).await;
        let checked = author.check(address, 0).await.unwrap();
        assert_eq!(checked.state, State::Lost, "{checked:?}");
    });
}

/// It may have a copy that was put there while a holder was away.
#[test]
fn a_record_is_not_lost_while_a_peer_near_it_is_away() {
    time::run(7, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        let address = put(&author, &noise(1, 3 << 20)).await.unwrap().address;
        let info = author.info(address).await.unwrap();
        let page = &info.fragments[3];
        page.holders.iter().for_each(|holder| lose(&net, &(page.id, holder.peer)));
        let stays = |peer| page.holders.iter().any(|holder| holder.peer == peer);
        // The content is found: one holder of its envelope and one of its entry are there.
        let found = [0, 1].map(|record| info.fragments[record].holders[0].peer);
        let others = net.peers.iter().map(|peer| peer.id);
        let others = others.filter(|peer| !stays(*peer) && !found.contains(peer));
        others.for_each(|peer| net.network.set(&peer, Fault::Down));
        let checked = author.check(address, 0).await.unwrap();
        assert_eq!(checked.state, State::Unavailable, "{checked:?}");
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
