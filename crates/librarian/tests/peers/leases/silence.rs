//! Who was away for long is told apart from who was not heard for long: only the one begins empty. And who counts as heard.

use crypto::{Announcement, PeerCertificate, PeerState};
use testkit::network::{Fault, LeaseLie};
use walk::Health;

use super::*;
use crate::leases::town_with;
use crate::lines::Lines;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A peer with a leased record that comes back, last heard all a hundred days ago, and ran last at this time; the others' first is
/// gone for good.
async fn comes_back(env: &env::Env, last_run_ms: impl Fn(u64) -> u64) -> (Town, Lines) {
    let mut town = town_with(env, 3, |_| {}).await;
    let client = Client::new(&town, 1).await;
    let record = page(1, 500);
    let shown = client.lease(&town, &[&record], 300 * SPAN_S);
    client.store(&town, 2, &record, vec![shown]).await.unwrap();
    let had = town.take_down(2).await;
    let mut known = town.peers[2].known_peers();
    let member = &town.community.members[2];
    let own =
        PeerCertificate::verify(&member.certificate, &town.community.genesis, env.clock.unix_s());
    let announcement = Announcement {
        certificate: own.unwrap(),
        certificate_bytes: member.certificate.clone(),
        sequence: last_run_ms(env.clock.unix_ms()),
        p2p_addresses: Vec::new(),
        state: PeerState::Serving,
    };
    let (key, roster) = (member.key.clone(), town.community.genesis.clone());
    known.retain(|bytes| {
        let other = Announcement::verify(bytes, &roster, env.clock.unix_s()).unwrap();
        other.certificate.peer != announcement.certificate.peer
    });
    known.push(announcement.sign(&key, &roster.network()));
    town.take_down(1).await;
    town.network.remove(&town.community.members[1].address);
    let lines = Lines::default();
    let logs = tracing::subscriber::set_default(lines.clone());
    let heard = env.clock.unix_ms() - 100 * DAY_MS;
    let with = move |options: &mut LibrarianOptions| {
        options.known_peers = known;
        options.words_heard_ms = Some(heard);
    };
    town.bring_back_with(2, had, with).await;
    env.clock.sleep(Duration::from_secs(3600)).await;
    drop(logs);
    (town, lines)
}

#[test]
fn no_peer_is_wiped_because_an_organisation_died() {
    testkit::time::run(74, |env| async move {
        let (town, lines) = comes_back(&env, |now| now - DAY_MS).await;
        assert!(lines.with("begin empty").is_empty(), "it ran yesterday");
        let told = lines.with("no peer of this organisation");
        let [told] = &told[..] else { panic!("once, of one: {told:?}") };
        let gone = town.community.members[1].certificate.clone();
        let gone = PeerCertificate::verify(&gone, &town.community.genesis, env.clock.unix_s());
        assert!(told.contains(&gone.unwrap().organisation.to_string()), "{told}");
        assert!(told.contains("days_max=100"), "{told}");
    });
}

#[test]
fn who_was_away_for_longer_than_words_are_kept_is_told_to_begin_empty() {
    testkit::time::run(75, |env| async move {
        let (_town, lines) = comes_back(&env, |now| now - 90 * DAY_MS).await;
        let told = lines.with("begin empty");
        assert!(told.len() == 1 && told[0].contains("days=90"), "{told:?}");
    });
}

/// A peer that is well and says that it is busy, whenever it is asked for words.
fn tells_no_words() -> LeaseLie {
    Arc::new(|request: &LeaseRequest, _: Option<&LeaseAnswer>| {
        let asked = matches!(request, LeaseRequest::Tombstones { .. });
        asked.then(|| Err(CallError::Busy { retry_after: Duration::from_secs(1) }))
    })
}

/// What a peer that was taken down has in its files, for its next start.
fn as_it_was(town: &Town, number: usize) -> impl FnOnce(&mut LibrarianOptions) + use<> {
    let peer = &town.peers[number];
    let (known, heard) = (peer.known_peers(), peer.words_heard_ms());
    move |options: &mut LibrarianOptions| {
        options.known_peers = known;
        options.words_heard_ms = Some(heard);
    }
}

/// A word is known to those alone that held its lease: that another peer of their organisation was heard does not do.
#[test]
fn who_restarts_before_it_heard_all_peers_hears_what_one_of_them_alone_knows() {
    testkit::time::run(78, |env| async move {
        let mut town = town_with(&env, 3, |_| {}).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        for peer in [1, 2] {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
        }
        town.until("it heard all others", |town| town.peers[1].words_heard_ms() > 0).await;
        let had = town.take_down(1).await;
        let word = client.forget(&town, &shown);
        client.ask(&town, 2, LeaseRequest::Forget(vec![word])).await;
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;

        // Peers 0 and 2 are of one organisation, and peer 2 tells nothing before the next restart.
        town.network.lie_of_leases(&town.peers[2].peer(), tells_no_words());
        let (heard, with) = (town.peers[1].words_heard_ms(), as_it_was(&town, 1));
        town.bring_back_with(1, had, with).await;
        env.clock.sleep(Duration::from_secs(120)).await;
        assert_eq!(town.peers[1].words_heard_ms(), heard, "one was not heard");
        let had = town.take_down(1).await;
        let with = as_it_was(&town, 1);
        town.network.heal();
        town.bring_back_with(1, had, with).await;
        assert!(town.stores[1].holds(&record.id), "it was away");
        town.until("the word reaches it", |town| !town.stores[1].holds(&record.id)).await;
    });
}

#[test]
fn who_is_away_is_not_waited_for_and_who_tells_no_words_for_a_while_alone() {
    testkit::time::run(79, |env| async move {
        let town = town_with(&env, 3, |_| {}).await;
        let silent = town.community.peer(2);
        town.network.lie_of_leases(&silent, tells_no_words());
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        client.store(&town, 1, &record, vec![shown]).await.unwrap();
        let before = town.peers[1].words_heard_ms();
        env.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(town.peers[1].words_heard_ms(), before, "who is well is waited for");
        town.network.set(&silent, Fault::Down);
        town.until("who is away is not", |town| town.peers[1].words_heard_ms() > before).await;

        town.network.set(&silent, Fault::None);
        let health = |town: &Town| town.peers[1].directory().health(&silent);
        town.until("it is back", |town| health(town) == Health::Healthy).await;
        let before = town.peers[1].words_heard_ms();
        env.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(town.peers[1].words_heard_ms(), before, "it is waited for again");
        env.clock.sleep(Duration::from_secs(3 * 3600)).await;
        assert!(town.peers[1].words_heard_ms() > before, "and not for ever");
    });
}
