//! How often each kind of caller may ask: a rate for every tier and endpoint.
//!
//! The defaults are the design's: a stranger gets one `Find` a second and stores nothing; the roster
//! gets 10,000 requests and 10,000 records a second; the own organisation is not held back. (The
//! original Libri's 50 and 25 a second belong to peers that did 50 requests a second in all.)

use crypto::{OrgId, Tier};

use crate::standing::Standing;

/// What one caller may do on one endpoint, and how many callers may. `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second; each record of a batch is one.
    pub per_second: Option<u64>,
    /// Requests a day.
    pub per_day: Option<u64>,
    /// Record bytes a day: taken by `Store` and `Put`, answered by `Find` and `Get`.
    pub bytes_per_day: Option<u64>,
    /// Different callers of the tier a second.
    pub callers_per_second: Option<u64>,
    /// Different callers of the tier a day.
    pub callers_per_day: Option<u64>,
}

impl Rate {
    /// So many requests a second and no other bound.
    pub const fn a_second(requests: u64) -> Self {
        let none = Self {
            per_second: None,
            per_day: None,
            bytes_per_day: None,
            callers_per_second: None,
            callers_per_day: None,
        };
        Self { per_second: Some(requests), ..none }
    }
}

/// The rates of one tier. A batch counts as so many of its single calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// `Introduce`, counted by what the caller proves with it.
    pub introduce: Rate,
    /// `Find`, and what is read of versioned objects.
    pub find: Rate,
    /// `Verify`.
    pub verify: Rate,
    /// `Store`, and what is put of versioned objects.
    pub store: Rate,
    /// `Put`.
    pub put: Rate,
    /// `Get`.
    pub get: Rate,
    /// `Subscribe` and `Watch`.
    pub subscribe: Rate,
}

impl Rates {
    /// The same for every endpoint.
    pub const fn all(rate: Rate) -> Self {
        Self {
            introduce: rate,
            find: rate,
            verify: rate,
            store: rate,
            put: rate,
            get: rate,
            subscribe: rate,
        }
    }
}

/// The rates of every tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierRates {
    /// Peers and clients of the peer's own organisation.
    pub own: Rates,
    /// Peers and clients of the roster's other organisations, and own clients whose pass says so.
    pub known: Rates,
    /// Everybody else. What a stranger may not call at all is refused before its rate is looked at.
    pub stranger: Rates,
}

impl TierRates {
    /// The rates of a tier.
    pub const fn of(&self, tier: Tier) -> &Rates {
        match tier {
            Tier::Own => &self.own,
            Tier::Known => &self.known,
            Tier::Stranger => &self.stranger,
        }
    }
}

impl Default for TierRates {
    fn default() -> Self {
        // A stranger's key costs nothing to make, so strangers are bounded together as well.
        let find = Rate {
            callers_per_second: Some(100),
            callers_per_day: Some(100_000),
            ..Rate::a_second(1)
        };
        let introduce = Rate { callers_per_second: Some(500), ..Rate::a_second(10) };
        let none = Rates::all(Rate::a_second(0));
        Self {
            own: Rates::default(),
            known: Rates::all(Rate::a_second(10_000)),
            stranger: Rates { introduce, find, ..none },
        }
    }
}

impl Standing {
    /// How far a peer of organisation `own` trusts it.
    pub fn tier(&self, own: &OrgId) -> Tier {
        match self {
            Self::Peer(_, organisation) if organisation == own => Tier::Own,
            Self::Peer(..) => Tier::Known,
            Self::Client { tier, .. } => *tier,
            Self::Stranger => Tier::Stranger,
        }
    }
}
