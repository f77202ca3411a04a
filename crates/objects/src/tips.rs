//! The tips of an object beside its first: few in a list, many in order.
//!
//! Nearly every object has one tip, some have a few. But whoever may write an object makes as many as the disk holds, each by a
//! version that stands on no tip. In a list each write would look at all of them, and all other writers wait for it meanwhile. So
//! more than [`FEW_MAX`] are in two ordered maps: in the order in which they count, so that the first of them are told without a
//! look at the others, and by their h, by which one is found whose place a version takes. There one takes about 300 bytes, in a
//! list 128.
//!
//! Invariant: a list that is looked through has at most [`FEW_MAX`] tips.

use std::collections::BTreeMap;

use crypto::RecordId;

use crate::index::Tip;

/// The most that are looked at one by one.
const FEW_MAX: usize = 16;

/// Tips of one object, each once.
#[derive(Debug)]
pub(crate) enum Tips {
    /// In no order.
    Few(Vec<Tip>),
    /// By depth and h, and how deep each is.
    Many {
        /// The one that counts least first.
        in_order: BTreeMap<(u64, RecordId), Tip>,
        depths: BTreeMap<RecordId, u64>,
    },
}

impl Default for Tips {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Tips {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many { in_order, .. } => in_order.len(),
        }
    }

    pub(crate) fn get(&self, h: &RecordId) -> Option<&Tip> {
        match self {
            Self::Few(few) => few.iter().find(|tip| tip.id.h == *h),
            Self::Many { in_order, depths } => in_order.get(&(*depths.get(h)?, *h)),
        }
    }

    /// Adds one that is not there.
    pub(crate) fn push(&mut self, tip: Tip) {
        match self {
            Self::Few(few) if few.len() < FEW_MAX => few.push(tip),
            Self::Few(few) => {
                let all = std::mem::take(few).into_iter().chain([tip]);
                let in_order: BTreeMap<(u64, RecordId), Tip> =
                    all.map(|tip| ((tip.id.l, tip.id.h), tip)).collect();
                let depths = in_order.keys().map(|(l, h)| (*h, *l)).collect();
                *self = Self::Many { in_order, depths };
            }
            Self::Many { in_order, depths } => {
                depths.insert(tip.id.h, tip.id.l);
                in_order.insert((tip.id.l, tip.id.h), tip);
            }
        }
    }

    /// Takes one away; whether it was there.
    pub(crate) fn take(&mut self, h: &RecordId) -> bool {
        match self {
            Self::Few(few) => {
                let at = few.iter().position(|tip| tip.id.h == *h);
                at.map(|at| few.swap_remove(at)).is_some()
            }
            Self::Many { in_order, depths } => {
                let Some(l) = depths.remove(h) else { return false };
                in_order.remove(&(l, *h));
                self.settle();
                true
            }
        }
    }

    /// Takes away any.
    pub(crate) fn pop(&mut self) -> Option<Tip> {
        match self {
            Self::Few(few) => few.pop(),
            Self::Many { in_order, depths } => {
                let (_, tip) = in_order.pop_last()?;
                depths.remove(&tip.id.h);
                self.settle();
                Some(tip)
            }
        }
    }

    /// Where there are few again they are in a list; at half of what it holds, so that nobody has them moved to and fro.
    fn settle(&mut self) {
        if let Self::Many { in_order, .. } = self
            && in_order.len() <= FEW_MAX / 2
        {
            let few = std::mem::take(in_order).into_values().collect();
            *self = Self::Few(few);
        }
    }

    /// The first `most` in the order in which they count, those that count most, and no more than [`FEW_MAX`] others; in no order.
    pub(crate) fn leading(&self, most: usize) -> impl Iterator<Item = &Tip> {
        let (few, many) = match self {
            Self::Few(few) => (few.as_slice(), None),
            Self::Many { in_order, .. } => (&[][..], Some(in_order)),
        };
        few.iter().chain(many.into_iter().flat_map(move |all| all.values().rev().take(most)))
    }
}

#[cfg(test)]
mod tests {
    use crypto::Place;
    use proptest::prelude::*;
    use version::{Hint, ValueKind, VersionId};

    use super::*;

    /// Of depths that differ and that do not; h is no matter of depth.
    fn tip(number: u8) -> Tip {
        let h = RecordId::new([number.reverse_bits(); 32]);
        let id = VersionId { h, l: u64::from(number % 7), n: Hint::FIRST };
        Tip { id, kind: ValueKind::Bytes, anchor: h, place: Place::from(h) }
    }

    fn leading(tips: &Tips, most: usize) -> Vec<(u64, RecordId)> {
        let mut found: Vec<_> = tips.leading(most).map(|tip| (tip.id.l, tip.id.h)).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(most);
        found
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        Take(u8),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => any::<u8>().prop_map(Step::Push),
            3 => any::<u8>().prop_map(Step::Take),
            1 => Just(Step::Pop),
        ];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        /// Few or many, they are the same tips, and no long list is ever looked through.
        #[test]
        fn many_tips_are_what_few_are_and_never_in_a_list(steps in steps(), most in 0_usize..40) {
            let (mut tips, mut model) = (Tips::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Push(number) => {
                        let tip = tip(number);
                        let is_there = model.contains_key(&tip.id.h);
                        prop_assert_eq!(tips.get(&tip.id.h).is_some(), is_there);
                        if model.insert(tip.id.h, tip.id.l).is_none() {
                            tips.push(tip);
                        }
                    }
                    Step::Take(number) => {
                        let h = tip(number).id.h;
                        prop_assert_eq!(tips.take(&h), model.remove(&h).is_some());
                    }
                    Step::Pop => {
                        let popped = tips.pop().map(|tip| tip.id);
                        prop_assert_eq!(popped.is_none(), model.is_empty());
                        if let Some(id) = popped {
                            prop_assert_eq!(model.remove(&id.h), Some(id.l));
                        }
                    }
                }
                prop_assert_eq!(tips.len(), model.len());
                match &tips {
                    Tips::Few(few) => prop_assert!(few.len() <= FEW_MAX),
                    Tips::Many { in_order, depths } => {
                        prop_assert!(in_order.len() > FEW_MAX / 2);
                        prop_assert_eq!(in_order.len(), depths.len());
                    }
                }
                let mut wanted: Vec<_> = model.iter().map(|(h, l)| (*l, *h)).collect();
                wanted.sort_unstable_by(|a, b| b.cmp(a));
                wanted.truncate(most);
                prop_assert_eq!(leading(&tips, most), wanted);
                prop_assert!(tips.leading(most).count() <= most + FEW_MAX);
            }
        }
    }
}
