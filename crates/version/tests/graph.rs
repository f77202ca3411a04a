//! Walks against a reference model: the whole graph in memory, and every question answered the naive way.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crypto::{RecordId, Suite};
use proptest::prelude::*;
use version::merge::{self, Aggregate, Merged, Value};
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
        self.bases[version].iter().map(|base| 1 + self.depth(*base)).max().unwrap_or(0)
    }

    /// It, and all that it was made of.
    fn history(&self, version: usize) -> BTreeSet<usize> {
        let mut all: BTreeSet<usize> = [version].into();
        for base in &self.bases[version] {
            all.extend(self.history(*base));
        }
        all
    }

    fn common(&self, a: usize, b: usize) -> Option<usize> {
        let (a, b) = (self.history(a), self.history(b));
        a.intersection(&b).copied().max_by_key(|one| (self.depth(*one), Reverse(Self::h(*one))))
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
    fn the_closest_common_ancestor_is_the_models(model in models()) {
        let (graph, versions) = (model.graph(), model.bases.len());
        for a in 0..versions {
            for b in 0..versions {
                let (x, y) = (Model::h(a), Model::h(b));
                let found = common_ancestor(&graph, &x, &y, ANCESTORS_MAX).unwrap();
                prop_assert_eq!(found, model.common(a, b).map(Model::h), "{} and {}", a, b);
                // So it tells, too, what was made of what.
                prop_assert_eq!(found == Some(x), model.history(b).contains(&a));
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
            }
        }
    }
}

/// Real versions of a counter: puts add, merges sum up what both sides added since their closest common ancestor.
#[derive(Default)]
struct Counters {
    versions: Vec<Version>,
    /// What each put added; a merge adds nothing.
    added: Vec<i64>,
    model: Model,
}

impl Counters {
    fn h(&self, version: usize) -> RecordId {
        SUITE.id(&self.versions[version].encode())
    }

    fn push(&mut self, bases: Vec<usize>, added: i64, value: Bytes) {
        let hs: Vec<RecordId> = bases.iter().map(|base| self.h(*base)).collect();
        let l = depth(bases.iter().map(|base| self.versions[*base].l)).unwrap();
        let bases_of = Bases::from_slice(&hs).unwrap();
        let kind = ValueKind::Bytes;
        self.versions.push(Version { object: OBJECT, bases: bases_of, l, kind, value });
        self.added.push(added);
        self.model.bases.push(bases);
    }

    fn number(&self, version: usize) -> i64 {
        std::str::from_utf8(&self.versions[version].value).unwrap().parse().unwrap()
    }

    /// What all puts of a history added, each counted once: what the counter should be at.
    fn total(&self, history: &BTreeSet<usize>) -> i64 {
        history.iter().map(|version| self.added[*version]).sum()
    }

    /// Merges two by the code under test. `None` where there is nothing to merge, or where the histories have more in
    /// common than that of their closest common ancestor (a criss-cross): no one ancestor tells then what is new.
    fn merge(&mut self, a: usize, b: usize) -> Option<()> {
        let (x, y) = (self.h(a), self.h(b));
        let found = common_ancestor(self, &x, &y, ANCESTORS_MAX).unwrap()?;
        let v0 = (0..self.versions.len()).find(|version| self.h(*version) == found).unwrap();
        let [was, first, second] = [v0, a, b].map(|version| self.model.history(version));
        if v0 == a || v0 == b || !first.intersection(&second).eq(&was) {
            return None;
        }
        let value = |version: usize| Value::bytes(&self.versions[version].value);
        let merged = merge::merge(&Aggregate::Sum, Some(value(v0)), value(a), value(b)).unwrap();
        let Merged::Value { value, .. } = merged else { panic!("small numbers") };
        self.push(vec![a, b], 0, value);
        Some(())
    }
}

impl Graph for Counters {
    type Error = VersionError;
    fn links(&self, h: &RecordId) -> Result<Option<Links>, VersionError> {
        let found = self.versions.iter().find(|version| SUITE.id(&version.encode()) == *h);
        Ok(found.map(|version| Links::from(&version.view())))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_counter_counts_every_put_once(
        made in proptest::collection::vec((any::<u16>(), any::<u16>(), -9..9_i64), 1..14),
    ) {
        let mut counters = Counters::default();
        counters.push(vec![], 5, Bytes::from_static(b"5"));
        for (a, b, added) in made {
            let there = counters.versions.len();
            let (a, b) = (usize::from(a) % there, usize::from(b) % there);
            let is_merged = added < 0 && a != b && counters.merge(a, b).is_some();
            if !is_merged {
                let value = (counters.number(a) + added).to_string();
                counters.push(vec![a], added, value.into());
            }
        }
        for version in 0..counters.versions.len() {
            let history = counters.model.history(version);
            prop_assert_eq!(counters.number(version), counters.total(&history), "{}", version);
            prop_assert_eq!(counters.versions[version].l, counters.model.depth(version));
        }
    }
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
            assert_eq!(step, Step::Done(Some(Model::h(3))));
            break;
        };
        let stranger = Links { object: OBJECT, l: 1, bases: Bases::NONE };
        walk.give(&RecordId::new([0; 32]), &stranger).unwrap();
        walk.give(&h, &graph.links(&h).unwrap().unwrap()).unwrap();
        given += 1;
    }
    assert_eq!(given, 3, "the two, and the base of the deeper one, which is the other");
}
