//! Founding a committee: a key that nobody ever held, made by all of its members together.
//!
//! Each founder deals to all and plays for itself (Feldman and Desmedt, two rounds). All must use the same dealers' logs, and before
//! there is a committee there is nothing to agree on them with; so a founding is **unanimous**: it takes every founder's log, in
//! which every founder acknowledged its part, and every founder's signature over the charter that follows. Then nobody has another
//! charter than the others, and no part was ever shown. Where one is missing nothing is kept, and it is done again under another
//! number.
//!
//! ```text
//! 1 part    length 4 | public message | length 4 | private message     to each, until it acknowledges
//! 2 acknowledgement                                                    back
//! 3 log     the dealer's, signed                                       to all, until all have confirmed
//! 4 confirm signature 64 over the digest of the charter                to all, until the end
//! ```
//! Everything is sent again each half second; whoever is done goes on telling for [`LINGER`], for the others' sake.
//!
//! On the disk: `share` first, then `charter`, then, before the first vote, `began`. So a charter without a share is a follower's.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use commonware_codec::{Decode as _, DecodeExt as _, Encode as _};
use commonware_cryptography::bls12381::dkg::feldman_desmedt::{
    Dealer, DealerLog, DealerLogSummary, DealerPrivMsg, DealerPubMsg, Info, Logs, Player,
    PlayerAck, Reveal, SignedDealerLog,
};
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_cryptography::bls12381::primitives::sharing::Mode;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::{Signer as _, Verifier as _, ed25519};
use commonware_p2p::authenticated::lookup::Sender;
use commonware_p2p::{Receiver as _, Recipients, Sender as _};
use commonware_parallel::Sequential;
use commonware_utils::N3f1;
use commonware_utils::ordered::Set;
use crypto::{NetworkId, OrgId, Suite};

use super::charter::{self, Charter, Outcome};
use super::links::Links;
use super::{Key, MEMBERS_MAX, Runtime, files, now_ms};
use crate::CommitteeError;
use crate::reader::{Reader, put_long};

/// The fewest members of a committee: with fewer none may lie.
pub const MEMBERS_MIN: usize = 4;

const AGAIN: Duration = Duration::from_millis(500);
const LINGER: Duration = Duration::from_secs(3);
const NAMESPACE: &[u8] = b"holdfast committee founding v1";
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// What the founders agree on beforehand.
#[derive(Clone, Debug)]
pub struct Founding {
    /// What this member's files begin with.
    pub name: String,
    /// The network.
    pub network: NetworkId,
    /// Its suite.
    pub suite: Suite,
    /// Whose peers' receipts count.
    pub organisations: Vec<OrgId>,
    /// Receipts that a version needs where its object's policy does not say.
    pub wanted: u8,
    /// Which founding it is, the same at all: never twice the same.
    pub number: u64,
    /// Where all are.
    pub links: Links,
    /// For how long it is tried.
    pub within: Duration,
}

type Log = DealerLog<MinSig, Key>;

/// A founder at work.
struct Founder<'a> {
    founding: &'a Founding,
    info: Info<MinSig, Key>,
    secret: ed25519::PrivateKey,
    dealer: Option<Dealer<MinSig, ed25519::PrivateKey>>,
    public: DealerPubMsg<MinSig>,
    parts: BTreeMap<Key, DealerPrivMsg>,
    player: Option<Player<MinSig, ed25519::PrivateKey>>,
    acks: BTreeMap<Key, PlayerAck<Key>>,
    my_log: Option<Bytes>,
    logs: BTreeMap<Key, Log>,
    made: Option<(Charter, Share)>,
    confirmed: BTreeMap<Key, ed25519::Signature>,
}

/// Founds a committee with all the others that `founding` names, and keeps the charter and this member's share.
///
/// # Errors
/// [`CommitteeError::Founding`] with what was missing, [`CommitteeError::Files`] where there is a member already, the disk.
pub async fn found<E: Runtime>(context: E, founding: Founding) -> Result<Charter, CommitteeError> {
    if !files::load(&context, &founding.name, files::CHARTER).await?.is_empty() {
        return Err(CommitteeError::Files("there is a member here already"));
    }
    // Before all do their part of what could then not be kept.
    charter::fit(&founding.organisations)?;
    let namespace = [b" founding ", &founding.number.to_be_bytes()[..]].concat();
    let mut links = founding.links.open(&context, &founding.network, &namespace, 0)?;
    let (mut sender, mut receiver) = links.channel(0);
    // Who may connect is known for as long as this lives.
    let _oracle = links.oracle.clone();
    links.start();
    let mut rng = context.child("parts");
    let mut founder = Founder::new(&mut rng, &founding)?;
    let end_ms = now_ms(&context) + founding.within.as_millis() as u64;
    let mut again_ms = 0;
    let mut done_ms = None;
    loop {
        let now = now_ms(&context);
        if done_ms.is_some_and(|done| now >= done + LINGER.as_millis() as u64) {
            break;
        }
        if now >= end_ms && done_ms.is_none() {
            return Err(CommitteeError::Founding(founder.missing()));
        }
        if now >= again_ms {
            founder.tell(&mut sender);
            again_ms = now + AGAIN.as_millis() as u64;
        }
        let sleep = context.sleep(Duration::from_millis(again_ms.saturating_sub(now).max(1)));
        tokio::select! {
            biased;
            message = receiver.recv() => {
                let Ok((from, message)) = message else { return Err(CommitteeError::Stopped) };
                let message = Bytes::from(message);
                if let Err(error) = founder.hear(&mut rng, &mut sender, from, &message) {
                    tracing::warn!(%error, "a founder sent what does not fit");
                }
            }
            () = sleep => {}
        }
        if done_ms.is_none() && founder.is_done() {
            let (charter, share) = founder.made.as_ref().ok_or(CommitteeError::Stopped)?;
            files::keep_share(&context, &founding.name, 0, share).await?;
            files::store(&context, &founding.name, files::CHARTER, &charter.encode()).await?;
            founder.tell(&mut sender);
            done_ms = Some(now_ms(&context));
        }
    }
    let made = founder.made.ok_or(CommitteeError::Stopped)?;
    Ok(made.0)
}

impl<'a> Founder<'a> {
    fn new(
        rng: &mut impl rand_core::CryptoRng,
        founding: &'a Founding,
    ) -> Result<Self, CommitteeError> {
        let mut keys = Vec::new();
        for (member, _) in &founding.links.members {
            keys.push(member.key()?);
        }
        let count = keys.len();
        let members = Set::from_iter_dedup(keys);
        if members.len() != count || !(MEMBERS_MIN..=MEMBERS_MAX).contains(&count) {
            let (found, max) = (count, MEMBERS_MAX);
            return Err(CommitteeError::TooLarge { what: "founders (4 at least)", found, max });
        }
        let secret = founding.links.secret.0.clone();
        let namespace = dkg_namespace(&founding.network);
        let (mode, reveal) = (Mode::NonZeroCounter, Reveal::V1);
        let (number, dealers) = (founding.number, members.clone());
        let info = Info::new::<N3f1>(&namespace, number, None, mode, reveal, dealers, members)
            .map_err(|_| CommitteeError::Field("set of founders"))?;
        let wrong = |_| CommitteeError::Founding("this machine is not one of the founders");
        let dealt = Dealer::start::<N3f1>(rng, info.clone(), secret.clone(), None);
        let (dealer, public, parts) = dealt.map_err(wrong)?;
        let player = Player::new(info.clone(), secret.clone()).map_err(wrong)?;
        Ok(Self {
            founding,
            info,
            secret,
            dealer: Some(dealer),
            public,
            parts: parts.into_iter().collect(),
            player: Some(player),
            acks: BTreeMap::new(),
            my_log: None,
            logs: BTreeMap::new(),
            made: None,
            confirmed: BTreeMap::new(),
        }
        .begin())
    }

    /// Deals to itself.
    fn begin(mut self) -> Self {
        let me = self.secret.public_key();
        if let Some(part) = self.parts.remove(&me)
            && let Some(player) = &mut self.player
            && let Ok(Some(ack)) =
                player.dealer_message::<N3f1>(me.clone(), self.public.clone(), part)
            && let Some(dealer) = &mut self.dealer
        {
            let _ = dealer.receive_player_ack(me, ack);
        }
        self
    }

    fn count(&self) -> usize {
        self.founding.links.members.len()
    }

    fn is_done(&self) -> bool {
        self.made.is_some() && self.confirmed.len() == self.count()
    }

    fn missing(&self) -> &'static str {
        if self.logs.len() < self.count() {
            "not every founder was there, or one dealt what another did not take"
        } else if self.made.is_none() {
            "the founders' logs made no key"
        } else {
            "not every founder confirmed the same charter"
        }
    }

    /// Says all that others may lack.
    fn tell(&self, sender: &mut Sender<Key, impl Runtime>) {
        for (player, part) in &self.parts {
            let mut message = vec![1];
            put_long(&mut message, &self.public.encode());
            put_long(&mut message, &part.encode());
            let _ = sender.send(Recipients::One(player.clone()), message, false);
        }
        for (dealer, ack) in &self.acks {
            let message = [&[2], &ack.encode()[..]].concat();
            let _ = sender.send(Recipients::One(dealer.clone()), message, false);
        }
        if let Some(log) = &self.my_log {
            let _ = sender.send(Recipients::All, [&[3], &log[..]].concat(), false);
        }
        if let Some(signature) = self.confirmed.get(&self.secret.public_key()) {
            let _ = sender.send(Recipients::All, [&[4], &signature.encode()[..]].concat(), false);
        }
    }

    fn hear(
        &mut self,
        rng: &mut impl rand_core::CryptoRng,
        sender: &mut Sender<Key, impl Runtime>,
        from: Key,
        message: &Bytes,
    ) -> Result<(), CommitteeError> {
        const WRONG: CommitteeError = CommitteeError::Field("message of a founder");
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(WRONG);
        }
        let mut reader = Reader::new("message of a founder", message);
        let most = NonZeroU32::new(MEMBERS_MAX as u32).ok_or(WRONG)?;
        match reader.u8()? {
            1 if self.acks.contains_key(&from) => {}
            1 => {
                let public = reader.long("bytes of a part", MESSAGE_BYTES_MAX)?;
                let part = reader.long("bytes of a part", MESSAGE_BYTES_MAX)?;
                reader.end()?;
                let public = DealerPubMsg::decode_cfg(Bytes::copy_from_slice(public), &most);
                let part = DealerPrivMsg::decode(Bytes::copy_from_slice(part));
                let (public, part) = (public.map_err(|_| WRONG)?, part.map_err(|_| WRONG)?);
                let Some(player) = &mut self.player else { return Ok(()) };
                let ack = player.dealer_message::<N3f1>(from.clone(), public, part);
                if let Some(ack) = ack.map_err(|_| WRONG)? {
                    let answer = [&[2], &ack.encode()[..]].concat();
                    let _ = sender.send(Recipients::One(from.clone()), answer, false);
                    self.acks.insert(from, ack);
                }
            }
            2 => {
                let ack = PlayerAck::decode(message.slice(1..)).map_err(|_| WRONG)?;
                let Some(dealer) = self.dealer.as_mut().filter(|_| self.parts.contains_key(&from))
                else {
                    return Ok(());
                };
                dealer.receive_player_ack(from.clone(), ack).map_err(|_| WRONG)?;
                self.parts.remove(&from);
                self.end_dealing()?;
                self.tell(sender);
            }
            3 if !self.logs.contains_key(&from) => {
                let log = SignedDealerLog::decode_cfg(message.slice(1..), &most);
                self.record(from, log.map_err(|_| WRONG)?)?;
            }
            4 if !self.confirmed.contains_key(&from) => {
                let Some((charter, _)) = &self.made else { return Ok(()) };
                let signature =
                    ed25519::Signature::decode(message.slice(1..)).map_err(|_| WRONG)?;
                if !from.verify(NAMESPACE, &digest(charter), &signature) {
                    return Err(CommitteeError::Founding("a founder confirmed another charter"));
                }
                self.confirmed.insert(from, signature);
            }
            _ => {}
        }
        self.make(rng, sender)
    }

    /// Ends this founder's dealing once all acknowledged.
    fn end_dealing(&mut self) -> Result<(), CommitteeError> {
        if !self.parts.is_empty() {
            return Ok(());
        }
        let Some(dealer) = self.dealer.take() else { return Ok(()) };
        let log = dealer.finalize::<N3f1>();
        self.my_log = Some(log.encode());
        self.record(self.secret.public_key(), log)
    }

    /// Takes a founder's log, in which nobody's part is shown.
    fn record(
        &mut self,
        from: Key,
        log: SignedDealerLog<MinSig, Key>,
    ) -> Result<(), CommitteeError> {
        let checked = log.check(&self.info).filter(|(dealer, _)| *dealer == from);
        let (dealer, log) = checked.ok_or(CommitteeError::Field("log of a founder"))?;
        let whole = match log.summary() {
            DealerLogSummary::Ok { acks, reveals } => {
                reveals.is_empty() && acks.len() == self.count()
            }
            DealerLogSummary::TooManyReveals => false,
        };
        if !whole {
            return Err(CommitteeError::Founding("a founder's log shows somebody's part"));
        }
        self.logs.insert(dealer, log);
        Ok(())
    }

    /// Makes the charter, once every log is here.
    fn make(
        &mut self,
        rng: &mut impl rand_core::CryptoRng,
        sender: &mut Sender<Key, impl Runtime>,
    ) -> Result<(), CommitteeError> {
        if self.made.is_some() || self.logs.len() < self.count() {
            return Ok(());
        }
        let Some(player) = self.player.take() else { return Ok(()) };
        let mut logs = Logs::<MinSig, Key, N3f1>::new(self.info.clone());
        for (dealer, log) in &self.logs {
            logs.record(dealer.clone(), log.clone());
        }
        let made = player.finalize::<N3f1>(rng, logs, &Sequential);
        let (outcome, share): (Outcome, Share) =
            made.map_err(|_| CommitteeError::Founding("the founders' logs made no key"))?;
        let Founding { network, suite, organisations, wanted, number, .. } = self.founding;
        let organisations = organisations.clone();
        let charter = Charter::new(*network, *suite, organisations, *wanted, *number, outcome)?;
        let signature = self.secret.sign(NAMESPACE, &digest(&charter));
        self.confirmed.insert(self.secret.public_key(), signature);
        self.made = Some((charter, share));
        self.tell(sender);
        Ok(())
    }
}

/// What all rounds of a network's committees are made under, the founding's and those after it.
pub(crate) fn dkg_namespace(network: &NetworkId) -> Vec<u8> {
    [NAMESPACE, network.as_bytes()].concat()
}

fn digest(charter: &Charter) -> [u8; 32] {
    Suite::Holdfast1.hash(&charter.encode())
}
