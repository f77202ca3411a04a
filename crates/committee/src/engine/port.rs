//! What the engine asks of a member, as messages to the member's one task.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use commonware_actor::Feedback;
use commonware_consensus::simplex::Plan;
use commonware_consensus::simplex::types::{
    Activity, Attributable, Context, Finalization, Notarization,
};
use commonware_consensus::types::Round;
use commonware_consensus::{
    Automaton, CertifiableAutomaton, Epochable as _, Relay, Reporter, Viewable as _,
};
use commonware_utils::channel::{mpsc, oneshot};
use commonware_utils::ordered::Set;

use super::Key;
use crate::certificate::{Digest, Scheme};

/// What the engine asks or tells.
pub(crate) enum Ask {
    /// A block for this round is wanted.
    Propose { context: Context<Digest, Key>, response: oneshot::Sender<Digest> },
    /// Is this block good?
    Verify { context: Context<Digest, Key>, payload: Digest, response: oneshot::Sender<bool> },
    /// May a vote to finalise it go out?
    Certify { payload: Digest, response: oneshot::Sender<bool> },
    /// The others want the bytes of a block.
    Send { payload: Digest, plan: Plan<Key> },
    /// A block has a quorum, and may still lose.
    Notarised(Notarization<Scheme, Digest>),
    /// A block is final, and all before it.
    Final(Finalization<Scheme, Digest>),
}

/// The engine's end. The engine itself bounds what it asks at once: a few requests a view.
#[derive(Clone)]
pub(crate) struct Port {
    asks: mpsc::UnboundedSender<Ask>,
    members: Set<Key>,
    /// Of whom it was told that it contradicts itself: of each member once an epoch, since it could go on for ever.
    liars: Arc<Mutex<BTreeSet<Key>>>,
}

impl Port {
    /// That of an epoch with these members.
    pub(crate) fn new(asks: mpsc::UnboundedSender<Ask>, members: Set<Key>) -> Self {
        Self { asks, members, liars: Arc::default() }
    }

    fn tell(&self, ask: Ask) -> Feedback {
        if self.asks.send(ask).is_ok() { Feedback::Ok } else { Feedback::Closed }
    }

    /// Tells the operator of a member that sent votes which contradict each other, over a connection of its own: it lies, or its
    /// machine was copied. Its key is its connection's, since votes of a threshold key prove to nobody else whose they are.
    fn contradicted(
        &self,
        voter: &impl Attributable,
        epoch: u64,
        view: u64,
        votes: &str,
    ) -> Feedback {
        if let Some(key) = self.members.get(usize::from(voter.signer())) {
            let mut liars = self.liars.lock().unwrap_or_else(PoisonError::into_inner);
            if liars.insert(key.clone()) {
                let count = liars.len();
                tracing::error!(
                    member = %key, epoch, view, votes, count,
                    "a member contradicts itself: it lies, or runs twice; more than f of them and nothing is safe"
                );
            }
        }
        Feedback::Ok
    }
}

impl Automaton for Port {
    type Context = Context<Digest, Key>;
    type Digest = Digest;

    async fn propose(&mut self, context: Self::Context) -> oneshot::Receiver<Digest> {
        let (response, receiver) = oneshot::channel();
        self.tell(Ask::Propose { context, response });
        receiver
    }

    async fn verify(&mut self, context: Self::Context, payload: Digest) -> oneshot::Receiver<bool> {
        let (response, receiver) = oneshot::channel();
        self.tell(Ask::Verify { context, payload, response });
        receiver
    }
}

impl CertifiableAutomaton for Port {
    async fn certify(&mut self, _: Round, payload: Digest) -> oneshot::Receiver<bool> {
        let (response, receiver) = oneshot::channel();
        self.tell(Ask::Certify { payload, response });
        receiver
    }
}

impl Relay for Port {
    type Digest = Digest;
    type PublicKey = Key;
    type Plan = Plan<Key>;

    fn broadcast(&mut self, payload: Digest, plan: Plan<Key>) -> Feedback {
        self.tell(Ask::Send { payload, plan })
    }
}

impl Reporter for Port {
    type Activity = Activity<Scheme, Digest>;

    fn report(&mut self, activity: Self::Activity) -> Feedback {
        match activity {
            Activity::Notarization(notarization) => self.tell(Ask::Notarised(notarization)),
            Activity::Finalization(finalization) => self.tell(Ask::Final(finalization)),
            Activity::ConflictingNotarize(both) => {
                let (epoch, view) = (both.epoch().get(), both.view().get());
                self.contradicted(&both, epoch, view, "two blocks notarised")
            }
            Activity::ConflictingFinalize(both) => {
                let (epoch, view) = (both.epoch().get(), both.view().get());
                self.contradicted(&both, epoch, view, "two blocks finalised")
            }
            Activity::NullifyFinalize(both) => {
                let (epoch, view) = (both.epoch().get(), both.view().get());
                self.contradicted(&both, epoch, view, "a view given up and finalised")
            }
            _ => Feedback::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use commonware_consensus::simplex::types::{ConflictingNotarize, Notarize, Proposal};
    use commonware_consensus::types::{Epoch, View};
    use commonware_cryptography::{Signer as _, blake3, ed25519};

    use super::*;
    use crate::proving::Founded;

    #[test]
    fn a_member_that_votes_for_two_blocks_is_told_of_once() {
        let keys = (0..4).map(|seed| ed25519::PrivateKey::from_seed(seed).public_key());
        let members: Set<Key> = Set::from_iter_dedup(keys);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let mut port = Port::new(asks, members.clone());
        let founded = Founded::new(4);
        let vote = |which: usize, view: u64, block: u8| {
            let round = Round::new(Epoch::new(0), View::new(view));
            let proposal = Proposal::new(round, View::new(view - 1), blake3::Digest([block; 32]));
            Notarize::sign(founded.scheme(which), proposal).expect("a share")
        };
        assert_eq!(port.report(Activity::Notarize(vote(1, 1, 1))), Feedback::Ok);
        assert!(port.liars.lock().expect("no panic").is_empty(), "one vote is no lie");
        for view in 1..4 {
            let both = ConflictingNotarize::new(vote(1, view, 1), vote(1, view, 2));
            assert_eq!(port.clone().report(Activity::ConflictingNotarize(both)), Feedback::Ok);
            let liars = port.liars.lock().expect("no panic");
            assert!(liars.len() == 1 && liars.first() == members.get(1));
        }
        assert!(asked.try_recv().is_err(), "nothing is asked of the member");
    }
}
