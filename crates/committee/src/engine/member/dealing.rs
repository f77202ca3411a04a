//! A round as a member takes part in it: it deals with its share, and is dealt to.
//!
//! ```text
//! dealer   dealt to each player, again until it is taken ─▶ all taken, or time is up ─▶ its log, as an update
//! player   dealt ─▶ checked ─▶ kept, synced ─▶ taken
//! ```
//! What it dealt follows from a seed that is on the disk before anything is sent, so after a restart it deals the same again.
//! Everything is bound to the round's number, to the outcome before and to the players by the engine's own transcript.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bytes::Bytes;
use commonware_codec::{Decode as _, DecodeExt as _, Encode as _};
use commonware_cryptography::bls12381::dkg::feldman_desmedt::{
    Dealer, DealerPrivMsg, DealerPubMsg, Player, PlayerAck,
};
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::ed25519;
use commonware_cryptography::transcript::{Transcript, Version};
use commonware_p2p::Recipients;
use commonware_parallel::Sequential;
use commonware_utils::N3f1;
use crypto::{SecretKey, Suite};

use super::Member;
use crate::engine::files::Part;
use crate::engine::wire::Message;
use crate::engine::{Key, MEMBERS_MAX, MemberId, Runtime, now_ms};
use crate::members::round::{self, DkgInfo};
use crate::members::{Change, Members, Round};
use crate::{CommitteeError, Operation, Update};

/// After how long a part that is not taken is sent again.
const AGAIN_MS: u64 = 500;
/// After how long a change that is not in a block is sent again.
const SUBMIT_AGAIN_MS: u64 = 2_000;

const SEED_PREFIX: &[u8] = b"holdfast dealing v1";
const AUTHOR_PREFIX: &[u8] = b"holdfast member's updates v1";

/// A round under way.
pub(super) struct Dealing {
    pub(super) number: u64,
    dealer: Option<Dealer<MinSig, ed25519::PrivateKey>>,
    public: Bytes,
    /// What is not taken yet.
    pub(super) parts: BTreeMap<Key, DealerPrivMsg>,
    log: Option<Bytes>,
    player: Option<Player<MinSig, ed25519::PrivateKey>>,
    /// What this player acknowledged.
    taken: BTreeMap<Key, Bytes>,
    close_ms: u64,
    told_ms: u64,
    submitted_ms: u64,
}

fn most() -> NonZeroU32 {
    round::most()
}

fn read_part(
    public: &Bytes,
    private: &Bytes,
) -> Result<(DealerPubMsg<MinSig>, DealerPrivMsg), CommitteeError> {
    const WRONG: CommitteeError = CommitteeError::Field("part of a dealer");
    let public = DealerPubMsg::decode_cfg(public.clone(), &most()).map_err(|_| WRONG)?;
    Ok((public, DealerPrivMsg::decode(private.clone()).map_err(|_| WRONG)?))
}

impl<E: Runtime> Member<E> {
    /// What is to be done for a change of the members, now and then.
    pub(super) async fn change_members(&mut self) -> Result<(), CommitteeError> {
        let Some(members) = self.chain.state().members() else { return Ok(()) };
        self.tell_wishes(&members)?;
        // After a restart the tip may be before the round that this member is in: nothing of it is forgotten.
        if self.dealings.number.is_some_and(|number| number > members.number) {
            return Ok(());
        }
        match members.round_at(self.chain.tip().time_ms).cloned() {
            Some(round) => {
                if self.dealing.as_ref().is_none_or(|one| one.number != members.number) {
                    self.begin_dealing(&members, &round).await?;
                }
                self.deal(&members).await
            }
            None => {
                self.dealing = None;
                // A round that came to nothing: the share of this epoch is on the disk.
                let certified = self.chain.tip().epoch == self.term.epoch;
                if certified && self.dealings.number.is_some() {
                    self.dealings.forget().await?;
                }
                Ok(())
            }
        }
    }

    async fn begin_dealing(
        &mut self,
        members: &Members,
        round: &Round,
    ) -> Result<(), CommitteeError> {
        let number = members.number;
        let before = &self.term.outcome;
        let info = round::info(&self.charter.rules.network, number, before, &round.players)?;
        if self.dealings.number != Some(number) {
            let mut seed = [0; 32];
            self.context.child("dealing").fill_bytes(&mut seed);
            let outcome = self.outcome_bytes();
            self.dealings.begin(number, seed, &outcome).await?;
        }
        let now = now_ms(&self.context);
        let mut dealing = Dealing {
            number,
            dealer: None,
            public: Bytes::new(),
            parts: BTreeMap::new(),
            log: None,
            player: Player::new(info.clone(), self.settings.links.secret.0.clone()).ok(),
            taken: BTreeMap::new(),
            close_ms: now + self.settings.deal_within.as_millis() as u64,
            told_ms: 0,
            submitted_ms: 0,
        };
        dealing.recall(&self.dealings.parts);
        self.start_dealer(&mut dealing, info);
        self.dealing = Some(dealing);
        tracing::info!(number, players = round.players.len(), "a round of dealing begins");
        // What it deals to itself is kept and acknowledged as any other's.
        let mine = self.dealing.as_ref().and_then(|one| {
            let private = one.parts.get(&self.me)?.encode();
            Some((one.public.clone(), private))
        });
        if let Some((public, private)) = mine {
            self.take_dealt(self.me.clone(), number, public, private).await?;
        }
        Ok(())
    }

    /// Deals, where there is a share to deal with.
    fn start_dealer(&self, dealing: &mut Dealing, info: DkgInfo) {
        let Some(share) = self.share.clone() else { return };
        let mut transcript = Transcript::new(SEED_PREFIX, Version::V1);
        transcript.commit(&self.dealings.seed[..]);
        let secret = self.settings.links.secret.0.clone();
        let dealt = Dealer::start::<N3f1>(transcript.noise(b"deal"), info, secret, Some(share));
        match dealt {
            Ok((dealer, public, parts)) => {
                dealing.dealer = Some(dealer);
                dealing.public = public.encode();
                dealing.parts = parts.into_iter().collect();
            }
            Err(error) => tracing::error!(%error, "this member cannot deal"),
        }
    }

    /// Sends what is not taken, and ends the dealing when all is or time is up.
    async fn deal(&mut self, members: &Members) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        let me = MemberId::of(&self.me);
        let slot = members.members.iter().position(|place| place.member == me);
        let done = slot.is_some_and(|slot| {
            let dealt = self.chain.state().dealt_at(slot as u8);
            dealt.is_some_and(|dealt| dealt.number == members.number)
        });
        let Some(dealing) = &mut self.dealing else { return Ok(()) };
        if done {
            // Its log is ordered: nobody can be added to it.
            (dealing.dealer, dealing.log) = (None, None);
            dealing.parts.clear();
            return Ok(());
        }
        if dealing.dealer.is_some() && (dealing.parts.is_empty() || now >= dealing.close_ms) {
            let missing: Vec<String> =
                dealing.parts.keys().map(|key| MemberId::of(key).to_string()).collect();
            if !missing.is_empty() {
                tracing::warn!(?missing, "players did not acknowledge in time");
            }
            dealing.log = dealing.dealer.take().map(|dealer| dealer.finalize::<N3f1>().encode());
        }
        if let Some(log) = dealing.log.clone() {
            if dealing.submitted_ms + SUBMIT_AGAIN_MS <= now {
                dealing.submitted_ms = now;
                let secret = &self.settings.links.secret;
                let change = Change::dealt(&self.charter.rules, dealing.number, log, secret);
                self.submit(change)?;
            }
        } else if dealing.told_ms + AGAIN_MS <= now {
            dealing.told_ms = now;
            let (number, public) = (dealing.number, dealing.public.clone());
            let parts: Vec<(Key, Bytes)> =
                dealing.parts.iter().map(|(key, part)| (key.clone(), part.encode())).collect();
            for (key, private) in parts {
                let message = Message::Dealt { number, public: public.clone(), private };
                self.send(Recipients::One(key), &message);
            }
        }
        Ok(())
    }

    /// Takes what a dealer dealt to this member: checked, kept, then acknowledged.
    pub(super) async fn take_dealt(
        &mut self,
        from: Key,
        number: u64,
        public: Bytes,
        private: Bytes,
    ) -> Result<(), CommitteeError> {
        // Members alone deal.
        let dealing = self.dealing.as_mut().filter(|one| one.number == number);
        let Some(dealing) = dealing.filter(|_| self.term.is_member(&from)) else { return Ok(()) };
        if !dealing.taken.contains_key(&from) {
            let Some(player) = &mut dealing.player else { return Ok(()) };
            let Ok((commitment, part)) = read_part(&public, &private) else {
                self.offended(&from, "dealt what is no part");
                return Ok(());
            };
            let acknowledged = player.dealer_message::<N3f1>(from.clone(), commitment, part);
            let acknowledgement = match acknowledged {
                Ok(Some(acknowledgement)) => acknowledgement,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "what a dealer sent does not fit");
                    self.offended(&from, "dealt what does not fit");
                    return Ok(());
                }
            };
            let dealer = *MemberId::of(&from).as_bytes();
            self.dealings.keep(Part { dealer, public, private }).await?;
            dealing.taken.insert(from.clone(), acknowledgement.encode());
        }
        let Some(acknowledgement) = dealing.taken.get(&from).cloned() else { return Ok(()) };
        if from == self.me {
            self.take_acknowledgement(&from, number, acknowledgement);
        } else {
            let message = Message::Taken { number, acknowledgement };
            self.send(Recipients::One(from), &message);
        }
        Ok(())
    }

    /// Takes a player's acknowledgement.
    pub(super) fn take_acknowledgement(&mut self, from: &Key, number: u64, bytes: Bytes) {
        let Some(dealing) = self.dealing.as_mut().filter(|one| one.number == number) else {
            return;
        };
        let Some(dealer) = &mut dealing.dealer else { return };
        let Ok(acknowledgement) = PlayerAck::decode(bytes) else { return };
        match dealer.receive_player_ack(from.clone(), acknowledgement) {
            Ok(()) => drop(dealing.parts.remove(from)),
            Err(error) => tracing::warn!(%from, %error, "a player acknowledged something else"),
        }
    }

    /// The share of the term, of what was dealt in the round that made it.
    pub(super) fn share_of_dealings(&self) -> Option<Share> {
        let dealings = &self.dealings;
        if dealings.number != Some(self.term.number) {
            return None;
        }
        let members = self.chain.state().members()?;
        let before = round::read_outcome(&dealings.before).ok()?;
        let network = &self.charter.rules.network;
        let info = round::info(network, self.term.number, &before, &members.members).ok()?;
        let mut player = Player::new(info.clone(), self.settings.links.secret.0.clone()).ok()?;
        for part in &dealings.parts {
            let (public, private) = read_part(&part.public, &part.private).ok()?;
            let dealer = MemberId::new(part.dealer).key().ok()?;
            let _ = player.dealer_message::<N3f1>(dealer, public, private);
        }
        let logs = round::logs(self.chain.state(), &info, self.term.number);
        let mut randomness = self.context.child("share");
        match player.finalize::<N3f1>(&mut randomness, logs, &Sequential) {
            Ok((outcome, share)) if outcome == self.term.outcome => Some(share),
            Ok(_) => None,
            Err(error) => {
                tracing::error!(%error, "no share of the new epoch: this member follows");
                None
            }
        }
    }

    /// Sends a change as an update of this member's own.
    pub(super) fn submit(&mut self, change: Change) -> Result<(), CommitteeError> {
        let secret = self.settings.links.secret.0.encode();
        let secret = Suite::Holdfast1.hash(&[AUTHOR_PREFIX, &secret[..]].concat());
        let secret = SecretKey::from_bytes(&secret)?;
        let mut id = [0; 16];
        id.copy_from_slice(&Suite::Holdfast1.hash(&change.encode())[..16]);
        let rules = &self.charter.rules;
        let update = Update {
            network: rules.network,
            group: rules.group,
            author: secret.public(),
            id,
            last_valid: u64::MAX,
            operation: Operation::Members(change),
        };
        let submission = update.sign(&secret)?;
        let bytes = submission.encode();
        // Where there is no room it is tried again.
        if self.pool.take(submission).unwrap_or(false) {
            self.outbox.push(bytes);
        }
        Ok(())
    }
}

impl Dealing {
    /// Takes again what was kept before a restart.
    fn recall(&mut self, parts: &[Part]) {
        let Some(player) = &mut self.player else { return };
        for part in parts.iter().take(MEMBERS_MAX) {
            let Ok((public, private)) = read_part(&part.public, &part.private) else { continue };
            let Ok(dealer) = MemberId::new(part.dealer).key() else { continue };
            let taken = player.dealer_message::<N3f1>(dealer.clone(), public, private);
            if let Ok(Some(acknowledgement)) = taken {
                self.taken.insert(dealer, acknowledgement.encode());
            }
        }
    }
}
