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
const PART_WITHIN_MS: u64 = 20_000;
/// The least pace of a whole snapshot at first, in bytes a second. It is halved each time that one is broken off for it, down to the
/// second: so no liar drags one out for hours, and a slow line still brings one in the end.
pub(super) const BYTES_S: u64 = 1 << 20;
const BYTES_S_MIN: u64 = 16 << 10;

/// A snapshot that is given out.
pub(super) struct Given {
    digest: HeaderDigest,
    height: u64,
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
    began_ms: u64,
    heard_ms: u64,
}

impl Taken {
    /// Whether it comes from this member.
    pub(super) fn is_from(&self, from: &Key) -> bool {
        self.from == *from
    }

    /// Whether it comes slower than so many bytes a second, after a while.
    fn drags(&self, now_ms: u64, bytes_s: u64) -> bool {
        let within = PART_WITHIN_MS + self.bytes.len() as u64 * 1_000 / bytes_s.max(1);
        now_ms >= self.began_ms + within
    }

    /// Adds a part: `false` for one that is not the next one of this snapshot, a repeated one perhaps.
    ///
    /// # Errors
    /// One that is shorter than parts are: whoever sends such drags it out.
    fn add(
        &mut self,
        from: &Key,
        digest: &HeaderDigest,
        offset: u64,
        bytes: &[u8],
    ) -> Result<bool, CommitteeError> {
        let next = self.from == *from
            && self.certificate.header().digest() == *digest
            && self.bytes.len() as u64 == offset;
        if !next {
            return Ok(false);
        }
        if bytes.len() != PART_BYTES_MAX.min(self.total - self.bytes.len()) {
            return Err(CommitteeError::Length("part of a snapshot"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(true)
    }
}

impl<E: Runtime> Member<E> {
    /// Forgets the snapshot that is given out where it is of no use to who is at a height, or to anybody: what comes after it is no
    /// longer in the log.
    pub(super) fn renew_given(&mut self, height: u64) {
        let (log, tip) = (&self.log, self.chain.tip().height);
        self.given.take_if(|given| {
            given.height < tip && (given.height <= height || !log.reaches(given.height))
        });
    }

    /// Gives out a part: of the snapshot with this header, or the beginning of the newest.
    pub(super) fn give_part(&mut self, to: Key, wanted: Option<HeaderDigest>, offset: u64) {
        let now = now_ms(&self.context);
        if wanted.is_none() && self.given.is_none() {
            let Some(certificate) = self.certificate() else { return };
            self.given = Some(Given {
                digest: certificate.header().digest(),
                height: certificate.header().height,
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
        self.given_out.gave(&to, PART_BYTES_MAX);
        self.send(Recipients::One(to), &message);
    }

    /// Forgets a snapshot that nobody asks for, and one of which nothing more comes.
    pub(super) fn forget_snapshots(&mut self) {
        let now = now_ms(&self.context);
        self.given.take_if(|given| given.used_ms + KEPT_MS <= now);
        let pace = self.taken_bytes_s;
        self.taken.take_if(|taken| taken.heard_ms + PART_WITHIN_MS <= now);
        if self.taken.take_if(|taken| taken.drags(now, pace)).is_some() {
            tracing::warn!(pace, "a snapshot comes too slowly: another member is asked");
            self.taken_bytes_s = (pace / 2).max(BYTES_S_MIN);
        }
    }

    /// Takes a part, and asks for the next one; with the last one the state, and the certificate that it is of. An error is the
    /// sender's.
    pub(super) fn take_part(
        &mut self,
        from: Key,
        certificate: &Bytes,
        total: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<(Box<Certificate>, State)>, CommitteeError> {
        let now = now_ms(&self.context);
        // From those who were asked alone: another would hand this one junk again and again.
        let goes_on = self.taken.as_ref().is_some_and(|taken| taken.is_from(&from));
        let first = self.taken.is_none() && offset == 0 && self.asked.answered(&from);
        if !(goes_on || first) {
            return Ok(None);
        }
        let certificate = Certificate::decode(certificate)?;
        let digest = certificate.header().digest();
        if certificate.header().height <= self.chain.tip().height || bytes.is_empty() {
            return Ok(None);
        }
        if first {
            certificate.verify(&self.charter.rules.network, &self.charter.group)?;
            let (found, max) = (total as usize, 2 * STATE_BYTES_MAX);
            if found > max {
                return Err(CommitteeError::TooLarge { what: "bytes of a snapshot", found, max });
            }
            self.asked.came();
            let (from, bytes, total) = (from.clone(), Vec::new(), found);
            let (began_ms, heard_ms) = (now, now);
            self.taken = Some(Taken { certificate, from, total, bytes, began_ms, heard_ms });
        }
        let Some(taken) = &mut self.taken else { return Ok(None) };
        if !taken.add(&from, &digest, offset, bytes)? {
            return Ok(None);
        }
        taken.heard_ms = now;
        if taken.bytes.len() < taken.total {
            let offset = taken.bytes.len() as u64;
            self.send(Recipients::One(from), &Message::WantPart { digest, offset });
            return Ok(None);
        }
        let Some(Taken { certificate, bytes, .. }) = self.taken.take() else { return Ok(None) };
        let state = State::restore(&bytes.into())?;
        if state.root() != certificate.header().state {
            return Err(CommitteeError::Path("snapshot"));
        }
        Ok(Some((Box::new(certificate), state)))
    }

    /// Begins with a state that was taken from another. An error is this member's own.
    pub(super) async fn start_from(
        &mut self,
        certificate: Certificate,
        state: State,
    ) -> Result<(), CommitteeError> {
        tracing::info!(height = certificate.header().height, "took the state from another member");
        self.taken_bytes_s = BYTES_S;
        // Blocks above it stay on the disk: this member may have voted to finalise them.
        self.chain.start_from(certificate, state);
        self.renew_now().await?;
        self.keep_up().await?;
        self.answer_fresh();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemberSecret;
    use crate::proving::Founded;

    #[test]
    fn a_snapshot_comes_in_whole_parts_from_whom_it_was_asked() {
        let mut founded = Founded::new(4);
        founded.block(Vec::new());
        let certificate = founded.certify(&founded.tip);
        let digest = certificate.header().digest();
        let key = |byte| {
            let secret = MemberSecret::new(&[byte; 32]).expect("a key");
            secret.id().key().expect("a key")
        };
        let (from, total) = (key(1), PART_BYTES_MAX + 10);
        let bytes = Vec::new();
        let mut taken = Taken { certificate, from, total, bytes, began_ms: 0, heard_ms: 0 };
        let part = vec![7; PART_BYTES_MAX];
        assert!(!taken.add(&key(2), &digest, 0, &part).expect("not asked"), "another member's");
        assert!(taken.add(&key(1), &digest, 0, &part[1..]).is_err(), "a short one");
        assert!(taken.add(&key(1), &digest, 0, &part).expect("whole"));
        assert!(!taken.add(&key(1), &digest, 0, &part).expect("repeated"));
        assert!(taken.add(&key(1), &digest, PART_BYTES_MAX as u64, &part).is_err(), "too long");
        assert!(taken.add(&key(1), &digest, PART_BYTES_MAX as u64, &[7; 10]).expect("the last"));
        let whole = PART_WITHIN_MS + total as u64 * 1_000 / BYTES_S;
        assert!(!taken.drags(whole - 1, BYTES_S) && taken.drags(whole + 1, BYTES_S));
        assert!(!taken.drags(whole + 1, BYTES_S / 2), "a slower line is given more time");
    }
}
