//! `hold committee refresh` and `hold committee reshare`: members change, and the committee's key does not.
//!
//! Each operator asks by the own peer's directory; the member there signs the wish, and the change begins once n - f members want
//! the same ([`crate::hosting::change`]). The verb says how far it is until it is over. The wish stays where the verb ends early.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use committee::engine::{MEMBERS_MAX, MEMBERS_MIN};
use committee::{Card, GroupKey};
use crypto::Announcement;
use env::calls::Endpoint;
use serde::Serialize;
use tokio::time::Instant;
use walk::Walker;

use crate::cli::Session;
use crate::connect;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::hosting::MemberDir;
use crate::hosting::change::{self, Placed, Told, Wanted};
use crate::network_file;
use crate::page;
use crate::peerdir;
use crate::verb::committee::init;

/// How often it is looked how far the change is.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a running librarian may take to take up a wish: it looks every second.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// The fewest hex digits that name a member.
const DIGITS_MIN: usize = 8;

/// Where, and how long it is followed.
#[derive(Debug, Args)]
struct At {
    /// The directory of the peer that hosts the member here, whose librarian runs
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// End as soon as the member here wants it, and do not follow the change
    #[arg(long)]
    no_wait: bool,
    /// For how long the change is followed
    #[arg(long, value_name = "SECONDS", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(1..=604_800))]
    within: u64,
}

/// `hold committee refresh`.
#[derive(Debug, Args)]
pub(crate) struct Refresh {
    #[command(flatten)]
    at: At,
}

/// `hold committee reshare`.
#[derive(Debug, Args)]
pub(crate) struct Reshare {
    #[command(flatten)]
    at: At,
    /// The librarians that host new members: each ran `hold committee join`
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    add: Vec<String>,
    /// The keys of members that are to be none any more, or their first digits (8 at least)
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    remove: Vec<String>,
    /// With fewer members than these it comes to nothing, the same at all operators [default: as many as keep the number that may lie]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(4..=32))]
    least: Option<u8>,
}

/// `hold committee refresh` and `hold committee reshare`: how far the change is.
#[derive(Serialize)]
struct Changed {
    /// The committee's key, hex: the same as before.
    committee: String,
    /// The key of the member here, hex.
    member: String,
    /// Whether it came about.
    changed: bool,
    /// The epoch.
    epoch: u64,
    /// The number of the last round.
    number: u64,
    /// `rest`, `asking`, `waiting`, `dealing` or `entering`.
    phase: String,
    /// The keys of the members, hex.
    members: Vec<String>,
    /// Of those that are wanted; none at rest.
    wanted: Vec<String>,
    /// Of those that are waited for.
    missing: Vec<String>,
    /// Of those that were wanted and are none, since they were not there.
    left_out: Vec<String>,
    /// Whether the member here votes.
    votes: bool,
}

impl Changed {
    /// Of a change to these members.
    fn new(told: Told, changed: bool, mut wanted_to_be: Vec<String>) -> Self {
        wanted_to_be.retain(|one| changed && !told.members.contains(one));
        let left_out = wanted_to_be;
        let Told {
            committee, member, epoch, number, phase, members, wanted, missing, votes, ..
        } = told;
        Self {
            committee,
            member,
            changed,
            epoch,
            number,
            phase,
            members,
            wanted,
            missing,
            left_out,
            votes,
        }
    }
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changed, epoch, members, left_out, votes, .. } = self;
        if *changed {
            let here = if *votes { "votes" } else { "does not vote" };
            write!(f, "epoch {epoch}, {} members; the member here {here}", members.len())?;
            return match left_out.is_empty() {
                true => Ok(()),
                false => write!(f, "; left out, since not there: {}", short(left_out)),
            };
        }
        write!(f, "the member here wants it: {}", progress(&self.phase, &self.missing))
    }
}

/// The beginnings of keys.
fn short(members: &[String]) -> String {
    let short: Vec<String> = members.iter().map(|member| format!("{member:.16}")).collect();
    short.join(", ")
}

/// How far it is, in words.
fn progress(phase: &str, missing: &[String]) -> String {
    let missing = short(missing);
    match (phase, missing.is_empty()) {
        (change::ASKING, _) => format!("not asked for the same yet by the operators of {missing}"),
        ("waiting", false) => format!("new, and not following the chain yet: {missing}"),
        ("dealing", false) => format!("dealing; not acknowledged yet by {missing}"),
        ("dealing", true) => String::from("dealing"),
        (change::ENTERING, _) => String::from("the next epoch begins"),
        _ => String::from("it is being ordered"),
    }
}

impl Refresh {
    /// Asks for new shares for the same members.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let (dir, told) = self.at.member().await?;
        let wanted = wanted(&told, None, None, Vec::new());
        self.at.ask(session, &dir, told, wanted).await
    }
}

impl Reshare {
    /// Asks for other members.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if self.add.is_empty() && self.remove.is_empty() {
            let what =
                "whom? --add, --remove, or both; for the same members: hold committee refresh";
            return Err(HoldError::argument("--add", what));
        }
        let (dir, told) = self.at.member().await?;
        let mut members = told.members.clone();
        for digits in &self.remove {
            let gone = named(&told.members, digits)?;
            members.retain(|member| *member != gone);
        }
        let mut places: Vec<Placed> =
            members.into_iter().map(|member| Placed { member, address: None }).collect();
        let peer = init::peer_at(&self.at.dir)?;
        let walker = connect::stranger(&peer.network)?;
        let mut cards = Vec::new();
        for address in &self.add {
            let (card, bytes) = new_member(&walker, address, &told.committee).await?;
            let member = card.member.to_string();
            if told.members.contains(&member) || places.iter().any(|one| one.member == member) {
                let what = format!("{address} hosts {member:.16}, which is a member already");
                return Err(HoldError::argument("--add", what));
            }
            places.push(Placed { member, address: Some(card.address) });
            cards.push(hex::encode(bytes));
        }
        if !(MEMBERS_MIN..=MEMBERS_MAX).contains(&places.len()) {
            let what = format!("that leaves {} members: a committee has 4 to 32", places.len());
            return Err(HoldError::argument("--remove", what));
        }
        places.sort_by(|a, b| a.member.cmp(&b.member));
        let wanted = wanted(&told, Some(places), self.least, cards);
        self.at.ask(session, &dir, told, wanted).await
    }
}

fn wanted(
    told: &Told,
    members: Option<Vec<Placed>>,
    least: Option<u8>,
    cards: Vec<String>,
) -> Wanted {
    let mut id = [0; 16];
    env::Entropy::fill(&env::SystemEntropy, &mut id);
    Wanted { id: hex::encode(id), number: told.number, members, least, cards }
}

/// The one member that these digits begin.
fn named(members: &[String], digits: &str) -> Result<String, HoldError> {
    let digits = digits.to_lowercase();
    let mut found = members.iter().filter(|member| member.starts_with(&digits));
    match (digits.len() >= DIGITS_MIN, found.next(), found.next()) {
        (true, Some(one), None) => Ok(one.clone()),
        (false, ..) => {
            let what = format!("{digits:?}: a member is named by 8 digits of its key at least");
            Err(HoldError::argument("--remove", what))
        }
        _ => {
            let what = format!("{digits:?} is not the beginning of one member's key");
            Err(HoldError::argument("--remove", what))
        }
    }
}

/// The card that a librarian shows of its member, which follows this committee.
async fn new_member(
    walker: &Walker,
    address: &str,
    committee: &str,
) -> Result<(Card, bytes::Bytes), HoldError> {
    let to = Endpoint::at(address);
    let answer = walker.introduce(&to).await;
    let call = |source| HoldError::Call { address: address.to_owned(), source };
    let answer = answer.map_err(call)?;
    let bytes = answer.member;
    let not = || {
        let what = format!("{address} follows no such committee: hold committee join there first");
        HoldError::argument("--add", what)
    };
    let bytes = bytes.ok_or_else(not)?;
    let card = Card::verify(&bytes, &walker.directory().genesis().network())?;
    // All who agree to the change ask the same address: it must not show somebody else's member.
    let roster = walker.directory().roster();
    let announced = Announcement::verify(&answer.announcement, &roster, peerdir::now_s())?;
    if card.peer != announced.certificate.peer {
        let name = network_file::name_of(&roster, &announced.certificate.organisation);
        let what = format!("the librarian of {name} at {address} shows another peer's member");
        return Err(HoldError::argument("--add", what));
    }
    let group: GroupKey = committee.parse().map_err(|_| not())?;
    match card.committee == Some(group.id()) {
        true => Ok((card, bytes)),
        false => Err(not()),
    }
}

/// The keys that a list names.
fn keys(list: &[Placed]) -> BTreeSet<&str> {
    list.iter().map(|place| place.member.as_str()).collect()
}

/// What a change is over by.
struct Before {
    epoch: u64,
    number: u64,
}

impl Before {
    /// Of what is asked for now, which may be under way: then its round has its number already, and the next epoch is the new one.
    fn of(told: &Told, list: Option<&[Placed]>) -> Self {
        let is = |members: &[String]| {
            list.is_none_or(|list| members.iter().map(String::as_str).eq(keys(list)))
        };
        let sorted = |members: &[String]| {
            let mut members = members.to_vec();
            members.sort();
            members
        };
        let (members, wanted) = (sorted(&told.members), sorted(&told.wanted));
        let entering = told.phase == change::ENTERING && is(&members);
        let refreshed = list.is_some() || wanted == members;
        let dealing = told.phase == change::DEALING && is(&wanted) && refreshed;
        Self {
            epoch: told.epoch.saturating_sub(u64::from(entering)),
            number: told.number.saturating_sub(u64::from(dealing)),
        }
    }

    /// Whether the change is over, and came about; `None` while it goes on.
    fn is_over(&self, told: &Told, list: Option<&[Placed]>) -> Option<bool> {
        if told.phase != change::REST && told.phase != change::ASKING {
            return None;
        }
        let whole = list.is_none_or(|list| {
            // Members that were not there may be missing from it.
            told.members.iter().all(|member| keys(list).contains(member.as_str()))
        });
        match told.epoch > self.epoch && whole {
            true => Some(true),
            false => (told.number > self.number).then_some(false),
        }
    }
}

impl At {
    /// The member in the directory, which runs, and how it is.
    async fn member(&self) -> Result<(MemberDir, Told), HoldError> {
        let none = |what: &str| HoldError::argument("--dir", what);
        let dir = MemberDir::open(&self.dir)?
            .ok_or_else(|| none("no member of a committee is hosted there"))?;
        let status = page::Told::read(&self.dir)?.status().await?;
        let runs = status.pointer("/committee/running") == Some(&serde_json::Value::Bool(true));
        let told = Told::read(&dir)?.filter(|_| runs);
        let told =
            told.ok_or_else(|| none("the member there does not run: hold peer status --dir D"))?;
        if !told.members.contains(&told.member) {
            return Err(none("the one there follows and is no member: operators of members ask"));
        }
        Ok((dir, told))
    }

    /// Asks, and follows it to its end.
    async fn ask(
        &self,
        session: &Session,
        dir: &MemberDir,
        told: Told,
        wanted: Wanted,
    ) -> Result<Exit, HoldError> {
        let list = wanted.members.as_deref();
        let before = Before::of(&told, list);
        // New shares are for all that there are.
        let wanted_to_be = match list {
            Some(list) => list.iter().map(|place| place.member.clone()).collect(),
            None => told.members.clone(),
        };
        wanted.write(dir)?;
        let mut told = taken(dir, &wanted, &self.dir).await?;
        if !self.no_wait {
            told = self.over(session, dir, told, |told| before.is_over(told, list)).await?;
        }
        let changed = match before.is_over(&told, list) {
            Some(false) if told.epoch > before.epoch => {
                let why = "operators enough wanted another list, which is the committee now";
                return Err(HoldError::Unchanged { why: why.to_owned() });
            }
            Some(false) => return Err(HoldError::Unchanged { why: told.ended }),
            over => over.is_some(),
        };
        let changed = Changed::new(told, changed, wanted_to_be);
        session.out.result(&changed)?;
        Ok(if changed.left_out.is_empty() { Exit::Done } else { Exit::Partly })
    }

    /// Follows it until it is over.
    async fn over(
        &self,
        session: &Session,
        dir: &MemberDir,
        mut told: Told,
        is_over: impl Fn(&Told) -> Option<bool>,
    ) -> Result<Told, HoldError> {
        let end = Instant::now() + Duration::from_secs(self.within);
        let mut said = String::new();
        while is_over(&told).is_none() {
            let progress = progress(&told.phase, &told.missing);
            if Instant::now() >= end {
                return Err(HoldError::Changing { progress });
            }
            if progress != said {
                session.out.note(&progress);
                said = progress;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some(now) = Told::read(dir)? {
                told = now;
            }
        }
        Ok(told)
    }
}

/// Waits until the running member took the wish up.
async fn taken(dir: &MemberDir, wanted: &Wanted, peer: &Path) -> Result<Told, HoldError> {
    let end = Instant::now() + TAKEN_WITHIN;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(told) = Told::read(dir)?
            && let Some(taken) = told.taken.as_ref().filter(|taken| taken.id == wanted.id)
        {
            return match &taken.refused {
                None => Ok(told),
                Some(why) => Err(HoldError::argument("refused", why.clone())),
            };
        }
        if Instant::now() >= end {
            wanted.withdraw(dir);
            page::Told::read(peer)?.status().await?;
            let what = "its librarian did not take the wish up: hold peer status --dir D";
            return Err(HoldError::argument("--dir", what));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::{Flags, Settings};
    use crate::hosting::change::Taken;
    use crate::out::Out;

    fn told(epoch: u64, number: u64, phase: &str, members: &[&str]) -> Told {
        Told {
            taken: None,
            committee: String::new(),
            member: String::new(),
            epoch,
            number,
            phase: phase.to_owned(),
            ended: String::new(),
            members: members.iter().map(ToString::to_string).collect(),
            wanted: Vec::new(),
            missing: Vec::new(),
            dealt: Vec::new(),
            votes: true,
        }
    }

    #[test]
    fn a_change_is_over_when_the_next_epoch_runs_or_the_round_came_to_nothing() {
        let before = Before { epoch: 3, number: 5 };
        let list: Vec<Placed> = ["a", "b", "e"]
            .map(|member| Placed { member: member.to_owned(), address: None })
            .into();
        let is = |told: &Told| before.is_over(told, Some(&list));
        assert_eq!(is(&told(3, 5, "asking", &["a", "b", "c"])), None);
        assert_eq!(is(&told(3, 6, "dealing", &["a", "b", "c"])), None);
        assert_eq!(is(&told(4, 6, "entering", &["a", "b", "e"])), None);
        assert_eq!(is(&told(4, 6, "rest", &["a", "b", "e"])), Some(true));
        assert_eq!(is(&told(4, 7, "rest", &["a", "e"])), Some(true), "one was not there");
        assert_eq!(is(&told(3, 6, "rest", &["a", "b", "c"])), Some(false));
        assert_eq!(is(&told(4, 6, "rest", &["a", "b", "c"])), Some(false), "another list");
        assert_eq!(before.is_over(&told(4, 6, "rest", &["a", "b", "c"]), None), Some(true));
    }

    #[test]
    fn who_looks_while_the_next_epoch_begins_follows_that() {
        let before = Before::of(&told(4, 6, "entering", &["b", "a"]), None);
        assert_eq!(before.is_over(&told(4, 6, "rest", &["a", "b"]), None), Some(true));
        // Another list is asked for anew.
        let list: Vec<Placed> = ["a", "b", "e"]
            .map(|member| Placed { member: member.to_owned(), address: None })
            .into();
        let before = Before::of(&told(4, 6, "entering", &["a", "b"]), Some(&list));
        let asking = told(4, 6, "asking", &["a", "b"]);
        assert_eq!(before.is_over(&asking, Some(&list)), None);
    }

    #[test]
    fn who_looks_while_it_is_dealt_sees_that_it_came_to_nothing() {
        let list: Vec<Placed> = ["a", "b", "e"]
            .map(|member| Placed { member: member.to_owned(), address: None })
            .into();
        let wanted = ["e", "a", "b"].map(String::from).to_vec();
        let dealing = Told { wanted, ..told(3, 6, "dealing", &["a", "b"]) };
        let before = Before::of(&dealing, Some(&list));
        assert_eq!(before.is_over(&dealing, Some(&list)), None);
        assert_eq!(before.is_over(&told(3, 6, "rest", &["a", "b"]), Some(&list)), Some(false));
        assert_eq!(before.is_over(&told(4, 6, "rest", &["a", "b", "e"]), Some(&list)), Some(true));
        // A refresh is another round than that one.
        let before = Before::of(&dealing, None);
        assert_eq!(before.is_over(&told(3, 6, "rest", &["a", "b"]), None), None);
    }

    #[test]
    fn who_was_wanted_and_is_no_member_is_named() {
        let changed = |done| {
            let told = told(4, 6, "rest", &["a", "b"]);
            Changed::new(told, done, ["a", "b", "e"].map(String::from).to_vec())
        };
        assert_eq!(changed(true).left_out, ["e"]);
        assert!(changed(true).to_string().ends_with("; left out, since not there: e"));
        assert!(changed(false).left_out.is_empty(), "it goes on");
    }

    /// By the verb's end a script sees that a member lacks.
    #[tokio::test]
    async fn a_change_that_left_out_a_member_that_was_wanted_does_not_end_as_done() {
        let folder = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:7".parse().unwrap();
        let dir = MemberDir::make(folder.path(), address, address).unwrap();
        let settings = Settings::new(Flags::default()).unwrap();
        let session = Session::new(Out::new(true, true), settings, false, CancellationToken::new());
        let all = ["a", "b", "c", "d", "e"];
        let list = |members: &[&str]| -> Vec<Placed> {
            let placed = |member: &&str| Placed { member: (*member).to_owned(), address: None };
            members.iter().map(placed).collect()
        };
        // New shares for all, and a list; with all that were wanted, and without one.
        for members in [None, Some(list(&all))] {
            for (there, end) in [(&all[..], Exit::Done), (&all[..4], Exit::Partly)] {
                let before = told(3, 5, change::REST, &all);
                let asked = wanted(&before, members.clone(), None, Vec::new());
                // What its librarian tells once the change is over.
                let taken = Some(Taken { id: asked.id.clone(), refused: None });
                let after = Told { taken, ..told(4, 6, change::REST, there) };
                let bytes = serde_json::to_vec(&after).unwrap();
                std::fs::write(folder.path().join("committee/change"), bytes).unwrap();
                let at = At { dir: folder.path().to_owned(), no_wait: false, within: 60 };
                let ended = at.ask(&session, &dir, before, asked).await.unwrap();
                assert_eq!(ended, end, "{there:?}");
            }
        }
    }

    #[test]
    fn a_member_is_named_by_digits_that_no_other_begins_with() {
        let members = ["aabbccdd00", "aabbccdd11", "ffeeddcc00"].map(String::from);
        assert_eq!(named(&members, "FFEEDDCC").unwrap(), members[2]);
        for digits in ["aabbccdd", "ffeedd", "00112233", ""] {
            assert!(matches!(named(&members, digits), Err(HoldError::Argument { .. })), "{digits}");
        }
    }
}
