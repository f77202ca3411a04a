//! How a peer cheats those that keep the network whole with it: what it answers to `Keep` and to words about leases.
//!
//! It is what a program could answer that somebody wrote for it, with all that the peer knows: it agrees to whatever is compared, invents
//! records and maps, proves what it fetches from others for it, accuses everybody, or hears nothing of what was ended.

use std::sync::Arc;
use std::time::Duration;

use crypto::{Place, RecordId, Suite};
use document::proof::prove_chunk;
use document::{Kind, Record};
use env::calls::keep::{
    ClaimAnswer, CompareAnswer, FetchAnswer, HeldFragment, KeepAnswer, KeepRequest, Listed,
    ProveAt, Range, Words,
};
use env::calls::leases::{Forgotten, LeaseAnswer, LeaseRequest};
use env::calls::{CallError, Caller, Calls, Endpoint, FindRequest, FindResponse};

use super::{Liar, Liars};
use crate::wires::Wires;

/// A way to cheat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cheat {
    /// It dropped everything, agrees to whatever is compared, says that it has what it is asked for, and proves nothing.
    HoldsNothing,
    /// The same, but what it is to prove it fetches from others.
    Relays,
    /// Whatever it serves and proves has a byte that is another.
    Corrupts,
    /// It invents records and fragments, says that everybody is absent, and never sends what it invented.
    Fakes,
    /// It says of all others, but those of its organisation, that they are absent and prove nothing.
    Accuses,
    /// It hears no word that ended a lease, and says none.
    Deaf,
}

/// What a peer needs to cheat.
#[derive(Clone, Default)]
pub(crate) struct Knowing {
    /// Its own calls, past its program.
    pub(crate) calls: Option<Arc<dyn Calls>>,
    /// Where those run whom it calls.
    pub(crate) wires: Option<Arc<Wires>>,
    /// Everybody else.
    pub(crate) others: Vec<Endpoint>,
    /// What it says of them.
    pub(crate) words: Words,
    /// Whether it never answers who fetches from it.
    pub(crate) hangs: bool,
}

/// Records invented in one range.
const INVENTED: u8 = 4;
/// How long a relay waits for a record.
const RELAY_LIMIT: Duration = Duration::from_secs(5);

impl Liars {
    /// Lets a peer cheat, or (with none) be honest again.
    pub(crate) fn set_cheat(&self, peer: usize, cheat: Option<(Cheat, Knowing)>) {
        let mut state = self.lock();
        match cheat {
            Some(cheat) => drop(state.cheats.insert(peer, cheat)),
            None => drop(state.cheats.remove(&peer)),
        }
    }

    pub(super) fn cheat(&self, peer: usize) -> Option<(Cheat, Knowing)> {
        self.lock().cheats.get(&peer).cloned()
    }

    /// Where a fragment lives that was ever sent to anybody; a copy lives at its id.
    fn place_of(&self, id: &RecordId) -> Place {
        let state = self.lock();
        let found = state.seen.iter().find(|(_, all)| {
            all.get(id).is_some_and(|one| one.kind != Kind::Stripe && one.place != (*id).into())
        });
        found.map_or_else(|| Place::from(*id), |(place, _)| *place)
    }

    /// All stripes whose headers were ever sent to anybody.
    pub(crate) fn stripes(&self) -> Vec<RecordId> {
        let state = self.lock();
        let records = state.seen.values().flat_map(|all| all.values());
        records.filter(|one| one.kind == Kind::Stripe).map(|one| one.id).collect()
    }
}

impl Liar {
    /// What a cheat answers.
    pub(super) async fn cheated(
        &self,
        cheat: Cheat,
        knowing: &Knowing,
        caller: Caller,
        request: KeepRequest,
    ) -> Result<KeepAnswer, CallError> {
        let history = &self.liars.history;
        match (cheat, request) {
            (Cheat::HoldsNothing | Cheat::Relays, KeepRequest::Prove(asks)) => {
                let relays = cheat == Cheat::Relays;
                history.tally(if relays { "cheat: relays" } else { "cheat: proves nothing" });
                let mut proofs = Vec::with_capacity(asks.len());
                for ask in asks {
                    let record =
                        if relays { self.liars.relayed(knowing, &ask).await } else { None };
                    proofs.push(record.and_then(|one| prove_chunk(&one.bytes, ask.chunk)));
                }
                Ok(KeepAnswer::Prove(proofs))
            }
            (Cheat::HoldsNothing | Cheat::Relays, request) => match agrees(&request) {
                Some(answer) => {
                    history.tally("cheat: agrees to everything");
                    Ok(answer)
                }
                None => self.inner.keep(caller, request).await,
            },
            (Cheat::Fakes, KeepRequest::Fetch(_)) if knowing.hangs => {
                history.tally("cheat: lets wait");
                futures::future::pending().await
            }
            (Cheat::Fakes, request) => match invents(&request, knowing) {
                Some(answer) => {
                    history.tally("cheat: invents");
                    Ok(answer)
                }
                None => self.inner.keep(caller, request).await,
            },
            (Cheat::Corrupts, request) => {
                let mut answer = self.inner.keep(caller, request).await?;
                if corrupts(&mut answer) {
                    history.tally("cheat: corrupts");
                }
                Ok(answer)
            }
            (Cheat::Accuses, request) => {
                let mut answer = self.inner.keep(caller, request).await?;
                if let KeepAnswer::Compare(answer) = &mut answer {
                    history.tally("cheat: accuses");
                    answer.words.clone_from(&knowing.words);
                }
                Ok(answer)
            }
            (Cheat::Deaf, request) => self.inner.keep(caller, request).await,
        }
    }
}

impl Liars {
    /// A record that is to be proven, from whoever has it.
    async fn relayed(&self, knowing: &Knowing, ask: &ProveAt) -> Option<Record> {
        let (calls, wires) = (knowing.calls.as_ref()?, knowing.wires.as_ref()?);
        let request = FindRequest { id: ask.id, place: self.place_of(&ask.id) };
        for other in &knowing.others {
            let Some((_, process)) = wires.process_at(&other.address) else { continue };
            // It answers nothing any more once it is dead.
            let found = process.gate(calls.find(other, request, RELAY_LIMIT)).await;
            if let Some(Ok(FindResponse::Found(record))) = found {
                self.history.tally_many("cheat: bytes relayed", record.bytes.len() as u64);
                return Some(record);
            }
        }
        None
    }
}

/// What a peer says that holds nothing and says that it has everything.
fn agrees(request: &KeepRequest) -> Option<KeepAnswer> {
    match request {
        KeepRequest::Compare(compare) => {
            let answer = CompareAnswer { view: compare.view, ..CompareAnswer::default() };
            Some(KeepAnswer::Compare(answer))
        }
        KeepRequest::Lists(lists) => {
            let echo = |one: &Listed| Listed { fragments: Vec::new(), more: false, ..one.clone() };
            Some(KeepAnswer::Lists(lists.iter().map(echo).collect()))
        }
        KeepRequest::Have(ids) => Some(KeepAnswer::Have(vec![true; ids.len()])),
        KeepRequest::Fetch(records) => {
            Some(KeepAnswer::Fetch(vec![FetchAnswer::Absent; records.len()]))
        }
        _ => None,
    }
}

/// What a peer says that invents records and fragments.
fn invents(request: &KeepRequest, knowing: &Knowing) -> Option<KeepAnswer> {
    match request {
        KeepRequest::Compare(compare) => {
            let differ = (0..=u8::MAX).collect();
            let (view, words) = (compare.view, knowing.words.clone());
            Some(KeepAnswer::Compare(CompareAnswer { differ, view, words }))
        }
        KeepRequest::Lists(lists) => Some(KeepAnswer::Lists(lists.iter().map(invented).collect())),
        KeepRequest::Claim(stripes) => {
            // Another one that nobody can have for each.
            let answer = |stripe: &RecordId| {
                let held = vec![stripe.as_bytes()[0] % 8];
                ClaimAnswer { held, claimed_by: None }
            };
            Some(KeepAnswer::Claim(stripes.iter().map(answer).collect()))
        }
        KeepRequest::Have(ids) => Some(KeepAnswer::Have(vec![true; ids.len()])),
        KeepRequest::Fetch(records) => {
            Some(KeepAnswer::Fetch(vec![FetchAnswer::Later; records.len()]))
        }
        _ => None,
    }
}

/// Records of a range that nobody made.
pub(crate) fn invented(of: &Listed) -> Listed {
    let Range { prefix, bits } = of.range;
    let copies = (0..INVENTED).map(|number| {
        let mut bytes = Suite::Holdfast1.hash(&[&prefix.to_be_bytes()[..], &[number]].concat());
        let first = prefix.checked_shl(u32::BITS - u32::from(bits)).unwrap_or(0);
        let keep = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        let mut drawn = [0; 4];
        drawn.copy_from_slice(&bytes[..4]);
        let drawn = first | (u32::from_be_bytes(drawn) & keep);
        bytes[..4].copy_from_slice(&drawn.to_be_bytes());
        let id = RecordId::new(bytes);
        (id, Place::from(id))
    });
    let wrong = |held: &HeldFragment| HeldFragment { index: held.index ^ 1, ..*held };
    let fragments = of.fragments.iter().map(wrong).collect();
    Listed { range: of.range, copies: copies.collect(), fragments, more: false }
}

/// Changes a byte of everything in an answer; whether there was anything.
fn corrupts(answer: &mut KeepAnswer) -> bool {
    let flip = |bytes: &bytes::Bytes| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() / 2;
        bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1);
        bytes::Bytes::from(bytes)
    };
    let mut any = false;
    match answer {
        KeepAnswer::Fetch(answers) => {
            for one in answers {
                if let FetchAnswer::Found { record, .. } = one {
                    record.bytes = flip(&record.bytes);
                    any = true;
                }
            }
        }
        KeepAnswer::Prove(proofs) => {
            for proof in proofs.iter_mut().flatten() {
                proof.chunk = flip(&proof.chunk);
                any = true;
            }
        }
        _ => {}
    }
    any
}

/// Whether a request is about words that ended leases.
pub(super) fn is_word(request: &LeaseRequest) -> bool {
    matches!(request, LeaseRequest::Tombstones { .. } | LeaseRequest::Forget(_))
}

/// What one says that hears no such words.
pub(super) fn unheard(request: &LeaseRequest) -> LeaseAnswer {
    match request {
        LeaseRequest::Forget(words) => LeaseAnswer::Forget(vec![Forgotten::NotHere; words.len()]),
        _ => LeaseAnswer::Tombstones { forgets: Vec::new(), next: None },
    }
}
