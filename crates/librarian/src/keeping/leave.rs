//! A peer that leaves hands over what it holds before it goes.
//!
//! To the others it counts as absent at once, so copies become the duty of the next in rank, who fetch them; its fragments it moves by
//! itself. It has left when everybody whose duty one of its copies is has it, and each of its fragments is at another: what another
//! took and lost meanwhile, with its disk or for good, is this peer's to move again.
//!
//! Who takes nothing for [`PATIENCE`], as it is full, reads only or lies, does not keep it here: what all others have whose duty it is, one
//! of them at least, counts as handed over then. It is told who that is, and of how many copies. It takes something where it has one
//! of the copies that it lacked: by how many it lacks nobody can tell, as fewer are here with each lease that ends. Among many peers who
//! is there changes all the time, which gives nobody its time anew, or none would ever be over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{PeerId, PeerState, RecordId};
use document::Kind;
use env::Env;
use env::calls::CallError;
use env::calls::keep::{HAVE_MAX, KeepAnswer, KeepRequest};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, PutObjects, PutOutcome};

use store::Placed;

use super::ask::{SMALL_LIMIT, ask};
use super::epoch::Epoch;
use super::map::StripeMap;
use super::{Keeping, locked};
use crate::core::Core;

/// How often it is looked what is not handed over yet.
const EVERY: Duration = Duration::from_secs(5);
/// Records asked about at a time.
const STEP: usize = 4096;
/// For how long a peer may take none of what it should before the others' copies count without it.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How often it is told who takes nothing.
const TELL_EVERY: Duration = Duration::from_secs(300);
/// Heads that are put to others in one look.
const HEADS_MAX: usize = 64;
/// Times that a peer which is busy is asked.
const BUSY_TIMES: usize = 3;
/// Copies remembered of a peer that it lacked: of more, those whose ids end lowest, which are drawn at random.
const LACKED_MAX: usize = 1024;
/// The same of all peers together, of which each has its part, and [`LACKED_MIN`] at least.
const LACKED_ALL_MAX: usize = 1 << 18;
const LACKED_MIN: usize = 16;

/// Waits for the wish to leave, and hands over until nothing is left.
pub(super) async fn leave_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    loop {
        if keeping.is_leaving() {
            break;
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = keeping.leaves.notified() => {}
        }
    }
    tracing::info!("this peer leaves: it hands over what it holds");
    core.announce(PeerState::Leaving).await;
    let mut takers = Takers::default();
    while core.pause(EVERY).await {
        let left = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            left = to_hand_over(&core, &keeping, &mut takers) => left,
        };
        let Some(left) = left else { continue };
        core.metrics.keeping.to_hand_over.set(i64::try_from(left).unwrap_or(i64::MAX));
        (*locked(&keeping.takers)).clone_from(&takers.lacks);
        takers.tell(core.env.clock.elapsed());
        if left == 0 {
            break;
        }
    }
    if core.stop.is_cancelled() {
        return;
    }
    for (peer, copies) in &takers.lacks {
        tracing::warn!(%peer, copies, "this peer leaves without that one having taken what it should: of these copies there is one less until it does");
    }
    tracing::info!("all is handed over, and this peer has left");
    core.announce(PeerState::Left).await;
    keeping.left.store(true, Ordering::SeqCst);
}

/// Who has yet to take what.
#[derive(Default)]
struct Takers {
    /// How many copies each lacked as of the last look.
    lacks: BTreeMap<PeerId, u64>,
    /// Of each that lacks some since when it took none.
    idle: BTreeMap<PeerId, Idle>,
    epoch: [u8; 16],
    told_at: Duration,
}

/// A peer that lacks copies.
struct Idle {
    /// Since when it took none.
    since: Duration,
    /// Some that it lacked as of the first look under this epoch, but for those that it took since: each counts once. `None`: it did
    /// not say yet.
    lacked: Option<BTreeSet<Mark>>,
}

/// By what a copy is remembered: the end of its id.
type Mark = u64;

fn mark(id: &RecordId) -> Mark {
    let mut end = [0; size_of::<Mark>()];
    end.copy_from_slice(&id.as_bytes()[32 - size_of::<Mark>()..]);
    Mark::from_be_bytes(end)
}

/// What a look finds.
#[derive(Default)]
struct Look {
    epoch: [u8; 16],
    /// Whether it is the first under this epoch.
    is_first: bool,
    /// Copies remembered of a peer that it lacks.
    lacked_max: usize,
    /// How many copies each lacks.
    lacks: BTreeMap<PeerId, u64>,
    /// Some of those that each says it lacks, where that is to be known.
    lacking: BTreeMap<PeerId, BTreeSet<Mark>>,
    /// Of those that each lacked before, the ones that it has now.
    taken: BTreeMap<PeerId, BTreeSet<Mark>>,
}

impl Takers {
    /// Whether a peer took nothing for so long that others' copies count without it.
    fn takes_nothing(&self, peer: &PeerId, now: Duration) -> bool {
        self.idle.get(peer).is_some_and(|idle| now.saturating_sub(idle.since) >= PATIENCE)
    }

    /// Begins a look.
    fn look(&self, epoch: [u8; 16], peers: usize) -> Look {
        let lacked_max = (LACKED_ALL_MAX / peers.max(1)).clamp(LACKED_MIN, LACKED_MAX);
        Look { epoch, is_first: self.epoch != epoch, lacked_max, ..Look::default() }
    }

    /// Notes whether a peer says that it has a copy that is here and that it should have; `None`: it does not say.
    fn said(&self, look: &mut Look, peer: &PeerId, id: &RecordId, has: Option<bool>) {
        let lacked = self.idle.get(peer).and_then(|idle| idle.lacked.as_ref());
        let mark = mark(id);
        match has {
            Some(true) if lacked.is_some_and(|lacked| lacked.contains(&mark)) => {
                look.taken.entry(*peer).or_default().insert(mark);
            }
            Some(false) if look.is_first || lacked.is_none() => {
                let lacking = look.lacking.entry(*peer).or_default();
                lacking.insert(mark);
                if lacking.len() > look.lacked_max {
                    lacking.pop_last();
                }
            }
            _ => {}
        }
    }

    /// Takes in what a look found.
    fn looked(&mut self, look: Look, now: Duration) {
        let Look { epoch, lacks, mut lacking, mut taken, .. } = look;
        self.epoch = epoch;
        self.idle.retain(|peer, _| lacks.contains_key(peer));
        for peer in lacks.keys() {
            let idle = self.idle.entry(*peer).or_insert(Idle { since: now, lacked: None });
            if let Some(taken) = taken.remove(peer) {
                idle.since = now;
                idle.lacked.iter_mut().for_each(|lacked| lacked.retain(|one| !taken.contains(one)));
            }
            if let Some(lacking) = lacking.remove(peer) {
                idle.lacked = Some(lacking);
            }
        }
        self.lacks = lacks;
    }

    /// Whether a copy counts as handed over of which these do not have theirs, of so many whose duty it is.
    fn is_handed_over(&self, lack: &[PeerId], duty: usize, now: Duration) -> bool {
        lack.len() < duty && lack.iter().all(|peer| self.takes_nothing(peer, now))
    }

    /// Tells, now and then, who took nothing since.
    fn tell(&mut self, now: Duration) {
        if now.saturating_sub(self.told_at) < TELL_EVERY {
            return;
        }
        self.told_at = now;
        let slow =
            self.idle.iter().filter(|(_, idle)| now.saturating_sub(idle.since) >= TELL_EVERY);
        for (peer, idle) in slow {
            let copies = self.lacks.get(peer).copied().unwrap_or(0);
            let minutes = now.saturating_sub(idle.since).as_secs() / 60;
            tracing::warn!(%peer, copies, minutes, "a peer takes none of what this one hands over: it may be full or read only");
        }
    }
}

/// A fragment that another took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) stripe: RecordId,
    pub(crate) index: u8,
    /// Who.
    pub(crate) to: PeerId,
}

/// Takes back what others took and do not have any more; how many. With `asked` each is asked, else those alone count that are absent.
async fn take_back(core: &Core, keeping: &Keeping, epoch: &Epoch, asked: bool) -> usize {
    let mut by: BTreeMap<PeerId, Vec<RecordId>> = BTreeMap::new();
    for (id, given) in &*locked(&keeping.given) {
        by.entry(given.to).or_default().push(*id);
    }
    let mut gone: Vec<RecordId> = Vec::new();
    let mut unknown = 0;
    for (to, ids) in by {
        if !epoch.answers(&to) {
            gone.extend(ids);
            continue;
        }
        let chunks = ids.chunks(HAVE_MAX).filter(|_| asked);
        for some in chunks {
            match ask(core, &to, KeepRequest::Have(some.to_vec()), SMALL_LIMIT).await {
                Ok(KeepAnswer::Have(have)) if have.len() == some.len() => {
                    let lost = some.iter().zip(have).filter(|(_, have)| !have);
                    gone.extend(lost.map(|(id, _)| *id));
                }
                _ => unknown += some.len(),
            }
        }
    }
    let mut stripes = Vec::with_capacity(gone.len());
    for id in &gone {
        let Some(Given { stripe, index, .. }) = locked(&keeping.given).get(id).copied() else {
            continue;
        };
        match core.shelf.stripe(&stripe).await {
            Ok(Some(header)) if core.shelf.holds(id) => {
                let mut inventory = locked(&keeping.inventory);
                // While it is counted anew, or the store does not answer, it stays to be taken back.
                let Some(inventory) = inventory.as_mut() else {
                    unknown += 1;
                    continue;
                };
                inventory.add_fragment(*id, stripe, index, |epoch, names| {
                    StripeMap::by_rank(&stripe, &header, epoch, names)
                });
                stripes.push(stripe);
            }
            // What the author forgot meanwhile, or the disk lost, is nobody's to move.
            Ok(_) => {}
            Err(_) => {
                unknown += 1;
                continue;
            }
        }
        locked(&keeping.given).remove(id);
    }
    keeping.look_at(core, &stripes);
    unknown + stripes.len()
}

/// How many copies and fragments are here that are not where they should be; `None` where nobody can say.
async fn to_hand_over(core: &Core, keeping: &Keeping, takers: &mut Takers) -> Option<usize> {
    let epoch = keeping.epoch()?;
    if !epoch.leaving.contains(&core.own) {
        return None;
    }
    // Where nobody is heard nobody has it: as long as there are others that stay, each copy is to be at one of them.
    let stays = |peer: &PeerId| *peer != core.own && !epoch.leaving.contains(peer);
    let others = epoch.view.candidates().iter().any(|candidate| stays(&candidate.peer));
    let mut look = takers.look(epoch.hash, epoch.view.len());
    let (mut left, mut part) = (0, 0);
    loop {
        let (copies, next) = {
            let inventory = locked(&keeping.inventory);
            let inventory = inventory.as_ref()?;
            let (copies, next) = inventory.copies_from(part, STEP);
            let due: Vec<(Placed, Vec<PeerId>)> =
                copies.iter().map(|held| (held.placed, inventory.duty(held))).collect();
            (due, next)
        };
        let mut asked: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        let copies: Vec<(Placed, Vec<PeerId>)> =
            copies.into_iter().filter(|(placed, _)| !is_spare(core, placed)).collect();
        for (at, (_, duty)) in copies.iter().enumerate() {
            left += usize::from(others && duty.is_empty());
            for peer in duty {
                asked.entry(*peer).or_default().push(at);
            }
        }
        // Of each copy, those who do not have theirs.
        let mut lack: Vec<Vec<PeerId>> = vec![Vec::new(); copies.len()];
        for (peer, all) in asked {
            for some in all.chunks(HAVE_MAX) {
                let ids = some.iter().map(|at| copies[*at].0.id).collect();
                let have = have(core, &peer, ids).await;
                for (number, at) in some.iter().enumerate() {
                    let has = have.as_ref().and_then(|have| have.get(number)).copied();
                    takers.said(&mut look, &peer, &copies[*at].0.id, has);
                    if has != Some(true) {
                        lack[*at].push(peer);
                    }
                }
            }
        }
        let nobodys = copies.iter().zip(&mut lack).filter(|((placed, duty), lack)| {
            placed.kind == Kind::Head && !lack.is_empty() && lack.len() == duty.len()
        });
        for ((placed, _), lack) in nobodys.take(HEADS_MAX) {
            give_head(core, placed, lack).await;
        }
        let now = core.env.clock.elapsed();
        for ((_, duty), lack) in copies.iter().zip(&lack) {
            lack.iter().for_each(|peer| *look.lacks.entry(*peer).or_default() += 1);
            if !takers.is_handed_over(lack, duty.len(), now) {
                left += lack.len();
            }
        }
        match next {
            Some(next) => part = next,
            None => break,
        }
    }
    takers.looked(look, core.env.clock.elapsed());
    let staying = {
        let inventory = locked(&keeping.inventory);
        let inventory = inventory.as_ref()?;
        let own = inventory.names.known(&core.own);
        let stays = |map: &&StripeMap| {
            map.mine.iter().any(|index| map.holder(*index).is_none_or(|of| Some(of) == own))
        };
        inventory.stripes.values().filter(stays).count()
    };
    let left = left + staying;
    Some(left + take_back(core, keeping, &epoch, left == 0).await)
}

/// Whether nobody needs to have a record: a head that another supersedes, of which each holder drops those that it has too many of.
fn is_spare(core: &Core, placed: &Placed) -> bool {
    placed.kind == Kind::Head && core.objects.is_superseded(&placed.id, &placed.place)
}

/// Gives those a head that lack it all: what was superseded and dropped at each of them they fetch no more, and say of it when it is
/// put that it is there. Who says so lacks it no more.
async fn give_head(core: &Core, placed: &Placed, lack: &mut Vec<PeerId>) {
    let Some((record, mut records)) = core.objects.kept(&placed.id).await else { return };
    records.push(record);
    let mut taken = Vec::new();
    for peer in &*lack {
        let Some(to) = core.directory.endpoint(peer) else { continue };
        let put = PutObjects { records: records.clone(), ..PutObjects::default() };
        let call = core.calls.objects(&to, ObjectsRequest::Put(put), SMALL_LIMIT);
        if let Ok(Ok(ObjectsAnswer::Put(answer))) = core.env.within(SMALL_LIMIT, call).await
            && let Some(Ok(PutOutcome::Stored | PutOutcome::Present)) = answer.outcomes.last()
        {
            taken.push(*peer);
        }
    }
    lack.retain(|peer| !taken.contains(peer));
}

/// What a peer says that it has of these; `None` where it does not say.
async fn have(core: &Core, peer: &PeerId, ids: Vec<RecordId>) -> Option<Vec<bool>> {
    let asked = || ask(core, peer, KeepRequest::Have(ids.clone()), SMALL_LIMIT);
    match unless_busy(&core.env, asked).await {
        Ok(KeepAnswer::Have(have)) if have.len() == ids.len() => Some(have),
        _ => None,
    }
}

/// The answer to a call that is made again where a peer is busy, once it may be another.
async fn unless_busy<T, F>(env: &Env, call: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    for _ in 1..BUSY_TIMES {
        match call().await {
            Err(CallError::Busy { retry_after }) if retry_after <= SMALL_LIMIT => {
                env.clock.sleep(retry_after).await;
            }
            answer => return answer,
        }
    }
    call().await
}

impl Keeping {
    /// Whether this peer leaves.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Whether it has handed over everything.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Begins to leave.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.leaves.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::Range;

    use super::*;

    fn peer(n: u8) -> PeerId {
        PeerId::new(crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public())
    }

    fn id(number: u64) -> RecordId {
        let mut id = [7; 32];
        id[24..].copy_from_slice(&number.to_be_bytes());
        RecordId::new(id)
    }

    fn at(minute: u64) -> Duration {
        Duration::from_secs(60 * minute)
    }

    /// A look: of a peer the copies that are here and that it should have, and those that it says it lacks.
    fn look(
        takers: &mut Takers,
        epoch: u8,
        said: &[(PeerId, Range<u64>, Range<u64>)],
        now: Duration,
    ) {
        let mut look = takers.look([epoch; 16], 9);
        for (peer, here, lacks) in said {
            for number in here.clone() {
                let has = !lacks.contains(&number);
                takers.said(&mut look, peer, &id(number), Some(has));
                if !has {
                    *look.lacks.entry(*peer).or_default() += 1;
                }
            }
        }
        takers.looked(look, now);
    }

    #[test]
    fn who_takes_nothing_for_long_keeps_nobody_here_where_another_has_it() {
        let [full, slow] = [1, 2].map(peer);
        let mut takers = Takers::default();
        for minute in 0..60 {
            let said = [(full, 0..5, 0..5), (slow, 0..100, minute..100)];
            look(&mut takers, 0, &said, at(minute));
        }
        let before = PATIENCE - Duration::from_secs(1);
        assert!(!takers.is_handed_over(&[full], 3, before));
        assert!(takers.is_handed_over(&[full], 3, PATIENCE));
        assert!(takers.is_handed_over(&[], 3, Duration::ZERO), "all of them have it");
        assert!(!takers.is_handed_over(&[slow], 3, PATIENCE), "it takes some all the time");
        assert!(!takers.is_handed_over(&[full, slow], 3, PATIENCE));
        assert!(!takers.is_handed_over(&[full], 1, PATIENCE), "nobody else would have it");
        // It takes something again, and then all.
        look(&mut takers, 0, &[(full, 0..5, 0..4)], PATIENCE);
        assert!(!takers.is_handed_over(&[full], 3, PATIENCE + before));
        assert!(takers.is_handed_over(&[full], 3, PATIENCE * 2));
        look(&mut takers, 0, &[(full, 0..5, 0..0)], PATIENCE * 2);
        assert!(takers.idle.is_empty() && takers.lacks.is_empty());
    }

    #[test]
    fn another_peer_that_comes_or_goes_gives_nobody_its_time_anew() {
        let (full, mut takers) = (peer(1), Takers::default());
        look(&mut takers, 0, &[(full, 0..5, 0..5)], at(0));
        // It should have far more now.
        look(&mut takers, 1, &[(full, 0..5000, 0..5000)], at(59));
        assert!(!takers.is_handed_over(&[full], 3, at(59)));
        assert!(takers.is_handed_over(&[full], 3, at(60)));
        let lacked = takers.idle[&full].lacked.as_ref().map(BTreeSet::len);
        assert_eq!(lacked, Some(LACKED_MAX));
        // Some of that it takes.
        look(&mut takers, 1, &[(full, 0..5000, 9..5000)], at(61));
        assert!(!takers.is_handed_over(&[full], 3, at(120)));
        assert!(takers.is_handed_over(&[full], 3, at(121)));
    }

    #[test]
    fn who_lacks_fewer_since_fewer_are_here_took_nothing() {
        let (full, mut takers) = (peer(1), Takers::default());
        for minute in 0..60 {
            look(&mut takers, 0, &[(full, minute..100, 30..100)], at(minute));
        }
        assert_eq!(takers.lacks[&full], 41);
        assert!(takers.is_handed_over(&[full], 3, PATIENCE));
    }

    #[test]
    fn what_a_peer_says_that_it_took_and_lacks_again_counts_once() {
        let (liar, mut takers) = (peer(1), Takers::default());
        let said = |lacks: Range<u64>, minute| ([(liar, 0..2, lacks)], at(minute));
        for (said, now) in [said(0..2, 0), said(1..2, 59), said(0..2, 60), said(1..2, 118)] {
            look(&mut takers, 0, &said, now);
        }
        assert!(takers.is_handed_over(&[liar], 3, at(119)));
    }

    #[test]
    fn a_peer_that_is_busy_is_asked_again_and_not_for_ever() {
        testkit::time::run(1, |env| async move {
            let cases = [(0_u32, 1, 1_u32), (2, 1, 3), (9, 1, 3), (9, 3600, 1)];
            for (busy, retry_s, calls) in cases {
                let (asked, since) = (Cell::new(0), env.clock.elapsed());
                let retry_after = Duration::from_secs(retry_s);
                let call = || async {
                    asked.set(asked.get() + 1);
                    let is_busy = asked.get() <= busy;
                    if is_busy { Err(CallError::Busy { retry_after }) } else { Ok(()) }
                };
                let answer = unless_busy(&env, call).await;
                assert_eq!((asked.get(), answer.is_ok()), (calls, calls > busy));
                let waited = env.clock.elapsed() - since;
                assert_eq!(waited, Duration::from_secs(u64::from(calls) - 1));
            }
        });
    }
}
