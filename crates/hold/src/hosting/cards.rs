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
use super::{Hosting, MemberDir, now_ms};
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
    pub(super) fn read(dir: &MemberDir, network: &NetworkId, now_ms: u64) -> Self {
        let mut cards = Self::default();
        for bytes in dir.cards() {
            // Whatever this machine's clock says at its start: they were looked at when they came.
            if let Ok(card) = Card::verify(&bytes, network) {
                cards.put(bytes, card, now_ms);
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

    /// Takes a card that is newer than the one of its member, or of one more.
    fn put(&mut self, bytes: Bytes, card: Card, now_ms: u64) {
        let full = self.0.len() >= CARDS_MAX;
        match self.0.iter_mut().find(|(_, known)| known.member == card.member) {
            Some((_, known)) if known.rank(now_ms) >= card.rank(now_ms) => {}
            Some(known) => *known = (bytes, card),
            None if full => {}
            None => self.0.push((bytes, card)),
        }
    }

    /// Takes what a librarian told at this time, as far as it is of members of this committee.
    pub(super) fn take(
        &mut self,
        told: Vec<Bytes>,
        (network, group, now_ms): (&NetworkId, GroupId, u64),
        whose: &Whose,
    ) {
        for bytes in told.into_iter().take(CARDS_MAX) {
            // What is known already needs no check of its signatures.
            if self.0.iter().any(|(known, _)| *known == bytes) {
                continue;
            }
            let Ok(card) = Card::verify(&bytes, network) else { continue };
            let ours = card.committee == Some(group) && whose.counts(&card.member);
            if ours && !card.is_of_the_future(now_ms) {
                self.put(bytes, card, now_ms);
            }
        }
    }

    /// Forgets those of others.
    fn forget_others(&mut self, whose: &Whose) {
        self.0.retain(|(_, card)| whose.counts(&card.member));
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
        self.cards.forget_others(&whose);
        let now_ms = now_ms();
        for answer in join_all(asked).await {
            if let Ok(Ok(CommitteeAnswer::Status(status))) = answer {
                self.cards.take(status.cards, (&self.host.network, group, now_ms), &whose);
            }
        }
        self.keep_cards(dir, charter).await
    }

    /// Keeps the cards where they are others than those kept, and tells of them what was not told: also what could not be the last time.
    pub(super) async fn keep_cards(
        &mut self,
        dir: &MemberDir,
        charter: &Charter,
    ) -> Result<(), HoldError> {
        let cards = self.cards.encoded();
        if self.cards_kept.as_ref() != Some(&cards) {
            dir.keep_cards(&cards)?;
            self.cards_kept = Some(cards);
        }
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
        let mut take = |told: Vec<Bytes>| {
            let before = cards.encoded();
            cards.take(told, (&NETWORK, GROUP, 20), &whose);
            cards.encoded() != before
        };
        assert!(take(vec![card(1, 1, 10, GROUP), card(2, 2, 10, GROUP)]));
        assert!(!take(vec![card(1, 1, 9, GROUP), card(1, 1, 10, GROUP)]), "nothing newer");
        assert!(!take(vec![card(3, 3, 10, GROUP)]), "no member");
        assert!(!take(vec![card(1, 1, 99, GroupId::new([9; 32]))]), "of another committee");
        assert!(!take(vec![card(1, 1, u64::MAX, GROUP)]), "nothing later would count");
        assert!(!take(vec![Bytes::from_static(b"junk")]));
        // It moved to another peer, by its own word.
        assert!(take(vec![card(1, 5, 11, GROUP)]));
        let hosts = cards.hosts();
        assert!(hosts.contains(&PeerId::new(SecretKey::from_bytes(&[5; 32]).unwrap().public())));
        assert_eq!(hosts.len(), 2);
        cards.forget_others(&Whose::These([id(2)].into()));
        assert_eq!(cards.encoded().len(), 1);
    }

    #[test]
    fn who_is_behind_takes_what_it_is_told_up_to_a_bound() {
        let mut cards = Cards::default();
        for member in 1..=100 {
            let told = vec![card(member, 1, 10, GROUP)];
            cards.take(told, (&NETWORK, GROUP, 20), &Whose::Anyones);
        }
        assert_eq!(cards.encoded().len(), CARDS_MAX);
        let newer = card(1, 1, 11, GROUP);
        cards.take(vec![newer.clone()], (&NETWORK, GROUP, 20), &Whose::Anyones);
        assert!(cards.encoded().contains(&newer), "those that are known stay current");
    }
}
