//! A peer that leaves hears what was forgotten: of that it hands over nothing, keeps nothing, and does not wait for anybody to take it.

use std::time::Duration;

use crypto::{PeerId, Place};
use document::{Record, Striped};
use env::Env;
use env::calls::leases::LeaseRequest;
use librarian::LibrarianOptions;

use super::{Client, SPAN_S};
use crate::repair::{quick, wanted};
use crate::town::{LIMIT, Town, page};

const PEERS: usize = 9;

async fn town(env: &Env) -> Town {
    let mut town = Town::empty(env, 4, PEERS);
    for _ in 0..PEERS {
        let with = |options: &mut LibrarianOptions| {
            quick(options);
            options.leases.ask = Duration::from_secs(5);
        };
        town.start_next(with).await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == PEERS)
    })
    .await;
    town
}

fn number(town: &Town, peer: &PeerId) -> usize {
    (0..PEERS).find(|number| town.community.peer(*number) == *peer).unwrap()
}

/// Stores a copy and a stripe under a lease each and lets a peer begin to leave that has of both; then their client forgets them at all
/// peers but these.
async fn forgotten_while_one_leaves(env: &Env, not_at: impl Fn(usize, usize) -> bool) {
    let town = town(env).await;
    let client = Client::new(&town, 1).await;
    let view = town.peers[0].directory().view();
    let record = page(1, 500);
    let holders = view.holders(&Place::from(record.id), wanted(&town, record.kind));
    let leaves = holders[0];
    let has_some = |one: &Striped| view.holders(&one.header.place, 5).contains(&leaves);
    let mut stripes = (0..).map(|number| testkit::network::stripe(number, 2, 5, 3_000));
    let stripe = stripes.find(has_some).unwrap();
    let of_record = client.lease(&town, &[&record], 300 * SPAN_S);
    for holder in &holders {
        let peer = number(&town, holder);
        client.store(&town, peer, &record, vec![of_record.clone()]).await.unwrap();
    }
    // Paid for is as much as the header and any fragment have.
    let most = Record { bytes: vec![0; 1 << 16].into(), ..stripe.header.clone() };
    let of_stripe = client.lease(&town, &[&most], 300 * SPAN_S);
    for (holder, fragment) in view.holders(&stripe.header.place, 5).iter().zip(&stripe.fragments) {
        let (to, records) =
            (town.at(number(&town, holder)), vec![stripe.header.clone(), fragment.clone()]);
        let stored = client.calls.store_leased(&to, records, vec![of_stripe.clone()], LIMIT).await;
        assert!(stored.unwrap().iter().all(Result::is_ok));
    }
    env.clock.sleep(Duration::from_secs(10)).await;
    let leaves = number(&town, &leaves);
    assert!(town.peers[leaves].leave());
    let words = [&of_record, &of_stripe].map(|shown| client.forget(&town, shown)).to_vec();
    for peer in (0..PEERS).filter(|peer| !not_at(*peer, leaves)) {
        let request = LeaseRequest::Forget(words.clone());
        client.calls.lease(&town.at(peer), request, LIMIT).await.unwrap();
    }
    let ids = || [&record, &stripe.header].into_iter().chain(&stripe.fragments).map(|one| one.id);
    let none = |town: &Town| ids().all(|id| town.stores.iter().all(|store| !store.holds(&id)));
    let is_over = |town: &Town| town.peers[leaves].has_left() && none(town);
    town.until("it has left, and nobody has any of it", is_over).await;
    // Longer than others' questions go back.
    env.clock.sleep(Duration::from_secs(1_200)).await;
    assert!(none(&town), "it came back");
}

#[test]
fn what_is_forgotten_while_a_peer_leaves_goes_there_too_and_it_leaves() {
    testkit::time::run(80, |env| async move {
        forgotten_while_one_leaves(&env, |_, _| false).await;
    });
}

#[test]
fn a_peer_that_leaves_hears_from_others_what_was_forgotten() {
    testkit::time::run(81, |env| async move {
        forgotten_while_one_leaves(&env, |peer, leaves| peer == leaves).await;
    });
}
