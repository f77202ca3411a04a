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
/// For how long claims that ended are remembered, so that they are counted.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

struct Claim {
    by: PeerId,
    until: Duration,
    /// When the first of its claims began that are counted, and how many they are.
    since: Duration,
    times: u32,
}

/// The claims that a peer heard of.
#[derive(Default)]
pub(crate) struct Claims(BTreeMap<RecordId, Claim>);

impl Claims {
    /// Claims a stripe for a peer; the other peer whose claim stands in the way, if one does.
    ///
    /// Who claims again and again and mends nothing keeps nobody from it any more.
    pub(crate) fn claim(&mut self, stripe: RecordId, by: PeerId, now: Duration) -> Option<PeerId> {
        let until = now + CLAIM_FOR;
        if let Some(claim) = self.0.get_mut(&stripe) {
            let recent = now < claim.since + REMEMBERED_FOR;
            if claim.by == by {
                let times = if recent { claim.times.saturating_add(1) } else { 1 };
                let since = if recent { claim.since } else { now };
                *claim = Claim { by, until, since, times };
                return None;
            }
            if now < claim.until && claim.times <= CLAIMS_OF_ONE_MAX {
                return Some(claim.by);
            }
            if recent && claim.times > CLAIMS_OF_ONE_MAX {
                // It stays remembered as one that is not minded.
                return None;
            }
        }
        if self.0.len() >= CLAIMS_KEPT_MAX {
            self.0.retain(|_, claim| now < claim.until);
        }
        if self.0.len() < CLAIMS_KEPT_MAX {
            self.0.insert(stripe, Claim { by, until, since: now, times: 1 });
        }
        None
    }

    /// Ends a peer's claim.
    pub(crate) fn end(&mut self, stripe: &RecordId, by: &PeerId) {
        if let Some(claim) = self.0.get_mut(stripe).filter(|claim| claim.by == *by) {
            claim.until = Duration::ZERO;
        }
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
        assert_eq!(claims.claim(stripe, peer(1), at(700)), None, "and again after a while");
        assert_eq!(claims.claim(stripe, peer(2), at(701)), Some(peer(1)));
    }
}
