//! By what right somebody reads on: streams outlive the call that opened them, so it is looked at before each event.
//!
//! A pass that runs out ends its streams with the next event, or the next heartbeat; one that was renewed meanwhile (on whatever
//! connection) goes on. Revoked keys and organisations that left are ended at once besides (`revocations`).

use std::sync::Arc;

use crypto::{CertificateError, OrgId, PublicKey};
use env::calls::CallError;

use crate::core::Core;
use crate::standing::{Standing, refusal};

/// The right of one reader.
pub(crate) struct Right {
    core: Arc<Core>,
    key: PublicKey,
    organisation: Option<OrgId>,
    /// Until when what vouched for the reader counts, Unix seconds, exclusive: its standing may be forgotten before.
    until: u64,
}

impl Right {
    /// That of a caller, whose standing was just looked at.
    pub(crate) fn of(core: &Arc<Core>, key: PublicKey) -> Self {
        let mut right = Self { core: Arc::clone(core), key, organisation: None, until: 0 };
        right.renew();
        right
    }

    /// Takes over what vouches for the reader now; `false` where nothing does, or nothing that is remembered.
    fn renew(&mut self) -> bool {
        let core = &self.core;
        let (organisation, until) = match core.standing(&self.key) {
            Standing::Stranger => return false,
            Standing::Client { organisation, until, .. } => (organisation, until),
            Standing::Peer(peer, organisation) => {
                let until = core.directory.announcement(&peer).map(|it| it.certificate.until);
                (organisation, until.unwrap_or(self.until))
            }
        };
        (self.organisation, self.until) = (Some(organisation), until);
        true
    }

    /// # Errors
    /// `Denied` where what vouched for the reader does not count any more.
    pub(crate) fn check(&mut self) -> Result<(), CallError> {
        if self.renew() {
            return Ok(());
        }
        let ended = || CallError::Denied {
            reason: "what vouched for the reader has run out: introduce yourself with a valid pass"
                .to_owned(),
        };
        let organisation = self.organisation.ok_or_else(ended)?;
        if self.core.directory.is_revoked(&organisation, &self.key) {
            return Err(refusal(CertificateError::Revoked(organisation)));
        }
        let listed = self.core.directory.listed(&organisation).is_some();
        // A peer that said it leaves may read on, as one may that nobody called for long.
        let counts = listed && self.core.env.clock.unix_s() < self.until;
        if counts { Ok(()) } else { Err(ended()) }
    }
}
