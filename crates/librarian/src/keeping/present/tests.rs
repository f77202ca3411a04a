//! Who is believed to be gone, and by whom.

use placement::Candidate;
use testkit::network::community;

use super::*;

const CUT_OFF: Duration = Duration::from_secs(1800);
const SPANS: Spans = Spans { fresh: Duration::from_secs(30), cut_off: CUT_OFF };

/// The peers of a view, of these organisations in turn.
fn world(organisations: usize, peers: usize) -> (View, Vec<PeerId>) {
    let community = community(organisations, peers);
    let candidates = community.members.iter().map(|member| Candidate {
        peer: PeerId::new(member.key.public()),
        organisation: member.organisation,
        weight: 1 << 40,
    });
    let view = View::new(0, candidates.collect());
    (view, community.members.iter().map(|member| member.peer).collect())
}

/// What peer 0 believes at this second, where these were heard a second ago and all say the rest is gone.
fn believed(
    present: &mut Present,
    view: &View,
    peers: &[PeerId],
    heard: &[usize],
    at: u64,
) -> usize {
    let now = Duration::from_secs(at);
    let here = |peer: &PeerId| heard.iter().any(|number| peers[*number] == *peer);
    let gone = peers[1..].iter().filter(|peer| !here(peer)).copied();
    let words = Words { absent: gone.collect(), faulty: Vec::new() };
    present.own = words.clone();
    for number in heard {
        present.hear(peers[*number], words.clone(), now);
    }
    present.absent(view, &peers[0], BTreeSet::new(), now, SPANS).absent.len()
}

/// What is known of these peers, all of them well.
fn well(view: &View, peers: &[PeerId]) -> Vec<PeerStatus> {
    let status = |peer: &PeerId| PeerStatus {
        peer: *peer,
        organisation: view.candidates()[usize::from(view.index_of(peer).expect("ranked"))]
            .organisation,
        state: PeerState::Serving,
        health: Health::Healthy,
        last_good: Some(Duration::ZERO),
        organisation_name: String::new(),
        addresses: Vec::new(),
        capacity: 1 << 40,
    };
    peers.iter().map(status).collect()
}

#[test]
fn who_has_a_rank_and_is_known_no_more_is_done_without_as_one_that_is_silent() {
    let (view, peers) = world(4, 4);
    let after = Duration::from_secs(180);
    let mut present = Present::default();
    let look = |present: &mut Present, known: &[PeerId], at: u64| {
        present.look(&well(&view, known), &view, &peers[0], Duration::from_secs(at), after);
        present.own().absent
    };
    assert_eq!(look(&mut present, &peers, 0), []);
    present.judge(peers[3], true);
    assert_eq!(look(&mut present, &peers[..3], 100), []);
    assert_eq!(present.own().faulty, [peers[3]], "what it failed is not forgotten");
    assert_eq!(look(&mut present, &peers[..3], 279), []);
    assert_eq!(look(&mut present, &peers[..3], 280), [peers[3]]);
    assert_eq!(look(&mut present, &peers, 281), [], "it is back");
}

#[test]
fn half_of_the_organisations_are_enough_to_do_without_the_rest() {
    let (view, peers) = world(4, 8);
    let mut present = Present::default();
    assert_eq!(believed(&mut present, &view, &peers, &[4, 1, 5], 100), 4);
    let (view, peers) = world(2, 4);
    assert_eq!(believed(&mut Present::default(), &view, &peers, &[2], 100), 2, "one of two burnt");
}

#[test]
fn who_is_cut_off_with_a_few_does_not_begin_to_copy_among_them_at_once() {
    let (view, peers) = world(6, 12);
    let mut present = Present::default();
    let heard = [6, 1, 7];
    assert_eq!(believed(&mut present, &view, &peers, &heard, 100), 0);
    assert_eq!(believed(&mut present, &view, &peers, &heard, 100 + CUT_OFF.as_secs() - 1), 0);
    // Hearing the others in between begins it anew.
    let many = [6, 1, 7, 2, 8];
    assert_eq!(believed(&mut present, &view, &peers, &many, 2_000), 6);
    assert_eq!(believed(&mut present, &view, &peers, &heard, 2_100), 0);
    // Long enough: then they are believed to be gone.
    assert_eq!(believed(&mut present, &view, &peers, &heard, 2_100 + CUT_OFF.as_secs()), 8);
}

#[test]
fn who_leaves_is_believed_also_where_few_are_heard() {
    let (view, peers) = world(6, 12);
    let mut present = Present::default();
    let leaving = BTreeSet::from([peers[3]]);
    let who = present.absent(&view, &peers[0], leaving, Duration::from_secs(1), SPANS);
    assert_eq!(who.absent, BTreeSet::from([peers[3]]));
    assert_eq!(who.leaving, who.absent);
}

/// What peer 0 believes where others were heard to say this one faulty or not, and some leave.
fn judged(
    (view, peers): &(View, Vec<PeerId>),
    words: &[(usize, bool)],
    accused: usize,
    leaving: &[usize],
) -> bool {
    let mut present = Present::default();
    for (number, faulty) in words {
        let faulty: Vec<PeerId> = faulty.then(|| peers[accused]).into_iter().collect();
        let words = Words { absent: Vec::new(), faulty };
        match number {
            0 => present.own = words,
            _ => present.hear(peers[*number], words, Duration::from_secs(1)),
        }
    }
    let leaving = leaving.iter().map(|number| peers[*number]).collect();
    let now = Duration::from_secs(2);
    present.absent(view, &peers[0], leaving, now, SPANS).absent.contains(&peers[accused])
}

/// Who does without a peer does not hear it any more: were its voice missing then, it would never be heard again here, and always
/// elsewhere.
#[test]
fn who_is_accused_has_its_voice_heard_or_not() {
    // Organisations {0, 4}, {1, 5}, {2, 6} and {3}.
    let world = world(4, 7);
    let tie = [(0, true), (4, true), (1, true), (5, true), (2, true), (6, false)];
    let heard = |words: &[(usize, bool)]| [words, &[(3, false)]].concat();
    assert!(!judged(&world, &tie, 3, &[]), "two of four");
    assert!(!judged(&world, &heard(&tie), 3, &[]), "two of four");
    let more = [(0, true), (4, true), (1, true), (5, true), (2, true), (6, true)];
    assert!(judged(&world, &more, 3, &[]), "three of four");
    assert!(judged(&world, &heard(&more), 3, &[]), "three of four");
}

#[test]
fn who_leaves_says_nothing_of_who_is_faulty() {
    let world = world(4, 7);
    let tie = [(0, true), (4, true), (1, true), (5, false), (2, true), (6, true), (3, false)];
    assert!(!judged(&world, &tie, 3, &[6, 2]), "a tie, and nobody of the third is heard");
    assert!(judged(&world, &tie, 3, &[5]), "who ties its organisation leaves");
}

#[test]
fn who_leaves_and_is_gone_moves_nothing_any_more() {
    let (view, peers) = world(3, 6);
    let leaving = BTreeSet::from([peers[0], peers[3]]);
    let mut present = Present::default();
    let now = Duration::from_secs(1);
    let words = Words { absent: vec![peers[3], peers[0]], faulty: Vec::new() };
    for number in [1, 2, 4, 5] {
        present.hear(peers[number], words.clone(), now);
    }
    let who = present.absent(&view, &peers[0], leaving.clone(), now, SPANS);
    assert_eq!(who.absent, leaving);
    assert_eq!(who.leaving, BTreeSet::from([peers[0]]), "of itself it knows better");
    for number in [1, 2, 4, 5] {
        present.hear(peers[number], Words::default(), now);
    }
    let who = present.absent(&view, &peers[0], leaving.clone(), now, SPANS);
    assert_eq!(who.leaving, leaving, "it is back");
}

#[test]
fn who_says_now_that_it_leaves_and_now_that_it_does_not_is_taken_to_leave() {
    let (_, peers) = world(3, 6);
    let (mut present, flips) = (Present::default(), peers[3]);
    let at = Duration::from_secs;
    let mut seen = |says: bool, seconds: u64| {
        let said = says.then_some(flips).into_iter();
        present.leaving(said, at(seconds)).contains(&flips)
    };
    assert!(!seen(false, 0));
    let flipping: Vec<bool> = (1..100).map(|round| seen(round % 3 == 1, round * 10)).collect();
    assert!(flipping.iter().all(|leaves| *leaves), "it never counts as something else");
    // Who stays after all is believed in the end.
    assert!(seen(true, 1_000) && seen(false, 1_000 + LEAVES_FOR.as_secs() - 1));
    assert!(!seen(false, 1_000 + LEAVES_FOR.as_secs()));
}

#[test]
fn an_organisation_with_many_dead_peers_leaves_room_for_what_others_lose() {
    let (view, peers) = world(2, 40);
    let of: HashMap<PeerId, OrgId> =
        view.candidates().iter().map(|one| (one.peer, one.organisation)).collect();
    let crowd: BTreeSet<PeerId> =
        peers.iter().filter(|peer| of[*peer] == of[&peers[0]]).copied().collect();
    // Whatever its key is: the one that others lost too.
    for lost in peers.iter().filter(|peer| of[*peer] != of[&peers[0]]) {
        let all: BTreeSet<PeerId> = crowd.iter().chain([lost]).copied().collect();
        let told = said(&all, &of, 5);
        assert_eq!(told.len(), 5);
        assert!(told.contains(lost) && told.is_sorted());
        assert!(said(&all, &of, all.len()).iter().eq(&all), "all where there is room");
    }
}
