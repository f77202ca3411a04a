//! Who reads, and whether they may: by the key of the connection, or by a reader's claim for that connection.
//!
//! A claim is verified once for a connection's key and remembered; its end is looked at each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crypto::{NetworkId, PublicKey};
use env::calls::CallError;
use version::claim::READER_BYTES;
use version::{ObjectKey, ObjectRecord, ReaderClaim};

use super::{ObjectShelf, denied};
use crate::shelf::one_line;
use crate::standing::Standing;

/// Claims that are remembered. Of more, all are forgotten and verified again.
const CLAIMS_MAX: usize = 4_096;

/// Claims that were verified, with the connection's key that they are for.
pub(super) struct Claims {
    network: NetworkId,
    verified: Mutex<HashMap<(PublicKey, Bytes), (PublicKey, u64)>>,
}

/// Somebody who reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    /// The key of the connection.
    key: PublicKey,
    /// By a claim, and until when that counts, Unix seconds.
    claimed: Option<(PublicKey, u64)>,
    tier: Tier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Peer,
    Client,
    Stranger,
}

impl Claims {
    pub(super) fn new(network: NetworkId) -> Self {
        Self { network, verified: Mutex::default() }
    }

    /// Who a claim says reads over the connection of this key, and until when.
    fn verify(
        &self,
        key: &PublicKey,
        claim: &Bytes,
        now_s: u64,
    ) -> Result<(PublicKey, u64), CallError> {
        let refused = |error: version::VersionError| {
            let error = one_line(&error);
            denied(format!(
                "the reader's claim does not count here: {error}; sign one for this connection"
            ))
        };
        let known = (claim.len() <= READER_BYTES).then(|| (*key, claim.clone()));
        let found = known.as_ref().and_then(|known| self.lock().get(known).copied());
        if let Some((reader, until)) = found.filter(|(_, until)| now_s <= *until) {
            return Ok((reader, until));
        }
        let decoded = ReaderClaim::decode(claim).map_err(refused)?;
        decoded.verify(&self.network, key, now_s).map_err(refused)?;
        let found = (decoded.reader, decoded.until_s);
        let mut verified = self.lock();
        if verified.len() >= CLAIMS_MAX {
            verified.clear();
        }
        // Its own bytes, so that no message is kept for them.
        verified.insert((*key, Bytes::copy_from_slice(claim)), found);
        Ok(found)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(PublicKey, Bytes), (PublicKey, u64)>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Whether it is a peer of the network, which reads all.
    pub(super) fn is_peer(&self) -> bool {
        self.tier == Tier::Peer
    }

    /// Whether nobody vouched for it.
    pub(super) fn is_stranger(&self) -> bool {
        self.tier == Tier::Stranger
    }
}

impl ObjectShelf {
    /// Who reads over this connection.
    ///
    /// # Errors
    /// `Denied` for a claim that does not count for it.
    pub(crate) fn reader(
        &self,
        key: &PublicKey,
        standing: &Standing,
        claim: Option<&Bytes>,
    ) -> Result<Reader, CallError> {
        let tier = match standing {
            Standing::Peer(..) => Tier::Peer,
            Standing::Client { .. } => Tier::Client,
            Standing::Stranger => Tier::Stranger,
        };
        let now_s = self.env.clock.unix_s();
        let claimed = claim.map(|claim| self.claims.verify(key, claim, now_s)).transpose()?;
        Ok(Reader { key: *key, claimed, tier })
    }

    /// Whether somebody may read an object.
    pub(super) fn may_read(&self, reader: &Reader, object: &ObjectRecord) -> bool {
        if reader.is_peer() {
            return true;
        }
        let now_s = self.env.clock.unix_s();
        let claimed = reader.claimed.filter(|(_, until)| now_s <= *until);
        self.policies.with(object, |policy| {
            let named = |key: &PublicKey| policy.may_read(key);
            let client = reader.tier == Tier::Client;
            let listed = named(&reader.key) || claimed.is_some_and(|(key, _)| named(&key));
            policy.public || (client && listed)
        })
    }

    /// An object that somebody may read; `None` where it has no record here, which peers alone are told.
    ///
    /// # Errors
    /// `Denied`, with the same words whether there is such an object or not.
    pub(super) async fn readable(
        &self,
        reader: &Reader,
        object: &ObjectKey,
    ) -> Result<Option<Arc<ObjectRecord>>, CallError> {
        match self.named(object).await? {
            Some(named) if self.may_read(reader, &named) => Ok(Some(named)),
            None if reader.is_peer() => Ok(None),
            _ => Err(unreadable()),
        }
    }
}

/// What whoever may not read is told.
pub(super) fn unreadable() -> CallError {
    denied("there is no object of this key here that you may read")
}
