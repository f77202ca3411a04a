//! Watching objects: each new version once, from all holders at once, over holders that fail.
//!
//! ```text
//! holder --+
//! holder --+-> proven? by a listed writer? told before? -> versions that it was made of and were not told -> it -> told
//! holder --+
//! ```
//! A holder numbers its events, and a cursor goes on where it ended. Where it cannot (it started anew, or the watcher was away for too
//! long) it says so and tells its tips: from those the histories are walked back to what was told, so nothing is missed. Only where that
//! cannot be done the watcher is told of a gap.
//!
//! Limits: what no holder that answers took is not told. Once a minute the objects' tips are asked for as well, since a branch goes on at other
//! holders where a region is full; of a family's objects those of [`DOUBTED_MAX`] that have a version by somebody who was no writer when
//! it came.

mod fill;
mod follow;
mod point;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, PublicKey, RecordId};
use env::calls::objects::{
    FoundVersion, GetTips, OBJECTS_MAX, ObjectsAnswer, ObjectsRequest, WatchCursor, WatchEvent,
    Watched,
};
use futures::channel::mpsc;
use futures::stream::{SelectAll, select_all};
use futures::{SinkExt, Stream, StreamExt};
use version::{ObjectKey, ObjectRecord, VersionId};
use walk::objects::{HOLDERS_ASKED_MAX, Judge, Judged};

use super::tips::attested;
use super::{Object, Objects, ObjectsError, Past, chain};
use crate::job::Job;
use follow::{Followed, Signal};
use point::Step;
pub use point::WatchPoint;

/// Events that wait for whoever reads the watch, with their values: 32 MiB at most. Then the holders wait.
const WAITING_MAX: usize = 16;
/// Objects of which is remembered that their policy was asked for.
const ASKED_MAX: usize = 256;
/// Versions of which is remembered that they were told.
const TOLD_MAX: usize = 65_536;
/// How often tips are asked for as well.
const TIPS_EVERY: Duration = Duration::from_secs(60);
/// Objects of a family that are known at once.
const MEMBERS_MAX: usize = 65_536;
/// Objects of a family of which a version waits for its writer to be known.
const DOUBTED_MAX: usize = 4_096;
/// How many of those are looked at together.
const DOUBTED_AT_ONCE: usize = 64;

/// What a watch tells.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are versions")]
pub enum WatchTold {
    /// A version. At the start the tips that there are; then each new one, after those that it was made of.
    Version {
        /// The object.
        object: Object,
        /// The version; [`Object::open_value`] opens what it holds.
        past: Past,
        /// Who wrote it; `None` of one that was found in the history of another.
        author: Option<PublicKey>,
    },
    /// Versions of this object may be missing before the next: a history could not be walked back to what was told.
    Gap {
        /// Which object.
        object: ObjectKey,
    },
    /// All that there was at the start was told, by all holders that answer.
    CaughtUp,
}

/// A running watch: a stream that goes on until it is dropped.
pub struct Watch {
    told: mpsc::Receiver<(Option<WatchTold>, Step)>,
    point: WatchPoint,
    _merging: Job<()>,
}

impl Watch {
    /// Where to go on after the last event taken: hand it to the next watch of the same.
    pub const fn point(&self) -> &WatchPoint {
        &self.point
    }
}

impl Stream for Watch {
    type Item = WatchTold;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchTold>> {
        loop {
            match futures::ready!(self.told.poll_next_unpin(context)) {
                None => return Poll::Ready(None),
                Some((told, step)) => {
                    self.point.take(step);
                    if let Some(told) = told {
                        return Poll::Ready(Some(told));
                    }
                }
            }
        }
    }
}

impl Object {
    /// Watches this object, from where another watch of it ended, or from what there is now. See [`Objects::watch`].
    ///
    /// # Errors
    /// As there.
    pub async fn watch(&self, from: Option<WatchPoint>) -> Result<Watch, ObjectsError> {
        self.objects.watch(vec![self.clone()], from).await
    }
}

impl Objects {
    /// Watches objects, at most 256. It goes on until it is dropped, over holders that fail and come back; nobody has to be
    /// reachable at first.
    ///
    /// # Errors
    /// [`ObjectsError::BatchFull`] for more than 256 objects.
    pub async fn watch(
        &self,
        objects: Vec<Object>,
        from: Option<WatchPoint>,
    ) -> Result<Watch, ObjectsError> {
        if objects.len() > OBJECTS_MAX {
            return Err(ObjectsError::BatchFull { max: OBJECTS_MAX });
        }
        let mut by_peer: BTreeMap<PeerId, Vec<ObjectKey>> = BTreeMap::new();
        let view = self.walker().directory().view();
        for object in &objects {
            if let Err(error) = object.ask_policy().await {
                tracing::debug!(object = %object.key, %error, "watched before its policy is known");
            }
            let known = self.known().of(&object.key);
            let mut peers = BTreeSet::new();
            for number in 0..=known.overflow.max(known.seen) {
                let place = object.place(&object.hint(number));
                peers.extend(view.holders(&place, object.redundancy().copies as usize));
            }
            for peer in peers {
                by_peer.entry(peer).or_default().push(object.key);
            }
        }
        let watched = by_peer.into_iter().take(HOLDERS_ASKED_MAX);
        let watched = watched.map(|(peer, keys)| (peer, Watched::Objects(keys))).collect();
        let members = objects.into_iter().map(|object| (object.key, object)).collect();
        Ok(self.start_watch(watched, members, None, from))
    }

    /// Watches all objects of an owner whose names begin so, at all peers. As [`Objects::watch`]; of an owner's sealed objects the owner
    /// alone is told.
    pub fn watch_family(&self, owner: PublicKey, prefix: &[u8], from: Option<WatchPoint>) -> Watch {
        let prefix = Bytes::copy_from_slice(prefix);
        let view = self.walker().directory().view();
        let peers = view.candidates().iter().map(|one| one.peer).take(HOLDERS_ASKED_MAX);
        let watched = peers.map(|peer| (peer, Watched::Family(owner, prefix.clone()))).collect();
        self.start_watch(watched, BTreeMap::new(), Some((owner, prefix)), from)
    }

    fn start_watch(
        &self,
        watched: Vec<(PeerId, Watched)>,
        members: BTreeMap<ObjectKey, Object>,
        family: Option<(PublicKey, Bytes)>,
        from: Option<WatchPoint>,
    ) -> Watch {
        let (send, told) = mpsc::channel(WAITING_MAX);
        let is_fresh = from.is_none();
        let point = from.unwrap_or_default();
        let first: BTreeSet<PeerId> = watched.iter().map(|(peer, _)| *peer).collect();
        let streams = watched.into_iter().map(|(peer, what)| {
            let cursor = point.cursor(&peer);
            follow::follow(self.clone(), peer, what, cursor)
        });
        let watching = Watching {
            objects: self.clone(),
            streams: select_all(streams),
            members,
            family,
            seen: [point.hs().collect(), BTreeSet::new()],
            point: point.clone(),
            starting: first.clone(),
            fresh: if is_fresh { first } else { BTreeSet::new() },
            caught: false,
            told_caught_up: false,
            doubted: VecDeque::new(),
            asked: VecDeque::new(),
            tips_at: self.author().env().clock.elapsed(),
            send,
        };
        let merging = Job::task(self.author().env(), watching.run());
        Watch { told, point, _merging: merging }
    }
}

/// An object of a family that has a version by somebody who is no writer by any policy that is known here.
struct Doubted {
    object: Object,
    /// Whether it is told without what it was made of.
    is_first: bool,
    /// Who told it. Their cursors stay before it, so that a watch that goes on from there is told it as well.
    peers: BTreeSet<PeerId>,
}

/// What is told where a history cannot be had.
fn gap(object: &Object, error: &ObjectsError) -> WatchTold {
    tracing::debug!(object = %object.key, %error, "a history cannot be walked");
    WatchTold::Gap { object: object.key }
}

/// Merges what the holders tell.
struct Watching {
    objects: Objects,
    streams: SelectAll<Followed>,
    members: BTreeMap<ObjectKey, Object>,
    family: Option<(PublicKey, Bytes)>,
    /// What was told: two generations of it.
    seen: [BTreeSet<RecordId>; 2],
    point: WatchPoint,
    /// Who has not told yet what there was at the start.
    starting: BTreeSet<PeerId>,
    /// Whose first tips are told as they are, since nothing was told before.
    fresh: BTreeSet<PeerId>,
    /// Whether one has told what there was at the start.
    caught: bool,
    /// Whether it was told that all have.
    told_caught_up: bool,
    /// What is looked at again, the oldest first.
    doubted: VecDeque<Doubted>,
    /// Objects whose policy was asked for anew, the last ones.
    asked: VecDeque<(ObjectKey, Duration)>,
    tips_at: Duration,
    send: mpsc::Sender<(Option<WatchTold>, Step)>,
}

impl Watching {
    async fn run(mut self) {
        while let Some((peer, signal)) = self.streams.next().await {
            let goes_on = match signal {
                Signal::Lost => self.started(peer, None).await,
                Signal::Event(WatchEvent::CaughtUp(cursor)) => {
                    self.started(peer, Some(cursor)).await && self.ask_tips().await
                }
                Signal::Event(WatchEvent::Gap) => true,
                Signal::Event(WatchEvent::Record { found, cursor }) => {
                    self.record(peer, found, cursor).await
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn tell(&mut self, told: Option<WatchTold>, mut step: Step) -> bool {
        step.cursor = step.cursor.filter(|cursor| {
            !self.doubted.iter().any(|doubted| doubted.peers.contains(&cursor.peer))
        });
        self.point.take(step.clone());
        self.send.send((told, step)).await.is_ok()
    }

    /// A holder has told what there was, or cannot be reached.
    async fn started(&mut self, peer: PeerId, cursor: Option<WatchCursor>) -> bool {
        self.starting.remove(&peer);
        if cursor.is_some() {
            self.fresh.remove(&peer);
            self.caught = true;
        }
        let step = Step { cursor, ..Step::default() };
        // Where none could be reached at first, the first that comes back is all that answer.
        let all = self.caught && self.starting.is_empty() && !self.told_caught_up;
        self.told_caught_up |= all;
        self.tell(all.then_some(WatchTold::CaughtUp), step).await
    }

    /// A version, as a holder tells it.
    async fn record(
        &mut self,
        peer: PeerId,
        found: FoundVersion,
        cursor: Option<WatchCursor>,
    ) -> bool {
        let step = Step { cursor, ..Step::default() };
        if self.was_told(&found.record.id) {
            return self.tell(None, step).await;
        }
        let Some((object, past, author)) = self.proven(peer, &found).await else {
            return self.tell(None, step).await;
        };
        let is_first = self.fresh.contains(&peer);
        if !self.version(object, past, Some(author), is_first).await {
            return false;
        }
        // After the version, so that a point never is behind what was not told.
        self.tell(None, step).await
    }

    /// Tells a version, and before it those that it was made of and were not told.
    async fn version(
        &mut self,
        object: Object,
        past: Past,
        author: Option<PublicKey>,
        is_first: bool,
    ) -> bool {
        let known = past.version.bases.iter().all(|base| self.was_told(&base));
        if !is_first && !known {
            let frontier = self.point.of(&object.key);
            let told = &self.seen;
            let seen = |h: &RecordId| told.iter().any(|seen| seen.contains(h));
            match object.untold(&past, &frontier, seen).await {
                Ok(before) => {
                    if !self.tell_untold(&object, &before).await {
                        return false;
                    }
                }
                Err(error) => {
                    let gap = gap(&object, &error);
                    if !self.tell(Some(gap), Step::default()).await {
                        return false;
                    }
                }
            }
        }
        self.tell_version(object, past, author).await
    }

    async fn tell_version(
        &mut self,
        object: Object,
        past: Past,
        author: Option<PublicKey>,
    ) -> bool {
        if self.seen[0].len() >= TOLD_MAX {
            self.seen[1] = std::mem::take(&mut self.seen[0]);
        }
        self.seen[0].insert(past.id.h);
        let step = Step {
            version: Some((object.key, past.id.h, past.id.l, past.version.bases)),
            ..Step::default()
        };
        self.tell(Some(WatchTold::Version { object, past, author }), step).await
    }

    fn was_told(&self, h: &RecordId) -> bool {
        self.seen.iter().any(|seen| seen.contains(h))
    }

    /// Proves a version: whose object it is of, and that a writer of it attests it. What does not prove itself is passed over, as
    /// the other holders tell what is so.
    async fn proven(
        &mut self,
        peer: PeerId,
        found: &FoundVersion,
    ) -> Option<(Object, Past, PublicKey)> {
        let key = version::Version::decode(&found.record.bytes).ok()?.object;
        let object = self.member(peer, key).await?;
        let (suite, network) = (self.objects.suite(), self.objects.network());
        let found = found.clone();
        let proven = self.objects.cpu(move || {
            let places = chain::Places::new(suite, key);
            let (h, version, n) = chain::version(suite, &key, &places, &found.record)?;
            let bytes = found.attestation.ok_or("a version that nobody attests")?;
            let author = attested(suite, &network, &h, &bytes)?;
            Ok::<_, String>((Past { id: VersionId { h, l: version.l, n }, version }, author))
        });
        let (past, author) = match proven.await.ok()? {
            Ok(proven) => proven,
            Err(reason) => {
                tracing::warn!(%peer, reason, "a watched peer told what does not prove itself");
                return None;
            }
        };
        if !object.counting_policy().may_write(&author) {
            self.refresh(&object).await;
        }
        if object.counting_policy().may_write(&author) {
            return Some((object, past, author));
        }
        // It may be listed in a policy that was not asked for, or has not come to those that answered.
        let (is_first, peers) = (self.fresh.contains(&peer), BTreeSet::from([peer]));
        self.doubt(Doubted { object, is_first, peers });
        None
    }

    fn doubt(&mut self, one: Doubted) {
        let has_room = self.family.is_some() && self.doubted.len() < DOUBTED_MAX;
        let mut known = self.doubted.iter_mut();
        match known.find(|known| known.object.key == one.object.key) {
            Some(known) => known.peers.extend(one.peers),
            // The tips of single objects are asked for anyway.
            None if has_room => self.doubted.push_back(one),
            None => {}
        }
    }

    /// Asks for the policy anew, now and then: a writer may be listed since.
    async fn refresh(&mut self, object: &Object) {
        let now = self.objects.author().env().clock.elapsed();
        while self.asked.front().is_some_and(|(_, at)| now.saturating_sub(*at) > TIPS_EVERY) {
            self.asked.pop_front();
        }
        if self.asked.len() >= ASKED_MAX || self.asked.iter().any(|(key, _)| *key == object.key) {
            return;
        }
        self.asked.push_back((object.key, now));
        if let Err(error) = object.tips().await {
            tracing::debug!(object = %object.key, %error, "its policy cannot be asked for");
        }
    }

    /// The watched object with this key. Of a family's the record is asked for, which proves whose it is.
    async fn member(&mut self, peer: PeerId, key: ObjectKey) -> Option<Object> {
        if let Some(object) = self.members.get(&key) {
            return Some(object.clone());
        }
        let (owner, prefix) = self.family.clone()?;
        let suite = self.objects.suite();
        let judge: Judge<ObjectRecord> = std::sync::Arc::new(move |_, answer| match answer {
            ObjectsAnswer::Tips(mut answers) if answers.len() == 1 => {
                let record = answers.remove(0).ok().and_then(|tips| tips.object);
                let record = record.filter(|record| suite.id(&record.bytes) == key.record());
                let object = record.and_then(|record| ObjectRecord::decode(&record.bytes).ok());
                object.map_or(Judged::NotHere, Judged::Here)
            }
            _ => Judged::Lie("it answers something else than tips".to_owned()),
        });
        let reader = self.objects.reader();
        let request = ObjectsRequest::Tips(GetTips { objects: vec![key], reader });
        let asked = self.objects.walker().answer_of(&peer, request, 4_096, judge).await;
        let record = asked.ok().flatten()?;
        if record.owner != owner || !record.name.starts_with(&prefix) {
            return None;
        }
        let object = self.objects.with_record(record, key);
        if let Err(error) = object.tips().await {
            tracing::debug!(object = %key, %error, "its policy cannot be asked for");
        }
        let object = object.into_policy_kind();
        if self.members.len() >= MEMBERS_MAX {
            self.members.clear();
        }
        self.members.insert(key, object.clone());
        Some(object)
    }

    /// Now and then: what the objects are at, wherever their branches went on and whoever may write now.
    async fn ask_tips(&mut self) -> bool {
        let now = self.objects.author().env().clock.elapsed();
        if now.saturating_sub(self.tips_at) < TIPS_EVERY {
            return true;
        }
        self.tips_at = now;
        let looked_at: Vec<Doubted> = match self.family {
            None => {
                let all = self.members.values().cloned();
                all.map(|object| Doubted { object, is_first: false, peers: BTreeSet::new() })
                    .collect()
            }
            Some(_) => self.doubted.drain(..self.doubted.len().min(DOUBTED_AT_ONCE)).collect(),
        };
        for one in looked_at {
            let (object, is_first) = (one.object.clone(), one.is_first);
            let tips = object.tips().await;
            if !tips.as_ref().is_ok_and(|tips| tips.is_enough) {
                self.doubt(one);
            }
            let Ok(tips) = tips else { continue };
            for tip in tips.tips.into_iter().rev() {
                if self.was_told(&tip.id.h) {
                    continue;
                }
                let Ok(found) = object.find(&tip.id.h, &tip.id.n, None).await else { continue };
                let past = Past { id: tip.id, version: found.version };
                if !self.version(object.clone(), past, Some(tip.author), is_first).await {
                    return false;
                }
            }
        }
        true
    }
}
