//! Whether this peer itself still counts. Where it does not, the others call it no more and refuse what it asks, and nothing
//! fails here: so the log says once why that is and what to do, and the status as long as it is so.

use crate::core::Core;

/// Why the others take this peer for a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disowned {
    /// The newest list of its organisation names its key.
    Revoked,
    /// The newest roster does not know the key that signed its certificate.
    Unlisted,
    /// Its certificate has ended.
    Expired,
}

impl Disowned {
    /// Why, for people.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Revoked => "its organisation revoked its key",
            Self::Unlisted => "its organisation left the network, or changed its key",
            Self::Expired => "its certificate has ended",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Revoked => {
                "where the key is in wrong hands stop this peer, and begin with an empty one \
                 (hold peer init); where it was a mistake, its organisation takes the key off the \
                 list (hold org revoke --undo), which any peer takes (hold peer set --revocations)"
            }
            Self::Unlisted => {
                "hold network show lists who takes part; where its organisation has another key \
                 now, have the certificate signed by that one (hold org sign-peer) and start the \
                 peer again"
            }
            Self::Expired => {
                "have its certificate signed anew (hold org sign-peer) and start the peer again"
            }
        }
    }
}

impl Core {
    /// Why this peer counts no more, as far as it heard; `None` while it does.
    pub(crate) fn disowned(&self) -> Option<Disowned> {
        let Some(organisation) = self.directory.listed(&self.organisation) else {
            return Some(Disowned::Unlisted);
        };
        if self.directory.is_revoked(&organisation, self.own.key()) {
            return Some(Disowned::Revoked);
        }
        let until = self.announcer.announcement().certificate.until;
        (until <= self.env.clock.unix_s()).then_some(Disowned::Expired)
    }

    /// Tells the log what changed since `told`.
    pub(crate) fn tell_disowned(&self, told: &mut Option<Disowned>) {
        let now = self.disowned();
        if *told == now {
            return;
        }
        *told = now;
        match now {
            Some(disowned) => tracing::error!(
                peer = %self.own,
                organisation = %self.organisation(),
                roster = self.directory.roster().number(),
                "nobody takes this peer for a member any more: {}; {}",
                disowned.words(),
                disowned.remedy()
            ),
            None => tracing::info!(peer = %self.own, "this peer counts as a member again"),
        }
    }
}
