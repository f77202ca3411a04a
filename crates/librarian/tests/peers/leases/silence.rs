//! Who was away for long is told apart from who was not heard for long: only the one begins empty.

use crypto::{Announcement, PeerCertificate, PeerState};

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
