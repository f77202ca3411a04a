//! A member that missed more than the others' logs hold takes the state whole, in parts.
//!
//! The certificate comes with the first part and is checked before anything is kept; the state's root is compared with the header's
//! before it counts. Whoever is asked makes a snapshot once and gives it out for [`KEPT_MS`].

use bytes::Bytes;
use commonware_p2p::Recipients;

use super::Member;
use crate::engine::wire::{Message, PART_BYTES_MAX};
use crate::engine::{Key, Runtime, now_ms};
use crate::header::HeaderDigest;
use crate::state::STATE_BYTES_MAX;
use crate::{Certificate, CommitteeError, State};

/// For how long a snapshot that nobody asks for is kept.
const KEPT_MS: u64 = 60_000;
/// After how long without a part another member is asked.
const PART_WITHIN_MS: u64 = 5_000;

/// A snapshot that is given out.
pub(super) struct Given {
    digest: HeaderDigest,
    certificate: Bytes,
    bytes: Bytes,
    used_ms: u64,
}

/// A snapshot that is being taken.
pub(super) struct Taken {
    certificate: Certificate,
    from: Key,
    total: usize,
    bytes: Vec<u8>,
    heard_ms: u64,
}

impl<E: Runtime> Member<E> {
    /// Gives out a part: of the snapshot with this header, or the beginning of the newest.
    pub(super) fn give_part(&mut self, to: Key, wanted: Option<HeaderDigest>, offset: u64) {
        let now = now_ms(&self.context);
        if wanted.is_none() && self.given.is_none() {
            let Some(certificate) = self.certificate() else { return };
            self.given = Some(Given {
                digest: certificate.header().digest(),
                certificate: certificate.encode().into(),
                bytes: self.chain.state().snapshot(),
                used_ms: now,
            });
        }
        let Some(given) = &mut self.given else { return };
        if wanted.is_some_and(|wanted| wanted != given.digest) {
            return;
        }
        given.used_ms = now;
        let total = given.bytes.len();
        let from = (offset as usize).min(total);
        let message = Message::Part {
            certificate: given.certificate.clone(),
            total: total as u64,
            offset: from as u64,
            bytes: given.bytes.slice(from..total.min(from + PART_BYTES_MAX)),
        };
        self.send(Recipients::One(to), &message);
    }

    /// Forgets a snapshot that nobody asks for, and one of which nothing more comes.
    pub(super) fn forget_snapshots(&mut self) {
        let now = now_ms(&self.context);
        self.given.take_if(|given| given.used_ms + KEPT_MS <= now);
        self.taken.take_if(|taken| taken.heard_ms + PART_WITHIN_MS <= now);
    }

    /// Takes a part, and asks for the next one.
    pub(super) async fn take_part(
        &mut self,
        from: Key,
        certificate: &Bytes,
        total: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        let certificate = Certificate::decode(certificate)?;
        let digest = certificate.header().digest();
        if certificate.header().height <= self.chain.tip().height || bytes.is_empty() {
            return Ok(());
        }
        if self.taken.is_none() && offset == 0 {
            certificate.verify(&self.charter.rules.network, &self.charter.group)?;
            let (found, max) = (total as usize, 2 * STATE_BYTES_MAX);
            if found > max {
                return Err(CommitteeError::TooLarge { what: "bytes of a snapshot", found, max });
            }
            let (from, bytes) = (from.clone(), Vec::new());
            self.taken = Some(Taken { certificate, from, total: found, bytes, heard_ms: now });
        }
        let Some(taken) = &mut self.taken else { return Ok(()) };
        let fits = taken.from == from
            && taken.certificate.header().digest() == digest
            && taken.bytes.len() as u64 == offset
            && taken.bytes.len() + bytes.len() <= taken.total;
        if !fits {
            return Ok(());
        }
        taken.bytes.extend_from_slice(bytes);
        taken.heard_ms = now;
        if taken.bytes.len() < taken.total {
            let offset = taken.bytes.len() as u64;
            self.send(Recipients::One(from), &Message::WantPart { digest, offset });
            return Ok(());
        }
        let Some(Taken { certificate, bytes, .. }) = self.taken.take() else { return Ok(()) };
        let state = State::restore(&bytes.into())?;
        if state.root() != certificate.header().state {
            return Err(CommitteeError::Path("snapshot"));
        }
        tracing::info!(height = certificate.header().height, "took the state from another member");
        self.log.renew(&certificate, &state, &[]).await?;
        self.chain.start_from(certificate, state);
        self.answer_fresh();
        Ok(())
    }
}
