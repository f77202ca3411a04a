use super::*;

const ZERO: Duration = Duration::ZERO;

fn key(n: u32) -> PublicKey {
    let mut bytes = [1; 32];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    crypto::SecretKey::from_bytes(&bytes).expect("a scalar").public()
}

fn limiter(tier: Tier, rate: Rate) -> Limiter {
    let none = Rates::default();
    let mut rates = TierRates { own: none, known: none, stranger: none };
    match tier {
        Tier::Own => rates.own = Rates::all(rate),
        Tier::Known => rates.known = Rates::all(rate),
        Tier::Stranger => rates.stranger = Rates::all(rate),
    }
    Limiter::new(rates)
}

fn asked(tier: Tier, method: Method, requests: u64, bytes: u64) -> Asked {
    Asked { tier, method, requests, bytes }
}

fn find(tier: Tier) -> Asked {
    asked(tier, Method::Find, 1, 0)
}

/// The wait and the bound of a refusal.
fn refused(result: Result<(), Box<Over>>) -> (Duration, Bound) {
    let over = result.expect_err("over a bound");
    match over.error {
        CallError::Busy { retry_after } => (retry_after, over.bound),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rate_refills_exactly_and_a_refusal_takes_nothing() {
    let limiter = limiter(Tier::Known, Rate::a_second(4));
    let ask = |ms| limiter.enter(&key(1), &find(Tier::Known), Duration::from_millis(ms));
    for _ in 0..4 {
        ask(0).expect("a burst of one second");
    }
    for _ in 0..10 {
        assert_eq!(refused(ask(0)), (Duration::from_millis(250), Bound::Second));
    }
    assert_eq!(refused(ask(249)), (Duration::from_millis(1), Bound::Second));
    ask(250).expect("the refused ones cost nothing");
    assert!(ask(251).is_err());
}

/// Introductions that prove nothing are a stranger's, and their number bounds the next before a signature is looked at.
#[test]
fn who_proved_nothing_too_often_proves_nothing_for_a_while() {
    let limiter = limiter(Tier::Stranger, Rate::a_second(2));
    let nothing = asked(Tier::Stranger, Method::Introduce, 1, 0);
    for _ in 0..2 {
        limiter.may_prove(&key(1), ZERO).expect("not known yet, or not too often");
        limiter.enter(&key(1), &nothing, ZERO).expect("a burst of one second");
    }
    let half = Duration::from_millis(500);
    assert_eq!(refused(limiter.may_prove(&key(1), ZERO)), (half, Bound::Second));
    limiter.may_prove(&key(2), ZERO).expect("another");
    limiter.may_prove(&key(1), half).expect("the bucket has one again");
    limiter.may_prove(&key(1), half).expect("looking takes none");
}

#[test]
fn each_record_of_a_batch_counts_and_a_batch_over_is_refused_whole() {
    let limiter = limiter(Tier::Known, Rate::a_second(10));
    let batch = |n, method| limiter.enter(&key(1), &asked(Tier::Known, method, n, 0), ZERO);
    batch(8, Method::StoreBatch).expect("room");
    assert_eq!(refused(batch(4, Method::StoreBatch)), (Duration::from_millis(200), Bound::Second));
    batch(1, Method::Store).expect("the batch took none");
    batch(1, Method::Store).expect("ten in all");
    assert!(batch(1, Method::Store).is_err());
    batch(10, Method::FindBatch).expect("another endpoint has its own");
}

#[test]
fn a_day_has_its_own_bounds_of_requests_and_bytes() {
    let day = Rate { per_day: Some(24), bytes_per_day: Some(2400), ..Rate::default() };
    let limiter = limiter(Tier::Own, day);
    let store = |n, bytes, at| {
        limiter.enter(&key(1), &asked(Tier::Own, Method::Store, n, bytes), Duration::from_secs(at))
    };
    store(23, 2400, 0).expect("within the day");
    // One request fits, its bytes do not: a hundred bytes an hour come back.
    assert_eq!(refused(store(1, 100, 0)), (Duration::from_secs(3600), Bound::Bytes));
    store(1, 100, 3600).expect("an hour later");
    assert_eq!(refused(store(2, 0, 3600)), (Duration::from_secs(3600), Bound::Day));
}

#[test]
fn bytes_answered_are_paid_for_by_the_next_request() {
    let rate = Rate { bytes_per_day: Some(86_400), ..Rate::default() };
    let limiter = limiter(Tier::Known, rate);
    let read = find(Tier::Known);
    limiter.enter(&key(1), &read, ZERO).expect("nothing read yet");
    limiter.answered(&key(1), &read, 86_410, ZERO);
    assert_eq!(refused(limiter.enter(&key(1), &read, ZERO)).0, Duration::from_secs(11));
    limiter.enter(&key(1), &read, Duration::from_secs(11)).expect("run out");
    limiter.enter(&key(2), &read, ZERO).expect("another caller");
}

#[test]
fn different_callers_are_counted_once_a_second_and_once_a_day() {
    let rate = Rate { callers_per_second: Some(2), callers_per_day: Some(3), ..Rate::default() };
    let limiter = limiter(Tier::Stranger, rate);
    let ask = |n, s| limiter.enter(&key(n), &find(Tier::Stranger), Duration::from_secs(s));
    ask(1, 0).expect("first");
    ask(2, 0).expect("second");
    assert_eq!(refused(ask(3, 0)), (Duration::from_millis(500), Bound::Callers));
    for _ in 0..100 {
        ask(1, 0).expect("no different caller");
    }
    ask(3, 1).expect("a second later");
    let (wait, bound) = refused(ask(4, 2));
    assert_eq!((wait, bound), (Duration::from_secs(28_800 - 2), Bound::Callers));
    ask(1, 3).expect("counted today already");
    ask(4, 28_800).expect("a third of a day later");
}

#[test]
fn a_flood_of_strangers_is_paid_for_by_strangers_alone() {
    let limiter = Limiter::new(TierRates::default());
    let mut let_in = 0;
    for n in 0..20_000 {
        let at = Duration::from_micros(u64::from(n) * 100);
        let_in += u64::from(limiter.enter(&key(n % 10_000), &find(Tier::Stranger), at).is_ok());
        limiter.enter(&key(1), &find(Tier::Known), at).expect("a member within its rate");
        limiter.enter(&key(2), &find(Tier::Own), at).expect("the own are not held back");
    }
    // Two seconds: a burst of 100 different strangers, then 100 a second.
    assert!((200..=301).contains(&let_in), "{let_in}");
}

#[test]
fn what_a_tier_does_not_get_is_denied_for_good() {
    let limiter = Limiter::new(TierRates::default());
    let store = asked(Tier::Stranger, Method::Store, 1, 10);
    let over = limiter.enter(&key(1), &store, ZERO).expect_err("no store for strangers");
    assert!(matches!(over.error, CallError::Denied { .. }));
}

#[test]
fn callers_remembered_are_bounded_and_the_lately_seen_stay() {
    let limiter = limiter(Tier::Known, Rate { per_day: Some(1), ..Rate::default() });
    let ask = |n: u32| limiter.enter(&key(n), &find(Tier::Known), ZERO).is_ok();
    let max = u32::try_from(CALLERS_MAX).expect("small");
    assert!((0..=max).all(ask));
    assert!(limiter.desk(Tier::Known, 1).callers.len() <= CALLERS_MAX);
    assert!(!ask(max), "seen lately: its day is used up");
    assert!(ask(0), "forgotten: it starts afresh");
}
