//! Defects that are planted in the production code for one run, to show that the checkers would find them.
//!
//! They exist in builds for development alone and are switched on here, on this run's own thread.

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The store answers writes and then syncs.
    AcknowledgeBeforeSync,
    /// A writer is answered when W-1 copies are stored.
    AcknowledgeEarly,
    /// What peers send is believed without a proof.
    SkipProof,
    /// All pages of a content are sealed at one index.
    SealTwice,
    /// A reader opens pages whatever their MACs are.
    SkipPageMac,
    /// A writer is answered when s-1 fragments of a stripe are stored.
    AcknowledgeStripeEarly,
    /// A reader takes a fragment that proves itself for the one that it asked for, and does not look which the header says it is.
    TakeOther,
    /// A peer that starts with records looks for nothing that it lacks.
    DropRepairOnRestart,
    /// A peer with two fragments of a stripe counts as two holders.
    CountHolderTwice,
    /// A record comes back under a lease that was ended.
    ResurrectAfterTombstone,
    /// A fragment that was made again is taken for what the header says.
    BelieveHeader,
    /// A committee moves a head wherever it was.
    SkipCompareAndSet,
    /// A peer's receipt counts as often as an update carries it.
    CountSignatureTwice,
    /// A committee's member whose votes are gone votes again.
    VoteAfterAmnesia,
}

/// Plants a defect in this thread until it is dropped.
pub(crate) struct Planted(());

impl Planted {
    pub(crate) fn new(bug: Option<PlantedBug>) -> Self {
        walk::planted::plant(match bug {
            Some(PlantedBug::AcknowledgeEarly) => Some(walk::planted::PlantedBug::AcknowledgeEarly),
            Some(PlantedBug::SkipProof) => Some(walk::planted::PlantedBug::SkipProof),
            Some(PlantedBug::AcknowledgeStripeEarly) => {
                Some(walk::planted::PlantedBug::AcknowledgeStripeEarly)
            }
            Some(PlantedBug::TakeOther) => Some(walk::planted::PlantedBug::TakeOther),
            _ => None,
        });
        use librarian::planted::PlantedBug as Keeping;
        librarian::planted::plant(match bug {
            Some(PlantedBug::DropRepairOnRestart) => Some(Keeping::DropRepairOnRestart),
            Some(PlantedBug::CountHolderTwice) => Some(Keeping::CountHolderTwice),
            Some(PlantedBug::ResurrectAfterTombstone) => Some(Keeping::ResurrectAfterTombstone),
            Some(PlantedBug::BelieveHeader) => Some(Keeping::BelieveHeader),
            _ => None,
        });
        use committee::planted::PlantedBug as Heads;
        committee::planted::plant(match bug {
            Some(PlantedBug::SkipCompareAndSet) => Some(Heads::SkipCompareAndSet),
            Some(PlantedBug::CountSignatureTwice) => Some(Heads::CountTwice),
            Some(PlantedBug::VoteAfterAmnesia) => Some(Heads::VoteAfterAmnesia),
            _ => None,
        });
        use document::planted::PlantedBug as Sealing;
        document::planted::plant(match bug {
            Some(PlantedBug::SealTwice) => Some(Sealing::SealTwice),
            Some(PlantedBug::SkipPageMac) => Some(Sealing::SkipPageMac),
            _ => None,
        });
        Self(())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        walk::planted::plant(None);
        librarian::planted::plant(None);
        committee::planted::plant(None);
        document::planted::plant(None);
    }
}
