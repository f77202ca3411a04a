//! The member of a committee that a peer's directory holds, and the task that runs it beside the librarian.
//!
//! ```text
//! D/committee/links     where it listens, and where the other members reach it
//! D/committee/member.key   its private key in hex, 0600
//! D/committee/number    the number of the founding that was tried last: none comes twice
//! D/committee/cards     signed cards of members, each after its length as four bytes
//! D/committee/charter   there once the committee is founded, or joined: from then on the member runs
//! D/committee/engine/   what the member itself keeps: its log, its votes, its share
//! ```
//! `hold committee init` and `join` write files and know nothing of the running librarian, which looks at them every second, as
//! with everything in a peer's directory. A member whose thread ends is told of and started again after a while.
//!
//! The folder is never copied back: a copy of a member is a member that forgot its votes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use committee::engine::{Charter, Links, MemberId, MemberSecret, Settings};
use committee::{Card, Member};
use crypto::{NetworkId, PeerId, SecretKey};
use librarian::{Hosted, Librarian};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::client::blocking;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::{beat, peerdir};

/// What the member's own files begin with.
pub(crate) const NAME: &str = "member";
/// How long an update or a fresh read is waited for before *busy* or *not enough members*.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// After how long a member whose thread ended is started again.
const START_AGAIN: Duration = Duration::from_secs(10);
/// How often the other members' cards are asked for.
const CARDS_EVERY: Duration = Duration::from_secs(30);
/// How long a member may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Cards that are kept: of two epochs.
const CARDS_MAX: usize = 64;

const FOLDER: &str = "committee";
const WHAT: &str = "a committee member's folder";

/// A member's folder in a peer's directory.
#[derive(Clone)]
pub(crate) struct MemberDir {
    path: PathBuf,
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Where the other members reach it.
    pub(crate) address: SocketAddr,
    /// Its key.
    pub(crate) secret: MemberSecret,
}

impl MemberDir {
    /// Opens the member's folder in a peer's directory; `None` where there is none.
    ///
    /// # Errors
    /// Where something in it is missing or damaged.
    pub(crate) fn open(peer: &Path) -> Result<Option<Self>, HoldError> {
        let path = peer.join(FOLDER);
        if !path.join("links").exists() {
            return Ok(None);
        }
        let not = || HoldError::NotA { what: WHAT, path: path.clone() };
        let text = files::read_small(&path.join("links"))?;
        let text = std::str::from_utf8(&text).map_err(|_| not())?;
        let mut words = text.split_whitespace().map(str::parse::<SocketAddr>);
        let (Some(Ok(listen)), Some(Ok(address))) = (words.next(), words.next()) else {
            return Err(not());
        };
        let hint = "hold committee init --dir D";
        let text = files::read_needed(&path.join("member.key"), "a member's private key", hint)?;
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text.trim_ascii(), &mut *bytes).map_err(|_| not())?;
        let secret = MemberSecret::new(&bytes)?;
        Ok(Some(Self { path, listen, address, secret }))
    }

    /// Makes the folder, with a fresh key where there is none, and says where the member is.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn make(
        peer: &Path,
        listen: SocketAddr,
        address: SocketAddr,
    ) -> Result<Self, HoldError> {
        let path = peer.join(FOLDER);
        files::make_private_folder(&path)?;
        let key = path.join("member.key");
        if !key.exists() {
            let mut bytes = Zeroizing::new([0; 32]);
            env::Entropy::fill(&env::SystemEntropy, &mut *bytes);
            let mut text = Zeroizing::new(hex::encode(*bytes));
            text.push('\n');
            files::write_new(&key, text.as_bytes(), Access::Secret)?;
        }
        let links = format!("{listen}\n{address}\n");
        files::replace(&path.join("links"), links.as_bytes(), Access::Public)?;
        let not = || HoldError::NotA { what: WHAT, path: path.clone() };
        Self::open(peer)?.ok_or_else(not)
    }

    /// Where the member keeps its own files.
    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// The charter, once there is a committee.
    ///
    /// # Errors
    /// Where it is damaged.
    pub(crate) fn charter(&self) -> Result<Option<Charter>, HoldError> {
        let path = self.path.join("charter");
        match path.exists() {
            true => Ok(Some(Charter::decode(&files::read_small(&path)?)?)),
            false => Ok(None),
        }
    }

    /// Keeps the charter, and the members' cards: from now on the member runs.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub(crate) fn begin(&self, charter: &Charter, cards: &[Bytes]) -> Result<(), HoldError> {
        self.keep_cards(cards)?;
        files::replace(&self.path.join("charter"), &charter.encode(), Access::Public)
    }

    /// Takes the number of a founding, which must be higher than those before.
    ///
    /// # Errors
    /// Where it is not, or cannot be noted.
    pub(crate) fn take_number(&self, number: u64) -> Result<(), HoldError> {
        let path = self.path.join("number");
        let known = files::read_small(&path).ok();
        let known = known.and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse().ok());
        if known.is_some_and(|known: u64| number <= known) {
            let next = known.unwrap_or_default().saturating_add(1);
            let what = format!(
                "founding {number} was tried here before, and no number comes twice: say --number \
                 {next}, the same at all founders"
            );
            return Err(HoldError::argument("--number", what));
        }
        files::replace(&path, format!("{number}\n").as_bytes(), Access::Public)
    }

    /// The cards that are kept here.
    pub(crate) fn cards(&self) -> Vec<Bytes> {
        let Ok(file) = files::read_small(&self.path.join("cards")) else { return Vec::new() };
        let mut rest = &file[..];
        let mut cards = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some((card, behind)) = behind.split_at_checked(length) else { break };
            cards.push(Bytes::copy_from_slice(card));
            rest = behind;
            if cards.len() == CARDS_MAX {
                break;
            }
        }
        cards
    }

    fn keep_cards(&self, cards: &[Bytes]) -> Result<(), HoldError> {
        let mut bytes = Vec::new();
        for card in cards.iter().take(CARDS_MAX) {
            bytes.extend_from_slice(&u32::try_from(card.len()).unwrap_or_default().to_be_bytes());
            bytes.extend_from_slice(card);
        }
        files::replace(&self.path.join("cards"), &bytes, Access::Public)
    }

    /// Where all members are, as far as cards say, this one among them.
    pub(crate) fn links(&self, members: &[MemberId], cards: &[Card]) -> Links {
        let me = self.secret.id();
        let others = members.iter().filter(|member| **member != me).filter_map(|member| {
            let card = cards.iter().find(|card| card.member == *member)?;
            Some((*member, card.address))
        });
        let members = std::iter::once((me, self.address)).chain(others).collect();
        Links { secret: self.secret.clone(), listen: self.listen, members }
    }
}

/// Who hosts: what its cards are signed with.
pub(crate) struct Host {
    /// The peer's directory.
    pub(crate) dir: PathBuf,
    /// The peer's key.
    pub(crate) key: SecretKey,
    /// The network.
    pub(crate) network: NetworkId,
}

/// A member that runs, or could.
struct Hosting {
    host: Host,
    librarian: Arc<Librarian>,
    running: Option<Member>,
    /// Cards of the other members, the newest of each.
    cards: Vec<Card>,
    shown: Option<Card>,
    start_after: Option<Instant>,
    cards_after: Instant,
    /// What was told of the folder last, so that it is told once.
    complaint: String,
}

/// Runs the member that the peer's directory holds, whenever it holds one, until `stop`.
pub(crate) async fn host_all(host: Host, librarian: Arc<Librarian>, stop: CancellationToken) {
    let mut hosting = Hosting {
        host,
        librarian,
        running: None,
        cards: Vec::new(),
        shown: None,
        start_after: None,
        cards_after: Instant::now(),
        complaint: String::new(),
    };
    loop {
        match hosting.look().await {
            Ok(()) => hosting.complaint.clear(),
            Err(error) => hosting.complain(&error),
        }
        tokio::select! {
            () = beat::next() => {}
            () = stop.cancelled() => break,
        }
    }
    hosting.end().await;
}

impl Hosting {
    fn complain(&mut self, error: &HoldError) {
        let text = error.to_string();
        if text != self.complaint {
            tracing::error!(%error, "the member of a committee does not run");
            self.complaint = text;
        }
    }

    async fn look(&mut self) -> Result<(), HoldError> {
        let Some(dir) = MemberDir::open(&self.host.dir)? else { return Ok(()) };
        let charter = dir.charter()?;
        self.show(&dir, charter.as_ref());
        let Some(charter) = charter else { return Ok(()) };
        if self.running.as_ref().is_some_and(Member::has_ended) {
            self.librarian.host(None);
            self.start_after = Some(Instant::now() + START_AGAIN);
            if let Some(member) = self.running.take() {
                let end = blocking(move || Ok(member.stop()?)).await;
                let Err(error) = end else { return Ok(()) };
                return Err(error);
            }
        }
        if self.running.is_none() && self.start_after.is_none_or(|after| Instant::now() >= after) {
            self.start_after = Some(Instant::now() + START_AGAIN);
            self.start(&dir, &charter).await?;
        }
        if self.running.is_some() && Instant::now() >= self.cards_after {
            self.cards_after = Instant::now() + CARDS_EVERY;
            self.ask_for_cards(&dir, &charter).await?;
        }
        Ok(())
    }

    /// Signs the member's card, and gives it to those who introduce themselves.
    fn show(&mut self, dir: &MemberDir, charter: Option<&Charter>) {
        let card = Card {
            network: self.host.network,
            peer: PeerId::new(self.host.key.public()),
            member: dir.secret.id(),
            committee: charter.map(|charter| charter.group.id()),
            time_ms: 0,
            address: dir.address,
        };
        if self.shown.as_ref() != Some(&card) {
            let signed = Card { time_ms: peerdir::now_s().saturating_mul(1_000), ..card.clone() };
            self.librarian.show_card(Some(signed.sign(&self.host.key, &dir.secret)));
            self.shown = Some(card);
        }
    }

    async fn start(&mut self, dir: &MemberDir, charter: &Charter) -> Result<(), HoldError> {
        let verified = dir.cards().into_iter();
        let network = self.host.network;
        self.cards = verified.filter_map(|card| Card::verify(&card, &network).ok()).collect();
        let links = dir.links(&charter.members(), &self.cards);
        let settings = Settings { answer_within: ANSWER_WITHIN, ..Settings::new(NAME, links) };
        let engine = dir.engine();
        let member = blocking(move || Ok(Member::start(engine, settings)?)).await?;
        self.librarian.host(Some(hosted(&member, dir, charter)));
        tracing::info!(member = %dir.secret.id(), committee = %charter.group, "the member runs");
        self.running = Some(member);
        Ok(())
    }

    /// Asks the other members' librarians where these are now.
    async fn ask_for_cards(&mut self, dir: &MemberDir, charter: &Charter) -> Result<(), HoldError> {
        let me = dir.secret.id();
        let mut kept = dir.cards();
        let (mut moved, mut newer) = (false, false);
        for at in 0..self.cards.len() {
            let Some(card) = self.cards.get(at).cloned().filter(|card| card.member != me) else {
                continue;
            };
            let Some(endpoint) = self.librarian.directory().endpoint(&card.peer) else { continue };
            let answer = self.librarian.walker().introduce(&endpoint).await;
            let Some(bytes) = answer.ok().and_then(|answer| answer.member) else { continue };
            let Ok(found) = Card::verify(&bytes, &self.host.network) else { continue };
            let right = (found.member, found.peer) == (card.member, card.peer);
            if !right || found.time_ms <= card.time_ms {
                continue;
            }
            newer = true;
            moved |= found.address != card.address;
            let of = |bytes: &Bytes| Card::verify(bytes, &self.host.network).ok();
            kept.retain(|bytes| of(bytes).is_some_and(|one| one.member != found.member));
            kept.push(bytes);
            self.cards[at] = found;
        }
        if !newer {
            return Ok(());
        }
        dir.keep_cards(&kept)?;
        let Some(member) = &self.running else { return Ok(()) };
        if moved {
            member.handle().moved(dir.links(&charter.members(), &self.cards).members).await?;
        }
        self.librarian.host(Some(hosted(member, dir, charter)));
        Ok(())
    }

    async fn end(&mut self) {
        self.librarian.host(None);
        let Some(member) = self.running.take() else { return };
        let stopped = tokio::time::timeout(STOP_LIMIT, blocking(move || Ok(member.stop()?))).await;
        match stopped {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the member of the committee did not end well")
            }
            Err(_) => tracing::warn!("the member of the committee did not end in time"),
        }
    }
}

fn hosted(member: &Member, dir: &MemberDir, charter: &Charter) -> Hosted {
    Hosted {
        member: Arc::new(member.handle().clone()),
        id: dir.secret.id(),
        charter: charter.encode(),
        cards: dir.cards(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_members_folder_is_made_once_and_keeps_its_key_and_cards() {
        let folder = tempfile::tempdir().unwrap();
        assert!(MemberDir::open(folder.path()).unwrap().is_none());
        let [listen, moved] = ["127.0.0.1:4100", "127.0.0.1:4101"].map(|at| at.parse().unwrap());
        let made = MemberDir::make(folder.path(), listen, listen).unwrap();
        let again = MemberDir::make(folder.path(), moved, moved).unwrap();
        assert_eq!((made.secret.id(), again.address), (again.secret.id(), moved));
        assert!(again.charter().unwrap().is_none());

        let cards = vec![Bytes::from_static(b"one"), Bytes::from_static(b"another")];
        again.keep_cards(&cards).unwrap();
        assert_eq!(again.cards(), cards);
        let path = folder.path().join("committee/cards");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(again.cards(), cards[..1]);

        std::fs::write(folder.path().join("committee/links"), "nowhere").unwrap();
        assert!(matches!(MemberDir::open(folder.path()), Err(HoldError::NotA { .. })));
    }

    #[test]
    fn a_number_of_a_founding_comes_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = "127.0.0.1:4100".parse().unwrap();
        let dir = MemberDir::make(folder.path(), at, at).unwrap();
        dir.take_number(3).unwrap();
        for number in [3, 2] {
            assert!(matches!(dir.take_number(number), Err(HoldError::Argument { .. })));
        }
        dir.take_number(4).unwrap();
    }
}
