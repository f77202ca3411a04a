//! A change of the members, between the operator who asks for it and the member that runs.
//!
//! `hold committee refresh` and `reshare` write the wish to `D/committee/wanted`; the librarian hands it to the member, which signs
//! it, and removes the file. How far the change is goes to `D/committee/change`, whenever that is something else. Both are JSON:
//!
//! ```text
//! wanted   {"id", "number", "members": null | [{"member", "address"}], "least", "cards": [hex]}
//! change   {"taken": null | {"id", "refused"}, "epoch", "number", "phase", "ended", "members", "wanted", "missing", ..}
//! ```
//! `number` is that of the last round when the operator looked: a wish for members that are others by now is refused, and one that was
//! taken up before a crash is done once. Where those members are being made members already, or are, nothing more is signed.
//!
//! A member that is new comes with its card, which says who hosts it and where it is; no organisation has two members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bytes::Bytes;
use committee::engine::{Charter, MEMBERS_MAX, MemberId};
use committee::members::Ended;
use committee::{Card, Changing, CommitteeError, Phase};
use crypto::{OrgId, PeerId};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::cards::Whose;
use super::{Hosting, MemberDir, TELL_LIMIT, now_ms};
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::out::one_line;

const WANTED: &str = "wanted";
const CHANGE: &str = "change";

/// A member that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placed {
    /// Its key, hex.
    pub(crate) member: String,
    /// Where it is; none of one that stays.
    pub(crate) address: Option<SocketAddr>,
}

/// What an operator asks the member to want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// By which it is answered.
    pub(crate) id: String,
    /// The number of the last round when the operator looked.
    pub(crate) number: u64,
    /// All members; `None` for the same with new shares.
    pub(crate) members: Option<Vec<Placed>>,
    /// With fewer than these it comes to nothing.
    pub(crate) least: Option<u8>,
    /// Cards of those that are new, hex.
    pub(crate) cards: Vec<String>,
}

/// What became of a wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Which.
    pub(crate) id: String,
    /// Why it was refused, where it was.
    pub(crate) refused: Option<String>,
}

/// How far a change of the members is, as the member here sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The wish that was taken up last.
    pub(crate) taken: Option<Taken>,
    /// The committee's key, hex.
    pub(crate) committee: String,
    /// The key of the member here, hex.
    pub(crate) member: String,
    /// The epoch of the next block.
    pub(crate) epoch: u64,
    /// The number of the last round.
    pub(crate) number: u64,
    /// `rest`, `asking`, `waiting`, `dealing` or `entering`.
    pub(crate) phase: String,
    /// How the last round ended.
    pub(crate) ended: String,
    /// The members, hex.
    pub(crate) members: Vec<String>,
    /// Those that are wanted.
    pub(crate) wanted: Vec<String>,
    /// Who is waited for.
    pub(crate) missing: Vec<String>,
    /// Members whose dealing is ordered.
    pub(crate) dealt: Vec<String>,
    /// Whether the member here has a share, and votes.
    pub(crate) votes: bool,
}

/// No round is under way, and nobody here wants one.
pub(crate) const REST: &str = "rest";
/// Too few operators want the same.
pub(crate) const ASKING: &str = "asking";
/// The members deal shares for the next epoch.
pub(crate) const DEALING: &str = "dealing";
/// The next epoch is decided, and has no certificate yet.
pub(crate) const ENTERING: &str = "entering";

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Rest => REST,
        Phase::Asking => ASKING,
        Phase::Waiting => "waiting",
        Phase::Dealing => DEALING,
        Phase::Entering => ENTERING,
    }
}

/// How a round ended.
const fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::NotYet => "not yet",
        Ended::Changed => "changed",
        Ended::Shown => "repeated without who was not there",
        Ended::FewDealers => "too few members dealt to enough of the others",
        Ended::FewPlayers => "fewer members were left than were wanted at least",
        Ended::Replaced => "another list was wanted before it was done",
        Ended::TooLate => "it was not done within ten minutes",
    }
}

/// Keys as they are told.
fn names<'a>(members: impl IntoIterator<Item = &'a MemberId>) -> Vec<String> {
    members.into_iter().map(ToString::to_string).collect()
}

impl Told {
    fn new(changing: &Changing, charter: &Charter, me: &MemberId, taken: Option<Taken>) -> Self {
        Self {
            taken,
            committee: charter.group.to_string(),
            member: me.to_string(),
            epoch: changing.epoch,
            number: changing.number,
            phase: phase(changing.phase).to_owned(),
            ended: ended(changing.ended).to_owned(),
            members: names(changing.members.iter().map(|(member, _)| member)),
            wanted: names(&changing.wanted),
            missing: names(&changing.missing),
            dealt: names(&changing.dealt),
            votes: changing.has_share,
        }
    }

    /// What the member told last; `None` where it told nothing yet.
    ///
    /// # Errors
    /// Where the file holds something else.
    pub(crate) fn read(dir: &MemberDir) -> Result<Option<Self>, HoldError> {
        let what = "the state of a change of the members";
        read(dir, CHANGE, what)
    }
}

impl Wanted {
    /// Asks for it: the running member takes it up.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn write(&self, dir: &MemberDir) -> Result<(), HoldError> {
        write(dir, WANTED, self)?;
        dir.give()
    }

    /// Asks for it no more, where it was not taken up.
    pub(crate) fn withdraw(&self, dir: &MemberDir) {
        withdraw(dir, &self.id);
    }
}

/// Removes this wish, and no other.
fn withdraw(dir: &MemberDir, id: &str) {
    if let Ok(Some(wanted)) = read::<Wanted>(dir, WANTED, "a wish")
        && wanted.id == id
    {
        let _ = std::fs::remove_file(dir.file(WANTED));
    }
}

fn read<T: for<'a> Deserialize<'a>>(
    dir: &MemberDir,
    name: &str,
    what: &'static str,
) -> Result<Option<T>, HoldError> {
    let path = dir.file(name);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = files::read_small(&path)?;
    let found = serde_json::from_slice(&bytes);
    found.map(Some).map_err(|_| HoldError::NotA { what, path })
}

fn write<T: Serialize>(dir: &MemberDir, name: &str, value: &T) -> Result<(), HoldError> {
    let mut bytes = serde_json::to_vec(value).map_err(HoldError::Json)?;
    bytes.push(b'\n');
    files::replace(&dir.file(name), &bytes, Access::Public)
}

/// What the librarian remembers of a change.
#[derive(Default)]
pub(super) struct Following {
    taken: Option<Taken>,
    told: Option<Told>,
    /// Whether its operator was told that the member here is one no more.
    removed: bool,
}

impl Following {
    /// Goes on where the process before ended.
    pub(super) fn read(dir: &MemberDir) -> Self {
        let taken = Told::read(dir).ok().flatten().and_then(|told| told.taken);
        Self { taken, ..Self::default() }
    }
}

/// Why a wish is not handed over.
enum Refused {
    /// The member did not say anything in time: later.
    NotNow,
    Because(String),
}

impl From<&str> for Refused {
    fn from(why: &str) -> Self {
        Self::Because(why.to_owned())
    }
}

/// A list that an operator wants, with the cards of those that are new.
struct List {
    places: Vec<(MemberId, Option<SocketAddr>)>,
    cards: BTreeMap<MemberId, (Bytes, Card)>,
}

/// Whether what is asked for under an older number is what is being done, or was done last.
fn is_under_way(changing: &Changing, list: Option<&BTreeSet<MemberId>>) -> bool {
    let members: BTreeSet<MemberId> = changing.members.iter().map(|(member, _)| *member).collect();
    let wanted: BTreeSet<MemberId> = changing.wanted.iter().copied().collect();
    let list = list.unwrap_or(&members);
    match changing.phase {
        Phase::Dealing => wanted == *list,
        Phase::Entering => members == *list,
        Phase::Rest | Phase::Asking | Phase::Waiting => {
            changing.ended == Ended::Changed && members == *list
        }
    }
}

/// What a wish comes to.
#[derive(Debug, PartialEq, Eq)]
enum AskedFor {
    /// It is being done, or was done since the operator looked.
    Already,
    /// Something else was.
    Others,
    /// The member is to sign it.
    New,
}

/// What is asked for where the last round had this number when the operator looked. A round has its number from its first block on,
/// so whoever looked meanwhile saw it.
fn asked_for(changing: &Changing, list: Option<&BTreeSet<MemberId>>, number: u64) -> AskedFor {
    let runs = matches!(changing.phase, Phase::Dealing | Phase::Entering);
    match (runs || changing.number != number, is_under_way(changing, list)) {
        (true, true) => AskedFor::Already,
        (_, _) if changing.number != number => AskedFor::Others,
        _ => AskedFor::New,
    }
}

impl Hosting {
    /// How far a change is, if the member says so in time.
    pub(super) async fn changing(&self) -> Option<Changing> {
        let handle = self.running.as_ref()?.handle();
        timeout(TELL_LIMIT, handle.changing()).await.ok()?.ok()
    }

    /// Takes up what the operator wants, and tells how far it is.
    pub(super) async fn follow(
        &mut self,
        dir: &MemberDir,
        charter: &Charter,
    ) -> Result<(), HoldError> {
        if self.running.is_none() {
            return Ok(());
        }
        match read::<Wanted>(dir, WANTED, "a wish") {
            Ok(None) => {}
            Ok(Some(wanted)) => self.take(dir, charter, wanted).await?,
            Err(error) => {
                let _ = std::fs::remove_file(dir.file(WANTED));
                tracing::warn!(error = %one_line(&error), "what is wanted of the members cannot be read");
            }
        }
        let Some(changing) = self.changing().await else { return Ok(()) };
        let me = dir.secret.id();
        self.tell_of_removal(&changing, &me);
        self.write_change(dir, Told::new(&changing, charter, &me, self.change.taken.clone()))
    }

    fn write_change(&mut self, dir: &MemberDir, told: Told) -> Result<(), HoldError> {
        if self.change.told.as_ref() != Some(&told) {
            write(dir, CHANGE, &told)?;
            self.change.told = Some(told);
        }
        Ok(())
    }

    fn tell_of_removal(&mut self, changing: &Changing, me: &MemberId) {
        let is_member = changing.members.iter().any(|(member, _)| member == me);
        // Before the next epoch's first certificate the share is still there.
        let removed =
            !is_member && changing.before.contains(me) && changing.phase != Phase::Entering;
        if removed && !self.change.removed {
            tracing::warn!(
                epoch = changing.epoch,
                "the member here was removed from its committee: its share is gone, it votes no more, and follows \
                 until the next change; then its folder can be removed"
            );
        }
        self.change.removed = removed;
    }

    /// Hands a wish to the member, answers it, and removes it.
    async fn take(
        &mut self,
        dir: &MemberDir,
        charter: &Charter,
        wanted: Wanted,
    ) -> Result<(), HoldError> {
        let id = wanted.id.clone();
        // After a crash in between it was answered already.
        if self.change.taken.as_ref().is_none_or(|taken| taken.id != wanted.id) {
            let refused = match self.want(dir, charter, &wanted).await? {
                Ok(()) => None,
                Err(Refused::NotNow) => return Ok(()),
                Err(Refused::Because(why)) => Some(why),
            };
            match &refused {
                None => {
                    tracing::info!(id = %wanted.id, "the member wants what its operator asked for")
                }
                Some(why) => {
                    tracing::warn!(id = %wanted.id, %why, "what the operator asked for is refused")
                }
            }
            self.change.taken = Some(Taken { id: wanted.id, refused });
            let Some(changing) = self.changing().await else { return Ok(()) };
            let taken = self.change.taken.clone();
            self.write_change(dir, Told::new(&changing, charter, &dir.secret.id(), taken))?;
        }
        // The answer is written: whoever reads it may ask for something else by now.
        withdraw(dir, &id);
        Ok(())
    }

    async fn want(
        &mut self,
        dir: &MemberDir,
        charter: &Charter,
        wanted: &Wanted,
    ) -> Result<Result<(), Refused>, HoldError> {
        let Some(changing) = self.changing().await else { return Ok(Err(Refused::NotNow)) };
        let list = match self.list(dir, charter, wanted, &changing) {
            Ok(list) => list,
            Err(refused) => return Ok(Err(refused)),
        };
        let members = list.as_ref().map(|list| list.places.iter().map(|one| one.0).collect());
        match asked_for(&changing, members.as_ref(), wanted.number) {
            AskedFor::Already => return Ok(Ok(())),
            AskedFor::Others => {
                let why = "the members changed since you looked: look again, and ask again";
                return Ok(Err(why.into()));
            }
            AskedFor::New => {}
        }
        let handle = match &self.running {
            Some(member) => member.handle().clone(),
            None => return Ok(Err(Refused::NotNow)),
        };
        let asked = match &list {
            None => timeout(TELL_LIMIT, handle.refresh()).await,
            Some(List { places, .. }) => {
                timeout(TELL_LIMIT, handle.reshare(places.clone(), wanted.least)).await
            }
        };
        let changing = match asked {
            Ok(Ok(changing)) => changing,
            Err(_) | Ok(Err(CommitteeError::Stopped)) => return Ok(Err(Refused::NotNow)),
            Ok(Err(error)) => return Ok(Err(Refused::Because(error.to_string()))),
        };
        let new = list.map_or_else(Vec::new, |list| {
            list.cards.into_values().map(|(bytes, _)| bytes).collect()
        });
        let (network, group) = (self.host.network, charter.group.id());
        let now_ms = now_ms();
        self.cards.take(new, (&network, group, now_ms), &Whose::of(&changing));
        self.keep_cards(dir, charter).await?;
        Ok(Ok(()))
    }

    /// The list that is wanted, checked; `None` for the same members.
    fn list(
        &self,
        dir: &MemberDir,
        charter: &Charter,
        wanted: &Wanted,
        changing: &Changing,
    ) -> Result<Option<List>, Refused> {
        let Some(members) = &wanted.members else { return Ok(None) };
        if members.len() > MEMBERS_MAX || wanted.cards.len() > MEMBERS_MAX {
            return Err("a committee has 32 members at most".into());
        }
        let mut list = List { places: Vec::new(), cards: BTreeMap::new() };
        for card in &wanted.cards {
            let bytes = hex::decode(card).map_err(|_| Refused::from("a card is no card"))?;
            let card = Card::verify(&bytes, &self.host.network);
            let card = card.map_err(|error| Refused::Because(error.to_string()))?;
            if card.is_of_the_future(now_ms()) {
                return Err("the clock of a new member's machine is ahead of this one's".into());
            }
            if card.committee != Some(charter.group.id()) {
                return Err(
                    "a new member follows another committee, or none: hold committee join there"
                        .into(),
                );
            }
            list.cards.insert(card.member, (bytes.into(), card));
        }
        for Placed { member, address } in members {
            let id = member.parse().map_err(|_| Refused::from("a member's key is none"))?;
            let stays = changing.members.iter().any(|(member, _)| *member == id);
            let card = list.cards.get(&id).map(|(_, card)| card.address);
            if !stays && (address.is_none() || card != *address) {
                return Err("a new member comes with its card, and where that says it is".into());
            }
            list.places.push((id, *address));
        }
        self.organisations(dir, &list)?;
        Ok(Some(list))
    }

    /// No organisation has two members: it alone could lie for both.
    fn organisations(&self, dir: &MemberDir, list: &List) -> Result<(), Refused> {
        let me = dir.secret.id();
        let peer = |member: &MemberId| match list.cards.get(member) {
            _ if *member == me => Some(PeerId::new(self.host.key.public())),
            Some((_, card)) => Some(card.peer),
            None => self.cards.all().find(|card| card.member == *member).map(|card| card.peer),
        };
        let mut seen: BTreeMap<OrgId, MemberId> = BTreeMap::new();
        for (member, _) in &list.places {
            let directory = self.librarian.directory();
            // Of one that stays, also where its machine is down and its certificate has ended meanwhile.
            let organisation =
                peer(member).and_then(|peer| match list.cards.contains_key(member) {
                    true => directory.organisation_of(&peer),
                    false => {
                        directory.announcement(&peer).map(|said| said.certificate.organisation)
                    }
                });
            let Some(organisation) = organisation else {
                if list.cards.contains_key(member) {
                    return Err(Refused::Because(format!(
                        "the peer that hosts member {member:.16} is not known here: try again"
                    )));
                }
                tracing::warn!(%member, "it is not known here of which organisation this member is");
                continue;
            };
            if let Some(other) = seen.insert(organisation, *member) {
                return Err(Refused::Because(format!(
                    "members {other:.16} and {member:.16} are of one organisation: it alone could lie for both"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn id(byte: u8) -> MemberId {
        MemberId::new([byte; 32])
    }

    fn changing(phase: Phase, members: &[u8], wanted: &[u8], ended: Ended) -> Changing {
        Changing {
            epoch: 1,
            number: 2,
            phase,
            ended,
            members: members.iter().map(|byte| (id(*byte), None)).collect(),
            before: Vec::new(),
            wanted: wanted.iter().map(|byte| id(*byte)).collect(),
            missing: Vec::new(),
            dealt: Vec::new(),
            has_share: true,
        }
    }

    #[test]
    fn who_asks_late_for_what_is_being_done_signs_nothing_more() {
        let list: BTreeSet<MemberId> = [1, 2, 3, 5].map(id).into();
        let is = |phase, members: &[u8], wanted: &[u8], ended| {
            let one = changing(phase, members, wanted, ended);
            (is_under_way(&one, Some(&list)), is_under_way(&one, None))
        };
        let (old, new) = ([1, 2, 3, 4], [1, 2, 3, 5]);
        assert_eq!(is(Phase::Dealing, &old, &new, Ended::NotYet), (true, false));
        assert_eq!(is(Phase::Dealing, &old, &old, Ended::NotYet), (false, true));
        assert_eq!(is(Phase::Entering, &new, &[], Ended::Changed), (true, true));
        assert_eq!(is(Phase::Rest, &new, &[], Ended::Changed), (true, true));
        assert_eq!(is(Phase::Rest, &old, &[], Ended::FewPlayers), (false, false));
    }

    #[test]
    fn who_looked_while_it_was_done_signs_nothing_more_either() {
        let list: BTreeSet<MemberId> = [1, 2, 3, 5].map(id).into();
        let (old, new) = ([1, 2, 3, 4], [1, 2, 3, 5]);
        let is = |phase, members: &[u8], wanted: &[u8], ended, number| {
            asked_for(&changing(phase, members, wanted, ended), Some(&list), number)
        };
        for number in [1, 2] {
            assert_eq!(is(Phase::Dealing, &old, &new, Ended::NotYet, number), AskedFor::Already);
            assert_eq!(is(Phase::Entering, &new, &[], Ended::Changed, number), AskedFor::Already);
        }
        assert_eq!(is(Phase::Rest, &new, &[], Ended::Changed, 1), AskedFor::Already);
        assert_eq!(is(Phase::Rest, &new, &[], Ended::Changed, 2), AskedFor::New, "once more");
        assert_eq!(is(Phase::Dealing, &old, &old, Ended::NotYet, 1), AskedFor::Others);
        assert_eq!(is(Phase::Dealing, &old, &old, Ended::NotYet, 2), AskedFor::New, "instead");
        assert_eq!(is(Phase::Rest, &old, &[], Ended::FewPlayers, 2), AskedFor::New);
    }

    #[test]
    fn a_wish_is_read_as_it_was_written_and_noise_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = "127.0.0.1:4100".parse().unwrap();
        let dir = MemberDir::make(folder.path(), at, at).unwrap();
        let find = || read::<Wanted>(&dir, WANTED, "a wish");
        assert!(find().unwrap().is_none() && Told::read(&dir).unwrap().is_none());
        let members = Some(vec![Placed { member: id(1).to_string(), address: Some(at) }]);
        let cards = vec!["ab".to_owned()];
        let wanted = Wanted { id: "one".to_owned(), number: 3, members, least: Some(4), cards };
        wanted.write(&dir).unwrap();
        assert_eq!(find().unwrap().unwrap(), wanted);
        Wanted { id: "another".to_owned(), ..wanted.clone() }.withdraw(&dir);
        assert!(find().unwrap().is_some(), "another's wish");
        wanted.withdraw(&dir);
        assert!(find().unwrap().is_none());
        for noise in ["", "{}", "junk", r#"{"id":"one","number":-1}"#] {
            std::fs::write(dir.file(WANTED), noise).unwrap();
            assert!(matches!(find(), Err(HoldError::NotA { .. })), "{noise}");
            std::fs::write(dir.file(CHANGE), noise).unwrap();
            assert!(Told::read(&dir).is_err() && Following::read(&dir).taken.is_none());
        }
    }
}
