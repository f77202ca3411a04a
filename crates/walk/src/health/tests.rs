use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn timed_out() -> CallError {
    CallError::TimedOut { address: String::new(), limit: at(10) }
}

#[test]
fn failures_lead_to_suspect_and_after_a_minute_to_away() {
    let mut outcomes = Outcomes::default();
    let health = |outcomes: &Outcomes, now| outcomes.health(PeerState::Serving, at(now));
    assert_eq!(health(&outcomes, 0), Health::Healthy);
    outcomes.failed(&timed_out(), at(100));
    assert_eq!(health(&outcomes, 100), Health::Suspect);
    // One failure long ago proves little.
    assert_eq!(health(&outcomes, 1_000), Health::Suspect);
    assert!(outcomes.claim(at(159)));
    outcomes.failed(&timed_out(), at(159));
    assert_eq!(health(&outcomes, 159), Health::Suspect);
    assert_eq!(health(&outcomes, 160), Health::Away);
    outcomes.good(at(170));
    assert_eq!(health(&outcomes, 170), Health::Healthy);
    assert_eq!(outcomes.last_good(), Some(at(170)));
}

#[test]
fn a_refusal_is_a_sign_of_life() {
    let refusals = [
        CallError::Denied { reason: String::new() },
        CallError::Busy { retry_after: at(1) },
        CallError::Full,
        CallError::ReadOnly { reason: String::new() },
        CallError::Invalid { reason: String::new() },
    ];
    for refusal in refusals {
        let mut outcomes = Outcomes::default();
        outcomes.failed(&timed_out(), at(1));
        outcomes.failed(&refusal, at(2));
        assert_eq!(outcomes.health(PeerState::Serving, at(2)), Health::Healthy, "{refusal}");
        let full = matches!(refusal, CallError::Full | CallError::ReadOnly { .. });
        assert_eq!(outcomes.refuses_writes(at(3)), full, "{refusal}");
        // A good read in between does not free the disk.
        outcomes.good(at(4));
        assert_eq!(outcomes.refuses_writes(at(5)), full, "{refusal}");
        assert!(!outcomes.refuses_writes(at(2) + NO_WRITES_FOR));
    }
}

#[test]
fn the_backoff_doubles_and_one_claims_the_try() {
    let mut outcomes = Outcomes::default();
    let mut now = at(10);
    outcomes.failed(&timed_out(), now);
    for wait in [1, 2, 4, 8, 16, 30, 30, 30] {
        assert!(!outcomes.claim(now + at(wait) - Duration::from_millis(1)), "too early");
        now += at(wait);
        assert!(outcomes.ready(now));
        assert!(outcomes.claim(now), "after {wait} s");
        assert!(!outcomes.claim(now), "it was claimed already");
        // Two that failed side by side count once.
        outcomes.failed(&timed_out(), now);
        outcomes.failed(&timed_out(), now);
    }
}

#[test]
fn lagging_behind_three_times_is_a_failure() {
    let mut outcomes = Outcomes::default();
    for expected in [Health::Healthy, Health::Healthy, Health::Suspect] {
        outcomes.lagged(at(1));
        assert_eq!(outcomes.health(PeerState::Serving, at(1)), expected);
    }
}

#[test]
fn a_stopped_peer_is_away_however_well_it_was() {
    let mut outcomes = Outcomes::default();
    outcomes.good(at(1));
    assert_eq!(outcomes.health(PeerState::Stopped, at(1)), Health::Away);
    assert_eq!(outcomes.health(PeerState::Left, at(1)), Health::Away);
    assert_eq!(outcomes.health(PeerState::ReadOnly, at(1)), Health::Healthy);
}
