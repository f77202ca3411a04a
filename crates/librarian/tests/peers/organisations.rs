//! That the loss of one organisation takes no stripe, whoever was away while it was stored.

use std::collections::BTreeSet;
use std::time::Duration;

use crypto::{PeerId, Place};
use document::Striped;
use env::Env;
use librarian::LibrarianOptions;
use testkit::network::Fault;

use crate::repair::{fragments_of, put_stripes, quick, sum};
use crate::town::{LIMIT, Town};

/// Peers of two organisations in turn, the first peer of the first.
async fn of_two(env: &Env, peers: usize) -> Town {
    let mut town = Town::empty(env, 2, peers);
    let with = |options: &mut LibrarianOptions| {
        quick(options);
        options.keeping.as_mut().unwrap().surplus_after = Duration::from_secs(30);
    };
    for _ in 0..peers {
        town.start_next(with).await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == peers)
    })
    .await;
    town
}

/// How many fragments of a stripe each of the two has.
fn shares(town: &Town, striped: &Striped) -> [usize; 2] {
    [0, 1].map(|organisation| {
        let numbers = || (organisation..town.peers.len()).step_by(2);
        let held = striped
            .fragments
            .iter()
            .filter(|fragment| numbers().any(|number| town.stores[number].holds(&fragment.id)));
        held.count()
    })
}

fn number(town: &Town, peer: &PeerId) -> usize {
    (0..town.peers.len()).find(|number| town.community.peer(*number) == *peer).unwrap()
}

/// Five peers and four, of which one is away while stripes of 4/8 are stored: the fifth has what is its to hold, and without those five
/// three fragments are left. It comes back; it is lost for a while, and comes back with what it had.
#[test]
fn what_another_organisation_holds_for_one_that_is_away_goes_to_it_when_it_is_back_and_stays() {
    testkit::time::run(71, |env| async move {
        let town = of_two(&env, 9).await;
        let (away, all): (usize, Vec<usize>) = (3, (0..9).collect());
        let rest: Vec<usize> = all.iter().copied().filter(|number| *number != away).collect();
        let member = town.community.members[away].clone();
        let comes_back = || {
            town.network.serve(&member.address, member.peer, town.peers[away].service());
        };
        town.network.remove(&member.address);
        let stripes = put_stripes(&town, 12, 4, 8).await;
        for one in &stripes {
            assert_eq!(shares(&town, one), [5, 3]);
        }
        comes_back();
        let is_even = |town: &Town| {
            let even = |one| shares(town, one) == [4, 4] && fragments_of(town, &all, one) == (8, 8);
            stripes.iter().all(even)
        };
        town.until("neither has more than may be lost", is_even).await;
        assert_eq!(sum(&town, &all, |status| status.fragments_moved), 12, "each once");
        assert_eq!(sum(&town, &all, |status| status.fragments_made), 0);
        let settled = |town: &Town| town.peers.iter().all(|peer| peer.repair().unwrap().settled);
        town.until("nothing is left to be done", settled).await;

        town.network.remove(&member.address);
        town.until("it is made again", |town| {
            stripes.iter().all(|one| fragments_of(town, &rest, one) == (8, 8))
        })
        .await;
        comes_back();
        for _ in 0..40 {
            env.clock.sleep(Duration::from_secs(60)).await;
            if is_even(&town) {
                break;
            }
        }
        let now: Vec<[usize; 2]> = stripes.iter().map(|one| shares(&town, one)).collect();
        assert!(is_even(&town), "{now:?}");
        let moved = sum(&town, &all, |status| status.fragments_moved);
        assert_eq!(moved, 12, "nothing moves back, or again");
    });
}

/// Nine peers each, 8/16, and a spare of each.
#[test]
fn of_two_organisations_neither_gets_or_keeps_more_of_a_stripe_than_may_be_lost() {
    testkit::time::run(72, |env| async move {
        let town = of_two(&env, 18).await;
        let all: Vec<usize> = (0..18).collect();
        let view = town.peers[0].directory().view();
        let away = 3;
        let member = town.community.members[away].clone();
        town.network.remove(&member.address);
        let mut stripes = put_stripes(&town, 6, 8, 16).await;
        let displaced = |one: &&Striped| {
            view.holders(&one.header.place, 16).contains(&town.community.peer(away))
        };
        assert!(stripes.iter().filter(displaced).count() > 0);
        for one in &stripes {
            assert_eq!(shares(&town, one), [8, 8], "the spare is of the same organisation");
        }
        town.network.serve(&member.address, member.peer, town.peers[away].service());

        // As an older release stored it: the first spare was the first organisation's.
        let striped = testkit::network::stripe(100, 8, 16, 3_000);
        let ranked = view.holders(&Place::from(striped.header.id), 18);
        let ranked: Vec<usize> = ranked.iter().map(|peer| number(&town, peer)).collect();
        let index = ranked[..16].iter().position(|number| number % 2 == 1).unwrap();
        let spare = ranked[16..].iter().copied().find(|number| number % 2 == 0).unwrap();
        let mut holders = ranked[..16].to_vec();
        holders[index] = spare;
        assert_eq!(holders.iter().collect::<BTreeSet<_>>().len(), 16);
        for (holder, fragment) in holders.iter().zip(&striped.fragments) {
            let calls = town.peer_calls((holder + 1) % 18);
            let batch = vec![striped.header.clone(), fragment.clone()];
            let outcomes = calls.store_batch(&town.at(*holder), batch, LIMIT).await.unwrap();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        }
        assert_eq!(shares(&town, &striped), [9, 7]);
        stripes.push(striped);
        town.until("neither has more than may be lost", |town| {
            let even =
                |one| shares(town, one) == [8, 8] && fragments_of(town, &all, one) == (16, 16);
            stripes.iter().all(even)
        })
        .await;
        assert_eq!(sum(&town, &all, |status| status.fragments_moved), 1);
        assert_eq!(sum(&town, &all, |status| status.fragments_made), 0);
    });
}

/// It says that it took what moves to it, and has nothing: who gave it keeps it as long as the other does not prove that it has it.
#[test]
fn what_moves_to_a_peer_that_keeps_nothing_stays_where_it_was() {
    testkit::time::run(73, |env| async move {
        let town = of_two(&env, 9).await;
        let (liar, rest) = (3, [0, 1, 2, 4, 5, 6, 7, 8]);
        let member = town.community.members[liar].clone();
        town.network.remove(&member.address);
        let stripes = put_stripes(&town, 12, 4, 8).await;
        for one in &stripes {
            assert_eq!(shares(&town, one), [5, 3]);
        }
        town.network.serve(&member.address, member.peer, town.peers[liar].service());
        town.network.set(&member.peer, Fault::Forget);
        let moved = |town: &Town| sum(town, &rest, |status| status.fragments_moved) > 0;
        town.until("it says that it took some", moved).await;
        for _ in 0..600 {
            for one in &stripes {
                assert_eq!(fragments_of(&town, &rest, one), (8, 8));
            }
            env.clock.sleep(Duration::from_secs(1)).await;
        }
    });
}
