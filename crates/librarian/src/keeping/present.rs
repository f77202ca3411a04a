//! Which peers the network does without, by what this peer sees and by what others say.
//!
//! One peer's word moves nothing: `placement::absent` counts by organisations. Words of others are forgotten when they are
//! old, so that whoever fell silent has no voice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crypto::{OrgId, PeerId, PeerState};
use env::calls::keep::{WORDS_MAX, Words};
use placement::View;
use walk::{Health, PeerStatus};

use super::epoch::Absent;

/// For how long who said that it leaves is taken to, whatever it says next: one that says now this and now that would else have everybody
/// count all that is here anew each time, and compare nothing meanwhile.
const LEAVES_FOR: Duration = Duration::from_secs(120);

/// What was heard of others, and since when others were not.
#[derive(Default)]
pub(crate) struct Present {
    /// When a peer said last that it leaves.
    leaves: BTreeMap<PeerId, Duration>,
    /// Since when a peer is unwell.
    unwell: BTreeMap<PeerId, Duration>,
    /// Peers that fail what they are asked to prove.
    faulty: BTreeSet<PeerId>,
    heard: BTreeMap<PeerId, Heard>,
    own: Words,
    /// Since when fewer than half of the organisations are heard.
    few_since: Option<Duration>,
}

struct Heard {
    at: Duration,
    absent: BTreeSet<PeerId>,
    faulty: BTreeSet<PeerId>,
}

impl Present {
    /// What this peer says of others.
    pub(crate) fn own(&self) -> Words {
        self.own.clone()
    }

    /// Takes another's words.
    pub(crate) fn hear(&mut self, peer: PeerId, words: Words, now: Duration) {
        let of = |all: Vec<PeerId>| all.into_iter().take(WORDS_MAX).collect();
        let heard = Heard { at: now, absent: of(words.absent), faulty: of(words.faulty) };
        self.heard.insert(peer, heard);
    }

    /// Says of a peer that it fails what it is asked to prove, or does no more.
    pub(crate) fn judge(&mut self, peer: PeerId, faulty: bool) {
        if faulty {
            self.faulty.insert(peer)
        } else {
            self.faulty.remove(&peer)
        };
    }

    /// Who leaves: those that say so now, and those that did a moment ago.
    pub(crate) fn leaving(
        &mut self,
        said: impl Iterator<Item = PeerId>,
        now: Duration,
    ) -> BTreeSet<PeerId> {
        self.leaves.extend(said.map(|peer| (peer, now)));
        self.leaves.retain(|_, said| now.saturating_sub(*said) < LEAVES_FOR);
        self.leaves.keys().copied().collect()
    }

    /// Looks at all peers anew; whether the own words changed. Who has a rank and is known no more, as its key is revoked while its
    /// organisation changes all the time, is as one that does not answer.
    pub(crate) fn look(
        &mut self,
        peers: &[PeerStatus],
        view: &View,
        own: &PeerId,
        now: Duration,
        absent_after: Duration,
    ) -> bool {
        let mut absent = BTreeSet::new();
        let mut of: HashMap<PeerId, OrgId> =
            peers.iter().map(|status| (status.peer, status.organisation)).collect();
        for ranked in view.candidates().iter().filter(|ranked| ranked.peer != *own) {
            if of.insert(ranked.peer, ranked.organisation).is_none() {
                let since = *self.unwell.entry(ranked.peer).or_insert(now);
                if now.saturating_sub(since) >= absent_after {
                    absent.insert(ranked.peer);
                }
            }
        }
        for status in peers.iter().filter(|status| status.peer != *own) {
            let well = status.health == Health::Healthy && status.state != PeerState::Stopped;
            if well {
                self.unwell.remove(&status.peer);
            } else {
                let since = *self.unwell.entry(status.peer).or_insert(now);
                let long = now.saturating_sub(since) >= absent_after;
                if long && status.health == Health::Away {
                    absent.insert(status.peer);
                }
            }
        }
        self.unwell.retain(|peer, _| of.contains_key(peer));
        self.faulty.retain(|peer| of.contains_key(peer));
        let words = Words {
            absent: said(&absent, &of, WORDS_MAX),
            faulty: said(&self.faulty, &of, WORDS_MAX),
        };
        let changed = words != self.own;
        self.own = words;
        changed
    }

    /// Who counts as absent now.
    pub(crate) fn absent(
        &mut self,
        view: &View,
        own: &PeerId,
        leaving: BTreeSet<PeerId>,
        now: Duration,
        spans: Spans,
    ) -> Absent {
        self.heard.retain(|_, heard| now.saturating_sub(heard.at) <= spans.fresh);
        if self.hears_few(view, own, now, spans.cut_off) {
            let leaving: BTreeSet<PeerId> =
                leaving.into_iter().filter(|peer| view.index_of(peer).is_some()).collect();
            return Absent { absent: leaving.clone(), leaving };
        }
        let set = |all: &[PeerId]| all.iter().copied().collect::<BTreeSet<PeerId>>();
        let (mine, my_faulty) = (set(&self.own.absent), set(&self.own.faulty));
        let others = self.heard.iter().map(|(peer, heard)| (peer, &heard.absent));
        let away = placement::absent(view, others.chain([(own, &mine)]));
        // Who leaves says so itself.
        let mut absent: BTreeSet<PeerId> = &away | &leaving;
        let faulty = {
            // Who is absent is not heard about others, of whichever kind the words are.
            let others = self.heard.iter().map(|(peer, heard)| (peer, &heard.faulty));
            let words = others.chain([(own, &my_faulty)]);
            let words: Vec<_> = words.filter(|(peer, _)| !absent.contains(*peer)).collect();
            // Who is accused and not away has its voice, heard or not: who does without it hears it no more, and would else count
            // an organisation fewer than all others do.
            let silent = BTreeSet::new();
            let accused = words.iter().flat_map(|(_, of)| of.iter());
            let accused =
                accused.filter(|peer| !absent.contains(*peer)).map(|peer| (peer, &silent));
            placement::absent(view, words.iter().copied().chain(accused))
        };
        absent.extend(&faulty);
        // Who is gone, or does not have it, moves nothing any more, whatever it announced: what it held is made again.
        let moves = |peer: &PeerId| peer == own || !(away.contains(peer) || faulty.contains(peer));
        absent.remove(own);
        if leaving.contains(own) {
            absent.insert(*own);
        }
        absent.retain(|peer| view.index_of(peer).is_some());
        let leaving =
            leaving.into_iter().filter(|one| absent.contains(one) && moves(one)).collect();
        Absent { absent, leaving }
    }

    /// Whether fewer than half of the organisations have been heard for so long.
    pub(crate) fn is_cut_off(&self, now: Duration, after: Duration) -> bool {
        self.few_since.is_some_and(|since| now.saturating_sub(since) >= after)
    }

    /// Whether fewer than half of the organisations are heard, and not for long enough yet to believe that the rest is gone:
    /// who is cut off with a few others would else begin to copy everything among them.
    fn hears_few(&mut self, view: &View, own: &PeerId, now: Duration, cut_off: Duration) -> bool {
        let of = |peer: &PeerId| {
            Some(view.candidates().get(usize::from(view.index_of(peer)?))?.organisation)
        };
        let heard: BTreeSet<OrgId> = self.heard.keys().chain([own]).filter_map(of).collect();
        if heard.len() * 2 >= view.organisations() {
            self.few_since = None;
            return false;
        }
        now.saturating_sub(*self.few_since.get_or_insert(now)) < cut_off
    }
}

/// Those of whom it is said, ascending: all, or as many as there is room for, from each organisation one in turn. An organisation that
/// certifies a thousand peers which never run leaves room so for what others lose.
fn said(all: &BTreeSet<PeerId>, of: &HashMap<PeerId, OrgId>, most: usize) -> Vec<PeerId> {
    let mut counted: HashMap<OrgId, usize> = HashMap::new();
    let turn = |peer: &PeerId| {
        let turn = counted.entry(*of.get(peer)?).or_default();
        *turn += 1;
        Some((*turn, *peer))
    };
    let mut turns: Vec<(usize, PeerId)> = all.iter().filter_map(turn).collect();
    turns.sort_unstable();
    let mut some: Vec<PeerId> = turns.into_iter().take(most).map(|(_, peer)| peer).collect();
    some.sort_unstable();
    some
}

/// How long what was heard counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// Words of others.
    pub(crate) fresh: Duration,
    /// Having heard fewer than half of the organisations, until their absence is believed.
    pub(crate) cut_off: Duration,
}

#[cfg(test)]
mod tests;
