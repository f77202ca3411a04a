//! What this peer holds, by place: the sums that are compared with each other peer, and the maps of stripes.
//!
//! Memory: about 60 bytes a copy, 33 more where it lives elsewhere than at its id, a stripe about 120 bytes and two a fragment, and
//! 4 KiB of sums a peer. All is made again from the store.
//!
//! Invariant: the sums of a peer are those of its common set under the epoch, at every moment between two calls.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crypto::{PeerId, Place, RecordId};
use document::Kind;
use env::calls::keep::{HeldFragment, Listed, Range, SUMS, Sum, point};
use placement::{copy_item, stripe_item};
use store::Placed;

use super::audit::Common;
use super::epoch::Epoch;
use super::map::{NOBODY, Names, Renumbering, StripeMap};

/// Copies are kept in so many parts, by the first bits of their place.
const PART_BITS: u32 = 12;
pub(super) const PARTS: usize = 1 << PART_BITS;

/// Copies or stripes looked at for a random common one.
const SAMPLED_MAX: usize = 1024;

/// A copy that is here, with how many there should be of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// What and where it is.
    pub(crate) placed: Placed,
    /// How many copies its object's policy asks for, or who pays for it; 0: its kind says it.
    pub(crate) copies: u8,
}

#[derive(Clone, Debug)]
struct Copy {
    /// Where it lives, where that is not its id.
    place: Option<Box<Place>>,
    kind: Kind,
    copies: u8,
    duty: Duty,
}

/// Who compares a copy under the epoch, as it was found when it was counted: to find it again takes a hash for each peer, and each
/// comparison asks it of all that is here.
#[derive(Clone, Copy, Debug)]
enum Duty {
    /// By their numbers; [`NOBODY`] where there are fewer.
    Few([u16; 3]),
    /// Not kept.
    Many,
}

/// By what copies are in order: the [`point`] that they are compared at, then the rest of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key([u8; Self::LEN]);

impl Default for Key {
    fn default() -> Self {
        Self([0; Self::LEN])
    }
}

impl Key {
    const LEN: usize = 34;

    fn new(id: &RecordId, place: &Place) -> Self {
        let (id, place) = (id.as_bytes(), place.as_bytes());
        let mut key = [0; Self::LEN];
        key[..2].copy_from_slice(&place[..2]);
        key[2..32].copy_from_slice(&id[2..]);
        key[32..].copy_from_slice(&id[..2]);
        Self(key)
    }

    fn id(&self) -> RecordId {
        let mut id = [0; 32];
        id[2..].copy_from_slice(&self.0[2..32]);
        id[..2].copy_from_slice(&self.0[32..]);
        RecordId::new(id)
    }

    /// Of the [`PARTS`], the one that it is in.
    fn part(&self) -> usize {
        let [a, b, ..] = self.0;
        usize::from(u16::from_be_bytes([a, b]) >> (u16::BITS - PART_BITS))
    }

    /// The first and the last that stand in a range.
    fn of(range: Range) -> (Self, Self) {
        let (from, to) = ids_of(range);
        let (mut first, mut last) = ([0; Self::LEN], [0xff; Self::LEN]);
        first[..4].copy_from_slice(&from.as_bytes()[..4]);
        last[..4].copy_from_slice(&to.as_bytes()[..4]);
        (Self(first), Self(last))
    }
}

impl Copy {
    fn is_document_at_its_id(&self) -> bool {
        self.kind.is_document() && self.place.is_none()
    }

    fn held(&self, key: &Key) -> Held {
        let id = key.id();
        let place = self.place.as_deref().copied().unwrap_or_else(|| Place::from(id));
        Held { placed: Placed { id, kind: self.kind, place }, copies: self.copies }
    }
}

/// How far a walk through all copies is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    from: Key,
    /// Whether that one was met.
    met: bool,
}

impl Walk {
    /// At the begin of the 256th behind the one that ends with this key, which is not the last.
    fn behind(last: &Key) -> Self {
        let mut from = Key::default();
        from.0[0] = last.0[0].saturating_add(1);
        Self { from, met: false }
    }
}

/// What a list changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Corrected {
    /// Stripes whose maps changed.
    pub(super) changed: Vec<RecordId>,
    /// Fragments that the peer has and another one too.
    pub(super) twice: Vec<(HeldFragment, PeerId)>,
}

/// What one peer holds.
pub(crate) struct Inventory {
    own: PeerId,
    epoch: Arc<Epoch>,
    pub(super) names: Names,
    /// In the order in which ranges cut them: all versions of one object are in one part.
    parts: Vec<BTreeMap<Key, Copy>>,
    /// Where copies are that live elsewhere than at their ids.
    elsewhere: HashMap<RecordId, Place>,
    pub(super) stripes: BTreeMap<RecordId, StripeMap>,
    /// Which fragment of which stripe one is that is here: of the one that it was counted for first.
    fragments: HashMap<RecordId, (RecordId, u8)>,
    /// Of which others it is too: a page may be named by several stripes, and is here once.
    also: HashMap<RecordId, Vec<(RecordId, u8)>>,
    sums: HashMap<PeerId, Box<[Sum; SUMS]>>,
}

/// Of the parts, those in which places of a range are.
fn parts_of(range: Range) -> std::ops::Range<usize> {
    let bits = u32::from(range.bits);
    if bits >= PART_BITS {
        let part = (range.prefix >> (bits - PART_BITS)) as usize;
        return part..(part + 1).min(PARTS);
    }
    let first = (range.prefix as usize) << (PART_BITS - bits);
    first.min(PARTS)..(first + (1 << (PART_BITS - bits))).min(PARTS)
}

/// The first and the last id that begin as a range says.
fn ids_of(range: Range) -> (RecordId, RecordId) {
    let shift = u32::BITS - u32::from(range.bits);
    let first = range.prefix.checked_shl(shift).unwrap_or(0);
    let last = first | 1_u32.checked_shl(shift).map_or(u32::MAX, |one| one - 1);
    let (mut from, mut to) = ([0; 32], [0xff; 32]);
    from[..4].copy_from_slice(&first.to_be_bytes());
    to[..4].copy_from_slice(&last.to_be_bytes());
    (RecordId::new(from), RecordId::new(to))
}

/// Which of the 256 parts of a range a record is in.
fn number_in(range: Range, id: &RecordId, place: &Place) -> usize {
    let point = point(id, place).to_be_bytes();
    usize::from(point.get(usize::from(range.bits / 8)).copied().unwrap_or(0))
}

impl Inventory {
    pub(crate) fn new(own: PeerId, epoch: Arc<Epoch>) -> Self {
        Self {
            own,
            epoch,
            names: Names::default(),
            parts: vec![BTreeMap::new(); PARTS],
            elsewhere: HashMap::new(),
            stripes: BTreeMap::new(),
            fragments: HashMap::new(),
            also: HashMap::new(),
            sums: HashMap::new(),
        }
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    /// Whether a copy is here.
    pub(crate) fn has_copy(&self, id: &RecordId, place: &Place) -> bool {
        let key = Key::new(id, place);
        self.parts[key.part()].contains_key(&key)
    }

    /// Where a record that is counted lives.
    pub(crate) fn place_of(&self, id: &RecordId) -> Option<Place> {
        if let Some((stripe, _)) = self.fragments.get(id) {
            return Some(Place::from(*stripe));
        }
        let place = self.elsewhere.get(id).copied().unwrap_or_else(|| Place::from(*id));
        self.has_copy(id, &place).then_some(place)
    }

    /// Counts a copy; one that is counted already changes nothing.
    pub(crate) fn add_copy(&mut self, held: Held) {
        let Held { placed: Placed { id, kind, place }, copies } = held;
        if self.has_copy(&id, &place) {
            return;
        }
        let elsewhere = (place != Place::from(id)).then(|| Box::new(place));
        if elsewhere.is_some() {
            self.elsewhere.insert(id, place);
        }
        let key = Key::new(&id, &place);
        let duty = self.count_copy(&held, Sum::wrapping_add);
        self.parts[key.part()].insert(key, Copy { place: elsewhere, kind, copies, duty });
    }

    /// Counts a copy no more; whether it was found.
    pub(crate) fn drop_copy(&mut self, id: &RecordId) -> bool {
        let place = self.elsewhere.remove(id).unwrap_or_else(|| Place::from(*id));
        let key = Key::new(id, &place);
        let Some(copy) = self.parts[key.part()].remove(&key) else { return false };
        self.count_copy(&copy.held(&key), Sum::wrapping_sub);
        true
    }

    /// Notes of the copy that lives at its id, where one is here, that so many are paid for.
    pub(crate) fn pay(&mut self, place: &Place, copies: u8) {
        let key = Key::new(&RecordId::new(*place.as_bytes()), place);
        let copy = self.parts[key.part()].get_mut(&key);
        // What it is compared by does not change.
        if let Some(copy) = copy.filter(|copy| copy.is_document_at_its_id()) {
            copy.copies = copies;
        }
    }

    /// The same for all copies of one of the [`PARTS`].
    pub(crate) fn pay_part(&mut self, part: usize, paid: impl Fn(&Place) -> u8) {
        let copies = self.parts.get_mut(part).into_iter().flatten();
        for (key, copy) in copies.filter(|(_, copy)| copy.is_document_at_its_id()) {
            copy.copies = paid(&Place::from(key.id()));
        }
    }

    /// Whose duty a copy is.
    pub(crate) fn duty(&self, held: &Held) -> Vec<PeerId> {
        let Held { placed: Placed { kind, place, .. }, copies } = held;
        // What is kept in one copy, here, is handed to as many as anything else of its kind when this peer leaves: nobody
        // would have it else once its next holder is lost.
        let alone = *copies == 1 && self.epoch.leaving.contains(&self.own);
        let copies = if alone { 0 } else { *copies };
        self.epoch.first(place, self.epoch.wanted(*kind, copies))
    }

    /// Who compares a copy: those whose duty it is, of a document without what is paid for beyond the network's number. Who knows
    /// which leases may differ from peer to peer for long, and what two compare must be counted alike by both; those beyond get
    /// theirs offered ([`Inventory::offers`]).
    fn compared_by(&self, held: &Held) -> Vec<PeerId> {
        let copies = if held.placed.kind.is_document() { 0 } else { held.copies };
        self.duty(&Held { copies, ..*held })
    }

    /// Counts it, or no more; who compares it.
    fn count_copy(&mut self, held: &Held, with: fn(Sum, Sum) -> Sum) -> Duty {
        let Placed { id, place, .. } = &held.placed;
        let duty = self.compared_by(held);
        let kept = self.kept(&duty);
        if !duty.contains(&self.own) && !self.epoch.leaving.contains(&self.own) {
            return kept;
        }
        let (item, at) = (copy_item(id), number_in(Range::ALL, id, place));
        for peer in duty.into_iter().filter(|peer| *peer != self.own) {
            let sums = self.sums.entry(peer).or_insert_with(|| Box::new([0; SUMS]));
            sums[at] = with(sums[at], item);
        }
        kept
    }

    fn kept(&mut self, duty: &[PeerId]) -> Duty {
        let mut few = [NOBODY; 3];
        if duty.len() > few.len() {
            return Duty::Many;
        }
        for (number, peer) in few.iter_mut().zip(duty) {
            *number = self.names.of(peer);
            if *number == NOBODY {
                return Duty::Many;
            }
        }
        Duty::Few(few)
    }

    /// Whether this peer is among those who compare a copy that is here.
    fn compares(&self, key: &Key, copy: &Copy) -> bool {
        match copy.duty {
            Duty::Few(few) => self.names.known(&self.own).is_some_and(|own| few.contains(&own)),
            Duty::Many => self.compared_by(&copy.held(key)).contains(&self.own),
        }
    }

    /// Whether more copies are paid for than the network keeps.
    fn is_paid_for_more(&self, copy: &Copy) -> bool {
        let network = self.epoch.copies(copy.kind);
        copy.kind.is_document() && self.epoch.wanted(copy.kind, copy.copies) > network
    }

    /// Whether a copy that is here is not this peer's duty.
    fn is_stray(&self, key: &Key, copy: &Copy) -> bool {
        let is_own = || {
            let more = copy.copies > 0 && self.is_paid_for_more(copy);
            self.compares(key, copy) || (more && self.duty(&copy.held(key)).contains(&self.own))
        };
        copy.copies != 1 && !is_own()
    }

    /// Whose it is.
    pub(super) fn own(&self) -> PeerId {
        self.own
    }

    /// Changes the map of a stripe; `None` and no change where nothing of it is here.
    pub(super) fn with_map<T>(
        &mut self,
        stripe: &RecordId,
        change: impl FnOnce(&mut StripeMap, &mut Names) -> T,
    ) -> Option<T> {
        let mut map = self.stripes.remove(stripe)?;
        self.count_stripe(stripe, &map, Sum::wrapping_sub);
        let changed = change(&mut map, &mut self.names);
        self.count_stripe(stripe, &map, Sum::wrapping_add);
        if !map.mine.is_empty() {
            self.stripes.insert(*stripe, map);
        }
        Some(changed)
    }

    /// Counts a fragment that is here. `new` makes the stripe's map where it is the first.
    pub(crate) fn add_fragment(
        &mut self,
        id: RecordId,
        stripe: RecordId,
        index: u8,
        new: impl FnOnce(&Epoch, &mut Names) -> StripeMap,
    ) {
        if !self.stripes.contains_key(&stripe) {
            let map = new(&self.epoch, &mut self.names);
            self.stripes.insert(stripe, map);
            // It has nothing of this peer yet, so nothing of it is counted.
        }
        let first = *self.fragments.entry(id).or_insert((stripe, index));
        if first != (stripe, index) {
            let also = self.also.entry(id).or_default();
            if !also.contains(&(stripe, index)) {
                also.push((stripe, index));
            }
        }
        let own = self.own;
        self.with_map(&stripe, |map, names| {
            map.take(index);
            let own = names.of(&own);
            map.forget(own);
            for index in map.mine.clone() {
                map.set(index, Some(own));
            }
        });
    }

    /// Counts a fragment no more; the stripes that it was counted of.
    pub(crate) fn drop_fragment(&mut self, id: &RecordId) -> Vec<RecordId> {
        let Some(first) = self.fragments.remove(id) else { return Vec::new() };
        let also = self.also.remove(id).unwrap_or_default();
        let of: Vec<(RecordId, u8)> = std::iter::once(first).chain(also).collect();
        let own = self.own;
        for (stripe, index) in &of {
            self.with_map(stripe, |map, names| {
                map.mine.retain(|mine| mine != index);
                if map.holder(*index) == Some(names.of(&own)) {
                    map.set(*index, None);
                }
            });
        }
        of.into_iter().map(|(stripe, _)| stripe).collect()
    }

    fn count_stripe(&mut self, stripe: &RecordId, map: &StripeMap, with: fn(Sum, Sum) -> Sum) {
        let at = number_in(Range::ALL, stripe, &Place::from(*stripe));
        for (peer, item) in items(self.own, &self.names, stripe, map) {
            // Of a peer that leaves too: it may have given away, or never had, what it is believed to move.
            if self.epoch.answers(&peer) {
                let sums = self.sums.entry(peer).or_insert_with(|| Box::new([0; SUMS]));
                sums[at] = with(sums[at], item);
            }
        }
    }

    /// Counts everything again under another epoch.
    pub(crate) fn turn(&mut self, epoch: Arc<Epoch>) {
        self.epoch = epoch;
        self.sums.clear();
        self.renumber();
        for part in 0..self.parts.len() {
            let mut copies = std::mem::take(&mut self.parts[part]);
            for (key, copy) in &mut copies {
                copy.duty = self.count_copy(&copy.held(key), Sum::wrapping_add);
            }
            self.parts[part] = copies;
        }
        let stripes = std::mem::take(&mut self.stripes);
        for (stripe, map) in &stripes {
            self.count_stripe(stripe, map, Sum::wrapping_add);
        }
        self.stripes = stripes;
    }

    /// Gives all who are in the view and all whom maps name their numbers anew. Of copies they are found again when these are counted.
    fn renumber(&mut self) {
        let names = std::mem::take(&mut self.names);
        let view = self.epoch.view.candidates().iter().map(|candidate| &candidate.peer);
        let mut numbers = Renumbering::new(names, view);
        self.stripes.values_mut().for_each(|map| numbers.map(map));
        self.names = numbers.names();
    }

    /// The sums of a range's 256 parts, of what is common with a peer.
    pub(crate) fn sums(&self, peer: &PeerId, range: Range) -> Vec<Sum> {
        if range == Range::ALL {
            return self.sums.get(peer).map_or_else(|| vec![0; SUMS], |sums| sums.to_vec());
        }
        let mut sums = vec![0; SUMS];
        let mut add = |id: &RecordId, place: &Place, item: Sum| {
            let sum: &mut Sum = &mut sums[number_in(range, id, place)];
            *sum = sum.wrapping_add(item);
        };
        for Held { placed, .. } in self.common_copies(peer, range) {
            add(&placed.id, &placed.place, copy_item(&placed.id));
        }
        if self.epoch.answers(peer) {
            let (from, to) = ids_of(range);
            for (stripe, map) in self.stripes.range(from..=to) {
                let common = items(self.own, &self.names, stripe, map);
                for (_, item) in common.filter(|(of, _)| of == peer) {
                    add(stripe, &Place::from(*stripe), item);
                }
            }
        }
        sums
    }

    /// The copies that are here in a range and common with a peer.
    fn common_copies(&self, peer: &PeerId, range: Range) -> impl Iterator<Item = Held> {
        let (first, last) = Key::of(range);
        let all = self.parts[parts_of(range)].iter().flat_map(move |part| part.range(first..=last));
        let is_common = self.is_common_with(peer);
        all.filter(move |(key, copy)| is_common(key, copy)).map(|(key, copy)| copy.held(key))
    }

    /// What says whether a copy that is here is common with a peer.
    fn is_common_with(&self, peer: &PeerId) -> impl Fn(&Key, &Copy) -> bool {
        // Who leaves offers what it has to everybody whose duty it is.
        let offers = self.epoch.leaving.contains(&self.own);
        let (peer, number) = (*peer, self.names.known(peer));
        let own = self.names.known(&self.own);
        move |key, copy| match copy.duty {
            Duty::Few(few) => {
                let is_of =
                    |number: Option<u16>| number.is_some_and(|number| few.contains(&number));
                is_of(number) && (offers || is_of(own))
            }
            Duty::Many => {
                let duty = self.compared_by(&copy.held(key));
                (offers || duty.contains(&self.own)) && duty.contains(&peer)
            }
        }
    }

    /// A random one of the copies and fragments that are common with a peer, in one of the 256 parts of all places; `None` where none
    /// is near the place that was drawn.
    pub(super) fn sample(&self, peer: &PeerId, number: u8, random: u64) -> Option<Common> {
        let range = Range::ALL.part(number);
        let copy = || {
            // A part by how much is in it, and in it from a random id on, which does not look at all that are before.
            let parts = &self.parts[parts_of(range)];
            let count: usize = parts.iter().map(BTreeMap::len).sum();
            let mut left = usize::try_from(random >> 1).ok()?.checked_rem(count)?;
            let drawn = parts.iter().position(|part| match left.checked_sub(part.len()) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            })?;
            let part = &parts[drawn];
            let number = u16::try_from(parts_of(range).start + drawn).ok()?;
            let below = (random >> 2) as u16 >> PART_BITS;
            let mut first = Key::default();
            first.0[..2]
                .copy_from_slice(&(number << (u16::BITS - PART_BITS) | below).to_be_bytes());
            // Among what begins like the first behind the place that was drawn, any: it may be one object with all of the part.
            let (drawn_at, _) = part.range(first..).chain(part).next()?;
            first.0[..2].copy_from_slice(&drawn_at.0[..2]);
            first.0[2..10].copy_from_slice(&random.rotate_left(32).to_be_bytes());
            let behind = part.range(first..).chain(part.range(..first));
            let others = parts[drawn + 1..].iter().chain(&parts[..drawn]).flatten();
            let is_common = self.is_common_with(peer);
            let mut all = behind.chain(others).take(SAMPLED_MAX);
            let found =
                all.find_map(|(key, copy)| is_common(key, copy).then(|| copy.held(key).placed))?;
            Some(Common::Copy(found))
        };
        let fragment = || {
            let peer = self.names.known(peer)?;
            let (from, to) = ids_of(range);
            let mut first = *from.as_bytes();
            first[1..9].copy_from_slice(&random.to_be_bytes());
            let first = RecordId::new(first);
            let all = self.stripes.range(first..=to).chain(self.stripes.range(from..first));
            all.take(SAMPLED_MAX).find_map(|(stripe, map)| {
                // Of a peer with two fragments the first counts, as in the sums.
                let index = map.holders().position(|holder| holder == Some(peer))?;
                let index = u8::try_from(index).ok().filter(|_| !map.mine.is_empty())?;
                Some(Common::Fragment(HeldFragment { stripe: *stripe, index }))
            })
        };
        if random & 1 == 0 { copy().or_else(fragment) } else { fragment().or_else(copy) }
    }

    /// What is here in a range of what concerns a peer; at most so many items.
    pub(crate) fn listed(&self, peer: &PeerId, range: Range, most: usize) -> Listed {
        let mut copies = Vec::new();
        let mut more = false;
        for Held { placed, .. } in self.common_copies(peer, range) {
            if copies.len() >= most {
                more = true;
                break;
            }
            copies.push((placed.id, placed.place));
        }
        let mut fragments = Vec::new();
        let (from, to) = ids_of(range);
        let number = self.names.known(peer);
        for (stripe, map) in self.stripes.range(from..=to) {
            let holds = number.is_some_and(|peer| map.holders().any(|of| of == Some(peer)));
            let concerned = || self.epoch.possible(&Place::from(*stripe), map.n()).contains(peer);
            if !holds && !concerned() {
                continue;
            }
            if copies.len() + fragments.len() + map.mine.len() > most {
                more = true;
                break;
            }
            let held = map.mine.iter().map(|index| HeldFragment { stripe: *stripe, index: *index });
            fragments.extend(held);
        }
        Listed { range, copies, fragments, more }
    }

    /// Corrects the maps by what a peer says that it holds in a range.
    pub(super) fn correct(&mut self, peer: &PeerId, theirs: &Listed) -> Corrected {
        let number = self.names.of(peer);
        let mut held: BTreeMap<RecordId, Vec<u8>> = BTreeMap::new();
        for fragment in &theirs.fragments {
            if theirs.range.holds(&fragment.stripe, &Place::from(fragment.stripe)) {
                held.entry(fragment.stripe).or_default().push(fragment.index);
            }
        }
        for indices in held.values_mut() {
            indices.sort_unstable();
            indices.dedup();
        }
        let (from, to) = ids_of(theirs.range);
        let wrong = self.stripes.range(from..=to).filter(|(stripe, map)| {
            let said = held.get(*stripe).map_or(&[][..], Vec::as_slice);
            // A list that was cut short says nothing of what is not on it.
            if theirs.more && said.is_empty() {
                return false;
            }
            let believed = map.holders().enumerate().filter(|(_, of)| *of == Some(number));
            let believed = believed.map(|(index, _)| index);
            !believed.eq(said.iter().map(|index| usize::from(*index)))
        });
        let wrong: Vec<RecordId> = wrong.map(|(stripe, _)| *stripe).collect();
        let mut twice = Vec::new();
        for stripe in &wrong {
            let said = held.remove(stripe).unwrap_or_default();
            let epoch = Arc::clone(&self.epoch);
            self.with_map(stripe, |map, names| {
                map.forget(number);
                for index in said {
                    // Another holder that answers is as good.
                    let holder = map.holder(index).and_then(|holder| names.peer(holder));
                    match holder.filter(|holder| epoch.answers(holder)) {
                        Some(holder) => {
                            twice.push((HeldFragment { stripe: *stripe, index }, holder))
                        }
                        None => map.set(index, Some(number)),
                    }
                }
            });
        }
        Corrected { changed: wrong, twice }
    }

    /// Copies from one part on, some at least of each part, and where to go on.
    pub(crate) fn copies_from(&self, part: usize, most: usize) -> (Vec<Held>, Option<usize>) {
        let mut found = Vec::new();
        for (number, copies) in self.parts.iter().enumerate().skip(part) {
            if found.len() >= most {
                return (found, Some(number));
            }
            found.extend(copies.iter().map(|(key, copy)| copy.held(key)));
        }
        (found, None)
    }

    /// The next copies that are here and whose duty is others' alone, of so many of the 256 first parts at most and so many of them: who
    /// calls again and again meets all, however many live at one place, and then begins anew.
    /// What a policy keeps in one copy is not among them: it stays where it was written.
    pub(crate) fn strays(&self, walk: &mut Walk, parts: u8, most: usize) -> Vec<Held> {
        self.walked(walk, parts, most, |key, copy| self.is_stray(key, copy))
    }

    /// The same with those of which more copies are paid for than are compared: who has one of those offers it to all whose duty it
    /// is, for those who compare it may all lack it.
    pub(crate) fn offers(&self, walk: &mut Walk, parts: u8, most: usize) -> Vec<Held> {
        let is_offered = |key: &Key, copy: &Copy| {
            let more = copy.copies > 1 && self.is_paid_for_more(copy);
            more || self.is_stray(key, copy)
        };
        self.walked(walk, parts, most, is_offered)
    }

    fn walked(
        &self,
        walk: &mut Walk,
        parts: u8,
        most: usize,
        is_met: impl Fn(&Key, &Copy) -> bool,
    ) -> Vec<Held> {
        let [first, ..] = walk.from.0;
        let (number, ended) = first.overflowing_add(parts.saturating_sub(1));
        let (_, last) = Key::of(Range::ALL.part(if ended { u8::MAX } else { number }));
        let parts = &self.parts[walk.from.part()..=last.part()];
        let from = if walk.met { Bound::Excluded(walk.from) } else { Bound::Included(walk.from) };
        let mut all = parts.iter().flat_map(|part| part.range((from, Bound::Included(last))));
        let mut met = Vec::new();
        while met.len() < most {
            let Some((key, copy)) = all.next() else {
                *walk = if last.0[0] == u8::MAX { Walk::default() } else { Walk::behind(&last) };
                return met;
            };
            if is_met(key, copy) {
                met.push(copy.held(key));
                *walk = Walk { from: *key, met: true };
            }
        }
        met
    }
}

/// What of a stripe is common with each other peer that the map names.
fn items<'a>(
    own: PeerId,
    names: &'a Names,
    stripe: &'a RecordId,
    map: &'a StripeMap,
) -> impl Iterator<Item = (PeerId, Sum)> + 'a {
    let mine = map.mine.iter().min().copied();
    let mut seen: Vec<u16> = Vec::new();
    map.holders().enumerate().filter_map(move |(index, holder)| {
        let (mine, holder) = (mine?, holder?);
        let peer = names.peer(holder)?;
        // Of a peer with two fragments the first counts.
        if peer == own || seen.contains(&holder) {
            return None;
        }
        seen.push(holder);
        let theirs = u8::try_from(index).ok()?;
        let (lower, upper) = if own < peer { (mine, theirs) } else { (theirs, mine) };
        Some((peer, stripe_item(stripe, lower, upper)))
    })
}

#[cfg(test)]
mod tests;
