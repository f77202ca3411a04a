//! Cards of the other members: where they are, as each signed it.
//!
//! Those that host members are asked now and then which cards they know. A card is its member's own word and its librarian's, so
//! whoever passes it on cannot change it, and the newest of each member counts. Kept are those of the members that the chain names:
//! of this epoch, of the one before, and of the next. A member that is behind does not know them; it keeps what it has, and takes
//! what it is told, up to [`CARDS_MAX`].

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use committee::engine::{Charter, MemberId};
use committee::{Card, Changing, GroupId};
use crypto::{NetworkId, PeerId};
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use futures::future::join_all;
use walk::Health;

use super::folder::CARDS_MAX;
use super::{Hosting, MemberDir};
use crate::error::HoldError;

/// How long a librarian may take to tell its cards.
const LIMIT: Duration = Duration::from_secs(5);

/// The newest card of each other member.
#[derive(Default)]
pub(super) struct Cards(Vec<(Bytes, Card)>);

/// Whose cards are kept.
pub(super) enum Whose {
    /// Of these.
    These(BTreeSet<MemberId>),
    /// The member here is behind, and does not know.
    Anyones,
}

impl Whose {
    /// Those that the chain names, where the member here has a share, and so is not behind.
    pub(super) fn of(changing: &Changing) -> Self {
        if !changing.has_share {
            return Self::Anyones;
        }
        let members = changing.members.iter().map(|(member, _)| *member);
        Self::These(members.chain(changing.before.clone()).chain(changing.wanted.clone()).collect())
    }

    fn counts(&self, member: &MemberId) -> bool {
        match self {
            Self::These(these) => these.contains(member),
            Self::Anyones => true,
        }
    }
}

impl Cards {
    /// Those that a folder keeps; what does not verify is left out.
    pub(super) fn read(dir: &MemberDir, network: &NetworkId) -> Self {
        let mut cards = Self::default();
        for bytes in dir.cards() {
            if let Ok(card) = Card::verify(&bytes, network) {
                cards.put(bytes, card);
            }
        }
        cards
    }

    /// What they say.
    pub(super) fn all(&self) -> impl Iterator<Item = &Card> {
        self.0.iter().map(|(_, card)| card)
    }

    /// As they are passed on.
    pub(super) fn encoded(&self) -> Vec<Bytes> {
        self.0.iter().map(|(bytes, _)| bytes.clone()).collect()
    }

    /// The peers that host them.
    fn hosts(&self) -> BTreeSet<PeerId> {
        self.all().map(|card| card.peer).collect()
    }

    /// Takes a card that is newer than the one of its member, or of one more; whether it did.
    fn put(&mut self, bytes: Bytes, card: Card) -> bool {
        let full = self.0.len() >= CARDS_MAX;
        match self.0.iter_mut().find(|(_, known)| known.member == card.member) {
            Some((_, known)) if known.time_ms >= card.time_ms => return false,
            Some(known) => *known = (bytes, card),
            None if full => return false,
            None => self.0.push((bytes, card)),
        }
        true
    }

    /// Takes what a librarian told, as far as it is of members of this committee; whether something was new.
    pub(super) fn take(
        &mut self,
        told: Vec<Bytes>,
        network: &NetworkId,
        group: GroupId,
        whose: &Whose,
    ) -> bool {
        let mut newer = false;
        for bytes in told.into_iter().take(CARDS_MAX) {
            // What is known already needs no check of its signatures.
            if self.0.iter().any(|(known, _)| *known == bytes) {
                continue;
            }
            let Ok(card) = Card::verify(&bytes, network) else { continue };
            if card.committee == Some(group) && whose.counts(&card.member) {
                newer |= self.put(bytes, card);
            }
        }
        newer
    }

    /// Forgets those of others; whether there were any.
    fn forget_others(&mut self, whose: &Whose) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, card)| whose.counts(&card.member));
        self.0.len() < before
    }
}

impl Hosting {
    /// Asks the librarians that host members, all at once, where these and the others are now.
    pub(super) async fn ask_for_cards(
        &mut self,
        dir: &MemberDir,
        charter: &Charter,
    ) -> Result<(), HoldError> {
        let Some(changing) = self.changing().await else { return Ok(()) };
        let whose = Whose::of(&changing);
        let directory = self.librarian.directory();
        let hosts = self.cards.hosts().into_iter();
        let well = hosts.filter(|peer| directory.health(peer) != Health::Away);
        let to: Vec<_> = well.filter_map(|peer| directory.endpoint(&peer)).collect();
        let group = charter.group.id();
        let request =
            CommitteeRequest { group: Some(*group.as_bytes()), ask: CommitteeAsk::Status };
        let calls = self.librarian.walker().calls();
        let asked = to
            .iter()
            .map(|to| tokio::time::timeout(LIMIT, calls.committee(to, request.clone(), LIMIT)));
        let mut newer = self.cards.forget_others(&whose);
        for answer in join_all(asked).await {
            if let Ok(Ok(CommitteeAnswer::Status(status))) = answer {
                newer |= self.cards.take(status.cards, &self.host.network, group, &whose);
            }
        }
        match newer {
            true => self.keep_cards(dir, charter).await,
            false => Ok(()),
        }
    }

    /// Keeps the cards, and tells of them.
    pub(super) async fn keep_cards(
        &mut self,
        dir: &MemberDir,
        charter: &Charter,
    ) -> Result<(), HoldError> {
        dir.keep_cards(&self.cards.encoded())?;
        self.tell(dir, charter).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use committee::engine::MemberSecret;
    use crypto::SecretKey;

    use super::*;

    const NETWORK: NetworkId = NetworkId::new([7; 32]);
    const GROUP: GroupId = GroupId::new([8; 32]);

    fn card(member: u8, peer: u8, time_ms: u64, committee: GroupId) -> Bytes {
        let [peer, member] = [[peer; 32], [member; 32]];
        let (peer, member) = (SecretKey::from_bytes(&peer).unwrap(), MemberSecret::new(&member));
        let member = member.unwrap();
        let card = Card {
            network: NETWORK,
            peer: PeerId::new(peer.public()),
            member: member.id(),
            committee: Some(committee),
            time_ms,
            address: "127.0.0.1:4100".parse().unwrap(),
        };
        card.sign(&peer, &member)
    }

    #[test]
    fn the_newest_card_of_each_member_counts_whoever_passes_it_on() {
        let id = |byte| MemberSecret::new(&[byte; 32]).unwrap().id();
        let whose = Whose::These([id(1), id(2)].into());
        let mut cards = Cards::default();
        let mut take = |told: Vec<Bytes>| cards.take(told, &NETWORK, GROUP, &whose);
        assert!(take(vec![card(1, 1, 10, GROUP), card(2, 2, 10, GROUP)]));
        assert!(!take(vec![card(1, 1, 9, GROUP), card(1, 1, 10, GROUP)]), "nothing newer");
        assert!(!take(vec![card(3, 3, 10, GROUP)]), "no member");
        assert!(!take(vec![card(1, 1, 99, GroupId::new([9; 32]))]), "of another committee");
        assert!(!take(vec![Bytes::from_static(b"junk")]));
        // It moved to another peer, by its own word.
        assert!(take(vec![card(1, 5, 11, GROUP)]));
        let hosts = cards.hosts();
        assert!(hosts.contains(&PeerId::new(SecretKey::from_bytes(&[5; 32]).unwrap().public())));
        assert_eq!(hosts.len(), 2);
        assert!(cards.forget_others(&Whose::These([id(2)].into())));
        assert_eq!(cards.encoded().len(), 1);
    }

    #[test]
    fn who_is_behind_takes_what_it_is_told_up_to_a_bound() {
        let mut cards = Cards::default();
        for member in 1..=100 {
            cards.take(vec![card(member, 1, 10, GROUP)], &NETWORK, GROUP, &Whose::Anyones);
        }
        assert_eq!(cards.encoded().len(), CARDS_MAX);
        let newer = cards.take(vec![card(1, 1, 11, GROUP)], &NETWORK, GROUP, &Whose::Anyones);
        assert!(newer, "those that are known stay current");
    }
}
