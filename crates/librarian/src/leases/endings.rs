//! Leases ended by their clients: the word is kept, told on, and what it leaves without a lease is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use crypto::certificate::CLOCK_SKEW_S;
use crypto::lease::{Forget, Kept, LeaseError, Shown, SignedForget};
use crypto::{LeaseId, Place, PublicKey, RecordId};
use document::Record;
use env::calls::CallError;
use env::calls::leases::{FORGETS_MAX, Forgotten, PLACE_LEASES_MAX, PlaceLeases};
use store::StoreError;

use super::checking::refusal;
use super::table::TOMBSTONE_SECONDS_MAX;
use super::{Leases, Swept, kept};
use crate::shelf;

/// Frames of leases that were read last, decoded: one is of up to a thousand places, of which many are mostly asked for
/// together. Each is up to a few MB.
#[derive(Default)]
pub(crate) struct Frames(VecDeque<(RecordId, Arc<Kept>)>);

/// Frames that are held for one call.
const FRAMES_MAX: usize = 4;

impl Frames {
    fn get(&self, id: &RecordId) -> Option<Arc<Kept>> {
        self.0.iter().find(|(other, _)| other == id).map(|(_, kept)| kept.clone())
    }

    fn put(&mut self, id: RecordId, kept: Kept) -> Arc<Kept> {
        if self.0.len() == FRAMES_MAX {
            self.0.pop_front();
        }
        let kept = Arc::new(kept);
        self.0.push_back((id, kept.clone()));
        kept
    }
}

impl Leases {
    /// Ends leases by signed words: each word is durable before what it ends is dropped.
    ///
    /// # Errors
    /// `Invalid` or `Denied` for a word that does not count: then none of them was heard. What the store says.
    pub(crate) async fn forget(
        &self,
        words: Vec<Bytes>,
        done: &mut Swept,
    ) -> Result<Vec<Forgotten>, CallError> {
        if words.len() > FORGETS_MAX {
            let reason = format!("at most {FORGETS_MAX} leases are ended at once");
            return Err(CallError::Invalid { reason });
        }
        let claimed = words.into_iter().map(|word| Ok((Forget::claimed(&word)?, word)));
        let claimed: Result<Vec<(Forget, Bytes)>, LeaseError> = claimed.collect();
        let claimed = claimed.map_err(|error| refusal(&error))?;
        // It is looked first which leases are here: signatures of others are not worth checking.
        let here: Vec<Option<Forgotten>> = {
            let table = self.table();
            let look = |(word, _): &(Forget, Bytes)| match table.is_buried(&word.lease) {
                true => Some(Forgotten::Known),
                false if table.client(&word.lease) == Some(word.client) => None,
                false => Some(Forgotten::NotHere),
            };
            claimed.iter().map(look).collect()
        };
        let known = claimed.iter().zip(&here).filter(|(_, here)| **here == Some(Forgotten::Known));
        let known: Vec<LeaseId> = known.map(|((word, _), _)| word.lease).collect();
        let network = self.directory.genesis().network();
        let (mut outcomes, mut verified) = (Vec::new(), Vec::new());
        for ((_, word), here) in claimed.into_iter().zip(here) {
            if here.is_none() {
                let signed = SignedForget::verify(word, &network);
                verified.push(signed.map_err(|error| refusal(&error))?);
            }
            outcomes.push(here.unwrap_or(Forgotten::Ended));
        }
        let now_ms = self.env.clock.unix_ms();
        let (mut buried, mut leases) = (Vec::new(), Vec::new());
        {
            let table = self.table();
            for signed in verified {
                let lease = signed.forget.lease;
                if !leases.contains(&lease) {
                    let until = table.until(&lease).unwrap_or(0).saturating_add(CLOCK_SKEW_S);
                    let until = until.min(now_ms / 1000 + TOMBSTONE_SECONDS_MAX);
                    buried.push((lease, signed.bytes, until));
                    leases.push(lease);
                }
            }
        }
        let ended = async {
            self.bury(buried, now_ms).await?;
            // Of a word that comes again what it could not drop before goes now. What others could not is not this caller's to hear.
            let undone = self.finish_undone(done).await;
            self.end_all(&leases, done).await?;
            if self.is_undone(&known) { undone } else { Ok(()) }
        };
        ended.await.map_err(|error| shelf::refusal(&error))?;
        Ok(outcomes)
    }

    /// Whether this word is kept: its lease is taken no more, and what it left without one is dropped by a sweep at the latest.
    pub(super) fn keeps_word(&self, word: &Bytes) -> bool {
        Forget::claimed(word).is_ok_and(|claimed| self.table().is_buried(&claimed.lease))
    }

    /// Keeps words durably, and takes their leases no more from then on.
    async fn bury(
        &self,
        words: Vec<(LeaseId, Bytes, u64)>,
        heard_ms: u64,
    ) -> Result<(), StoreError> {
        if words.is_empty() {
            return Ok(());
        }
        let frame = |(_, forget, until): &(LeaseId, Bytes, u64)| {
            kept(&Kept::Buried { forget: forget.clone(), heard_ms, until: *until })
        };
        let records: Vec<Record> = words.iter().map(frame).collect();
        let ids: Vec<RecordId> = records.iter().map(|record| record.id).collect();
        let lengths: Vec<usize> = records.iter().map(|record| record.bytes.len()).collect();
        self.store.put(records).await?;
        self.count_own(|own| {
            ids.iter().zip(lengths).for_each(|(id, length)| own.add(*id, length));
        });
        let superfluous: Vec<RecordId> = {
            let mut table = self.table();
            let each = words.into_iter().zip(ids);
            each.flat_map(|((lease, bytes, until), frame)| {
                table.bury(lease, bytes, heard_ms, until, frame)
            })
            .collect()
        };
        if superfluous.is_empty() { Ok(()) } else { self.remove(superfluous).await }
    }

    /// Words heard since then, Unix milliseconds, oldest first, of one moment those behind a lease; and where to go on, where
    /// there are more.
    pub(crate) fn tombstones_since(
        &self,
        since_ms: u64,
        after: Option<LeaseId>,
    ) -> (Vec<Bytes>, Option<(u64, LeaseId)>) {
        self.table().tombstones_since(since_ms, after, FORGETS_MAX)
    }

    /// The leases of a place, each with the leaf for it, as they were shown: to be shown to another holder with the record.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn of(&self, place: &Place) -> Result<Vec<Shown>, StoreError> {
        self.of_for(place, None, &mut Frames::default()).await
    }

    /// The same, of more than are told those of a client first.
    async fn of_for(
        &self,
        place: &Place,
        client: Option<&PublicKey>,
        read: &mut Frames,
    ) -> Result<Vec<Shown>, StoreError> {
        let frames = self.table().frames_at(place, client, PLACE_LEASES_MAX);
        let mut leases = Vec::with_capacity(frames.len());
        for (lease, frame, pass) in frames {
            let holding = match read.get(&frame) {
                None => self.kept_at(&frame).await?.map(|kept| read.put(frame, kept)),
                read => read,
            };
            let pass = self.kept_at(&pass).await?;
            if let (Some(Kept::Holding(holding)), Some(Kept::Pass(pass))) =
                (holding.as_deref(), pass)
                && let Some(shown) = holding.shown(pass, place)
            {
                // A frame is of up to a thousand places, and each answer would keep all of it.
                let [lease, pass] =
                    [&shown.lease, &shown.pass].map(|part| Bytes::copy_from_slice(part));
                leases.push(Shown { lease, pass, ..shown });
            } else {
                tracing::warn!(%lease, "what was kept of a lease cannot be read");
            }
        }
        Ok(leases)
    }

    async fn kept_at(&self, id: &RecordId) -> Result<Option<Kept>, StoreError> {
        match self.store.get(id).await {
            Ok(record) => Ok(record.and_then(|record| Kept::decode(&record.bytes).ok())),
            Err(StoreError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What there is at a place, for whoever renews, forgets or looks: its own leases first.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn look(
        &self,
        place: &Place,
        caller: &PublicKey,
        read: &mut Frames,
    ) -> Result<PlaceLeases, StoreError> {
        // In this order: what loses its leases in between is being dropped.
        let unleased = self.table().is_unleased(place);
        let held = self.stays(place);
        let unleased = held && unleased;
        Ok(PlaceLeases { held, unleased, leases: self.of_for(place, Some(caller), read).await? })
    }
}
