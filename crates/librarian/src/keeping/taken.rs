//! How much of this peer's time each organisation's comparisons take.
//!
//! But for the sums of all places, which are kept, a comparison walks through a part of everything that is here: its cost goes by what
//! is here, not by what is asked, and is known only behind it. So it is taken then, of the organisation, whose peers' keys cost it
//! nothing; and whoever took [`TAKEN_MAX`] comes again when enough of it has passed.

use std::collections::HashMap;
use std::time::Duration;

use crypto::OrgId;
use env::calls::CallError;

use crate::limiter::bucket::Bucket;

/// So much time an organisation's comparisons may take in each [`PERIOD`]: a fifth of one core.
const TAKEN_MAX: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_secs(20);
/// The same in microseconds.
const RATE: u64 = TAKEN_MAX.as_micros() as u64;

/// What was taken and has not passed, of each organisation.
#[derive(Debug, Default)]
pub(super) struct TimeTaken(HashMap<OrgId, Bucket>);

impl TimeTaken {
    fn wait(&self, organisation: &OrgId, now: Duration) -> Duration {
        let bucket = self.0.get(organisation).copied().unwrap_or_default();
        bucket.wait(1, RATE, PERIOD, now)
    }

    /// Whether an organisation's peer may begin.
    ///
    /// # Errors
    /// [`CallError::Busy`], with when it may.
    pub(super) fn enter(&self, organisation: &OrgId, now: Duration) -> Result<(), CallError> {
        match self.wait(organisation, now) {
            Duration::ZERO => Ok(()),
            retry_after => Err(CallError::Busy { retry_after }),
        }
    }

    /// Whether what was begun goes on: until the organisation is a whole period's time over, which one call is not unless others of it
    /// run beside it.
    ///
    /// # Errors
    /// [`CallError::Busy`], with when its peers may ask again.
    pub(super) fn goes_on(&self, organisation: &OrgId, now: Duration) -> Result<(), CallError> {
        match self.wait(organisation, now) {
            wait if wait <= PERIOD => Ok(()),
            retry_after => Err(CallError::Busy { retry_after }),
        }
    }

    /// Takes what something took.
    pub(super) fn add(&mut self, organisation: OrgId, took: Duration, now: Duration) {
        if !self.0.contains_key(&organisation) {
            // No more are remembered than took something in the last period.
            self.0.retain(|_, bucket| !bucket.wait(RATE, RATE, PERIOD, now).is_zero());
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if micros > 0 {
            self.0.entry(organisation).or_default().take(micros, RATE, PERIOD, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn organisation(n: u8) -> OrgId {
        OrgId::new(crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public())
    }

    fn busy(result: Result<(), CallError>) -> Option<Duration> {
        match result {
            Ok(()) => None,
            Err(CallError::Busy { retry_after }) => Some(retry_after),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn who_took_its_share_comes_again_when_some_of_it_has_passed_and_others_are_served() {
        let (mut taken, mut now) = (TimeTaken::default(), PERIOD);
        let [one, other] = [organisation(1), organisation(2)];
        for _ in 0..40 {
            assert_eq!(busy(taken.enter(&one, now)), None);
            taken.add(one, TAKEN_MAX / 40, now);
        }
        let wait = busy(taken.enter(&one, now)).expect("a share was taken");
        assert_eq!(busy(taken.enter(&other, now)), None);
        assert_eq!(busy(taken.goes_on(&one, now)), None, "what was begun ends");
        now += wait;
        assert_eq!(busy(taken.enter(&one, now)), None);
        // Many at once, each of which was let in.
        taken.add(one, TAKEN_MAX * 2, now);
        assert!(busy(taken.goes_on(&one, now)).is_some());
        assert!(busy(taken.enter(&one, now)) > Some(PERIOD));
        assert_eq!(busy(taken.enter(&one, now + PERIOD * 3)), None);
    }

    #[test]
    fn whoever_took_nothing_of_late_is_not_remembered() {
        let mut taken = TimeTaken::default();
        for n in 1..=100 {
            let now = PERIOD * u32::from(n);
            taken.add(organisation(n), TAKEN_MAX / 2, now);
            taken.add(organisation(n), Duration::ZERO, now);
            assert!(taken.0.len() <= 2, "{}", taken.0.len());
        }
    }
}
