//! Who wants which members: each member signs what its operator asks for and tells the others; with n - f alike it is ordered.
//!
//! One member alone, or f of them, change nothing: what begins a round is an update that carries n - f signatures over the same list
//! under the next number ([`crate::members::round`]). Before it is sent, the members connect to those that are new, and wait for them to
//! follow the chain, for as long as [`super::Settings::deal_within`] at most.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use commonware_p2p::Recipients;

use super::Member;
use super::others::is_of_now;
use crate::CommitteeError;
use crate::engine::wire::Message;
use crate::engine::{Key, MEMBERS_MIN, MemberId, Runtime, files, now_ms};
use crate::handle::{Changing, Phase};
use crate::members::{Change, Members, Place, Signed, Wish};

/// After how long a wish is told again, and what it makes sent again.
const AGAIN_MS: u64 = 1_000;
/// A new member so few blocks behind follows.
const NEAR: u64 = 8;

/// What is wanted.
#[derive(Default)]
pub(super) struct Wishes {
    mine: Option<Signed>,
    /// What each member signed last.
    all: BTreeMap<MemberId, Signed>,
    since_ms: u64,
    told_ms: u64,
    sent_ms: u64,
}

impl Wishes {
    /// The members that this one wants.
    pub(super) fn mine_members(&self) -> impl Iterator<Item = Place> {
        self.mine.iter().flat_map(|signed| &signed.wish.members).copied()
    }

    /// Who signed what this one wants, in order.
    fn agreed(&self) -> Vec<(MemberId, [u8; 64])> {
        let Some(mine) = &self.mine else { return Vec::new() };
        let alike = self.all.values().filter(|signed| signed.wish == mine.wish);
        alike.map(|signed| (signed.member, signed.signature)).collect()
    }
}

/// The fewest members that may lie as many as these may: what a round may shrink to where nobody says otherwise.
fn least_of(count: usize) -> u8 {
    let faults = count.saturating_sub(1) / 3;
    (3 * faults + 1).max(MEMBERS_MIN) as u8
}

/// How many members are connected to each other while a wish is carried out: those of now, those before them, those wanted.
fn connected(members: &Members, wish: &Wish) -> usize {
    let all = members.members.iter().chain(&members.before).chain(&wish.members);
    all.map(|place| place.member).collect::<BTreeSet<_>>().len()
}

/// A list with the places of those that stay as the state has them, where nobody says otherwise: so all operators want the same.
fn placed(
    wanted: Vec<(MemberId, Option<SocketAddr>)>,
    members: &[Place],
) -> Result<Vec<(MemberId, Option<SocketAddr>)>, CommitteeError> {
    let place = |(key, at): (MemberId, Option<SocketAddr>)| {
        let stays = members.iter().find(|place| place.member == key);
        match (at, stays) {
            (Some(_), _) => Ok((key, at)),
            (None, Some(place)) => Ok((key, place.address)),
            (None, None) => {
                Err(CommitteeError::Members("of a new member it must be said where it is"))
            }
        }
    };
    wanted.into_iter().map(place).collect()
}

impl<E: Runtime> Member<E> {
    /// Signs the wish for these members, or for the same ones, and tells it.
    pub(super) async fn want_members(
        &mut self,
        wanted: Option<Vec<(MemberId, Option<SocketAddr>)>>,
        least: Option<u8>,
    ) -> Result<(), CommitteeError> {
        if !self.term.is_member(&self.me) {
            return Err(CommitteeError::Members("this machine is not a member: members ask"));
        }
        const NONE: CommitteeError = CommitteeError::Members("the members are not known yet");
        let members = self.chain.state().members().ok_or(NONE)?;
        let wanted: Vec<(MemberId, Option<SocketAddr>)> = match wanted {
            Some(wanted) => placed(wanted, &members.members)?,
            None => members.members.iter().map(|place| (place.member, place.address)).collect(),
        };
        let least = least.unwrap_or_else(|| least_of(wanted.len()));
        let number = members.number.saturating_add(1);
        let wish = Wish::new(members.epoch, number, least, &wanted)?;
        if connected(&members, &wish) > self.peers.max {
            return Err(CommitteeError::Members(
                "there is no room to be connected to so many: in smaller steps, or after a restart",
            ));
        }
        let signed = wish.sign(&self.charter.rules, &self.settings.links.secret);
        files::keep_wish(&self.context, &self.settings.name, &signed.encode()).await?;
        self.take_mine(signed);
        Ok(())
    }

    /// Takes up the wish that was signed before a restart.
    pub(super) async fn recall_wish(&mut self) -> Result<(), CommitteeError> {
        let bytes = files::wish(&self.context, &self.settings.name).await?;
        let last = self.chain.state().members().map(|members| members.number);
        if let Ok(signed) = Signed::decode(&bytes)
            && signed.member == MemberId::of(&self.me)
            && Some(signed.wish.number) > last
        {
            self.take_mine(signed);
        }
        Ok(())
    }

    fn take_mine(&mut self, signed: Signed) {
        let now = now_ms(&self.context);
        self.wishes.all.insert(signed.member, signed.clone());
        self.wishes.mine = Some(signed);
        (self.wishes.since_ms, self.wishes.told_ms, self.wishes.sent_ms) = (now, 0, 0);
        self.track();
    }

    fn is_next(&self, wish: &Wish) -> bool {
        let members = self.chain.state().members();
        members.is_some_and(|members| {
            wish.epoch == members.epoch && Some(wish.number) == members.number.checked_add(1)
        })
    }

    /// Takes another member's wish.
    pub(super) fn hear_wish(&mut self, from: &Key, signed: Signed) {
        let own = MemberId::of(from) == signed.member && self.term.is_member(from);
        if !own
            || !self.is_next(&signed.wish)
            || self.wishes.all.get(&signed.member) == Some(&signed)
        {
            return;
        }
        if signed.verify(&self.charter.rules) {
            self.wishes.all.insert(signed.member, signed);
        } else {
            self.offended(from, "sent a wish that it did not sign");
        }
    }

    /// Tells this member's wish, and sends it to be ordered once n - f members want the same.
    pub(super) fn tell_wishes(&mut self, members: &Members) -> Result<(), CommitteeError> {
        // After a restart the tip may be before what the wish is about.
        let last = members.number;
        let next = |wish: &Wish| wish.number > last;
        self.wishes.all.retain(|_, signed| next(&signed.wish));
        if self.wishes.mine.as_ref().is_some_and(|signed| !next(&signed.wish)) {
            self.wishes.mine = None;
            self.track();
        }
        let now = now_ms(&self.context);
        let Some(mine) = self.wishes.mine.clone() else { return Ok(()) };
        if self.wishes.told_ms + AGAIN_MS <= now {
            self.wishes.told_ms = now;
            self.send(Recipients::All, &Message::Wish(mine.clone()));
        }
        let signatures = self.wishes.agreed();
        let waited = self.wishes.since_ms + self.settings.deal_within.as_millis() as u64 <= now;
        let ready = self.behind(&mine.wish).is_empty() || waited;
        if signatures.len() as u32 >= self.term.quorum()
            && ready
            && self.is_next(&mine.wish)
            && self.wishes.sent_ms + 2 * AGAIN_MS <= now
        {
            self.wishes.sent_ms = now;
            self.submit(Change::Wanted { wish: mine.wish, signatures })?;
        }
        Ok(())
    }

    /// Those that are wanted and do not follow the chain yet.
    fn behind(&self, wish: &Wish) -> Vec<MemberId> {
        let (now, tip) = (now_ms(&self.context), self.chain.tip().height);
        let follows = |place: &&Place| {
            let Ok(key) = place.member.key() else { return false };
            let heard = self.heard.get(&key).is_some_and(|said| is_of_now(*said, now));
            let near =
                self.heights.get(&key).is_some_and(|height| height.saturating_add(NEAR) >= tip);
            key == self.me || (heard && near)
        };
        let behind = wish.members.iter().filter(|place| !follows(place));
        behind.map(|place| place.member).collect()
    }

    /// How far a change of the members is.
    pub(super) fn changing(&self) -> Result<Changing, CommitteeError> {
        const NONE: CommitteeError = CommitteeError::Members("the members are not known yet");
        let members = self.chain.state().members().ok_or(NONE)?;
        let names = |places: &[Place]| places.iter().map(|place| place.member).collect();
        let mut changing = Changing {
            epoch: members.epoch,
            number: members.number,
            phase: Phase::Rest,
            ended: members.ended_at(self.chain.tip().time_ms),
            members: members.members.iter().map(|one| (one.member, one.address)).collect(),
            before: names(&members.before),
            wanted: Vec::new(),
            missing: Vec::new(),
            dealt: Vec::new(),
            has_share: self.share.is_some(),
        };
        let dealt: Vec<MemberId> = members
            .members
            .iter()
            .zip(0..)
            .filter(|(_, slot)| {
                let dealt = self.chain.state().dealt_at(*slot);
                dealt.is_some_and(|dealt| dealt.number == members.number)
            })
            .map(|(place, _)| place.member)
            .collect();
        if let Some(round) = members.round_at(self.chain.tip().time_ms) {
            changing.phase = Phase::Dealing;
            changing.wanted = names(&round.players);
            let parts = self.dealing.iter().flat_map(|dealing| dealing.parts.keys());
            changing.missing = parts.map(MemberId::of).collect();
            changing.dealt = dealt;
        } else if self.chain.tip().epoch != members.epoch {
            changing.phase = Phase::Entering;
        } else if let Some(mine) = &self.wishes.mine {
            let agreed = self.wishes.agreed();
            changing.wanted = names(&mine.wish.members);
            if (agreed.len() as u32) < self.term.quorum() {
                changing.phase = Phase::Asking;
                let silent = |key: &MemberId| !agreed.iter().any(|(member, _)| member == key);
                changing.missing = self.term.members().into_iter().filter(silent).collect();
            } else {
                changing.phase = Phase::Waiting;
                changing.missing = self.behind(&mine.wish);
            }
        }
        Ok(changing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Ended;

    #[test]
    fn who_is_named_thrice_is_connected_to_once() {
        let key = |byte: u8| MemberId::new([byte; 32]);
        let founder = |byte| Place { member: key(byte), address: None };
        let founders: Vec<Place> = (0..7).map(founder).collect();
        let mut members = Members {
            epoch: 3,
            number: 4,
            ended: Ended::Changed,
            outcome: bytes::Bytes::new(),
            members: founders.clone(),
            before: founders,
            round: None,
        };
        let at = |byte| {
            let address = Some(SocketAddr::from(([127, 0, 0, 1], 1_000 + u16::from(byte))));
            Place { member: key(byte), address }
        };
        let mut wish = Wish { epoch: 3, number: 5, least: 4, members: (0..7).map(at).collect() };
        assert_eq!(connected(&members, &wish), 7, "a refresh, and founders by their addresses");
        wish.members[6] = at(9);
        assert_eq!(connected(&members, &wish), 8, "one takes the place of another");
        members.before = vec![founder(20)];
        assert_eq!(connected(&members, &wish), 9);
    }
}
