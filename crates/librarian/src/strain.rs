//! Whether this peer is behind with its work, and what gives way then.
//!
//! Bounds of calls at once (`admission`) do not tell a call that waits for another peer from one that waits for this peer's
//! processors or disk. Where more is asked than these can do, calls are late by all that waits before them; callers give up,
//! and what was done for them was done in vain. So while many calls are being answered two things are looked at: how late a
//! timer wakes, and how long the storing of a small record takes, which is work of this peer alone. If every timer of an interval
//! was late, or more than half of what was stored, some of the `Put`s and `Get`s, which cost the most and which clients can bring again, are refused
//! with a delay (the design's Q7), more of them with each such interval, fewer with each other one. Mending gives way too.
//!
//! Of timers the least delay counts, as in CoDel (RFC 8289): a burst makes a long queue that is soon empty, and is no overload.
//! Stores do not wait in one queue: under three times the load that can be done a sixth of them took less than 0.1 s while half
//! took more than 0.5 s, so there the half counts. Storing is held against the shortest of the last minutes, since a slow disk
//! is no overload either. The part that is refused rises by steps and falls by smaller ones, so it settles where what is let
//! in is what can be done. Whoever has less than half as many of such calls in progress as callers have on average is not
//! refused: the others are in its stead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crypto::PublicKey;
use env::Env;

use crate::core::Core;

/// Calls being answered from which on it is looked: fewer wait for no long queue. One of nine peers on two processors has three
/// to five at its saturation and twenty to thirty where requests queue.
pub(crate) const CALLS: usize = 8;
/// How long a timer sleeps that is looked at.
const PROBE: Duration = Duration::from_millis(10);
/// Timers an interval.
const PROBES: u32 = 10;
/// How late the timeliest of an interval may be. A processor that others use too gives it back within some milliseconds.
const LATE: Duration = Duration::from_millis(25);
/// How long half of what is stored in an interval may take, beyond twice the shortest of the last minutes.
const STORES_LATE: Duration = Duration::from_millis(100);
/// For how long, to twice as long, the shortest one counts.
const SHORTEST_FOR: Duration = Duration::from_secs(300);
/// By how much the refused part rises with a late interval, and falls with another; and its most, so that it is noticed when
/// it is over.
const RISE: f64 = 0.05;
const FALL: f64 = 0.02;
/// By how much where nothing was stored meanwhile, which may be because all waits for one slow write.
const FALL_UNKNOWN: f64 = 0.005;
const PART_MAX: f64 = 0.95;
/// Refusals that are owed at most where all are refused, as those who ask for little are let in meanwhile; of a part of it, that
/// part, and [`OWED_MIN`] at least.
const OWED_MAX: f64 = 32.0;
const OWED_MIN: f64 = 2.0;
/// When a refused caller should come again, where all are refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MIN: Duration = Duration::from_millis(50);
/// How often it is told that a peer is strained, at most.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// For how long mending gives way, at most: what lacks a copy is in danger.
const CALM_WAIT_MAX: Duration = Duration::from_secs(10);

/// How strained a peer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strain(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Of the calls that can be brought again, the part that is refused.
    part: f64,
    /// Refusals owed: one is due at about 1, and never in step with callers.
    owed: f64,
    dither: Dither,
    asking: Asking,
    /// What was stored in this interval.
    stored: Stores,
    shortest: Shortest,
    /// How late timers were in the last interval, and how long storing took, where it was too long.
    late: Option<Duration>,
    stores_late: Option<Duration>,
}

/// The calls in progress that can be brought again, by their callers: no more than calls are let in at once.
#[derive(Debug, Default)]
struct Asking {
    by_key: HashMap<PublicKey, usize>,
    all: usize,
}

impl Asking {
    /// Whether a caller, with one call more, has less than half of what callers have on average.
    fn is_little(&self, key: &PublicKey) -> bool {
        let own = self.by_key.get(key).copied();
        let callers = self.by_key.len() + usize::from(own.is_none());
        (own.unwrap_or(0) + 1) * 2 * callers < self.all + 1
    }
}

/// A call in progress that can be brought again. Dropped, it is over.
pub(crate) struct Asked {
    strain: Strain,
    key: PublicKey,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let asking = &mut self.strain.lock().asking;
        asking.all -= 1;
        let left = asking.by_key.get(&self.key).map_or(0, |own| own - 1);
        match left {
            0 => drop(asking.by_key.remove(&self.key)),
            _ => drop(asking.by_key.insert(self.key, left)),
        }
    }
}

/// From a half to one and a half, differently each time (xorshift, Marsaglia 2003).
#[derive(Debug)]
struct Dither(u32);

impl Default for Dither {
    fn default() -> Self {
        Self(0x9E37_79B9)
    }
}

impl Dither {
    fn get(&self) -> f64 {
        0.5 + f64::from(self.0) / f64::from(u32::MAX)
    }

    fn step(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
    }
}

/// The storing of some records.
#[derive(Debug, Default)]
struct Stores {
    /// How many took too long, of how many.
    late: u32,
    all: u32,
    took: Duration,
}

impl Stores {
    fn is_late(&self) -> bool {
        self.late * 2 > self.all
    }

    /// How long one took; `None`: there were none.
    fn mean(&self) -> Option<Duration> {
        self.took.checked_div(self.all)
    }
}

/// The shortest of the last minutes: of a span that is over and of the one that runs.
#[derive(Debug, Default)]
struct Shortest {
    began: Duration,
    before: Option<Duration>,
    now: Option<Duration>,
}

impl Shortest {
    fn add(&mut self, took: Duration, now: Duration) {
        if now.saturating_sub(self.began) >= SHORTEST_FOR {
            (self.began, self.before) = (now, self.now.take());
        }
        self.now = Some(self.now.map_or(took, |shortest| shortest.min(took)));
    }

    fn get(&self) -> Duration {
        self.before.into_iter().chain(self.now).min().unwrap_or_default()
    }
}

impl Strain {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A small record was stored, and it took so long until it was durable.
    pub(crate) fn stored(&self, took: Duration, now: Duration) {
        let mut inner = self.lock();
        inner.shortest.add(took, now);
        let is_late = took > inner.shortest.get() * 2 + STORES_LATE;
        inner.stored.late += u32::from(is_late);
        inner.stored.all += 1;
        inner.stored.took += took;
    }

    /// An interval in which the timeliest timer was so late; the part that is refused now.
    fn looked(&self, late: Duration) -> f64 {
        let mut inner = self.lock();
        let stores = std::mem::take(&mut inner.stored);
        let (late, stored) = ((late > LATE).then_some(late), stores.mean());
        let stores_late = stored.filter(|_| stores.is_late());
        // Where it gets less already, enough is refused.
        let grows = (late.is_some() && late >= inner.late)
            || (stores_late.is_some() && stores_late >= inner.stores_late);
        let step = match (late.or(stores_late), stored) {
            (Some(_), _) if grows => RISE,
            (Some(_), _) => 0.0,
            (None, Some(_)) => -FALL,
            (None, None) => -FALL_UNKNOWN,
        };
        (inner.late, inner.stores_late) =
            (late, stores_late.or(inner.stores_late.filter(|_| stored.is_none())));
        inner.part = (inner.part + step).clamp(0.0, PART_MAX);
        if inner.part == 0.0 {
            inner.owed = 0.0;
        }
        inner.part
    }

    /// Whether calls are refused.
    pub(crate) fn is_strained(&self) -> bool {
        self.lock().part > 0.0
    }

    /// Lets a call in that can be brought again.
    ///
    /// # Errors
    /// After how long, where it is refused.
    pub(crate) fn ask(&self, key: &PublicKey) -> Result<Asked, Duration> {
        let mut inner = self.lock();
        let most = (OWED_MAX * inner.part).max(OWED_MIN);
        inner.owed = (inner.owed + inner.part).min(most);
        // Where those who ask for most make no calls any more, all are refused alike.
        let is_let_in = inner.owed < most && inner.asking.is_little(key);
        if inner.owed >= inner.dither.get() && !is_let_in {
            inner.owed -= 1.0;
            inner.dither.step();
            return Err(RETRY_AFTER.mul_f64(inner.part).max(RETRY_AFTER_MIN));
        }
        inner.asking.all += 1;
        *inner.asking.by_key.entry(*key).or_default() += 1;
        Ok(Asked { strain: self.clone(), key: *key })
    }

    /// Waits while the peer is strained, [`CALM_WAIT_MAX`] at most; `false` where it still is then. Cancel safe.
    pub(crate) async fn calm(&self, env: &Env) -> bool {
        let until = env.clock.elapsed() + CALM_WAIT_MAX;
        while self.is_strained() {
            if env.clock.elapsed() >= until {
                return false;
            }
            env.clock.sleep(PROBE * PROBES).await;
        }
        true
    }
}

/// How late the timeliest of some timers is.
async fn late(env: &Env) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..PROBES {
        let before = env.clock.elapsed();
        env.clock.sleep(PROBE).await;
        least = least.min(env.clock.elapsed().saturating_sub(before + PROBE));
    }
    least
}

/// Looks while many calls are being answered, until the peer stops. Costs nothing while few are.
pub(crate) async fn watch(core: Arc<Core>) {
    let mut told = None;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.admission.crowd() => {}
        }
        loop {
            let part = core.strain.looked(late(&core.env).await);
            let now = core.env.clock.elapsed();
            let lately = told.is_some_and(|at| now.saturating_sub(at) < TELL_EVERY);
            if part > 0.0 && !lately {
                told = Some(now);
                tracing::warn!(
                    "more is asked than the processors or the disk can do: some Put and Get are refused for a \
                     moment and mending waits; more of both, or fewer peers on them, help"
                );
            }
            let calls = core.admission.in_progress().0;
            if core.stop.is_cancelled() || (part == 0.0 && calls < CALLS) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(number: usize) -> PublicKey {
        testkit::network::key("caller", number).public()
    }

    fn looked(strain: &Strain, times: u32, late: Duration) {
        for _ in 0..times {
            strain.looked(late);
        }
    }

    #[test]
    fn nothing_is_refused_while_timers_are_in_time() {
        let strain = Strain::default();
        for late in [Duration::ZERO, LATE] {
            assert_eq!(strain.looked(late), 0.0);
        }
        assert!(!strain.is_strained());
        assert!((0..1000).all(|_| strain.ask(&key(1)).is_ok()));
    }

    #[test]
    fn storing_is_late_where_more_than_half_is_and_a_slow_disk_is_no_overload() {
        let ms = Duration::from_millis;
        let interval = |strain: &Strain, all: &[u64], at: u64| {
            all.iter().for_each(|took| strain.stored(ms(*took), Duration::from_secs(at)));
            strain.looked(Duration::ZERO)
        };
        let strain = Strain::default();
        assert_eq!(interval(&strain, &[2, 900], 0), 0.0, "half of it was short");
        assert_eq!(interval(&strain, &[104, 500], 1), 0.0);
        assert_eq!(interval(&strain, &[104, 500, 105], 2), RISE);
        let part = interval(&strain, &[], 3);
        assert!(part < RISE && part > RISE - FALL, "{part}: nobody knows");
        let less = interval(&strain, &[104, 500], 3);
        assert!(less < part);
        assert!(interval(&strain, &[300], 3) > less, "it grows");
        let part = interval(&strain, &[300], 3);
        assert!(part > interval(&strain, &[3], 3));
        // It gets less by itself: no more are refused.
        let more = interval(&strain, &[300], 4);
        assert_eq!(interval(&strain, &[200], 4), more);
        // Ten minutes later the disk has been slow for long.
        interval(&strain, &[2000], 301);
        interval(&strain, &[2000], 602);
        let part = interval(&strain, &[2000], 602);
        assert!(interval(&strain, &[4000], 603) < part, "it always takes so long there");
    }

    #[test]
    fn so_much_is_refused_as_the_part_says_and_some_always_get_in() {
        let strain = Strain::default();
        looked(&strain, 10, LATE * 2);
        let refused: Vec<_> = (0..1000).filter_map(|_| strain.ask(&key(1)).err()).collect();
        assert!((497..=502).contains(&refused.len()), "{}", refused.len());
        assert!(refused.iter().all(|after| (450..=550).contains(&after.as_millis())));
        looked(&strain, 100, LATE * 2);
        let let_in = (0..1000).filter(|_| strain.ask(&key(1)).is_ok()).count();
        assert!((48..=53).contains(&let_in), "{let_in}");
        looked(&strain, 200, Duration::ZERO);
        assert!(strain.ask(&key(1)).is_ok() && !strain.is_strained());
    }

    #[test]
    fn who_asks_for_little_is_let_in_and_who_asks_for_most_is_refused_instead() {
        let strain = Strain::default();
        let many: Vec<_> = (0..50).filter_map(|_| strain.ask(&key(1)).ok()).collect();
        assert_eq!(many.len(), 50);
        looked(&strain, 10, LATE * 2);
        let mut refused = 0;
        for _ in 0..500 {
            drop(strain.ask(&key(2)).map_err(|_| "it asks for little").unwrap());
            refused += usize::from(strain.ask(&key(1)).is_err());
        }
        assert!(refused > 450, "half of all, and all of one caller's: {refused}");
        // It came to an end, and nothing of it is known any more.
        drop(many);
        assert!(strain.lock().asking.by_key.is_empty() && strain.lock().asking.all == 0);
        // Among equals nobody asks for little.
        let all: Vec<_> = (0..200).map(|number| strain.ask(&key(number))).collect();
        let refused = all.iter().filter(|asked| asked.is_err()).count();
        assert!((98..=118).contains(&refused), "half, and what was owed: {refused}");
        // One who asked for much and asks for no more does not let all others in.
        let strain = Strain::default();
        let held: Vec<_> = (0..500).filter_map(|_| strain.ask(&key(1)).ok()).collect();
        looked(&strain, 10, LATE * 2);
        let refused = (0..400).filter(|number| strain.ask(&key(2 + number % 9)).is_err()).count();
        assert_eq!(held.len(), 500);
        assert!(refused > 150, "{refused} of 400");
    }

    /// A queue that does a thousand calls a second and is offered three thousand.
    #[test]
    fn under_three_times_the_load_what_is_let_in_is_what_can_be_done() {
        let (strain, caller) = (Strain::default(), key(1));
        let (mut queue, mut done, mut longest) = (0.0_f64, 0.0, 0.0_f64);
        for interval in 0..600 {
            let offered = if interval < 300 { 300 } else { 80 };
            let let_in = (0..offered).filter(|_| strain.ask(&caller).is_ok()).count() as f64;
            let served = (queue + let_in).min(100.0);
            queue += let_in - served;
            strain.stored(Duration::from_millis(queue as u64), Duration::ZERO);
            strain.looked(Duration::ZERO);
            if (50..300).contains(&interval) {
                done += served;
            }
            // Behind what gathered at first.
            if (150..300).contains(&interval) {
                longest = longest.max(queue);
            }
            // Soon after it, nobody waits and nobody is refused.
            assert!(
                interval < 350 || (queue == 0.0 && !strain.is_strained()),
                "{interval} {queue}"
            );
        }
        assert!(done / 250.0 > 90.0, "{done} of 25000 done");
        assert!(longest < 700.0, "{longest} ms");
    }

    #[test]
    fn what_gives_way_does_not_for_ever() {
        testkit::time::run(1, |env| async move {
            let strain = Strain::default();
            assert!(strain.calm(&env).await);
            assert_eq!(env.clock.elapsed(), Duration::ZERO);
            strain.looked(LATE * 2);
            assert!(!strain.calm(&env).await);
            assert_eq!(env.clock.elapsed(), CALM_WAIT_MAX);
            let ends = async {
                env.clock.sleep(Duration::from_secs(1)).await;
                looked(&strain, 12, Duration::ZERO);
            };
            let (calm, ()) = futures::future::join(strain.calm(&env), ends).await;
            assert!(calm && env.clock.elapsed() < CALM_WAIT_MAX + Duration::from_secs(2));
            assert_eq!(late(&env).await, Duration::ZERO, "virtual time is never late");
        });
    }

    #[test]
    fn a_runtime_that_is_busy_is_late_and_one_that_rests_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let env = Env::real();
            let works = tokio::spawn(async {
                loop {
                    std::thread::sleep(LATE * 2);
                    tokio::task::yield_now().await;
                }
            });
            assert!(late(&env).await > LATE);
            works.abort();
        });
    }
}
