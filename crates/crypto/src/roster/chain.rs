//! The rosters of a network from the genesis to the newest one known, and what happens where two differ.
//!
//! Rosters come from anywhere, since each proves itself by the one before. Two rosters of one number, both signed by
//! more than half, can exist only where an organisation signed both. Everybody must then come to the same one, and
//! nobody may rewrite what was long agreed on with keys of organisations that have left since. So:
//!
//! 1. Only the newest roster is ever replaced. What has a successor is settled; a rival of it is told as a
//!    [`Conflict`] and changes nothing.
//! 2. Of two newest ones the one with the smaller hash counts, whichever was seen first.
//! 3. Of two newest ones of which one has a successor, that one counts: its own organisations went on with it.
//!
//! The loser is kept in memory, for its successor may come. Either way a [`Conflict`] names who signed both.
//!
//! Invariants: links ascend by one from number 1 and each was verified against its predecessor when it was taken.

use std::sync::Arc;

use bytes::Bytes;

use super::{Claimed, Roster, RosterError, SignedRoster};
use crate::{Genesis, OrgId};

/// What a roster taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taught {
    /// It is the newest now.
    Newer,
    /// It was known, or lost against one that is.
    Known,
    /// It cannot be checked: rosters before it are missing. Ask for those from [`Rosters::current`]'s number on.
    Behind,
}

/// Two rosters of one number, each signed by more than half of the organisations before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Their number.
    pub number: u64,
    /// The hash of the one that counts here.
    pub ours: [u8; 32],
    /// The hash of the other one.
    pub theirs: [u8; 32],
    /// Organisations that signed both, as far as the signatures at hand show.
    pub signed_both: Vec<OrgId>,
}

#[derive(Clone, Debug)]
struct Link {
    roster: Arc<Roster>,
    bytes: Bytes,
}

/// The rosters known, of which the newest counts.
#[derive(Clone, Debug)]
pub struct Rosters {
    genesis: Arc<Genesis>,
    first: Arc<Roster>,
    /// Rosters 1, 2, ... with their signed bytes; all but the last two without their content.
    links: Vec<([u8; 32], Bytes)>,
    previous: Option<Arc<Roster>>,
    current: Arc<Roster>,
    rival: Option<Link>,
    conflict: Option<Conflict>,
    conflicts: u64,
}

impl Rosters {
    /// Roster 0 alone.
    pub fn new(genesis: Arc<Genesis>) -> Self {
        let first = Arc::new(Roster::first(&genesis));
        Self {
            genesis,
            current: first.clone(),
            first,
            links: Vec::new(),
            previous: None,
            rival: None,
            conflict: None,
            conflicts: 0,
        }
    }

    /// The genesis.
    pub fn genesis(&self) -> &Arc<Genesis> {
        &self.genesis
    }

    /// The newest roster.
    pub fn current(&self) -> &Arc<Roster> {
        &self.current
    }

    /// The roster before the newest.
    pub fn previous(&self) -> Option<&Arc<Roster>> {
        self.previous.as_ref()
    }

    /// The last two rosters of one number that were seen.
    pub fn conflict(&self) -> Option<&Conflict> {
        self.conflict.as_ref()
    }

    /// How often another pair of rosters of one number was seen.
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// The signed bytes of the rosters from number `from` (1 at least) on, at most `max` and `bytes_max` bytes of them.
    pub fn from(&self, from: u64, max: usize, bytes_max: usize) -> Vec<Bytes> {
        let from = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
        let mut left = bytes_max;
        let links = self.links.iter().skip(from).take(max);
        let fits = links.take_while(|(_, bytes)| {
            let fits = bytes.len() <= left;
            left = left.saturating_sub(bytes.len());
            fits
        });
        fits.map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The signed bytes of every roster from number 1 on, to be kept.
    pub fn all(&self) -> impl Iterator<Item = &Bytes> {
        self.links.iter().map(|(_, bytes)| bytes)
    }

    /// The signed bytes of the newest roster; `None` where it is the genesis's.
    pub fn newest(&self) -> Option<&Bytes> {
        self.links.last().map(|(_, bytes)| bytes)
    }

    /// What somebody who knows roster `number` with this hash lacks: those from that number on, so that another
    /// roster of the same number is noticed.
    pub fn lacking(
        &self,
        number: u64,
        hash: &[u8; 32],
        max: usize,
        bytes_max: usize,
    ) -> Vec<Bytes> {
        if hash == self.current.hash() || number > self.current.number() {
            return Vec::new();
        }
        let same = self.hash_of(number) == Some(hash);
        self.from(if same { number + 1 } else { number }, max, bytes_max)
    }

    fn hash_of(&self, number: u64) -> Option<&[u8; 32]> {
        let Some(at) = number.checked_sub(1) else { return Some(self.first.hash()) };
        self.links.get(usize::try_from(at).ok()?).map(|(hash, _)| hash)
    }

    /// Takes a signed roster.
    ///
    /// # Errors
    /// [`RosterError`] where it does not count. Nothing changes then.
    pub fn learn(&mut self, bytes: &Bytes) -> Result<Taught, RosterError> {
        if self.newest() == Some(bytes) {
            return Ok(Taught::Known);
        }
        let claimed = Claimed::of(bytes, self.first.suite)?;
        if claimed.network != self.first.network {
            return Err(RosterError::Network(claimed.network));
        }
        let newest = self.current.number();
        if claimed.number == 0 {
            return Err(RosterError::Number { expected: newest + 1, found: 0 });
        }
        if self.hash_of(claimed.number) == Some(&claimed.hash) {
            return Ok(Taught::Known);
        }
        if claimed.number > newest {
            return self.extend(claimed, bytes);
        }
        self.dispute(claimed, bytes)
    }

    /// A number that is not known yet.
    fn extend(&mut self, claimed: Claimed, bytes: &Bytes) -> Result<Taught, RosterError> {
        if claimed.number > self.current.number() + 1 {
            return Ok(Taught::Behind);
        }
        if claimed.previous == *self.current.hash() {
            let signed = claimed.check(&self.current, self.current.needed())?;
            self.push(Arc::new(signed.roster), bytes);
            return Ok(Taught::Newer);
        }
        let Some(rival) =
            self.rival.clone().filter(|rival| claimed.previous == *rival.roster.hash())
        else {
            return Ok(Taught::Behind);
        };
        let signed = claimed.check(&rival.roster, rival.roster.needed())?;
        self.replace(rival);
        self.push(Arc::new(signed.roster), bytes);
        // What lost has no future any more.
        self.rival = None;
        Ok(Taught::Newer)
    }

    /// Another roster of a number that is known.
    fn dispute(&mut self, claimed: Claimed, bytes: &Bytes) -> Result<Taught, RosterError> {
        let newest = self.current.number();
        if self.hash_of(claimed.number - 1) != Some(&claimed.previous) {
            return Err(RosterError::Link(claimed.number));
        }
        if let Some((_, before)) = self.old(claimed.number - 1) {
            claimed.probe(&Claimed::of(before, self.first.suite)?)?;
        }
        let before = self.roster(claimed.number - 1)?;
        let (number, claimed_hash) = (claimed.number, claimed.hash);
        let theirs = claimed.check(&before, before.needed())?;
        let at = usize::try_from(number - 1).unwrap_or(usize::MAX);
        let Some((hash, ours)) = self.links.get(at).cloned() else { return Ok(Taught::Behind) };
        let wins = number == newest && claimed_hash < hash;
        let (kept, lost) = if wins { (claimed_hash, hash) } else { (hash, claimed_hash) };
        let both = SignedRoster::decode(&ours, &before).map(|ours| {
            let both = theirs.signers().filter(|signer| ours.signatures.contains_key(*signer));
            both.copied().collect()
        });
        let signed_both = both.unwrap_or_default();
        let conflict = Conflict { number, ours: kept, theirs: lost, signed_both };
        if self.conflict.as_ref() != Some(&conflict) {
            self.conflicts += 1;
            self.conflict = Some(conflict);
        }
        if number == newest {
            let link = Link { roster: Arc::new(theirs.roster), bytes: bytes.clone() };
            if wins {
                let lost = Link { roster: self.current.clone(), bytes: ours };
                self.replace(link);
                self.rival = Some(lost);
            } else {
                self.rival = Some(link);
            }
        }
        Ok(if wins { Taught::Newer } else { Taught::Known })
    }

    /// The roster of this number, where its content is kept.
    fn kept(&self, number: u64) -> Option<&Arc<Roster>> {
        let kept = [Some(&self.current), self.previous.as_ref(), Some(&self.first)];
        kept.into_iter().flatten().find(|kept| kept.number() == number)
    }

    /// The signed bytes of a roster of which no more is kept.
    fn old(&self, number: u64) -> Option<&([u8; 32], Bytes)> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        self.links.get(at).filter(|_| self.kept(number).is_none())
    }

    /// The roster of this number, which is known; read again where it is not among the last two.
    fn roster(&self, number: u64) -> Result<Arc<Roster>, RosterError> {
        if let Some(found) = self.kept(number) {
            return Ok(Arc::clone(found));
        }
        let missing = RosterError::Number { expected: self.current.number() + 1, found: number };
        let (_, bytes) = self.old(number).ok_or(missing)?;
        Claimed::of(bytes, self.first.suite)?.roster().map(Arc::new)
    }

    fn push(&mut self, roster: Arc<Roster>, bytes: &Bytes) {
        assert_eq!(self.links.len() as u64 + 1, roster.number(), "links ascend by one");
        self.links.push((*roster.hash(), bytes.clone()));
        self.previous = Some(std::mem::replace(&mut self.current, roster));
        self.rival = None;
    }

    fn replace(&mut self, link: Link) {
        let Some(last) = self.links.last_mut() else { return };
        *last = (*link.roster.hash(), link.bytes);
        self.current = link.roster;
    }
}
