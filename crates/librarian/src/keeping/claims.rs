//! Who mends which stripe now, so that nobody else does.
//!
//! A claim is a courtesy: it saves work and keeps nothing safe, so it is short and kept in memory alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{PeerId, RecordId};

/// How long a claim stands unless it is ended.
pub(crate) const CLAIM_FOR: Duration = Duration::from_secs(60);
/// Claims remembered; above, the answer is that nobody claimed.
const CLAIMS_KEPT_MAX: usize = 1 << 16;

/// How often one peer's claims of a stripe keep others from it, one after the other.
const CLAIMS_OF_ONE_MAX: u32 = 3;
/// Peers whose claims of one stripe are remembered: one that is not minded any more, and who came instead. Above, the answer is that
/// nobody claimed.
const CLAIMANTS_MAX: usize = 2;
/// For how long claims that ended are remembered, so that they are counted.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

struct Claim {
    by: PeerId,
    until: Duration,
    /// When the first of its claims began that are counted, and how many they are.
    since: Duration,
    times: u32,
}

impl Claim {
    /// Whether it keeps others away: who claims again and again and mends nothing is not minded any more.
    fn stands(&self, now: Duration) -> bool {
        now < self.until && self.times <= CLAIMS_OF_ONE_MAX
    }

    fn is_recent(&self, now: Duration) -> bool {
        now < self.since + REMEMBERED_FOR
    }
}

/// How often it is looked which claims ended, where there is no room for more.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// The claims that a peer heard of: those of one stripe that are counted, of which one stands at most.
#[derive(Default)]
pub(crate) struct Claims {
    all: BTreeMap<RecordId, Vec<Claim>>,
    /// When those that ended were looked for last.
    swept: Option<Duration>,
}

impl Claims {
    /// Claims a stripe for a peer; the other peer whose claim stands in the way, if one does.
    pub(crate) fn claim(&mut self, stripe: RecordId, by: PeerId, now: Duration) -> Option<PeerId> {
        if self.all.len() >= CLAIMS_KEPT_MAX && !self.all.contains_key(&stripe) {
            // Whoever claims all the time has them gone through no more often.
            if self.swept.is_some_and(|swept| now < swept + SWEPT_EVERY) {
                return None;
            }
            self.swept = Some(now);
            self.all.retain(|_, all| all.iter().any(|claim| now < claim.until));
            if self.all.len() >= CLAIMS_KEPT_MAX {
                return None;
            }
        }
        let all = self.all.entry(stripe).or_default();
        all.retain(|claim| now < claim.until || claim.is_recent(now));
        if let Some(other) = all.iter().find(|claim| claim.by != by && claim.stands(now)) {
            return Some(other.by);
        }
        let until = now + CLAIM_FOR;
        if let Some(claim) = all.iter_mut().find(|claim| claim.by == by) {
            let recent = claim.is_recent(now);
            let times = if recent { claim.times.saturating_add(1) } else { 1 };
            let since = if recent { claim.since } else { now };
            *claim = Claim { by, until, since, times };
        } else if all.len() < CLAIMANTS_MAX {
            all.push(Claim { by, until, since: now, times: 1 });
        }
        None
    }

    /// Ends a peer's claim.
    pub(crate) fn end(&mut self, stripe: &RecordId, by: &PeerId) {
        let all = self.all.get_mut(stripe).into_iter().flatten();
        all.filter(|claim| claim.by == *by).for_each(|claim| claim.until = Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> PeerId {
        PeerId::new(crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public())
    }

    #[test]
    fn one_claims_at_a_time_and_a_claim_ends_by_itself() {
        let (mut claims, stripe) = (Claims::default(), RecordId::new([7; 32]));
        let at = Duration::from_secs;
        assert_eq!(claims.claim(stripe, peer(1), at(0)), None);
        assert_eq!(claims.claim(stripe, peer(2), at(1)), Some(peer(1)));
        assert_eq!(claims.claim(stripe, peer(1), at(2)), None, "the same again");
        claims.end(&stripe, &peer(2));
        assert_eq!(claims.claim(stripe, peer(2), at(3)), Some(peer(1)), "not another's to end");
        assert_eq!(claims.claim(stripe, peer(2), at(62)), None, "the claimant died");
        claims.end(&stripe, &peer(2));
        assert_eq!(claims.claim(stripe, peer(1), at(63)), None);
    }

    #[test]
    fn who_claims_again_and_again_keeps_nobody_from_a_stripe_for_long() {
        let (mut claims, stripe) = (Claims::default(), RecordId::new([7; 32]));
        let at = Duration::from_secs;
        for round in 0..3 {
            assert_eq!(claims.claim(stripe, peer(1), at(round * 50)), None);
            assert_eq!(claims.claim(stripe, peer(2), at(round * 50 + 1)), Some(peer(1)));
        }
        assert_eq!(claims.claim(stripe, peer(1), at(150)), None);
        assert_eq!(claims.claim(stripe, peer(2), at(151)), None, "it is not minded any more");
        assert_eq!(claims.claim(stripe, peer(3), at(152)), Some(peer(2)), "who came instead is");
        assert_eq!(claims.claim(stripe, peer(1), at(153)), Some(peer(2)));
        assert_eq!(claims.claim(stripe, peer(1), at(700)), None, "and again after a while");
        assert_eq!(claims.claim(stripe, peer(2), at(701)), Some(peer(1)));
    }

    #[test]
    fn many_that_claim_and_mend_nothing_keep_nobody_from_it_either() {
        let (mut claims, stripe) = (Claims::default(), RecordId::new([7; 32]));
        let mut refused = 0;
        for second in 0..3_600 {
            let now = Duration::from_secs(second);
            for liar in 1..=9 {
                claims.claim(stripe, peer(liar), now);
            }
            let honest = claims.claim(stripe, peer(10), now);
            claims.end(&stripe, &peer(10));
            refused += u32::from(honest.is_some());
        }
        assert!(refused < 3_600 / 4, "{refused} of 3600 tries");
        assert!(claims.all.values().all(|all| all.len() <= CLAIMANTS_MAX));
    }
    #[test]
    fn claims_without_room_are_gone_through_once_a_second() {
        let stripe = |number: u32| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&number.to_be_bytes());
            RecordId::new(id)
        };
        let full = CLAIMS_KEPT_MAX as u32;
        let mut claims = Claims::default();
        for number in 0..full {
            claims.claim(stripe(number), peer(1), Duration::ZERO);
        }
        let mut all = |number, ms| {
            let now = Duration::from_millis(ms);
            assert_eq!(claims.claim(stripe(full + number), peer(2), now), None);
            claims.all.len()
        };
        assert_eq!(all(0, 59_999), CLAIMS_KEPT_MAX, "all of them stand");
        assert_eq!(all(1, 60_500), CLAIMS_KEPT_MAX, "it was looked just now");
        assert_eq!(all(2, 60_999), 1);
    }
}
