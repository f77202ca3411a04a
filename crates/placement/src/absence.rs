//! Whom the network does without for now, by what its peers say of each other.
//!
//! One peer's word is worth little: its own link may be broken, or it lies. So organisations have a voice each,
//! and it takes more than half of those that were heard:
//!
//! - A peer was *heard* whose words are at hand. An organisation is heard as long as one of its peers is.
//! - The voice of an organisation on a peer p is *yes* where more than half of its peers that were heard, p
//!   not counted, say absent of p; else it is *no*, a tie and silence too. The organisation of p has its voice as any other. The
//!   one word of p about itself that counts is that it is absent: it leaves.
//! - p is absent where more than half of the organisations that were heard say yes.
//! - Who is absent is not heard about others. So it is counted in rounds: those against whom the greatest part of
//!   the organisations speaks, more than half, all with the same part at once, are absent, and their words are
//!   dropped; then again, until there is nobody. (The words of two who accuse each other would else decide by
//!   which is read first.)
//!
//! What follows: the list depends on the set of words alone, not on their order. An organisation alone votes
//! nobody of another away, however many peers it has, as long as a second one is heard; and alone it keeps none of its own
//! dead peers in the rank, as long as two others are. With just two organisations both must agree (each has half), which
//! errs on the side of keeping: else either could take all that the other holds from it by saying so. An organisation that is
//! silent altogether has no voice, so of two organisations, one gone, the other goes on.

use std::collections::{BTreeMap, BTreeSet};

use crypto::PeerId;

use crate::view::View;

/// Who counts as absent, by words of peers: each who speaks, and whom it says absent of. Words of and about peers
/// that the view does not have count nothing; who speaks several times says all of it.
pub fn absent<'a>(
    view: &View,
    words: impl IntoIterator<Item = (&'a PeerId, &'a BTreeSet<PeerId>)>,
) -> BTreeSet<PeerId> {
    let mut count = Count::new(view, words);
    let mut absent = BTreeSet::new();
    loop {
        let most = count.most_accused();
        if most.is_empty() {
            return absent.into_iter().map(|index: usize| view.candidates()[index].peer).collect();
        }
        for index in most {
            absent.insert(index);
            count.accused.remove(&index);
            count.silence(index);
        }
    }
}

/// The words that still count. Peers by index, organisations by number.
struct Count<'v> {
    view: &'v View,
    /// Whom each peer that is heard speaks of.
    says: BTreeMap<usize, BTreeSet<usize>>,
    /// How many peers of each organisation are heard.
    heard: Vec<usize>,
    /// Of each accused peer: how many peers of each organisation say absent of it.
    accused: BTreeMap<usize, BTreeMap<usize, usize>>,
}

impl<'v> Count<'v> {
    fn new<'a>(
        view: &'v View,
        words: impl IntoIterator<Item = (&'a PeerId, &'a BTreeSet<PeerId>)>,
    ) -> Self {
        let mut says: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (speaker, of) in words {
            let Some(speaker) = view.position(speaker) else { continue };
            says.entry(speaker).or_default().extend(of.iter().filter_map(|p| view.position(p)));
        }
        let mut heard = vec![0; view.organisations()];
        let mut accused: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
        for (speaker, of) in &says {
            let organisation = view.organisation_at(*speaker);
            heard[organisation] += 1;
            for peer in of {
                *accused.entry(*peer).or_default().entry(organisation).or_default() += 1;
            }
        }
        Self { view, says, heard, accused }
    }

    /// Those against whom the greatest part of the organisations speaks, if it is more than half.
    fn most_accused(&self) -> Vec<usize> {
        let voices = self.heard.iter().filter(|heard| **heard > 0).count();
        // The number of voices is one for all, so the greatest part is the greatest number.
        let (mut most, mut found) = (voices / 2, Vec::new());
        for (peer, by) in &self.accused {
            let yes = by.iter().filter(|(org, say)| self.says_yes(*peer, **org, **say)).count();
            if yes > most {
                (most, found) = (yes, Vec::new());
            }
            if yes == most && yes > voices / 2 {
                found.push(*peer);
            }
        }
        found
    }

    /// The voice of an organisation, so many of whose peers say absent of this one.
    fn says_yes(&self, peer: usize, organisation: usize, say: usize) -> bool {
        let itself =
            self.says.get(&peer).filter(|_| self.view.organisation_at(peer) == organisation);
        // Silent about itself, it is not asked; saying that it is absent, it is.
        let silent = itself.is_some_and(|of| !of.contains(&peer));
        2 * say > self.heard[organisation] - usize::from(silent)
    }

    /// Hears a peer no more.
    fn silence(&mut self, peer: usize) {
        let Some(of) = self.says.remove(&peer) else { return };
        let organisation = self.view.organisation_at(peer);
        self.heard[organisation] -= 1;
        for accused in of {
            let by = self.accused.get_mut(&accused).and_then(|by| by.get_mut(&organisation));
            if let Some(say) = by {
                *say -= 1;
            }
        }
    }
}
