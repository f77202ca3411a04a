//! What the engine asks of a member, as messages to the member's one task.

use commonware_actor::Feedback;
use commonware_consensus::simplex::Plan;
use commonware_consensus::simplex::types::{Activity, Context, Finalization, Notarization};
use commonware_consensus::types::Round;
use commonware_consensus::{Automaton, CertifiableAutomaton, Relay, Reporter};
use commonware_utils::channel::{mpsc, oneshot};

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
pub(crate) struct Port(pub(crate) mpsc::UnboundedSender<Ask>);

impl Port {
    fn tell(&self, ask: Ask) -> Feedback {
        if self.0.send(ask).is_ok() { Feedback::Ok } else { Feedback::Closed }
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
            _ => Feedback::Ok,
        }
    }
}
