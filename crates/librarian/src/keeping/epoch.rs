//! Who should hold what, as long as the peers and the absent among them stay the same.
//!
//! Everything that is compared with another peer is counted under one epoch; its hash stands in each comparison, so that two
//! peers never take a difference of views for a difference of records.

use std::collections::BTreeSet;
use std::sync::Arc;

use crypto::{Genesis, PeerId, Place, Suite};
use document::Kind;
use placement::{SPARES, View, redundancy};

/// What begins what is hashed.
const DOMAIN: &[u8] = b"holdfast epoch v1";

/// Who is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absent {
    /// All of them.
    pub(crate) absent: BTreeSet<PeerId>,
    /// Those that announced that they leave.
    pub(crate) leaving: BTreeSet<PeerId>,
}

/// One view with those of it that are absent.
pub(crate) struct Epoch {
    pub(crate) view: Arc<View>,
    pub(crate) absent: BTreeSet<PeerId>,
    /// Of the absent, those that move what they hold by themselves.
    pub(crate) leaving: BTreeSet<PeerId>,
    /// What both sides of a comparison must have in common.
    pub(crate) hash: [u8; 16],
    /// Of each candidate of the view whether it is absent.
    is_absent: Vec<bool>,
    genesis: Arc<Genesis>,
}

impl Epoch {
    pub(crate) fn new(genesis: Arc<Genesis>, view: Arc<View>, who: Absent) -> Self {
        let Absent { absent, leaving } = who;
        let mut bytes = DOMAIN.to_vec();
        bytes.extend_from_slice(&view.roster().to_be_bytes());
        for candidate in view.candidates() {
            bytes.extend_from_slice(candidate.peer.as_bytes());
            bytes.extend_from_slice(candidate.organisation.as_bytes());
            bytes.extend_from_slice(&candidate.weight.to_be_bytes());
            bytes.push(u8::from(absent.contains(&candidate.peer)));
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&Suite::Holdfast1.hash(&bytes)[..16]);
        let is_absent =
            view.candidates().iter().map(|candidate| absent.contains(&candidate.peer)).collect();
        Self { view, absent, leaving, hash, is_absent, genesis }
    }

    /// Whether it is the epoch of these.
    pub(crate) fn is_of(&self, view: &Arc<View>, who: &Absent) -> bool {
        self.absent == who.absent
            && self.leaving == who.leaving
            && (Arc::ptr_eq(&self.view, view)
                || (self.view.roster() == view.roster()
                    && self.view.candidates() == view.candidates()))
    }

    /// Whether a peer holds what it should as far as is known.
    pub(crate) fn is_present(&self, peer: &PeerId) -> bool {
        !self.absent.contains(peer) && self.view.index_of(peer).is_some()
    }

    /// Whether a peer answers for what it holds: it is not absent, or it leaves.
    pub(crate) fn answers(&self, peer: &PeerId) -> bool {
        self.is_present(peer) || self.leaving.contains(peer)
    }

    /// How many copies of a kind there should be.
    pub(crate) fn copies(&self, kind: Kind) -> usize {
        redundancy(kind, self.view.len(), self.genesis.suite, self.genesis.copies).copies as usize
    }

    /// Who may hold fragments of a stripe of n.
    pub(crate) fn possible(&self, place: &Place, n: usize) -> Vec<PeerId> {
        self.first(place, n + SPARES)
    }

    /// The first n of the rank that are not absent.
    pub(crate) fn first(&self, place: &Place, n: usize) -> Vec<PeerId> {
        let mut indexes = Vec::with_capacity(n.min(self.view.len()));
        self.view.on_duty_into(place, n, &self.is_absent, &mut indexes);
        indexes.into_iter().filter_map(|index| self.view.peer(index).copied()).collect()
    }

    /// How many copies there should be of a record of this kind of which so many were asked for, by its object's policy or by
    /// who pays for it; 0: nobody says. Of what belongs to an object the policy's number counts, else the network's where that is
    /// more: who pays for fewer has the network's for nothing.
    pub(crate) fn wanted(&self, kind: Kind, copies: u8) -> usize {
        let said = usize::from(copies).min(self.view.len());
        match copies {
            0 => self.copies(kind),
            _ if kind.is_document() => said.max(self.copies(kind)),
            _ => said,
        }
    }

    /// How many of the first n of the rank are absent: how urgent a copy is.
    pub(crate) fn missing(&self, place: &Place, kind: Kind) -> usize {
        let first = self.view.holders(place, self.copies(kind));
        first.iter().filter(|peer| self.absent.contains(peer)).count()
    }
}
