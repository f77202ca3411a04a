//! Members in order of score, then of bytes, with their ranks.
//!
//! A list of short sorted runs: a place is found by two binary searches, a rank by adding up the
//! lengths of the runs before. A balanced tree of a million members would chase twenty pointers for
//! what is here a search in two arrays, and a tree of the standard library knows no ranks.
//!
//! Invariants: no run is empty; a run has at most [`RUN_MAX`] members; all are in order.

use std::cmp::Ordering;

use bytes::Bytes;

/// The most members of a run; a longer one is cut in two.
const RUN_MAX: usize = 512;

/// A member and its score. Scores are never NaN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranked {
    /// The score.
    pub score: f64,
    /// The member.
    pub member: Bytes,
}

impl Ranked {
    fn order(&self, score: f64, member: &[u8]) -> Ordering {
        scores(self.score, score).then_with(|| self.member.as_ref().cmp(member))
    }
}

/// The order of scores: 0 and -0 are the same.
pub(crate) fn scores(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// Members in order.
#[derive(Debug, Default)]
pub(crate) struct Order {
    runs: Vec<Vec<Ranked>>,
    length: usize,
}

impl Order {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Adds a member that is not there.
    pub(crate) fn insert(&mut self, score: f64, member: Bytes) {
        self.length += 1;
        let last = |run: &Vec<Ranked>| {
            run.last().is_some_and(|last| last.order(score, &member) == Ordering::Less)
        };
        let at = self.runs.partition_point(last);
        // Behind all others: at the end of the last run.
        let at = at.min(self.runs.len().saturating_sub(1));
        let Some(run) = self.runs.get_mut(at) else {
            self.runs.push(vec![Ranked { score, member }]);
            return;
        };
        let within = run.partition_point(|each| each.order(score, &member) == Ordering::Less);
        run.insert(within, Ranked { score, member });
        if run.len() > RUN_MAX {
            // Members that come in order leave full runs behind them.
            let cut = if within + 1 == run.len() { RUN_MAX } else { RUN_MAX / 2 };
            let rest = run.split_off(cut);
            self.runs.insert(at + 1, rest);
        }
    }

    /// Removes a member with its score; whether it was there.
    pub(crate) fn remove(&mut self, score: f64, member: &[u8]) -> bool {
        let Some((at, within)) = self.find(score, member) else { return false };
        self.length -= 1;
        let run = &mut self.runs[at];
        run.remove(within);
        if run.is_empty() {
            self.runs.remove(at);
        }
        true
    }

    fn find(&self, score: f64, member: &[u8]) -> Option<(usize, usize)> {
        let before = |each: &Ranked| each.order(score, member) == Ordering::Less;
        let at = self.runs.partition_point(|run| run.last().is_some_and(before));
        let run = self.runs.get(at)?;
        let within = run.partition_point(before);
        let found = run.get(within)?.order(score, member) == Ordering::Equal;
        found.then_some((at, within))
    }

    /// The rank of a member with its score, from 0.
    pub(crate) fn rank(&self, score: f64, member: &[u8]) -> Option<usize> {
        let (at, within) = self.find(score, member)?;
        Some(self.runs[..at].iter().map(Vec::len).sum::<usize>() + within)
    }

    /// How many members come before the first that is not `before`; all that are, come first.
    pub(crate) fn position(&self, before: impl Fn(&Ranked) -> bool) -> usize {
        let at = self.runs.partition_point(|run| run.last().is_some_and(&before));
        let whole = self.runs[..at].iter().map(Vec::len).sum::<usize>();
        whole + self.runs.get(at).map_or(0, |run| run.partition_point(&before))
    }

    /// The members of ranks `from` up to but not `to`, in order.
    pub(crate) fn range(
        &self,
        from: usize,
        to: usize,
    ) -> impl DoubleEndedIterator<Item = &Ranked> + Clone {
        let (first, skip) = self.locate(from);
        let (last, keep) = self.locate(to.max(from));
        let last_run = self.runs.get(last).filter(|_| keep > 0).is_some();
        let runs =
            &self.runs[first.min(self.runs.len())..(last + usize::from(last_run)).max(first)];
        let count = runs.len();
        runs.iter().enumerate().flat_map(move |(at, run)| {
            let begin = if at == 0 { skip } else { 0 };
            let end = if last_run && at + 1 == count { keep } else { run.len() };
            run[begin.min(end)..end].iter()
        })
    }

    /// The run of a rank, and where in it; behind all: the count of runs.
    fn locate(&self, rank: usize) -> (usize, usize) {
        let mut rest = rank;
        for (at, run) in self.runs.iter().enumerate() {
            if rest < run.len() {
                return (at, rest);
            }
            rest -= run.len();
        }
        (self.runs.len(), 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn it_is_a_sorted_list(
            steps in prop::collection::vec((0_u16..3000, -4_i8..4, any::<bool>()), 0..3000),
            bounds in (0_usize..3000, 0_usize..3000),
        ) {
            let mut order = Order::default();
            let mut model: Vec<(i8, Vec<u8>)> = Vec::new();
            for (member, score, add) in steps {
                let bytes = member.to_be_bytes().to_vec();
                let known = model.iter().position(|(_, name)| *name == bytes);
                match (add, known) {
                    (true, None) => {
                        order.insert(f64::from(score), Bytes::from(bytes.clone()));
                        model.push((score, bytes));
                    }
                    (false, Some(at)) => {
                        let (score, bytes) = model.swap_remove(at);
                        prop_assert!(order.remove(f64::from(score), &bytes));
                    }
                    _ => prop_assert!(!order.remove(9.0, &bytes)),
                }
            }
            model.sort();
            prop_assert_eq!(order.len(), model.len());
            prop_assert!(order.runs.iter().all(|run| !run.is_empty() && run.len() <= RUN_MAX));
            for (rank, (score, member)) in model.iter().enumerate() {
                prop_assert_eq!(order.rank(f64::from(*score), member), Some(rank));
            }
            let (from, to) = bounds;
            let expected: Vec<&[u8]> = model.iter().skip(from).take(to.saturating_sub(from))
                .map(|(_, member)| &member[..]).collect();
            let range = order.range(from, to);
            let mut back: Vec<&[u8]> = range.clone().rev().map(|each| &each.member[..]).collect();
            back.reverse();
            prop_assert_eq!(range.map(|each| &each.member[..]).collect::<Vec<_>>(), expected);
            prop_assert_eq!(back.len(), model.len().min(to).saturating_sub(from.min(model.len())));
            let position = order.position(|each| each.score < 1.0);
            prop_assert_eq!(position, model.iter().filter(|(score, _)| *score < 1).count());
        }
    }

    #[test]
    fn a_range_ends_where_it_should() {
        let mut order = Order::default();
        for member in 0..2000_u32 {
            order.insert(f64::from(member), Bytes::from(member.to_be_bytes().to_vec()));
        }
        for (from, to) in
            [(0, 0), (0, 512), (511, 513), (512, 1024), (5, 3), (1999, 4000), (0, 2000)]
        {
            let scores: Vec<f64> = order.range(from, to).map(|each| each.score).collect();
            let expected: Vec<f64> = (from..to.min(2000)).map(|score| score as f64).collect();
            assert_eq!(scores, expected, "{from}..{to}");
        }
    }
}
