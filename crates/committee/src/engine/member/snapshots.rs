//! A member that missed more than the others' logs hold takes the state whole, in parts.
//!
//! The certificate comes with the first part and is checked before anything is kept; the state's root is compared with the header's
//! before it counts. Whoever is asked makes a snapshot once and gives it out for [`KEPT_MS`].

use std::collections::HashMap;

use bytes::Bytes;
use commonware_p2p::Recipients;

use super::Member;
use crate::engine::wire::{Message, PART_BYTES_MAX};
use crate::engine::{Key, Runtime, now_ms};
use crate::header::HeaderDigest;
use crate::state::STATE_BYTES_MAX;
use crate::{Certificate, CommitteeError, State};

/// For how long a snapshot that nobody asks for is kept: a part of it is longer on its way over the slowest line.
const KEPT_MS: u64 = 3 * lasts_ms(PART_BYTES_MAX, BYTES_S_MIN);
/// After how long without a part another member is asked, at the least: a part has as long as it
/// takes at the pace that is asked of its sender.
const PART_WITHIN_MS: u64 = 20_000;
/// The least pace of a whole snapshot at first, in bytes a second. It is quartered each time that
/// one of the same sender is broken off for it, down to the second: slow lines still bring one in.
const BYTES_S: u64 = 1 << 20;
const BYTES_S_MIN: u64 = 16 << 10;
/// How long a whole snapshot may take at first, whatever its pace. It doubles each time that one is
/// broken off for it, up to what the longest takes at the least pace. Whose first part comes first
/// has the place; whoever was broken off has it again only after the others were asked
/// ([`Paces::put_off`]), so a liar that is quick holds this member up once and not each time.
const WHOLE_WITHIN_MS: u64 = 3_600_000;
const WHOLE_WITHIN_MAX_MS: u64 = lasts_ms(2 * STATE_BYTES_MAX, BYTES_S_MIN) + PART_WITHIN_MS;
/// How often each of the others is asked, about, before one whose snapshot was broken off.
const ASKED_EACH: usize = 2;

/// How long so many bytes take at a pace.
const fn lasts_ms(bytes: usize, bytes_s: u64) -> u64 {
    bytes as u64 * 1_000 / bytes_s
}

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

    /// Whether it comes slower than so many bytes a second: the next part, or all of it.
    fn drags(&self, now_ms: u64, bytes_s: u64) -> bool {
        let part_ms = PART_WITHIN_MS.max(lasts_ms(PART_BYTES_MAX, bytes_s));
        now_ms >= self.heard_ms + part_ms
            || now_ms >= self.began_ms + part_ms + lasts_ms(self.bytes.len(), bytes_s)
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

/// How slowly snapshots may come.
#[derive(Debug)]
pub(super) struct Paces {
    /// The least pace, of those that came too slowly: who drags makes it for itself alone.
    bytes_s: HashMap<Key, u64>,
    whole_ms: u64,
    /// Whose snapshots were broken off, and how many questions go to others before one goes to them.
    put_off: HashMap<Key, usize>,
}

impl Default for Paces {
    fn default() -> Self {
        Self { bytes_s: HashMap::new(), whole_ms: WHOLE_WITHIN_MS, put_off: HashMap::new() }
    }
}

impl Paces {
    fn of(&self, from: &Key) -> u64 {
        self.bytes_s.get(from).copied().unwrap_or(BYTES_S)
    }

    /// Whether a snapshot comes so slowly that another member is asked; the next one has more time.
    fn breaks_off(&mut self, taken: &Taken, now_ms: u64) -> bool {
        let pace = self.of(&taken.from);
        if now_ms >= taken.began_ms + self.whole_ms {
            self.whole_ms = (2 * self.whole_ms).min(WHOLE_WITHIN_MAX_MS);
            return true;
        }
        if taken.drags(now_ms, pace) {
            self.bytes_s.insert(taken.from.clone(), (pace / 4).max(BYTES_S_MIN));
            return true;
        }
        false
    }

    /// The next so many questions go to others than this one. Not all that follow: it may be honest on a slow line, and the others
    /// such as never answer.
    fn put_off(&mut self, from: Key, questions: usize) {
        self.put_off.insert(from, questions);
    }

    fn is_put_off(&self, from: &Key) -> bool {
        self.put_off.contains_key(from)
    }

    /// Leaves those that the next question may go to: all of them where all are put off.
    pub(super) fn leave_out(&mut self, others: &mut Vec<&Key>) {
        if others.iter().all(|key| self.is_put_off(key)) {
            self.put_off.clear();
        }
        others.retain(|key| !self.put_off.contains_key(*key));
        self.put_off.retain(|_, questions| {
            *questions = questions.saturating_sub(1);
            *questions > 0
        });
    }

    /// Forgets those that this member is not connected to any more. Whoever comes back is put off all the same.
    fn only(&mut self, connected: impl Fn(&Key) -> bool) {
        self.bytes_s.retain(|key, _| connected(key));
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
                certificate: certificate.encode(),
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
        let Self { taken, paces, peers, term, .. } = self;
        if let Some(taken) = taken.take_if(|taken| paces.breaks_off(taken, now)) {
            tracing::warn!(from = %taken.from, "a snapshot comes too slowly: others are asked");
            paces.only(|key| peers.are_with(key));
            paces.put_off(taken.from, ASKED_EACH * term.keys().len());
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
        let first = self.taken.is_none()
            && offset == 0
            && self.asked.answered(&from)
            && !self.paces.is_put_off(&from);
        if !(goes_on || first) {
            return Ok(None);
        }
        let certificate = Certificate::decode(certificate)?;
        let digest = certificate.header().digest();
        if certificate.header().height <= self.chain.tip().height || bytes.is_empty() {
            return Ok(None);
        }
        if first {
            certificate.verify_own(&self.charter.rules.network, &self.charter.group)?;
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
        self.paces = Paces::default();
        // Blocks above it stay on the disk: this member may have voted to finalise them.
        self.chain.start_from(certificate, state);
        self.parked.forget_to(self.chain.tip().height);
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
        taken.heard_ms = whole;
        assert!(!taken.drags(whole - 1, BYTES_S) && taken.drags(whole + 1, BYTES_S));
        assert!(!taken.drags(whole + 1, BYTES_S / 2), "a slower line is given more time");
    }

    fn key(byte: u8) -> Key {
        MemberSecret::new(&[byte; 32]).expect("a key").id().key().expect("a key")
    }

    /// Takes a snapshot of so many parts from a member whose line brings so many bytes a second;
    /// when it is whole, or was broken off, and whether it is whole.
    fn take(paces: &mut Paces, from: &Key, at_ms: u64, parts: usize, line: u64) -> (u64, bool) {
        let mut founded = Founded::new(4);
        founded.block(Vec::new());
        let (from, total) = (from.clone(), parts * PART_BYTES_MAX);
        let certificate = founded.certify(&founded.tip);
        let digest = certificate.header().digest();
        let (bytes, part) = (Vec::new(), vec![7; PART_BYTES_MAX]);
        let mut taken = Taken { certificate, from, total, bytes, began_ms: at_ms, heard_ms: at_ms };
        let (mut now, mut next) = (at_ms, at_ms);
        while taken.bytes.len() < total {
            if now >= next {
                let (from, offset) = (taken.from.clone(), taken.bytes.len() as u64);
                assert!(taken.add(&from, &digest, offset, &part).expect("a whole part"));
                taken.heard_ms = now;
                next = now + lasts_ms(PART_BYTES_MAX, line);
            }
            if paces.breaks_off(&taken, now) {
                return (now, false);
            }
            now += 200;
        }
        (now, true)
    }

    #[test]
    fn whoever_was_broken_off_is_asked_after_the_others_and_not_never() {
        let keys = [1, 2, 3].map(key);
        let all = || keys.iter().collect::<Vec<_>>();
        let mut paces = Paces::default();
        paces.put_off(keys[0].clone(), 4);
        for question in 0..4 {
            let mut others = all();
            assert!(paces.is_put_off(&keys[0]), "{question}");
            paces.leave_out(&mut others);
            assert_eq!(others, [&keys[1], &keys[2]], "{question}");
        }
        let mut others = all();
        paces.leave_out(&mut others);
        assert_eq!(others, all(), "it may be honest on a slow line");
        // Where there is nobody else it is asked at once.
        keys.iter().for_each(|key| paces.put_off(key.clone(), 4));
        let mut others = all();
        paces.leave_out(&mut others);
        assert_eq!(others, all());
        assert!(keys.iter().all(|key| !paces.is_put_off(key)), "and its answer is taken");
    }

    #[test]
    fn a_line_as_slow_as_the_least_pace_brings_a_snapshot_in() {
        for line in [BYTES_S_MIN, 30 << 10, 200 << 10] {
            let (mut paces, mut at) = (Paces::default(), 0);
            let tries = (1..10).find(|_| {
                let (ended, whole) = take(&mut paces, &key(1), at, 8, line);
                at = ended;
                whole
            });
            assert!(tries.is_some_and(|tries| tries <= 4), "{line} bytes a second: {tries:?}");
        }
    }

    #[test]
    fn a_slow_line_gives_no_other_member_more_time_and_nobody_has_it_without_end() {
        let mut paces = Paces::default();
        (0..4).for_each(|_| assert!(!take(&mut paces, &key(1), 0, 64, 9 << 10).1, "too slow"));
        assert_eq!((paces.of(&key(1)), paces.of(&key(2))), (BYTES_S_MIN, BYTES_S));
        // Just as fast as it must be, of a snapshot that would take days.
        let mut held = Vec::new();
        for _ in 0..2 {
            let (ended, whole) = take(&mut paces, &key(1), 0, 2_048, BYTES_S_MIN + 1_024);
            assert!(!whole);
            held.push(ended / WHOLE_WITHIN_MS);
        }
        assert_eq!(held, [1, 2], "the one that is asked next has as long");
        assert!(!take(&mut paces, &key(2), 0, 64, 9 << 10).1);
        paces.only(|of| *of == key(2));
        assert_eq!((paces.of(&key(1)), paces.of(&key(2))), (BYTES_S, BYTES_S / 4));
        for _ in 0..20 {
            paces.whole_ms = (2 * paces.whole_ms).min(WHOLE_WITHIN_MAX_MS);
        }
        let longest = lasts_ms(2 * STATE_BYTES_MAX, BYTES_S_MIN);
        assert!(paces.whole_ms >= longest, "the longest comes in at the least pace");
    }
}
