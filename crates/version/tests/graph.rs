//! Walks against a reference model: the whole graph in memory, and every question answered the naive way.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crypto::{RecordId, Suite};
use proptest::prelude::*;
use version::merge::{
    self, Aggregate, MERGES_MAX, Making, Merge, Merged, OwnedValue, ThreeWayMap, ThreeWayText,
    Value, map,
};
use version::{
    ANCESTORS_MAX, Bases, CommonAncestor, Graph, Links, ObjectKey, Step, ValueKind, Version,
    VersionError, common_ancestor, depth, previous,
};

const SUITE: Suite = Suite::Holdfast1;

const OBJECT: ObjectKey = ObjectKey::new([7; 32]);

/// The model: versions by number, each with the numbers of its bases, which are less.
#[derive(Clone, Debug, Default)]
struct Model {
    bases: Vec<Vec<usize>>,
}

impl Model {
    /// A version's name, in an order that says nothing of the graph.
    fn h(version: usize) -> RecordId {
        RecordId::new(crypto::Suite::Holdfast1.hash(&version.to_be_bytes()))
    }

    fn depth(&self, version: usize) -> u64 {
        let mut depths: Vec<u64> = Vec::new();
        for bases in &self.bases[..=version] {
            depths.push(bases.iter().map(|base| 1 + depths[*base]).max().unwrap_or(0));
        }
        depths[version]
    }

    /// It, and all that it was made of.
    fn history(&self, version: usize) -> BTreeSet<usize> {
        let mut all: BTreeSet<usize> = [version].into();
        for one in (0..=version).rev() {
            if all.contains(&one) {
                all.extend(&self.bases[one]);
            }
        }
        all
    }

    /// Of what both are, or were made of, that of which nothing else of it was made, in the order of tips.
    fn closest(&self, a: usize, b: usize) -> Vec<RecordId> {
        let common: BTreeSet<usize> = &self.history(a) & &self.history(b);
        let mut below = BTreeSet::new();
        for one in &common {
            below.extend(self.bases[*one].iter().copied());
        }
        let closest = common.difference(&below);
        let mut found: Vec<_> = closest.map(|one| (self.depth(*one), Self::h(*one))).collect();
        found.sort_unstable_by_key(|one| Reverse(*one));
        found.into_iter().map(|(_, h)| h).collect()
    }

    fn previous(&self, start: usize, m: usize) -> Vec<usize> {
        let mut found = self.bases[start].clone();
        while let [.., last] = found[..]
            && self.bases[start].len() == 1
            && let [base] = self.bases[last][..]
        {
            found.push(base);
        }
        found.truncate(m);
        found
    }

    fn graph(&self) -> Shown {
        let links = |version: usize| {
            let bases: Vec<RecordId> = self.bases[version].iter().map(|b| Self::h(*b)).collect();
            let bases = Bases::from_slice(&bases).unwrap();
            Links { object: OBJECT, l: self.depth(version), bases }
        };
        Shown((0..self.bases.len()).map(|version| (Self::h(version), links(version))).collect())
    }
}

/// What the code under test sees of it.
struct Shown(BTreeMap<RecordId, Links>);

impl Graph for Shown {
    type Error = VersionError;
    fn links(&self, h: &RecordId) -> Result<Option<Links>, VersionError> {
        Ok(self.0.get(h).copied())
    }
}

/// Roots, puts and merges at random, with long lines and criss-crosses among them.
fn models() -> impl Strategy<Value = Model> {
    let one = (any::<u16>(), any::<u16>(), 0..12_u8);
    proptest::collection::vec(one, 1..24).prop_map(|made| {
        let mut model = Model::default();
        for (a, b, what) in made {
            let there = model.bases.len();
            let one = |number: u16| usize::from(number) % there.max(1);
            let bases = match what {
                _ if there == 0 => vec![],
                0 => vec![],
                1..=4 => vec![there - 1],
                5..=7 => vec![one(a)],
                _ if one(a) == one(b) => vec![one(a)],
                _ => vec![one(a), one(b)],
            };
            model.bases.push(bases);
        }
        model
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn the_closest_common_ancestors_are_the_models(model in models()) {
        let (graph, versions) = (model.graph(), model.bases.len());
        for a in 0..versions {
            for b in 0..versions {
                let (x, y) = (Model::h(a), Model::h(b));
                let found = merge::ancestor(&graph, &x, &y, ANCESTORS_MAX).unwrap();
                let wanted = model.closest(a, b);
                prop_assert_eq!(found.closest(), &wanted[..], "{} and {}", a, b);
                // So it tells, too, what was made of what.
                prop_assert_eq!(found.is(&x), model.history(b).contains(&a));
                // Whichever of the two is named first.
                let other = merge::ancestor(&graph, &y, &x, ANCESTORS_MAX).unwrap();
                prop_assert_eq!(&found, &other);
                let one = common_ancestor(&graph, &x, &y, ANCESTORS_MAX).unwrap();
                prop_assert_eq!(one, wanted.first().copied());
            }
        }
    }

    #[test]
    fn the_versions_before_one_are_the_models(model in models(), m in 0..30_usize) {
        let graph = model.graph();
        for start in 0..model.bases.len() {
            let found = previous(&graph, &Model::h(start), m).unwrap();
            let wanted = model.previous(start, m).into_iter().map(Model::h);
            prop_assert_eq!(found, wanted.collect::<Vec<_>>());
        }
    }

    /// A depth, an object or a base that was made up is found, or never looked at: no walk runs on for ever or panics.
    #[test]
    fn made_up_histories_end(
        model in models(),
        lies in proptest::collection::vec((any::<u16>(), any::<u16>(), 0..4_u8, 0..9_u64), 1..5),
    ) {
        let mut graph = model.graph();
        let versions = model.bases.len();
        for (at, other, what, l) in lies {
            let (at, other) = (usize::from(at) % versions, usize::from(other) % versions);
            let links = graph.0.get_mut(&Model::h(at)).unwrap();
            match what {
                0 => links.l = l,
                1 => links.l = u64::MAX,
                2 => links.object = ObjectKey::new([8; 32]),
                // A circle, even, which no hash would allow.
                _ => links.bases = Bases::one(Model::h(other)),
            }
        }
        for a in 0..versions {
            let x = Model::h(a);
            let _ = previous(&graph, &x, 20);
            for b in 0..versions {
                let _ = common_ancestor(&graph, &x, &Model::h(b), 1_000);
                let _ = merge::ancestor(&graph, &x, &Model::h(b), 1_000);
            }
        }
    }
}

/// Real versions, by number.
#[derive(Default)]
struct Real {
    versions: Vec<Version>,
    hs: Vec<RecordId>,
    numbers: BTreeMap<RecordId, usize>,
    model: Model,
}

impl Real {
    /// A version's number, and whether it is new: the same value on the same bases is the same version.
    fn push(&mut self, bases: &[usize], value: impl Into<Bytes>) -> (usize, bool) {
        let hs: Vec<RecordId> = bases.iter().map(|base| self.hs[*base]).collect();
        let l = depth(bases.iter().map(|base| self.versions[*base].l)).unwrap();
        let (bases_of, kind) = (Bases::from_slice(&hs).unwrap(), ValueKind::Bytes);
        let version = Version { object: OBJECT, bases: bases_of, l, kind, value: value.into() };
        let h = SUITE.id(&version.encode());
        if let Some(known) = self.numbers.get(&h) {
            return (*known, false);
        }
        let number = self.hs.len();
        self.versions.push(version);
        self.hs.push(h);
        self.numbers.insert(h, number);
        self.model.bases.push(bases.to_vec());
        (number, true)
    }

    fn put(&mut self, bases: &[usize], value: &str) -> usize {
        self.push(bases, value.to_owned()).0
    }

    fn value(&self, version: usize) -> Value<'_> {
        Value::bytes(&self.versions[version].value)
    }

    fn text(&self, version: usize) -> &str {
        std::str::from_utf8(&self.versions[version].value).unwrap()
    }

    fn number(&self, version: usize) -> i64 {
        self.text(version).parse().unwrap()
    }

    /// A field of a map.
    fn field(&self, version: usize, field: u8) -> Option<&[u8]> {
        let fields = map::decode(self.value(version).bytes).unwrap();
        fields.into_iter().find(|(name, _)| *name == [field]).map(|(_, value)| value)
    }

    /// What the code under test makes of two. `None` where one was made of the other.
    fn merged(&self, a: usize, b: usize, function: &dyn Merge) -> Option<Merged> {
        let (x, y) = (&self.hs[a], &self.hs[b]);
        let found = merge::ancestor(self, x, y, ANCESTORS_MAX).unwrap();
        if found.is(x) || found.is(y) {
            return None;
        }
        let mut making = Making::new(&found, function);
        let v0 = loop {
            match making.step().unwrap() {
                Step::Need(h) => making.give(&h, self.value(self.numbers[&h]).into()),
                Step::Done(v0) => break v0,
            }
        };
        let v0 = match v0 {
            Ok(v0) => v0,
            Err(conflict) => return Some(Merged::Conflict(conflict)),
        };
        let v0 = v0.as_ref().map(OwnedValue::as_value);
        Some(merge::merge(function, v0, self.value(a), self.value(b)).unwrap())
    }

    /// Puts what a function makes of two, which it has to.
    fn merge(&mut self, a: usize, b: usize, function: &dyn Merge) -> usize {
        let merged = self.merged(a, b, function);
        let Some(Merged::Value { value, .. }) = merged else { panic!("{merged:?}") };
        self.push(&[a, b], value).0
    }
}

impl Graph for Real {
    type Error = VersionError;
    fn links(&self, h: &RecordId) -> Result<Option<Links>, VersionError> {
        let found = self.numbers.get(h);
        Ok(found.map(|version| Links::from(&self.versions[*version].view())))
    }
}

/// Three devices that put and merge. Each begins with the root, and knows of the others what they had not long ago: so they
/// merge what others go on from, and criss-crosses are made.
struct Devices([Vec<usize>; 3]);

/// Who does it, whose version is merged with their own, and how many that one has made since.
type Deed = (u8, u8, u8);

/// Some deeds, each with more of what it does.
fn deeds<T: Strategy>(what: T) -> impl Strategy<Value = Vec<(Deed, T::Value)>> {
    proptest::collection::vec(((0..3_u8, 0..3_u8, 0..3_u8), what), 1..40)
}

impl Devices {
    fn new() -> Self {
        Self([vec![0], vec![0], vec![0]])
    }

    /// The device's own version, and the other's.
    fn bases(&self, (device, other, since): Deed) -> (usize, usize) {
        let [one, other] = [device, other].map(|device| &self.0[usize::from(device)]);
        let at = (other.len() - 1).saturating_sub(usize::from(since));
        (one[one.len() - 1], other[at])
    }

    fn made(&mut self, (device, ..): Deed, version: usize) {
        self.0[usize::from(device)].push(version);
    }
}

/// Fields of the maps that they put.
const FIELDS: u8 = 12;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// What all puts of a history added, each counted once, is what the counter is at: whoever merged whose merges.
    #[test]
    fn a_counter_counts_every_put_once(made in deeds(-9..9_i64)) {
        let (mut real, mut devices) = (Real::default(), Devices::new());
        real.put(&[], "5");
        // What each put added; a merge adds nothing.
        let mut added = vec![5];
        for (deed, more) in made {
            let (a, b) = devices.bases(deed);
            let merged = if more < 0 { real.merged(a, b, &Aggregate::Sum) } else { None };
            let (bases, more, value) = match merged {
                Some(Merged::Value { value, .. }) => (vec![a, b], 0, value),
                Some(Merged::Conflict(conflict)) => panic!("{conflict:?}"),
                // A root now and then: of a writer who knew of nobody.
                None if more == 8 => (vec![], more, Bytes::from(more.to_string())),
                None => (vec![a], more, Bytes::from((real.number(a) + more).to_string())),
            };
            let (version, is_new) = real.push(&bases, value);
            devices.made(deed, version);
            if is_new {
                added.push(more);
            }
        }
        for version in 0..real.versions.len() {
            let total: i64 = real.model.history(version).iter().map(|put| added[*put]).sum();
            prop_assert_eq!(real.number(version), total, "{}", version);
            prop_assert_eq!(real.versions[version].l, real.model.depth(version));
        }
    }

    /// Each put gives a field a value that it never had. After a merge a field is as that put said which knew of all others in
    /// the history; where there are two such it is a conflict, and somebody puts on both what they mean.
    #[test]
    fn no_field_of_a_map_is_undone_without_a_word(made in deeds((0..FIELDS, any::<bool>()))) {
        let (mut real, mut devices) = (Real::default(), Devices::new());
        real.push(&[], map::encode([]));
        // Which fields each version put; of a merge those that somebody decided.
        let mut puts: Vec<BTreeSet<u8>> = vec![BTreeSet::new()];
        for (number, (deed, (field, merges))) in made.into_iter().enumerate() {
            let (a, b) = devices.bases(deed);
            let new = (number as u64).to_be_bytes();
            let merged = if merges { real.merged(a, b, &ThreeWayMap) } else { None };
            let (bases, put, value) = match merged {
                Some(Merged::Value { value, .. }) => (vec![a, b], BTreeSet::new(), value),
                Some(Merged::Conflict(_)) => {
                    let (put, value) = decided(&real, &puts, (a, b), &new);
                    // Nothing clashes but what both have in common.
                    prop_assert!(!put.is_empty() || real.model.closest(a, b).len() > 1);
                    (vec![a, b], put, value)
                }
                None => (vec![a], BTreeSet::from([field]), with(real.value(a).bytes, field, &new)),
            };
            let (version, is_new) = real.push(&bases, value);
            devices.made(deed, version);
            if is_new {
                puts.push(put);
            }
        }
        for version in 0..real.versions.len() {
            let history = real.model.history(version);
            for field in 0..FIELDS {
                let wanted = last(&real.model, &puts, &history, field);
                prop_assert!(wanted.len() < 2, "{} lost one of {:?}", version, wanted);
                let wanted = wanted.first().and_then(|put| real.field(*put, field));
                prop_assert_eq!(real.field(version, field), wanted, "{}", version);
            }
        }
    }
}

/// What somebody puts on two that clash: each field as it was put last, and a new value where that is not decided.
fn decided(
    real: &Real,
    puts: &[BTreeSet<u8>],
    (a, b): (usize, usize),
    new: &[u8],
) -> (BTreeSet<u8>, Bytes) {
    let history = &real.model.history(a) | &real.model.history(b);
    let (mut put, mut value) = (BTreeSet::new(), map::encode([]));
    for field in 0..FIELDS {
        let said = match last(&real.model, puts, &history, field)[..] {
            [] => continue,
            [one] => real.field(one, field).unwrap(),
            _ => {
                put.insert(field);
                new
            }
        };
        value = with(&value, field, said);
    }
    (put, value)
}

/// A map with one field put.
fn with(value: &[u8], field: u8, put: &[u8]) -> Bytes {
    let name = [field];
    let fields = map::decode(value).unwrap();
    let others = fields.into_iter().filter(|(other, _)| *other != name);
    map::encode(others.chain([(&name[..], put)]))
}

/// The versions of a history that put a field and of which no other that did knew.
fn last(model: &Model, puts: &[BTreeSet<u8>], history: &BTreeSet<usize>, field: u8) -> Vec<usize> {
    let put = |version: &&usize| puts[**version].contains(&field);
    let all: Vec<usize> = history.iter().filter(put).copied().collect();
    let mut known = BTreeSet::new();
    for one in &all {
        known.extend(model.history(*one).into_iter().filter(|other| other != one));
    }
    all.into_iter().filter(|one| !known.contains(one)).collect()
}

/// Two devices count, each merges what it knows of the other's, and the merge of both counts nothing twice: by either
/// closest ancestor alone it would be 8, or 9.
#[test]
fn a_criss_cross_counts_nothing_twice() {
    let (mut real, sum) = (Real::default(), Aggregate::Sum);
    let o = real.put(&[], "0");
    let (a1, b1) = (real.put(&[o], "1"), real.put(&[o], "2"));
    let m1 = real.merge(a1, b1, &sum);
    let b2 = real.put(&[b1], "6");
    let m2 = real.merge(a1, b2, &sum);
    assert_eq!((real.number(m1), real.number(m2)), (3, 7));
    let (one, other) = (real.merge(m1, m2, &sum), real.merge(m2, m1, &sum));
    assert_eq!((real.number(one), real.number(other)), (7, 7));
    // Each goes on from its own merge of the two, and those are merged once more.
    let (one, other) = (real.put(&[one], "8"), real.put(&[other], "17"));
    let last = real.merge(one, other, &sum);
    assert_eq!(real.number(last), 18);
}

/// What a1 and b1 changed both devices took back after the other had merged it: by either closest ancestor alone one of the
/// two would come again.
fn taken_back(function: &dyn Merge, [o, a1, b1, both]: [&[u8]; 4]) {
    let mut real = Real::default();
    let mut put = |bases: &[usize], value: &[u8]| real.push(bases, value.to_vec()).0;
    let root = put(&[], o);
    let (first, second) = (put(&[root], a1), put(&[root], b1));
    let (first_back, second_back) = (put(&[first], o), put(&[second], o));
    let m1 = real.merge(first_back, second, function);
    let m2 = real.merge(first, second_back, function);
    assert_eq!((real.value(m1).bytes, real.value(m2).bytes), (b1, a1));
    let found = merge::ancestor(&real, &real.hs[m1], &real.hs[m2], ANCESTORS_MAX).unwrap();
    assert_eq!(found.closest().len(), 2);
    for (x, y) in [(m1, m2), (m2, m1)] {
        let merged = real.merge(x, y, function);
        assert_eq!(real.value(merged).bytes, o);
    }
    // What neither took back is in both, and stays.
    let (m1, m2) = (real.merge(first, second, function), real.merge(second, first, function));
    let merged = real.merge(m1, m2, function);
    assert_eq!(real.value(merged).bytes, both);
}

#[test]
fn what_was_taken_back_does_not_come_again() {
    let texts: [&[u8]; 4] = [b"1\n2\n3\n", b"A\n2\n3\n", b"1\n2\nB\n", b"A\n2\nB\n"];
    taken_back(&ThreeWayText, texts);
    let fields = |a: &'static [u8], b: &'static [u8]| map::encode([(&b"a"[..], a), (b"b", b)]);
    let maps = [fields(b"0", b"0"), fields(b"1", b"0"), fields(b"0", b"1"), fields(b"1", b"1")];
    taken_back(&ThreeWayMap, [&maps[0], &maps[1], &maps[2], &maps[3]]);
}

/// What both have in common was decided by each for itself: no function says which of the two decided.
#[test]
fn where_closest_ancestors_clash_the_two_are_a_conflict() {
    let mut real = Real::default();
    let o = real.put(&[], "o\n");
    let (a, b) = (real.put(&[o], "a\n"), real.put(&[o], "b\n"));
    let (m1, m2) = (real.put(&[a, b], "a b\n"), real.put(&[b, a], "b a\n"));
    let merged = real.merged(m1, m2, &ThreeWayText);
    let Some(Merged::Conflict(conflict)) = merged else { panic!("{merged:?}") };
    assert_eq!(
        conflict.reason,
        "what both were made of does not merge: both sides changed the same lines"
    );
    assert!(conflict.clashes.is_empty());
}

/// Two devices that merge at once, over and over, leave criss-crosses on criss-crosses; a fan many ancestors that are all
/// closest. Each is merged exactly as far as the bound goes, and behind it not at all.
#[test]
fn so_many_merges_are_made_for_one_and_no_more() {
    let (mut real, sum) = (Real::default(), Aggregate::Sum);
    let o = real.put(&[], "0");
    let (mut x, mut y) = (real.put(&[o], "1"), real.put(&[o], "2"));
    for _ in 0..=MERGES_MAX {
        (x, y) = (real.merge(x, y, &sum), real.merge(y, x, &sum));
        assert_eq!((real.number(x), real.number(y)), (3, 3));
    }
    let too_many = |merged: Option<Merged>| {
        let Some(Merged::Conflict(conflict)) = merged else { panic!("{merged:?}") };
        assert_eq!(conflict.reason, "what both were made of takes too many merges");
    };
    too_many(real.merged(x, y, &sum));

    for wide in [MERGES_MAX + 1, MERGES_MAX + 2, 5 * MERGES_MAX] {
        let mut real = Real::default();
        let o = real.put(&[], "0");
        let fan: Vec<usize> =
            (1..=wide).map(|number| real.put(&[o], &number.to_string())).collect();
        let back: Vec<usize> = fan.iter().rev().copied().collect();
        let [m1, m2] = [fan, back].map(|order| {
            let merge = |all, next: &usize| real.merge(all, *next, &sum);
            order[1..].iter().fold(order[0], merge)
        });
        let total = (wide * (wide + 1) / 2) as i64;
        assert_eq!((real.number(m1), real.number(m2)), (total, total));
        if wide <= MERGES_MAX + 1 {
            let merged = real.merge(m1, m2, &sum);
            assert_eq!(real.number(merged), total);
        } else {
            too_many(real.merged(m1, m2, &sum));
        }
    }
}

/// All walks for one merge together look at so many versions.
#[test]
fn the_walks_of_one_merge_share_a_bound() {
    let mut real = Real::default();
    let sum = Aggregate::Sum;
    let o = real.put(&[], "0");
    let (mut x, mut y) = (real.put(&[o], "1"), real.put(&[o], "2"));
    for _ in 0..10 {
        (x, y) = (real.merge(x, y, &sum), real.merge(y, x, &sum));
    }
    let ancestor = |limit| merge::ancestor(&real, &real.hs[x], &real.hs[y], limit);
    let needed = (1..).find(|limit| ancestor(*limit).is_ok()).unwrap();
    // A walk from each pair but the first looks at both, at the bases of both, and at those of one of these to see
    // that they are covered: of the second pair that is the root alone. That from the first meets the root twice.
    assert_eq!(needed, 9 * 8 + 7 + 4);
    assert!(matches!(ancestor(needed - 1), Err(VersionError::TooFar { max }) if max == needed - 1));
}

/// A line of five, and what is said of its third.
fn line(change: impl Fn(&mut Links)) -> Shown {
    let model = Model { bases: vec![vec![], vec![0], vec![1], vec![2], vec![3]] };
    let mut graph = model.graph();
    change(graph.0.get_mut(&Model::h(2)).unwrap());
    graph
}

#[test]
fn what_does_not_fit_is_refused() {
    let walk = |graph: &Shown| {
        let ends = (&Model::h(4), &Model::h(0));
        let common = common_ancestor(graph, ends.0, ends.1, ANCESTORS_MAX);
        (common, previous(graph, ends.0, 10))
    };
    let (common, before) = walk(&line(|_| ()));
    assert_eq!(common.unwrap(), Some(Model::h(0)));
    assert_eq!(before.unwrap().len(), 4);
    for l in [0, 1, 3, 4, u64::MAX] {
        let (common, before) = walk(&line(|links| links.l = l));
        assert!(matches!(common, Err(VersionError::History(_))), "{l}");
        assert!(matches!(before, Err(VersionError::History(_))), "{l}");
    }
    let (common, before) = walk(&line(|links| links.object = ObjectKey::new([8; 32])));
    assert!(matches!(common, Err(VersionError::History(_))));
    assert!(matches!(before, Err(VersionError::History(_))));
    let mut lacking = line(|_| ());
    lacking.0.remove(&Model::h(1));
    let (common, before) = walk(&lacking);
    assert!(matches!(common, Err(VersionError::Missing(h)) if h == Model::h(1)));
    assert!(matches!(before, Err(VersionError::Missing(h)) if h == Model::h(1)));
}

#[test]
fn a_walk_is_bounded() {
    let bases = (0..500).map(|one: usize| one.checked_sub(1).into_iter().collect()).collect();
    let graph = Model { bases }.graph();
    let (a, b) = (Model::h(499), Model::h(0));
    // The root is met twice: from its own side and from the other.
    assert_eq!(common_ancestor(&graph, &a, &b, 501).unwrap(), Some(b));
    let short = common_ancestor(&graph, &a, &b, 500);
    assert!(matches!(short, Err(VersionError::TooFar { max: 500 })));
    assert_eq!(previous(&graph, &a, usize::MAX).unwrap().len(), 499);
    assert_eq!(previous(&graph, &a, 0).unwrap(), []);
}

/// Whoever drives a walk by hand may ask twice and give what was not asked for.
#[test]
fn a_walk_takes_only_what_it_needs() {
    let graph = line(|_| ());
    let mut walk = CommonAncestor::new(Model::h(3), Model::h(4), 10);
    let mut given = 0;
    loop {
        let step = walk.step().unwrap();
        assert_eq!(walk.step().unwrap(), step);
        let Step::Need(h) = step else {
            assert_eq!(step, Step::Done(vec![Model::h(3)]));
            break;
        };
        let stranger = Links { object: OBJECT, l: 1, bases: Bases::NONE };
        walk.give(&RecordId::new([0; 32]), &stranger).unwrap();
        walk.give(&h, &graph.links(&h).unwrap().unwrap()).unwrap();
        given += 1;
    }
    assert_eq!(given, 3, "the two, and the base of the deeper one, which is the other");
}
