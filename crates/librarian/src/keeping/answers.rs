//! What other peers ask about what they and this one keep.

use std::time::Duration;

use crypto::{OrgId, PeerId, RecordId};
use document::{Kind, Record};
use env::calls::keep::{
    CLAIMS_MAX, COMPANIONS_MAX, COMPARE_BITS_MAX, ClaimAnswer, Compare, CompareAnswer, FETCH_MAX,
    FetchAnswer, FetchAt, HAVE_MAX, HELD_MAX, ITEMS_MAX, KeepAnswer, KeepRequest, LISTS_BITS_MAX,
    LOOK_MAX, Listed, RANGES_MAX, Range, SUMS, SettledStripe, WORDS_MAX,
};
use env::calls::{BATCH_BYTES_MAX, CallError};

use super::{Keeping, locked};
use crate::core::Core;

fn invalid(reason: impl Into<String>) -> CallError {
    CallError::Invalid { reason: reason.into() }
}

fn check(what: &str, count: usize, max: usize) -> Result<(), CallError> {
    if count > max {
        return Err(invalid(format!("{count} {what}; at most {max}")));
    }
    Ok(())
}

/// When a peer that reads its store knows again what it holds.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

fn check_range(range: Range, bits_max: u8) -> Result<(), CallError> {
    let Range { prefix, bits } = range;
    if bits > bits_max || bits % 8 != 0 {
        return Err(invalid(format!(
            "a range of {bits} bits; a multiple of 8, at most {bits_max}"
        )));
    }
    if u64::from(prefix) >> bits != 0 {
        return Err(invalid(format!("the prefix of a range is longer than its {bits} bits")));
    }
    Ok(())
}

impl Keeping {
    /// Answers another peer, of this organisation.
    pub(crate) async fn answer(
        &self,
        core: &Core,
        caller: PeerId,
        organisation: OrgId,
        request: KeepRequest,
    ) -> Result<KeepAnswer, CallError> {
        match request {
            KeepRequest::Compare(compare) => {
                self.compared(core, caller, organisation, compare).map(KeepAnswer::Compare)
            }
            KeepRequest::Lists(theirs) => {
                self.lists(core, caller, organisation, &theirs).await.map(KeepAnswer::Lists)
            }
            KeepRequest::Claim(stripes) => {
                self.claims_of(core, caller, &stripes).map(KeepAnswer::Claim)
            }
            KeepRequest::Settled(stripes) => {
                self.ended(core, caller, &stripes)?;
                Ok(KeepAnswer::Settled)
            }
            KeepRequest::Fetch(records) => {
                self.fetched(core, caller, records).await.map(KeepAnswer::Fetch)
            }
            KeepRequest::Have(ids) => {
                check("records", ids.len(), HAVE_MAX)?;
                Ok(KeepAnswer::Have(ids.iter().map(|id| core.shelf.holds(id)).collect()))
            }
            KeepRequest::Prove(asks) => {
                self.proven(core, caller, asks).await.map(KeepAnswer::Prove)
            }
            KeepRequest::Look(places) => {
                check("places", places.len(), LOOK_MAX)?;
                let stripes: Vec<RecordId> =
                    places.iter().map(|place| RecordId::new(*place.as_bytes())).collect();
                self.look_at(core, &stripes);
                let now = core.env.clock.elapsed();
                locked(&self.work).hurry(&places, now);
                // What lacks here and nobody told of yet is found by comparing.
                self.asked.notify_one();
                let work = locked(&self.work);
                let found = match places.is_empty() {
                    true => work.due.len() + work.lacking(),
                    false => places.iter().filter(|place| work.concerns(place)).count(),
                };
                Ok(KeepAnswer::Look(u32::try_from(found).unwrap_or(u32::MAX)))
            }
            _ => Err(invalid("a request that this peer does not answer")),
        }
    }

    fn compared(
        &self,
        core: &Core,
        caller: PeerId,
        organisation: OrgId,
        compare: Compare,
    ) -> Result<CompareAnswer, CallError> {
        let Compare { range, sums, view, words } = compare;
        check_range(range, COMPARE_BITS_MAX)?;
        if sums.len() != SUMS {
            return Err(invalid(format!("{} sums instead of {SUMS}", sums.len())));
        }
        check("words", words.absent.len().max(words.faulty.len()), WORDS_MAX)?;
        let now = core.env.clock.elapsed();
        locked(&self.present).hear(caller, words, now);
        let words = self.own_words();
        if range != Range::ALL {
            locked(&self.taken).enter(&organisation, now)?;
        }
        let (own, mine) = {
            let inventory = locked(&self.inventory);
            let Some(inventory) = inventory.as_ref() else {
                return Ok(CompareAnswer { words, ..CompareAnswer::default() });
            };
            let since = core.env.clock.elapsed();
            let sums = inventory.sums(&caller, range);
            self.took(core, organisation, core.env.clock.elapsed().saturating_sub(since));
            (inventory.epoch().hash, sums)
        };
        let mut differ = Vec::new();
        if own == view {
            let pairs = (0..=u8::MAX).zip(mine.iter().zip(&sums));
            differ.extend(pairs.filter(|(_, (mine, theirs))| mine != theirs).map(|(at, _)| at));
            if range == Range::ALL {
                locked(&self.audits).of(caller).compared(view, &mine, &differ, now);
            }
        }
        Ok(CompareAnswer { differ, view: own, words })
    }

    async fn lists(
        &self,
        core: &Core,
        caller: PeerId,
        organisation: OrgId,
        theirs: &[Listed],
    ) -> Result<Vec<Listed>, CallError> {
        check("ranges", theirs.len(), RANGES_MAX)?;
        let items = theirs.iter().map(|listed| listed.copies.len() + listed.fragments.len());
        // One list may be as long as all, and the last may go over it by what a stripe has.
        check("items", items.sum(), ITEMS_MAX * 2)?;
        for listed in theirs {
            check_range(listed.range, LISTS_BITS_MAX)?;
            if listed.range.bits == 0 {
                return Err(invalid("a list of all places; compare first, and list what differs"));
            }
        }
        locked(&self.taken).enter(&organisation, core.env.clock.elapsed())?;
        let mut mine = Vec::with_capacity(theirs.len());
        let mut left = ITEMS_MAX;
        for listed in theirs {
            let own = self.listed_here(core, &caller, organisation, listed.range, left);
            left = left.saturating_sub(own.copies.len() + own.fragments.len());
            mine.push(own);
            self.next_part(core, &organisation).await?;
        }
        for listed in theirs {
            // Who has something twice is told by the peer that asked.
            let (_, took) = super::compare::learn(core, self, &caller, listed);
            self.took(core, organisation, took);
            self.next_part(core, &organisation).await?;
        }
        Ok(mine)
    }

    /// What is here of one range; where that is not known: nothing, and more.
    fn listed_here(
        &self,
        core: &Core,
        caller: &PeerId,
        organisation: OrgId,
        range: Range,
        most: usize,
    ) -> Listed {
        let inventory = locked(&self.inventory);
        let Some(inventory) = inventory.as_ref() else {
            return Listed { range, copies: Vec::new(), fragments: Vec::new(), more: true };
        };
        let since = core.env.clock.elapsed();
        let listed = inventory.listed(caller, range, most);
        self.took(core, organisation, core.env.clock.elapsed().saturating_sub(since));
        listed
    }

    /// Notes what an organisation's comparison took of this peer's time, but for what it waited for others.
    fn took(&self, core: &Core, organisation: OrgId, took: Duration) {
        locked(&self.taken).add(organisation, took, core.env.clock.elapsed());
    }

    /// Each range is a look at up to a 256th of everything that is here: others have their turn behind it, and what took far too much ends.
    async fn next_part(&self, core: &Core, organisation: &OrgId) -> Result<(), CallError> {
        tokio::task::yield_now().await;
        locked(&self.taken).goes_on(organisation, core.env.clock.elapsed())
    }

    fn claims_of(
        &self,
        core: &Core,
        caller: PeerId,
        stripes: &[RecordId],
    ) -> Result<Vec<ClaimAnswer>, CallError> {
        check("stripes", stripes.len(), CLAIMS_MAX)?;
        let now = core.env.clock.elapsed();
        let held: Vec<Vec<u8>> = {
            let inventory = locked(&self.inventory);
            // Who does not know yet what it holds must not say that it holds nothing.
            let Some(inventory) = inventory.as_ref() else {
                return Err(CallError::Busy { retry_after: AGAIN_AFTER });
            };
            let dropping = *locked(&self.dropping);
            let of = |id: &RecordId| {
                let map = inventory.stripes.get(id);
                let mut held = map.map_or_else(Vec::new, |map| map.mine.clone());
                held.retain(|index| dropping != Some((*id, *index)));
                held.sort_unstable();
                held.truncate(HELD_MAX);
                held
            };
            stripes.iter().map(of).collect()
        };
        let mut claims = locked(&self.claims);
        let answers = stripes.iter().zip(held).map(|(stripe, held)| {
            let claimed_by = claims.claim(*stripe, caller, now);
            ClaimAnswer { held, claimed_by }
        });
        Ok(answers.collect())
    }

    fn ended(
        &self,
        core: &Core,
        caller: PeerId,
        stripes: &[SettledStripe],
    ) -> Result<(), CallError> {
        check("stripes", stripes.len(), CLAIMS_MAX)?;
        let mut looked = Vec::with_capacity(stripes.len());
        for SettledStripe { stripe, moved } in stripes {
            locked(&self.claims).end(stripe, &caller);
            check("fragments", moved.len(), 256)?;
            self.settled(stripe, moved, false);
            self.heard_twice(&core.own, stripe, moved);
            looked.push(*stripe);
        }
        self.look_at(core, &looked);
        Ok(())
    }

    /// Notes fragments that are here and, as somebody says, at another peer too.
    fn heard_twice(&self, own: &PeerId, stripe: &RecordId, moved: &[(u8, PeerId)]) {
        let mine: Vec<u8> = {
            let inventory = locked(&self.inventory);
            let map = inventory.as_ref().and_then(|all| all.stripes.get(stripe));
            map.map_or_else(Vec::new, |map| map.mine.clone())
        };
        let mut work = locked(&self.work);
        let Some(epoch) = self.epoch() else { return };
        let others = moved.iter().filter(|(_, other)| other != own && epoch.answers(other));
        for (index, other) in others {
            if mine.contains(index) {
                work.is_twice(*stripe, *index, *other);
            }
        }
    }

    /// Records for a peer that lacks them.
    async fn fetched(
        &self,
        core: &Core,
        caller: PeerId,
        records: Vec<FetchAt>,
    ) -> Result<Vec<FetchAnswer>, CallError> {
        check("records", records.len(), FETCH_MAX)?;
        let mut left = BATCH_BYTES_MAX;
        let mut answers = Vec::with_capacity(records.len());
        for at in records {
            if left == 0 {
                answers.push(FetchAnswer::Later);
                continue;
            }
            if core.leases.is_over(&at.place) {
                answers.push(FetchAnswer::Absent);
                continue;
            }
            let found = match core.shelf.find(&at.id, &at.place).await? {
                Some(record) => Some((record, Vec::new())),
                None => self.of_objects(core, &caller, &at).await,
            };
            let Some((record, companions)) = found else {
                answers.push(FetchAnswer::Absent);
                continue;
            };
            let bytes =
                companions.iter().fold(record.bytes.len(), |all, one| all + one.bytes.len());
            if bytes > left && left < BATCH_BYTES_MAX {
                left = 0;
                answers.push(FetchAnswer::Later);
                continue;
            }
            left = left.saturating_sub(bytes);
            core.metrics.keeping.served_bytes.inc_by(bytes as u64);
            answers.push(FetchAnswer::Found { record, companions });
        }
        Ok(answers)
    }

    /// A record of an object with its companions: for those alone whose duty its place is.
    async fn of_objects(
        &self,
        core: &Core,
        caller: &PeerId,
        at: &FetchAt,
    ) -> Option<(Record, Vec<Record>)> {
        let epoch = self.epoch()?;
        let copies = match core.objects.copies_of(&at.id).await {
            // One copy, where it was written: it leaves this peer only when this peer leaves.
            Some(1) if !epoch.leaving.contains(&core.own) => return None,
            Some(copies) => usize::try_from(copies).unwrap_or(usize::MAX),
            None => epoch.copies(Kind::Head),
        };
        let near = epoch.possible(&at.place, copies.min(epoch.view.len()));
        if !near.contains(caller) {
            return None;
        }
        let (record, mut companions) = core.objects.kept(&at.id).await?;
        companions.truncate(COMPANIONS_MAX);
        (record.place == at.place).then_some((record, companions))
    }
}
