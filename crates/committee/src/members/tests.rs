//! What a round makes of what members, liars among them, sign and deal: without an engine, entry by entry.

use commonware_cryptography::bls12381::dkg::feldman_desmedt::{
    Dealer, DealerPrivMsg, Player, PlayerAck, deal,
};
use commonware_cryptography::bls12381::primitives::group::Share;
use commonware_cryptography::bls12381::primitives::sharing::Mode;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_parallel::Sequential;
use commonware_utils::{N3f1, TestRng};

use super::*;
use crate::engine::{DkgOutcome, Key};
use crate::entry::Entry;
use crate::outcome::Outcome;
use crate::proving::NETWORK;
use crate::state::{Moment, State};
use crate::{GroupKey, Rules};

/// Members on paper: their keys and shares, and the state that they agree on.
pub(crate) struct Table {
    pub(crate) rules: Rules,
    pub(crate) state: State,
    secrets: Vec<MemberSecret>,
    outcome: DkgOutcome,
    shares: Vec<Option<Share>>,
    time_ms: u64,
}

/// A wish as a member signs it.
pub(crate) fn signed() -> Signed {
    let table = Table::new(4, 5);
    table.wish(2, 4, &[0, 1, 2, 4]).sign(&table.rules, &table.secrets[0])
}

type Dealt1 = (Dealer<MinSig, ed25519::PrivateKey>, Bytes, Vec<(Key, DealerPrivMsg)>);

impl Table {
    /// The first `count` of so many machines are members.
    pub(crate) fn new(count: usize, machines: usize) -> Self {
        let secret = |one: usize| MemberSecret::new(&[one as u8 + 1; 32]).expect("a key");
        let secrets: Vec<MemberSecret> = (0..machines).map(secret).collect();
        let keys: Vec<Key> = secrets[..count].iter().map(|one| one.0.public_key()).collect();
        let players = commonware_utils::ordered::Set::from_iter_dedup(keys);
        let dealt = deal::<MinSig, Key, N3f1>(TestRng::new(5), Mode::NonZeroCounter, players);
        let (outcome, dealt) = dealt.expect("enough");
        let group = GroupKey::of(outcome.public().public()).expect("a key");
        let rules = Rules {
            network: NETWORK,
            suite: Suite::Holdfast1,
            group: group.id(),
            organisations: Vec::new(),
            wanted: 1,
        };
        let share = |one: &MemberSecret| dealt.get_value(&one.0.public_key()).cloned();
        let shares = secrets.iter().map(share).collect();
        let mut state = State::default();
        let mut members: Vec<Place> =
            secrets[..count].iter().map(|one| Place { member: one.id(), address: None }).collect();
        members.sort_unstable();
        state.put(&Entry::Members(Members {
            epoch: 0,
            number: 1,
            ended: Ended::NotYet,
            outcome: outcome.encode(),
            members,
            before: Vec::new(),
            round: None,
        }));
        Self { rules, state, secrets, outcome, shares, time_ms: 1_000 }
    }

    pub(crate) fn group(&self) -> GroupKey {
        GroupKey::of(self.outcome.public().public()).expect("a key")
    }

    pub(crate) fn members(&self) -> Members {
        self.state.members().expect("a charter's")
    }

    pub(crate) fn wish(&self, number: u64, least: u8, list: &[usize]) -> Wish {
        let place = |one: &usize| {
            let address = SocketAddr::from(([127, 0, 0, 1], 4_000 + *one as u16));
            (self.secrets[*one].id(), Some(address))
        };
        let list: Vec<_> = list.iter().map(place).collect();
        Wish::new(self.members().epoch, number, least, &list).expect("a good list")
    }

    pub(crate) fn wanted(&self, wish: &Wish, by: &[usize]) -> Change {
        let sign = |one: &usize| wish.sign(&self.rules, &self.secrets[*one]);
        let mut signatures: Vec<_> =
            by.iter().map(sign).map(|one| (one.member, one.signature)).collect();
        signatures.sort_unstable();
        Change::Wanted { wish: wish.clone(), signatures }
    }

    pub(crate) fn apply(&mut self, change: &Change) -> Outcome {
        let again = Change::decode(&change.encode()).expect("our own");
        assert_eq!(again, *change);
        self.time_ms += 100;
        let moment = Moment { height: 9, time_ms: self.time_ms };
        let before = self.state.root();
        let outcome = round::apply(&mut self.state, &self.rules, moment, change);
        if !matches!(outcome, Outcome::Accepted { .. }) {
            assert_eq!(self.state.root(), before, "a refused one changes nothing");
        }
        outcome
    }

    fn info(&self) -> round::DkgInfo {
        let members = self.members();
        let players = members.round.expect("a round").players;
        round::info(&NETWORK, members.number, &self.outcome, &players).expect("a good round")
    }

    fn start(&self, dealer: usize, seed: u64) -> Dealt1 {
        let (secret, share) = (self.secrets[dealer].0.clone(), self.shares[dealer].clone());
        let dealt = Dealer::start::<N3f1>(TestRng::new(seed), self.info(), secret, share);
        let (dealer, public, parts) = dealt.expect("a holder");
        (dealer, public.encode(), parts)
    }

    fn player(&self, which: usize) -> Player<MinSig, ed25519::PrivateKey> {
        Player::new(self.info(), self.secrets[which].0.clone()).expect("a player")
    }

    fn which(&self, key: &Key) -> usize {
        let found = self.secrets.iter().position(|one| one.0.public_key() == *key);
        found.expect("one of the machines")
    }

    /// A dealer's log in which these do not acknowledge.
    pub(crate) fn log(&self, dealer: usize, silent: &[usize]) -> Change {
        let number = self.members().number;
        let (mut dealing, public, parts) = self.start(dealer, 40 + dealer as u64);
        let from = self.secrets[dealer].0.public_key();
        for (key, part) in parts {
            if !silent.contains(&self.which(&key)) {
                let ack = self.acknowledge(self.which(&key), &from, &public, part);
                dealing.receive_player_ack(key, ack).expect("its own");
            }
        }
        let log = dealing.finalize::<N3f1>().encode();
        Change::dealt(&self.rules, number, log, &self.secrets[dealer])
    }

    fn acknowledge(
        &self,
        player: usize,
        from: &Key,
        public: &Bytes,
        part: DealerPrivMsg,
    ) -> PlayerAck<Key> {
        let public = commonware_codec::Decode::decode_cfg(public.clone(), &round::most());
        let mut player = self.player(player);
        let taken = player.dealer_message::<N3f1>(from.clone(), public.expect("our own"), part);
        taken.expect("it fits").expect("the first")
    }

    /// Begins a round of these members.
    pub(crate) fn begin(&mut self, least: u8, list: &[usize]) {
        let wish = self.wish(self.members().number + 1, least, list);
        let wanted = self.wanted(&wish, &[0, 1, 2]);
        assert!(matches!(self.apply(&wanted), Outcome::Accepted { .. }));
    }
}

fn accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted { .. })
}

#[test]
fn fewer_than_a_quorum_of_members_begin_nothing() {
    let mut table = Table::new(4, 6);
    let wish = table.wish(2, 4, &[0, 1, 2, 4]);
    for by in [&[][..], &[0], &[0, 1], &[0, 1, 5], &[4, 5, 0]] {
        let wanted = table.wanted(&wish, by);
        assert_eq!(table.apply(&wanted), Outcome::NotAWriter, "{by:?}");
    }
    // One signature twice does not count twice: no such change is decoded.
    let Change::Wanted { mut signatures, wish } = table.wanted(&wish, &[0, 1]) else { panic!() };
    signatures.push(*signatures.last().expect("two"));
    let twice = Change::Wanted { wish: wish.clone(), signatures };
    assert!(Change::decode(&twice.encode()).is_err());
    // Signatures under another list do not fit this one.
    let other = table.wish(2, 4, &[0, 1, 2, 5]);
    let Change::Wanted { signatures, .. } = table.wanted(&other, &[0, 1, 2]) else { panic!() };
    let mixed = Change::Wanted { wish: wish.clone(), signatures };
    assert_eq!(table.apply(&mixed), Outcome::NotAWriter);
    // Nor those of another network.
    let mut foreign = Table::new(4, 6);
    foreign.rules.network = NetworkId::new([8; 32]);
    let foreign = foreign.wanted(&wish, &[0, 1, 2]);
    assert_eq!(table.apply(&foreign), Outcome::NotAWriter);
    let wanted = table.wanted(&wish, &[0, 1, 2]);
    assert!(accepted(&table.apply(&wanted)));
    assert_eq!(table.members().number, 2);
}

#[test]
fn a_number_never_comes_twice() {
    let mut table = Table::new(4, 6);
    let [last, next, later] = [1, 2, 3].map(|number| table.wish(number, 4, &[0, 1, 2, 4]));
    for wrong in [&last, &later] {
        let wanted = table.wanted(wrong, &[0, 1, 2, 3]);
        assert_eq!(table.apply(&wanted), Outcome::RolledBack { newest: 1 });
    }
    let mut epoch = next.clone();
    epoch.epoch = 1;
    let wanted = table.wanted(&epoch, &[0, 1, 2, 3]);
    assert_eq!(table.apply(&wanted), Outcome::RolledBack { newest: 1 });
    let wanted = table.wanted(&next, &[0, 1, 2]);
    assert!(accepted(&table.apply(&wanted)));
    assert_eq!(table.apply(&wanted), Outcome::RolledBack { newest: 2 }, "once");
    // n - f members may want another list while it goes on: what was dealt for the old number is of no use.
    let old = table.log(0, &[]);
    let wanted = table.wanted(&later, &[1, 2, 3]);
    assert!(accepted(&table.apply(&wanted)));
    assert_eq!(table.members().ended, Ended::Replaced);
    assert_eq!(table.apply(&old), Outcome::RolledBack { newest: 3 });
}

#[test]
fn the_most_members_that_there_may_be_are_refreshed() {
    let all: Vec<usize> = (0..MEMBERS_MAX).collect();
    let mut table = Table::new(MEMBERS_MAX, MEMBERS_MAX);
    let quorum = MEMBERS_MAX - (MEMBERS_MAX - 1) / 3;
    let wanted = table.wanted(&table.wish(2, 4, &all), &all[..quorum]);
    assert!(accepted(&table.apply(&wanted)));
    for dealer in &all[..quorum] {
        // One does not acknowledge, and its part is shown: logs are longest so.
        let log = table.log(*dealer, &all[quorum..quorum + usize::from(*dealer < 10)]);
        assert!(accepted(&table.apply(&log)), "{dealer}");
    }
    let members = table.members();
    assert_eq!(members.members.len(), MEMBERS_MAX);
    assert!(members.epoch == 1 || members.ended == Ended::Shown, "{:?}", members.ended);
    let whole = State::restore(&table.state.snapshot()).expect("it fits");
    assert_eq!(whole.root(), table.state.root());
}

#[test]
fn a_round_that_took_too_long_ended() {
    let mut table = Table::new(4, 6);
    table.begin(4, &[0, 1, 2, 4]);
    let members = table.members();
    let began = members.round.as_ref().expect("it goes on").began_ms;
    assert_eq!(members.ended_at(began + ROUND_MS), Ended::NotYet);
    assert_eq!(members.ended_at(began + ROUND_MS + 1), Ended::TooLate);
}

#[test]
fn with_a_quorum_of_whole_logs_the_members_change_and_the_key_does_not() {
    let mut table = Table::new(4, 6);
    table.begin(4, &[0, 1, 2, 4, 5]);
    for dealer in [3, 1, 2] {
        let log = table.log(dealer, &[]);
        assert!(accepted(&table.apply(&log)));
    }
    let members = table.members();
    assert_eq!((members.epoch, members.ended, members.members.len()), (1, Ended::Changed, 5));
    assert!(members.round.is_none());
    let outcome = round::read_outcome(&members.outcome).expect("our own");
    assert_eq!(outcome.public().public(), table.outcome.public().public(), "one group key");
    assert_eq!(members.before.len(), 4);
    // A log that comes late is of no use, and of no harm.
    let mut before = Table::new(4, 6);
    before.begin(4, &[0, 1, 2, 4, 5]);
    let late = before.log(0, &[]);
    assert_eq!(table.apply(&late), Outcome::RolledBack { newest: 2 });
}

#[test]
fn what_only_f_dealers_show_excludes_nobody_and_more_do() {
    let mut table = Table::new(4, 6);
    table.begin(5, &[0, 1, 2, 3, 4, 5]);
    // One dealer of four shows the part of an honest player.
    let log = table.log(3, &[0]);
    assert!(accepted(&table.apply(&log)));
    for dealer in [1, 2] {
        let log = table.log(dealer, &[]);
        assert!(accepted(&table.apply(&log)));
    }
    assert_eq!((table.members().epoch, table.members().members.len()), (1, 6));
    // Two show it: at least one of them is honest, and the share may be known.
    let mut table = Table::new(4, 6);
    table.begin(5, &[0, 1, 2, 3, 4, 5]);
    for dealer in [3, 2] {
        let log = table.log(dealer, &[5]);
        assert!(accepted(&table.apply(&log)));
    }
    let log = table.log(1, &[]);
    assert!(accepted(&table.apply(&log)));
    let members = table.members();
    assert_eq!((members.epoch, members.number, members.ended), (0, 3, Ended::Shown));
    let players = members.round.as_ref().expect("it goes on").players.clone();
    let gone = table.secrets[5].id();
    assert!(players.len() == 5 && players.iter().all(|place| place.member != gone));
    for dealer in [0, 1, 2] {
        let log = table.log(dealer, &[]);
        assert!(accepted(&table.apply(&log)));
    }
    assert_eq!((table.members().epoch, table.members().members.len()), (1, 5));
    // Where all are wanted it ends there.
    let mut table = Table::new(4, 6);
    table.begin(6, &[0, 1, 2, 3, 4, 5]);
    for dealer in [1, 2, 3] {
        let log = table.log(dealer, &[5]);
        assert!(accepted(&table.apply(&log)));
    }
    let members = table.members();
    assert_eq!((members.epoch, members.ended), (0, Ended::FewPlayers));
    assert!(members.round.is_none());
}

#[test]
fn a_dealer_that_lies_is_not_used_and_has_one_log() {
    let mut table = Table::new(4, 6);
    table.begin(4, &[0, 1, 2, 3, 4]);
    let number = table.members().number;
    // It deals one thing to some and another to the others: the acknowledgements are of the other.
    let from = table.secrets[3].0.public_key();
    let (mut shown, _, parts) = table.start(3, 1);
    let (_, other, others) = table.start(3, 2);
    for (key, _) in parts.iter().take(4) {
        let part = others.iter().find(|(one, _)| one == key).expect("dealt").1.clone();
        let ack = table.acknowledge(table.which(key), &from, &other, part);
        assert!(shown.receive_player_ack(key.clone(), ack).is_err(), "not of this dealing");
    }
    // Nothing is acknowledged: too many would be shown.
    let log = shown.finalize::<N3f1>().encode();
    let lost = Change::dealt(&table.rules, number, log, &table.secrets[3]);
    assert!(accepted(&table.apply(&lost)));
    let round = table.members().round.expect("it goes on");
    assert_eq!((round.usable, round.lost), (0, 1));
    let good = table.log(3, &[]);
    assert_eq!(table.apply(&good), Outcome::RolledBack { newest: number }, "it had its one");
    // A log of nobody, of a stranger, in another's name, cut or changed.
    let good = table.log(2, &[]);
    let Change::Dealt { signature, log, .. } = &good else { panic!() };
    let mut stranger = log.to_vec();
    stranger[..32].copy_from_slice(table.secrets[4].id().as_bytes());
    let mut another = log.to_vec();
    another[..32].copy_from_slice(table.secrets[1].id().as_bytes());
    let mut changed = log.to_vec();
    *changed.last_mut().expect("long") ^= 1;
    for bytes in [Vec::new(), log[..40].to_vec(), stranger.clone(), another.clone(), changed] {
        let wrong = Change::Dealt { number, signature: *signature, log: bytes.into() };
        assert_eq!(table.apply(&wrong), Outcome::NotAWriter);
    }
    for (bytes, signer) in [(stranger, 4), (another, 3)] {
        let wrong = Change::dealt(&table.rules, number, bytes.into(), &table.secrets[signer]);
        assert_eq!(table.apply(&wrong), Outcome::NotAWriter);
    }
    // The three honest ones do without it.
    for dealer in [2, 0, 1] {
        let log = table.log(dealer, &[]);
        assert!(accepted(&table.apply(&log)));
    }
    assert_eq!((table.members().epoch, table.members().ended), (1, Ended::Changed));
}

#[test]
fn what_a_dealer_signs_and_is_no_log_is_its_one_log() {
    let mut table = Table::new(4, 6);
    table.begin(4, &[0, 1, 2, 4]);
    let number = table.members().number;
    let junk = [&table.secrets[3].id().as_bytes()[..], &[7; 300]].concat();
    let junk = Change::dealt(&table.rules, number, junk.into(), &table.secrets[3]);
    assert!(accepted(&table.apply(&junk)));
    assert_eq!(table.members().round.expect("it goes on").lost, 1);
    let good = table.log(3, &[]);
    assert_eq!(table.apply(&good), Outcome::RolledBack { newest: number }, "it had its one");
}

#[test]
fn with_too_few_dealers_or_too_late_the_epoch_stays() {
    let mut table = Table::new(4, 6);
    table.begin(4, &[0, 1, 2, 4, 5]);
    for dealer in [0, 1] {
        assert!(table.members().round.is_some());
        let log = table.log(dealer, &[2, 4]);
        assert!(accepted(&table.apply(&log)));
    }
    let members = table.members();
    assert_eq!((members.epoch, members.ended), (0, Ended::FewDealers));
    assert!(members.round.is_none());
    table.begin(4, &[0, 1, 2, 4, 5]);
    let log = table.log(0, &[]);
    table.time_ms += ROUND_MS;
    assert_eq!(table.apply(&log), Outcome::Expired);
    let members = table.members();
    assert!(members.round_at(table.time_ms).is_none(), "it is over for all");
    // The next number is free.
    table.begin(4, &[0, 1, 2, 4, 5]);
    for dealer in [0, 1, 2] {
        let log = table.log(dealer, &[]);
        assert!(accepted(&table.apply(&log)));
    }
    assert_eq!(table.members().epoch, 1);
}

#[test]
fn what_no_list_of_members_says_is_refused() {
    let table = Table::new(4, 6);
    let places = |list: &[usize]| -> Vec<(MemberId, Option<SocketAddr>)> {
        list.iter().map(|one| (table.secrets[*one].id(), None)).collect()
    };
    for (least, list) in
        [(4, &[0, 1, 2][..]), (4, &[0, 1, 2, 2]), (3, &[0, 1, 2, 3]), (5, &[0, 1, 2, 3])]
    {
        let wish = Wish::new(0, 2, least, &places(list));
        assert!(matches!(wish, Err(CommitteeError::Members(_))), "{least} {list:?}");
    }
    let many: Vec<_> = (1..=MEMBERS_MAX as u8 + 1)
        .map(|one| (MemberSecret::new(&[one; 32]).expect("a key").id(), None))
        .collect();
    assert!(Wish::new(0, 2, 4, &many).is_err());
    let nobody = (0..=u8::MAX).map(|byte| MemberId::new([byte; 32])).find(|one| one.key().is_err());
    let nobody = nobody.expect("some bytes are no key");
    let with = [places(&[0, 1, 2]), vec![(nobody, None)]].concat();
    assert!(Wish::new(0, 2, 4, &with).is_err(), "no key");
    let wish = table.wish(2, 4, &[0, 1, 2, 4]);
    let bytes = table.wanted(&wish, &[0, 1, 2]).encode();
    for at in 0..bytes.len() {
        assert!(Change::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    let signed = wish.sign(&table.rules, &table.secrets[0]);
    assert!(signed.verify(&table.rules));
    assert_eq!(Signed::decode(&signed.encode()).expect("our own"), signed);
    let other = Signed { member: table.secrets[1].id(), ..signed };
    assert!(!other.verify(&table.rules), "another's name");
}

#[test]
fn an_honest_share_comes_of_whole_logs_beside_a_liar() {
    // Each player makes its share of the three logs that were used, of which one shows its part.
    let mut table = Table::new(4, 5);
    table.begin(4, &[0, 1, 2, 4]);
    let info = table.info();
    let number = table.members().number;
    let mut player = table.player(4);
    for dealer in [0, 1, 3] {
        let silent: &[usize] = if dealer == 3 { &[4] } else { &[] };
        let log = table.log(dealer, silent);
        let (_, public, parts) = table.start(dealer, 40 + dealer as u64);
        let part = parts.into_iter().find(|(key, _)| table.which(key) == 4).expect("dealt").1;
        if dealer != 3 {
            let public = commonware_codec::Decode::decode_cfg(public, &round::most());
            let from = table.secrets[dealer].0.public_key();
            let taken = player.dealer_message::<N3f1>(from, public.expect("our own"), part);
            taken.expect("it fits");
        }
        assert!(accepted(&table.apply(&log)));
    }
    let members = table.members();
    assert_eq!(members.epoch, 1);
    let logs = round::logs(&table.state, &info, number);
    let made = player.finalize::<N3f1>(&mut TestRng::new(1), logs, &Sequential);
    let (outcome, share) = made.expect("a share");
    assert_eq!(outcome.encode(), members.outcome, "as the blocks say");
    let public = outcome.public().partial_public(share.index).expect("a player");
    assert_eq!(share.public::<MinSig>(), public);
}
