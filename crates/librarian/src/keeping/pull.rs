//! Copies that should be here are fetched from whoever has them, one transfer each.
//!
//! Who lacks a copy fetches it, so that there are never two repairs of one copy and nobody need be asked first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record};
use env::calls::CallError;
use env::calls::keep::{FETCH_MAX, FetchAnswer, FetchAt, KeepAnswer, KeepRequest};
use env::calls::leases::{LeaseAnswer, LeaseRequest, PLACES_MAX, PlaceLeases};
use env::calls::objects::{PutObjects, PutOutcome};
use futures::StreamExt;
use tokio::sync::Mutex;
use walk::Health;

use super::ask::{LARGE_LIMIT, ask, strange};
use super::{Keeping, locked};
use crate::core::Core;
use crate::objects::Bringer;
use crate::shelf::one_line;

/// How often it is looked for something to fetch.
const EVERY: Duration = Duration::from_secs(1);
/// Records asked for at a time by a peer whose processors are behind.
const STRAINED_FETCH_MAX: usize = 32;
/// Fetched copies of documents written at a time: they share syncs.
const STORED_AT_ONCE: usize = 32;
/// For how long a holder that did not answer comes behind all others: each such answer is waited for in vain, and records that
/// it invented would otherwise be fetched before others' real ones.
const RESTS_FOR: Duration = Duration::from_secs(600);
/// Holders that are asked at once.
const HOLDERS_AT_ONCE: usize = 4;
/// How long a holder may take for who pays and for the copies, and how many bytes of them it must send a second above that: one
/// that is slower comes behind all others for as long as one that does not answer. A line of a megabit a second is faster.
const SLOW_AFTER: Duration = Duration::from_secs(10);
const SLOW_BYTES_S: u64 = 64 << 10;

/// Fetches until the peer stops: from several holders at once, so that a slow one does not hold up the others. Where callers want all
/// that this peer can do, from no more than one in the time that it waits for them.
pub(super) async fn pull_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let turn = Mutex::new(());
    let one = || pull_in_turn(&core, &keeping, &turn);
    futures::future::join_all((0..HOLDERS_AT_ONCE).map(|_| one())).await;
}

/// Fetches from one holder after the other.
async fn pull_in_turn(core: &Core, keeping: &Keeping, turn: &Mutex<()>) {
    while core.beat(EVERY).await {
        let work = async {
            while !core.shelf.is_left_alone() && core.shelf.refuses_writes().is_none() {
                let calm = {
                    let _turn = turn.lock().await;
                    core.strain.calm(&core.env).await
                };
                let most = if calm { FETCH_MAX } else { STRAINED_FETCH_MAX };
                let now = core.env.clock.elapsed();
                let settle = keeping.options.settle;
                let Some((holder, ids)) = locked(&keeping.work).pulls(now, settle, most) else {
                    return;
                };
                keeping.budget.wait(&core.env).await;
                pull(core, keeping, &holder, ids.clone()).await;
                locked(&keeping.work).pulled(&holder, &ids);
            }
        };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = work => {}
        }
    }
}

/// Fetches what one holder has of these.
async fn pull(core: &Core, keeping: &Keeping, holder: &PeerId, ids: Vec<(RecordId, Place)>) {
    // What came meanwhile lacks no more.
    let (here, ids): (Vec<_>, Vec<_>) = ids.into_iter().partition(|(id, _)| core.shelf.holds(id));
    {
        let mut work = locked(&keeping.work);
        here.iter().for_each(|(id, place)| work.found(id, place));
    }
    for (id, place) in &here {
        keeping.is_here(core, id, place).await;
    }
    if ids.is_empty() {
        return;
    }
    // Who does not answer this is waited for in vain as much as who does not answer the next.
    let rests = |ids: &[(RecordId, Place)]| {
        let until = core.env.clock.elapsed() + RESTS_FOR;
        let mut work = locked(&keeping.work);
        ids.iter().for_each(|(id, place)| work.not_at(id, place, holder));
        work.rest(*holder, until);
    };
    let begun = core.env.clock.elapsed();
    let Some(mut paid) = payments(core, holder, &ids).await else { return rests(&ids) };
    let mut took = core.env.clock.elapsed().saturating_sub(begun);
    let (ids, refused) = paid_for(core, ids, &paid).await;
    {
        let mut work = locked(&keeping.work);
        let now = core.env.clock.elapsed();
        for (id, place) in &refused {
            match core.leases.was_dropped(place) {
                true => work.refuse(id, place, holder, now),
                false => work.not_at(id, place, holder),
            }
        }
    }
    if ids.is_empty() {
        return;
    }
    let asked = ids.iter().map(|(id, place)| FetchAt { id: *id, place: *place }).collect();
    let begun = core.env.clock.elapsed();
    let answer = ask(core, holder, KeepRequest::Fetch(asked), LARGE_LIMIT).await;
    took += core.env.clock.elapsed().saturating_sub(begun);
    let answers = match answer {
        Ok(KeepAnswer::Fetch(answers)) if answers.len() == ids.len() => answers,
        other => {
            let error = other.err().unwrap_or_else(|| strange(holder));
            tracing::debug!(peer = %holder, %error, "copies could not be fetched");
            return rests(&ids);
        }
    };
    let counts = &core.metrics.keeping;
    if is_slow(took, &answers) {
        tracing::debug!(peer = %holder, ?took, "copies come slowly: others are asked first");
        locked(&keeping.work).rest(*holder, core.env.clock.elapsed() + RESTS_FOR);
    }
    // What is the first to be there fits into an answer: whoever puts it off has nothing.
    let mut nothing = true;
    let mut fetched = Vec::new();
    for ((id, place), answer) in ids.iter().zip(answers) {
        match answer {
            FetchAnswer::Found { record, companions } => {
                nothing = false;
                let bytes = record.bytes.len() as u64;
                keeping.budget.pay(&core.env, bytes);
                counts.fetched_bytes.inc_by(bytes);
                let said = paid.remove(place);
                // What came between the two questions is asked for again: by then it is known who pays for it.
                let known =
                    !record.kind.is_document() || said.as_ref().is_none_or(|said| said.held);
                if known && record.id == *id && record.place == *place {
                    fetched.push(Fetched { record, companions, said });
                } else {
                    locked(&keeping.work).not_at(id, place, holder);
                }
            }
            FetchAnswer::Later if !nothing => {}
            FetchAnswer::Later | FetchAnswer::Absent => {
                locked(&keeping.work).not_at(id, place, holder);
            }
        }
    }
    // Of an object a record may stand on the one before it.
    let (documents, of_objects): (Vec<_>, Vec<_>) =
        fetched.into_iter().partition(|one| one.record.kind.is_document());
    let stored = documents.into_iter().map(|one| store(core, keeping, holder, one));
    futures::stream::iter(stored).buffer_unordered(STORED_AT_ONCE).collect::<()>().await;
    for one in of_objects {
        store(core, keeping, holder, one).await;
    }
}

/// Whether so long is too long for what came.
fn is_slow(took: Duration, answers: &[FetchAnswer]) -> bool {
    let bytes = |answer: &FetchAnswer| match answer {
        FetchAnswer::Found { record, companions } => {
            companions.iter().chain([record]).map(|one| one.bytes.len() as u64).sum()
        }
        FetchAnswer::Later | FetchAnswer::Absent => 0,
    };
    let bytes: u64 = answers.iter().map(bytes).sum();
    took > SLOW_AFTER + Duration::from_secs_f64(bytes as f64 / SLOW_BYTES_S as f64)
}

/// A record that a holder gave, what it needs beside it, and who pays for it.
struct Fetched {
    record: Record,
    companions: Vec<Record>,
    said: Option<PlaceLeases>,
}

/// Stores what a holder gave, where it is due here, and notes what became of it.
async fn store(core: &Core, keeping: &Keeping, holder: &PeerId, fetched: Fetched) {
    let Fetched { record, companions, said } = fetched;
    let (id, place) = (record.id, record.place);
    let kept = match is_due(core, keeping, &record, said.as_ref()).await {
        true => keep(core, record, companions, said).await,
        false => Kept::Never,
    };
    let mut work = locked(&keeping.work);
    match kept {
        Kept::Here => {
            core.metrics.keeping.copies.inc();
            work.found(&id, &place);
        }
        Kept::NotNow => work.not_at(&id, &place, holder),
        Kept::Never => work.refuse(&id, &place, holder, core.env.clock.elapsed()),
    }
}

/// Fetches a record of an object again that is damaged here, from whoever gives it, and writes it; whether it came. What it
/// needs beside it comes with it, so what else of that is damaged is written again too.
pub(crate) async fn again(core: &Core, id: RecordId, place: Place) -> bool {
    let Some(keeping) = &core.keeping else { return false };
    let Some(epoch) = keeping.epoch() else { return false };
    let mut holders = epoch.possible(&place, epoch.copies(Kind::Head));
    holders.retain(|one| *one != core.own && core.directory.health(one) != Health::Away);
    let now = core.env.clock.elapsed();
    // Who let its caller wait is asked behind all others.
    holders.sort_by_cached_key(|one| locked(&keeping.work).rests(one, now));
    for holder in holders {
        let request = KeepRequest::Fetch(vec![FetchAt { id, place }]);
        let answer = ask(core, &holder, request, LARGE_LIMIT).await;
        if let Err(CallError::TimedOut { .. }) = answer {
            locked(&keeping.work).rest(holder, core.env.clock.elapsed() + RESTS_FOR);
        }
        let Ok(KeepAnswer::Fetch(mut answers)) = answer else { continue };
        let Some(FetchAnswer::Found { record, companions }) = answers.pop() else { continue };
        let bytes = companions.iter().chain([&record]).map(|one| one.bytes.len() as u64).sum();
        keeping.budget.pay(&core.env, bytes);
        core.metrics.keeping.fetched_bytes.inc_by(bytes);
        if record.id != id || record.place != place {
            continue;
        }
        let records = companions.into_iter().chain([record]).collect();
        if put_objects(core, records).await {
            return true;
        }
    }
    false
}

/// Puts records of objects that prove themselves as anybody puts them, which counts them where a start could not read them, and
/// writes those that are damaged here: what stands in the way of taking one anew (an attestation of which no version is here yet)
/// does not keep it damaged. Whether the last is here.
async fn put_objects(core: &Core, records: Vec<Record>) -> bool {
    let (suite, last) = (core.genesis.suite, records.last().map(|record| record.id));
    let put = PutObjects { records: records.clone(), ..PutObjects::default() };
    let mut taken = false;
    match core.objects.put(put, Bringer::Repair).await {
        Ok(answer) => {
            let last = answer.outcomes.last();
            taken = matches!(last, Some(Ok(PutOutcome::Stored | PutOutcome::Present)));
        }
        Err(error) => tracing::debug!(%error, "fetched records of an object are not taken"),
    }
    for record in records.into_iter().filter(|record| core.shelf.is_damaged(&record.id)) {
        let id = record.id;
        let prove = move || version::prove(suite, &record).is_ok().then_some(record);
        let Some(record) = core.env.cpu(prove).await else {
            taken &= last != Some(id);
            continue;
        };
        match core.objects.mend(record).await {
            Ok(mended) => taken |= mended && last == Some(id),
            Err(error) => {
                tracing::error!(record = %id, %error, "a damaged record cannot be written again");
                return false;
            }
        }
    }
    taken
}

/// What a holder says of who pays for these places: nothing of any where it does not know leases, and `None` where it did not
/// say: they are fetched later then, when a comparison brings them again, and no lease is lost by that.
async fn payments(
    core: &Core,
    holder: &PeerId,
    ids: &[(RecordId, Place)],
) -> Option<BTreeMap<Place, PlaceLeases>> {
    let places: Vec<Place> = ids.iter().map(|(_, place)| *place).take(PLACES_MAX).collect();
    let to = core.directory.endpoint(holder)?;
    let call = core.calls.lease(&to, LeaseRequest::Of(places.clone()), LARGE_LIMIT);
    match core.env.within(LARGE_LIMIT, call).await {
        Ok(Ok(LeaseAnswer::Of(said))) if said.len() == places.len() => {
            Some(places.into_iter().zip(said).collect())
        }
        Ok(Err(CallError::Invalid { .. })) => Some(BTreeMap::new()),
        Ok(Err(error)) => {
            core.directory.failed(holder, &error);
            None
        }
        Err(_) => {
            let address = to.address;
            core.directory.failed(holder, &CallError::TimedOut { address, limit: LARGE_LIMIT });
            None
        }
        Ok(Ok(_)) => None,
    }
}

/// What is to be fetched of these by what its holder says of who pays for it, and what is not: of that nothing would be kept, so
/// its bytes do not come, though each comparison brings it again.
async fn paid_for(
    core: &Core,
    ids: Vec<(RecordId, Place)>,
    paid: &BTreeMap<Place, PlaceLeases>,
) -> (Vec<(RecordId, Place)>, Vec<(RecordId, Place)>) {
    let (mut taken, mut refused, mut why) = (Vec::with_capacity(ids.len()), Vec::new(), None);
    for (id, place) in ids {
        // Of what came there meanwhile, and of what belongs to objects, it does not say who pays.
        let may_come = match paid.get(&place).filter(|said| said.held) {
            Some(said) => core.leases.may_come(&place, said).await,
            None => Ok(()),
        };
        // Signatures were checked: others have their turn.
        tokio::task::yield_now().await;
        match may_come {
            Ok(()) => taken.push((id, place)),
            Err(error) => {
                refused.push((id, place));
                why = Some(error);
            }
        }
    }
    if let Some(error) = why {
        let (count, error) = (refused.len(), one_line(&error));
        tracing::warn!(count, error, "copies are not fetched: their leases are not taken here");
    }
    (taken, refused)
}

/// Whether a copy is this peer's to hold, now that its kind is known, and who pays for how many. Of what belongs to objects the
/// policy says it, and whoever offered it knew that.
async fn is_due(
    core: &Core,
    keeping: &Keeping,
    record: &Record,
    said: Option<&PlaceLeases>,
) -> bool {
    let Some(epoch) = keeping.epoch() else { return false };
    let is_among = |copies: u8| {
        let wanted = epoch.wanted(record.kind, copies);
        epoch.first(&record.place, wanted).contains(&core.own)
    };
    if !record.kind.is_document() || is_among(0) {
        return true;
    }
    let Some(said) = said else { return false };
    is_among(core.leases.copies_passed_on(record, said).await)
}

/// What became of a fetched record.
enum Kept {
    Here,
    /// It is worth another try.
    NotNow,
    /// It is not to be kept here.
    Never,
}

/// Stores a fetched record that proves itself, with who pays for it.
async fn keep(
    core: &Core,
    record: Record,
    companions: Vec<Record>,
    said: Option<PlaceLeases>,
) -> Kept {
    let (id, place) = (record.id, record.place);
    if record.kind.is_document() {
        return match core.shelf.restore(record, said).await {
            Ok(()) => Kept::Here,
            Err(error) => {
                tracing::warn!(record = %id, error = one_line(&error), "a fetched copy is not kept");
                match error {
                    CallError::Invalid { .. } => Kept::Never,
                    // Else it is this holder's word that nobody pays for it: another may know who does.
                    CallError::Denied { .. } if core.leases.was_dropped(&place) => Kept::Never,
                    _ => Kept::NotNow,
                }
            }
        };
    }
    let mut records = companions;
    records.push(record);
    // Of a comparison alone it is known where a record is placed whose damage took its place with it.
    let damaged = core.shelf.is_damaged(&id);
    match put_objects(core, records).await {
        true => {
            core.metrics.upkeep.mended.inc_by(u64::from(damaged));
            Kept::Here
        }
        false => Kept::NotNow,
    }
}
