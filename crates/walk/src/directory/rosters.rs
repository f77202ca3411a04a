//! The roster that counts, the one before it, and what a newer one changes.
//!
//! A roster proves itself, so it is taken from anywhere. From the moment it is: peers whose organisation it does not
//! list are as if they had never announced themselves, and those of an organisation that changed its key go on under the new one as
//! long as the roster says. The chain of rosters has a lock of its own, because checking hundreds of signatures takes milliseconds; what
//! counts is switched under the directory's lock, all at once.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::{
    Announcement, Conflict, Listing, OrgId, PeerCertificate, PeerId, PublicKey, RecordId, Roster,
    RosterError, Rosters, Suite, Taught,
};
use env::calls::{Known, REVOCATIONS_TOLD_BYTES_MAX, ROSTERS_TOLD_BYTES_MAX, ROSTERS_TOLD_MAX};
use placement::{Candidate, View};
use tokio::sync::broadcast;

use super::{Directory, Inner};

/// Departures that a receiver may lag behind.
pub(super) const DEPARTURES_MAX: usize = 64;
/// Lists of revoked keys that are kept of organisations that left.
const PARTED_MAX: usize = 64;
/// How often, at most, an organisation that is not listed is taken as a sign that the roster is old.
pub const REFRESH_UNKNOWN_EVERY: Duration = Duration::from_secs(5);

/// Who does not count any more.
#[derive(Clone, Debug)]
pub enum Departures {
    /// A newer roster counts.
    Roster {
        /// The roster.
        roster: Arc<Roster>,
        /// Peers that were known until now and that nobody it lists vouches for.
        peers: Vec<PeerId>,
    },
    /// An organisation disowns these keys.
    Revoked {
        /// All that it disowns.
        keys: Vec<PublicKey>,
        /// Peers among them that were known until now.
        peers: Vec<PeerId>,
    },
}

/// Whether somebody named an organisation that is not listed: perhaps this program knows an old roster.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unknown {
    met: bool,
    looked_at: Option<Duration>,
}

impl Directory {
    /// The newest roster.
    pub fn roster(&self) -> Arc<Roster> {
        self.lock().roster.clone()
    }

    /// Whom an organisation's key speaks for now; `None` where the newest roster does not know it.
    pub fn listed(&self, key: &OrgId) -> Option<OrgId> {
        let now = self.env.clock.unix_s();
        self.lock().roster.listed(key, now).map(|listed| listed.organisation)
    }

    /// Takes a signed roster.
    ///
    /// # Errors
    /// [`RosterError`] where it does not count. Nothing changes then.
    pub fn learn_roster(&self, bytes: &Bytes) -> Result<Taught, RosterError> {
        let mut rosters = self.chain();
        let known = rosters.current().clone();
        let conflicts = rosters.conflicts();
        let taught = rosters.learn(bytes)?;
        if rosters.conflicts() != conflicts
            && let Some(conflict) = rosters.conflict()
        {
            tell(conflict);
        }
        if !Arc::ptr_eq(&known, rosters.current()) {
            self.switch(rosters.current().clone(), rosters.previous().cloned());
        }
        Ok(taught)
    }

    /// Takes rosters in their order, as somebody told them; what does not count is left out. Whether the newest
    /// changed.
    pub fn learn_rosters(&self, rosters: &[Bytes]) -> bool {
        let before = self.roster();
        for bytes in rosters {
            if let Err(error) = self.learn_roster(bytes) {
                tracing::debug!(%error, "a roster that was told does not count");
                break;
            }
        }
        !Arc::ptr_eq(&before, &self.roster())
    }

    /// Lets a newer roster count.
    fn switch(&self, roster: Arc<Roster>, previous: Option<Arc<Roster>>) {
        let now = self.env.clock.unix_s();
        let mut inner = self.lock();
        let before = std::mem::replace(&mut inner.roster, roster.clone());
        inner.previous = previous;
        inner.view = None;
        inner.unknown.met = false;
        let mut gone = Vec::new();
        inner.peers.retain(|id, peer| {
            let organisation = peer.announcement.certificate.organisation;
            let same = before.organisation(&organisation) == roster.organisation(&organisation)
                && before.former() == roster.former();
            if same && roster.organisation(&organisation).is_some() {
                return true;
            }
            let bytes = &peer.announcement.certificate_bytes;
            let Ok(certificate) = PeerCertificate::relist(bytes, &roster, now) else {
                gone.push(*id);
                return false;
            };
            peer.announcement =
                Arc::new(Announcement { certificate, ..Announcement::clone(&peer.announcement) });
            true
        });
        inner.trim(self.own);
        inner.turnover.clear();
        inner.relist_revocations(now);
        drop(inner);
        tracing::info!(
            number = roster.number(),
            organisations = roster.organisations().len(),
            peers_gone = gone.len(),
            "a newer roster counts"
        );
        // Nobody listening is no error.
        let _ = self.departures.send(Departures::Roster { roster, peers: gone });
    }

    /// What this program knows, for others to tell what it lacks.
    pub fn known(&self) -> Known {
        let inner = self.lock();
        Known {
            roster: inner.roster.number(),
            roster_hash: *inner.roster.hash(),
            revoked: inner.revoked_digest,
        }
    }

    /// The rosters and revocations that somebody lacks who knows this.
    pub fn lacking(&self, known: &Known) -> (Vec<Bytes>, Vec<Bytes>) {
        let (number, hash) = (known.roster, &known.roster_hash);
        let rosters = self.chain().lacking(number, hash, ROSTERS_TOLD_MAX, ROSTERS_TOLD_BYTES_MAX);
        let inner = self.lock();
        if inner.revoked_digest == known.revoked {
            return (rosters, Vec::new());
        }
        let mut lists: Vec<Bytes> =
            inner.revoked.values().map(|(_, bytes)| bytes.clone()).collect();
        drop(inner);
        // Where they are more than fit, each answer begins elsewhere, so that all arrive.
        if !lists.is_empty() {
            let from = u64::from_be_bytes(self.env.random()) % lists.len() as u64;
            lists.rotate_left(usize::try_from(from).unwrap_or(0));
        }
        let mut left = REVOCATIONS_TOLD_BYTES_MAX;
        lists.retain(|bytes| {
            let fits = bytes.len() <= left;
            left -= if fits { bytes.len() } else { 0 };
            fits
        });
        (rosters, lists)
    }

    /// The signed rosters from number 1 on, to be kept.
    pub fn rosters(&self) -> Vec<Bytes> {
        self.chain().all().cloned().collect()
    }

    /// The signed bytes of the newest roster; `None` where it is the genesis's.
    pub fn newest_roster(&self) -> Option<Bytes> {
        self.chain().newest().cloned()
    }

    /// The last two rosters of one number that were seen, and how often such were.
    pub fn roster_conflict(&self) -> (Option<Conflict>, u64) {
        let rosters = self.chain();
        (rosters.conflict().cloned(), rosters.conflicts())
    }

    /// Who does not count any more, from now on. A receiver that lags by more than 64 is told so.
    pub fn departures(&self) -> broadcast::Receiver<Departures> {
        self.departures.subscribe()
    }

    /// Somebody named an organisation that is not listed.
    pub(super) fn met_unknown(&self) {
        self.lock().unknown.met = true;
    }

    /// Whether an organisation was named that is not listed, since this was last asked, and that is long enough ago.
    pub(crate) fn take_unknown(&self) -> bool {
        let now = self.env.clock.elapsed();
        let unknown = &mut self.lock().unknown;
        let lately =
            unknown.looked_at.is_some_and(|at| now.saturating_sub(at) < REFRESH_UNKNOWN_EVERY);
        if !unknown.met || lately {
            return false;
        }
        *unknown = Unknown { met: false, looked_at: Some(now) };
        true
    }

    fn chain(&self) -> MutexGuard<'_, Rosters> {
        // Every write under the lock is complete in itself, so what a panic elsewhere left is whole.
        self.rosters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An organisation signed two rosters of one number: whoever runs this should know.
fn tell(conflict: &Conflict) {
    let both: Vec<String> = conflict.signed_both.iter().map(ToString::to_string).collect();
    tracing::error!(
        number = conflict.number,
        counts = %RecordId::new(conflict.ours),
        other = %RecordId::new(conflict.theirs),
        signed_both = ?both,
        "two rosters of one number were signed by more than half"
    );
}

impl Inner {
    /// The view by the roster before, of the peers that are in both; `None` where it is the same.
    pub(super) fn before(&self, candidates: &[Candidate]) -> Option<View> {
        let previous = self.previous.as_ref()?;
        let was_listed = |organisation: &OrgId| {
            let former = self.roster.former().iter();
            let mut keys = former.filter(|former| former.organisation == *organisation);
            previous.organisation(organisation).is_some()
                || keys.any(|former| previous.organisation(&former.former).is_some())
        };
        let both: Vec<Candidate> =
            candidates.iter().filter(|one| was_listed(&one.organisation)).cloned().collect();
        (both.len() < candidates.len()).then(|| View::new(previous.number(), both))
    }

    /// Puts the lists of revoked keys under the organisations that the roster lists now; those of others are set aside.
    fn relist_revocations(&mut self, now_s: u64) {
        let roster = self.roster.clone();
        let lists = std::mem::take(&mut self.revoked).into_values();
        for list in std::mem::take(&mut self.parted).into_iter().chain(lists) {
            let Some(listed) = roster.listed(&list.0.organisation, now_s) else {
                self.parted.push_back(list);
                continue;
            };
            let newer = self.revoked.get(&listed.organisation);
            let order = (list.0.sequence, &list.1);
            if newer.is_none_or(|(known, bytes)| (known.sequence, bytes) < order) {
                self.revoked.insert(listed.organisation, list);
            }
        }
        while self.parted.len() > PARTED_MAX {
            self.parted.pop_front();
        }
        self.renew_digest();
    }

    /// The lists of revoked keys are others than before.
    pub(super) fn renew_digest(&mut self) {
        self.revoked_digest = digest(self.revoked.values().map(|(_, bytes)| bytes));
    }
}

/// The hash of lists of revoked keys, in the order of their organisations. It is asked for with each introduction, and the lists of a
/// large roster are megabytes: it is computed where they change.
pub(super) fn digest<'a>(lists: impl Iterator<Item = &'a Bytes>) -> [u8; 32] {
    let lists: Vec<u8> = lists.flat_map(|bytes| bytes.to_vec()).collect();
    Suite::Holdfast1.hash(&lists)
}
