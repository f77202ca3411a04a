//! The one limiter: how often a caller may ask, by its tier and the endpoint.
//!
//! Each caller has buckets of its own for each endpoint, kept apart by tier, so that nobody's flood
//! is paid for by somebody else; and each tier has a bound of different callers, since keys are free.
//! A request passes all of its bounds or takes of none: [`Limiter::enter`] looks at every one before
//! it counts on any, so a batch that is over is refused before a record of it is looked at, and the
//! answer names the longest of the waits.
//!
//! ```text
//! caller's buckets   requests a second · requests a day · record bytes a day
//! tier's buckets     different callers a second · different callers a day
//! ```
//! A caller counts as different once a second and once a day: it carries the time until which it was
//! counted. Bytes that are answered are known only afterwards; [`Limiter::answered`] takes them then,
//! and the next request waits for what went over.
//!
//! Limits: [`CALLERS_MAX`] callers are remembered for each tier and endpoint. Of more, the half that
//! asked longest ago is forgotten: it counts as different again, which is the stricter side. Nothing
//! here outlives the process; what a pass may store in all does (`quota`).

pub(crate) mod bucket;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crypto::{PublicKey, Tier};
use env::calls::CallError;

use crate::metrics::{Bound, Method};
use crate::rates::{Rate, Rates, TierRates};
use bucket::Bucket;

/// Callers remembered for one tier and endpoint.
pub(crate) const CALLERS_MAX: usize = 8_192;
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The longest wait that is told: whoever asks again then hears how it stands.
const RETRY_AFTER_MAX: Duration = DAY;
/// Endpoints; the batch forms share the bucket of their single calls.
const ENDPOINTS: usize = 7;
const TIERS: usize = 3;

/// One request to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) tier: Tier,
    pub(crate) method: Method,
    /// Requests in it: the records of a batch.
    pub(crate) requests: u64,
    /// Record bytes it brings.
    pub(crate) bytes: u64,
}

/// Why a request was not let in.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) bound: Bound,
    pub(crate) error: CallError,
}

/// Counts requests.
pub(crate) struct Limiter {
    rates: TierRates,
    desks: [[Mutex<Desk>; ENDPOINTS]; TIERS],
}

/// The callers of one tier at one endpoint.
#[derive(Default)]
struct Desk {
    callers: HashMap<PublicKey, Known>,
    second: Bucket,
    day: Bucket,
    uses: u64,
}

#[derive(Clone, Copy, Default)]
struct Known {
    second: Bucket,
    day: Bucket,
    bytes: Bucket,
    /// Until when it is counted among the callers of this second, and of this day.
    counted: [Option<Duration>; 2],
    used: u64,
}

impl Limiter {
    pub(crate) fn new(rates: TierRates) -> Self {
        Self { rates, desks: Default::default() }
    }

    /// Counts a request, or refuses it whole; `now` is the clock's `elapsed`.
    ///
    /// # Errors
    /// [`Over`], with what to answer.
    pub(crate) fn enter(
        &self,
        key: &PublicKey,
        asked: &Asked,
        now: Duration,
    ) -> Result<(), Box<Over>> {
        let (endpoint, rate) = endpoint(asked.method, self.rates.of(asked.tier));
        let mut desk = self.desk(asked.tier, endpoint);
        let known = desk.callers.get(key).copied().unwrap_or_default();
        let mut wait = Wait::default();
        let mut look = |bucket: &Bucket, units, rate: Option<u64>, period, bound| {
            if let Some(rate) = rate {
                wait.at_least(bucket.wait(units, rate, period, now), bound);
            }
        };
        look(&known.second, asked.requests, rate.per_second, SECOND, Bound::Second);
        look(&known.day, asked.requests, rate.per_day, DAY, Bound::Day);
        // Whoever reads brings no bytes and is held to what it was answered before.
        let bytes = asked.bytes.max(u64::from(rate.bytes_per_day.is_some()));
        look(&known.bytes, bytes, rate.bytes_per_day, DAY, Bound::Bytes);
        let [in_second, in_day] = known.counted.map(|until| until.is_some_and(|until| now < until));
        let (a_second, a_day) = (rate.callers_per_second, rate.callers_per_day);
        look(&desk.second, u64::from(!in_second), a_second, SECOND, Bound::Callers);
        look(&desk.day, u64::from(!in_day), a_day, DAY, Bound::Callers);
        wait.over()?;
        desk.count(key, known, asked, rate, now);
        Ok(())
    }

    /// Whether a caller may show what vouches for it, which costs signatures to look at: not while the introductions that
    /// proved nothing, each counted as a stranger's, were as many as a stranger may make. Counts nothing.
    ///
    /// # Errors
    /// [`Over`], with what to answer.
    pub(crate) fn may_prove(&self, key: &PublicKey, now: Duration) -> Result<(), Box<Over>> {
        let (endpoint, rate) = endpoint(Method::Introduce, self.rates.of(Tier::Stranger));
        let desk = self.desk(Tier::Stranger, endpoint);
        let Some(known) = desk.callers.get(key) else { return Ok(()) };
        let mut wait = Wait::default();
        let bounds = [
            (&known.second, rate.per_second, SECOND, Bound::Second),
            (&known.day, rate.per_day, DAY, Bound::Day),
        ];
        for (bucket, rate, period, bound) in bounds {
            if let Some(rate) = rate {
                wait.at_least(bucket.wait(1, rate, period, now), bound);
            }
        }
        wait.over()
    }

    /// Counts record bytes that were answered.
    pub(crate) fn answered(&self, key: &PublicKey, asked: &Asked, bytes: u64, now: Duration) {
        let (endpoint, rate) = endpoint(asked.method, self.rates.of(asked.tier));
        let Some(bytes_per_day) = rate.bytes_per_day else { return };
        if let Some(known) = self.desk(asked.tier, endpoint).callers.get_mut(key) {
            known.bytes.take(bytes, bytes_per_day, DAY, now);
        }
    }

    fn desk(&self, tier: Tier, endpoint: usize) -> std::sync::MutexGuard<'_, Desk> {
        let tier = match tier {
            Tier::Stranger => 0,
            Tier::Known => 1,
            Tier::Own => 2,
        };
        self.desks[tier][endpoint].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    fn count(&mut self, key: &PublicKey, was: Known, asked: &Asked, rate: &Rate, now: Duration) {
        let mut known = was;
        let take = |bucket: &mut Bucket, units, rate: Option<u64>, period| {
            if let Some(rate) = rate {
                bucket.take(units, rate, period, now);
            }
        };
        take(&mut known.second, asked.requests, rate.per_second, SECOND);
        take(&mut known.day, asked.requests, rate.per_day, DAY);
        take(&mut known.bytes, asked.bytes, rate.bytes_per_day, DAY);
        let periods = [
            (&mut self.second, rate.callers_per_second, SECOND),
            (&mut self.day, rate.callers_per_day, DAY),
        ];
        for ((bucket, rate, period), until) in periods.into_iter().zip(&mut known.counted) {
            if until.is_none_or(|until| now >= until) {
                take(bucket, 1, rate, period);
                *until = Some(now.saturating_add(period));
            }
        }
        self.uses += 1;
        known.used = self.uses;
        if self.callers.len() >= CALLERS_MAX && !self.callers.contains_key(key) {
            self.forget_older_half();
        }
        self.callers.insert(*key, known);
    }

    fn forget_older_half(&mut self) {
        let mut uses: Vec<u64> = self.callers.values().map(|known| known.used).collect();
        let middle = uses.len() / 2;
        let (_, &mut median, _) = uses.select_nth_unstable(middle);
        self.callers.retain(|_, known| known.used > median);
    }
}

/// The longest wait so far, and what it is for.
#[derive(Default)]
struct Wait(Option<(Duration, Bound)>);

impl Wait {
    fn at_least(&mut self, wait: Duration, bound: Bound) {
        let longest = self.0.map_or(Duration::ZERO, |(longest, _)| longest);
        if wait > longest {
            self.0 = Some((wait, bound));
        }
    }

    fn over(self) -> Result<(), Box<Over>> {
        let Some((wait, bound)) = self.0 else { return Ok(()) };
        let error = if wait == Duration::MAX {
            let reason = "this peer does not serve this to callers of your tier".to_owned();
            CallError::Denied { reason }
        } else {
            CallError::Busy { retry_after: wait.min(RETRY_AFTER_MAX) }
        };
        Err(Box::new(Over { bound, error }))
    }
}

fn endpoint(method: Method, rates: &Rates) -> (usize, &Rate) {
    match method {
        Method::Introduce => (0, &rates.introduce),
        Method::Find
        | Method::FindBatch
        | Method::ObjectsGet
        | Method::ObjectsPrevious
        | Method::ObjectsTips
        | Method::ObjectsHeads
        | Method::ObjectsList
        | Method::CommitteeRead
        | Method::Lease => (1, &rates.find),
        Method::Verify | Method::VerifyBatch | Method::Keep => (2, &rates.verify),
        Method::Store
        | Method::StoreBatch
        | Method::Tell
        | Method::ObjectsPut
        | Method::CommitteeUpdate => (3, &rates.store),
        Method::Put => (4, &rates.put),
        Method::Get => (5, &rates.get),
        Method::Subscribe | Method::Watch => (6, &rates.subscribe),
    }
}

#[cfg(test)]
mod tests;
