//! Joining the network: introduce oneself to the addresses one was given, learn peers, and go on to those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::genesis::ORGANISATIONS_MAX;
use crypto::{Announcement, OrgId, PeerId};
use env::Task;
use env::calls::{CallError, Endpoint, IntroduceRequest, IntroduceResponse, PEERS_MAX};
use futures::StreamExt;
use futures::channel::oneshot;
use futures::future::Either;
use tokio::sync::watch;

use crate::core::{CALL_LIMIT, Core};
use crate::directory::Learnt;
use crate::error::{ERRORS_MAX, WalkError};
use crate::health::Health;
use crate::latency::Size;
use crate::walker::Walker;

/// Introductions at once.
pub const PARALLEL_MAX: usize = 16;
/// Peers that one joining introduces itself to. Each tells all peers it knows, so a few would do; more of them make it
/// hard for one that lies by leaving peers out.
pub const INTRODUCED_MAX: usize = 64;
/// Peers of one organisation that one joining introduces itself to, where [`INTRODUCED_MAX`] divided by the organisations of the
/// roster is less: so one organisation with any number of peers leaves room for the others.
pub const INTRODUCED_OF_ONE_MIN: usize = 4;
/// Answers of one peer that one introduction takes, where it was away for more rosters than fit one.
pub const ROUNDS_MAX: usize = 64;

/// How much longer than for the first answer of all [`Walker::join_soon`] waits for the others at least: those that are well answer
/// by then, so that one which leaves peers out does not decide whom this program knows.
pub const JOIN_GRACE: Duration = Duration::from_millis(500);

/// The limit of an introduction where nobody answered within the usual one: on a line whose queue is full, of another program's
/// uploads say, each of the four round trips of a first call takes seconds. A quarter of it is the dial's, three times the usual.
const PATIENT_LIMIT: Duration = Duration::from_secs(60);

/// How far a joining is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Peers that answered.
    answered: usize,
    /// Addresses that were given from which nothing came yet.
    awaited: usize,
}

/// Whom a round of a joining asked.
#[derive(Default)]
struct Asked {
    /// Addresses that were given: whoever answers there was asked, so nobody is asked there by name.
    given: BTreeSet<String>,
    /// Peers that were asked by name, and where. Others may say that they answer there: that hides nobody.
    named: BTreeSet<Endpoint>,
    /// Who answered, wherever.
    answered: BTreeSet<PeerId>,
    /// How many of each organisation were asked by name.
    of: BTreeMap<OrgId, usize>,
    /// How many in all.
    count: usize,
}

impl Asked {
    /// Each of these addresses once.
    fn addresses(&mut self, given: &[String]) -> Vec<Endpoint> {
        let new = given.iter().filter(|address| self.given.insert((*address).clone()));
        let new: Vec<Endpoint> = new.take(INTRODUCED_MAX).map(|at| Endpoint::at(at)).collect();
        self.count = new.len();
        new
    }

    fn is_new(&mut self, peer: PeerId, to: &Endpoint) -> bool {
        let was = self.answered.contains(&peer) || self.given.contains(&to.address);
        !was && self.named.insert(to.clone())
    }
}

impl Walker {
    /// Introduces this program to these addresses, learns the peers they tell, and goes on to those until no more are
    /// learnt. Peers that were known before (from a file, say) are asked as well. Answers how many other peers are known.
    /// Where librarians walk for this program, one of them that answers is enough. Where nobody answered and somebody might
    /// only be slow, all are asked once more, with six times as much time.
    ///
    /// # Errors
    /// [`WalkError::NoPeers`] where nobody answered.
    pub async fn join(&self, bootstrap: &[String]) -> Result<usize, WalkError> {
        self.join_telling(bootstrap, |_| ()).await
    }

    /// As [`Walker::join`], and answers [`JOIN_GRACE`] after the first peer did, or when all have: an address that is dead is not
    /// waited for. Where peers of half of the organisations at most are known by then, it is, for [`CALL_LIMIT`]: the quickest may
    /// be one that tells of its own alone. The rest is asked behind, by the task that it gives; dropping that ends it.
    ///
    /// # Errors
    /// As [`Walker::join`].
    pub async fn join_soon(self: &Arc<Self>, bootstrap: &[String]) -> Result<Task, WalkError> {
        let (walker, bootstrap) = (Arc::clone(self), bootstrap.to_vec());
        let (tell, mut told) = watch::channel(Progress::default());
        let (done, joined) = oneshot::channel();
        let task = self.core.env.tasks.spawn(Box::pin(async move {
            let tell = |progress| {
                tell.send_replace(progress);
            };
            // Nobody hears it where the caller went on before.
            let _ = done.send(walker.join_telling(&bootstrap, tell).await);
        }));
        let soon = async {
            // Where nobody ever answers, the other side of the select tells so.
            if told.wait_for(|progress| progress.answered > 0).await.is_err() {
                std::future::pending::<()>().await;
            }
            self.core.env.clock.sleep(JOIN_GRACE).await;
            let enough = |progress: &Progress| progress.awaited == 0 || self.knows_most();
            let enough = async { told.wait_for(enough).await.is_ok() };
            // Whoever has not answered by then is asked behind.
            let _ = self.core.env.within(CALL_LIMIT, enough).await;
        };
        futures::pin_mut!(soon);
        match futures::future::select(joined, soon).await {
            Either::Left((Ok(joined), _)) => joined.map(|_| task),
            Either::Left((Err(_), _)) => Err(WalkError::NoPeers { tried: Vec::new() }),
            Either::Right(_) => Ok(task),
        }
    }

    /// Whether other peers of more than half of the organisations are known.
    fn knows_most(&self) -> bool {
        let directory = &self.core.directory;
        let (view, own) = (directory.view(), directory.own());
        let others = view.candidates().iter().filter(|known| Some(known.peer) != own);
        let organisations: BTreeSet<OrgId> = others.map(|known| known.organisation).collect();
        organisations.len() * 2 > directory.roster().organisations().len()
    }

    /// As [`Walker::join`]; `tell` is called after each call.
    async fn join_telling(
        &self,
        bootstrap: &[String],
        mut tell: impl FnMut(Progress) + Send,
    ) -> Result<usize, WalkError> {
        if self.is_thin() {
            return self.librarian().await.map(|_| 1);
        }
        let (mut answered, mut tried) = self.join_within(bootstrap, CALL_LIMIT, &mut tell).await;
        let slow = |(_, error): &(String, CallError)| matches!(error, CallError::TimedOut { .. });
        let refused = |(_, error): &(String, CallError)| matches!(error, CallError::Denied { .. });
        if answered == 0 && tried.iter().any(slow) && !tried.iter().any(refused) {
            (answered, tried) = self.join_within(bootstrap, PATIENT_LIMIT, &mut tell).await;
        }
        if answered == 0 {
            tried.truncate(ERRORS_MAX);
            return Err(WalkError::NoPeers { tried });
        }
        let (known, own) = (self.core.directory.view(), self.core.directory.own());
        Ok(known.candidates().iter().filter(|known| Some(known.peer) != own).count())
    }

    /// One round over the addresses and the peers that those tell, each call within this limit: how many answered, and what
    /// the others came to.
    async fn join_within(
        &self,
        bootstrap: &[String],
        limit: Duration,
        tell: &mut (impl FnMut(Progress) + Send),
    ) -> (usize, Vec<(String, CallError)>) {
        let mut asked = Asked::default();
        let mut next = asked.addresses(bootstrap);
        let mut progress = Progress { answered: 0, awaited: next.len() };
        let mut tried = Vec::new();
        next.extend(self.worth_asking(&mut asked));
        while !next.is_empty() {
            let calls = std::mem::take(&mut next).into_iter().map(|to| async move {
                let answer = self.core.introduce_asking(&to, PEERS_MAX as u32, limit).await;
                (to, answer)
            });
            let mut calls = futures::stream::iter(calls).buffer_unordered(PARALLEL_MAX);
            while let Some((to, answer)) = calls.next().await {
                progress.awaited -= usize::from(to.peer.is_none());
                match answer {
                    Ok((_, peer)) => {
                        progress.answered += 1;
                        asked.answered.insert(peer);
                    }
                    Err(error) => {
                        if to.peer.is_none() {
                            self.core.directory.unanswered_at(&to.address, &error);
                        }
                        tried.push((to.address, error));
                    }
                }
                tell(progress);
            }
            next = self.worth_asking(&mut asked);
        }
        (progress.answered, tried)
    }

    /// Known peers that were not asked yet, as many as there is room for: one of each organisation, then a second of each, and of
    /// each in the order of their keys.
    fn worth_asking(&self, asked: &mut Asked) -> Vec<Endpoint> {
        let directory = &self.core.directory;
        let organisations = directory.roster().organisations().len();
        let of_one_max = INTRODUCED_OF_ONE_MIN.max(INTRODUCED_MAX / organisations.max(1));
        let mut chosen = Vec::new();
        for status in directory.peers() {
            let (own, away) = (Some(status.peer) == directory.own(), status.health == Health::Away);
            let Some(to) = directory.endpoint(&status.peer).filter(|_| !own && !away) else {
                continue;
            };
            let of_it = asked.of.get(&status.organisation).map_or(1, |asked| asked + 1);
            if of_it <= of_one_max && asked.is_new(status.peer, &to) {
                asked.of.insert(status.organisation, of_it);
                chosen.push((of_it, to));
            }
        }
        chosen.sort_by_key(|(turn, _)| *turn);
        chosen.truncate(INTRODUCED_MAX - asked.count);
        asked.count += chosen.len();
        chosen.into_iter().map(|(_, to)| to).collect()
    }

    /// Introduces this program to one peer and learns what it tells: also the health check of a peer.
    ///
    /// Who was away for many rosters gets them in several answers, [`ROUNDS_MAX`] at most.
    ///
    /// # Errors
    /// [`CallError`]; a peer that announces itself with a certificate that does not count is [`CallError::WrongPeer`].
    pub async fn introduce(&self, to: &Endpoint) -> Result<IntroduceResponse, CallError> {
        self.core.introduce(to).await
    }
}

impl Core {
    /// See [`Walker::introduce`].
    pub(crate) async fn introduce(&self, to: &Endpoint) -> Result<IntroduceResponse, CallError> {
        let told = self.introduce_asking(to, PEERS_MAX as u32, CALL_LIMIT).await;
        told.map(|(answer, _)| answer)
    }

    /// As [`Core::introduce`], asking for so many peers, each answer within this limit; also who answered.
    pub(crate) async fn introduce_asking(
        &self,
        to: &Endpoint,
        peers_max: u32,
        limit: Duration,
    ) -> Result<(IntroduceResponse, PeerId), CallError> {
        for _ in 1..ROUNDS_MAX {
            let before = self.directory.roster();
            let (answer, peer) = self.introduce_once(to, peers_max, limit).await?;
            let now = self.directory.roster();
            if now.number() >= answer.roster || now.hash() == before.hash() {
                return Ok((answer, peer));
            }
        }
        self.introduce_once(to, peers_max, limit).await
    }

    async fn introduce_once(
        &self,
        to: &Endpoint,
        peers_max: u32,
        limit: Duration,
    ) -> Result<(IntroduceResponse, PeerId), CallError> {
        let request = IntroduceRequest {
            known: Some(self.directory.known()),
            ..IntroduceRequest::new(self.credential(), peers_max)
        };
        let since = self.env.clock.elapsed();
        let answer = self.calls.introduce(to, request, limit);
        let answer = self.bounded(to, limit, answer).await;
        if let Ok(answer) = &answer {
            self.learn_rosters(&answer.rosters).await;
        }
        let answer = answer.and_then(|answer| self.learn_answer(to, answer));
        if let Ok((answer, peer)) = &answer {
            self.note(peer, Size::Small, since, &Ok(()));
            self.directory.told_calendar(peer, answer.unix_ms);
        } else if let (Some(peer), Err(error)) = (&to.peer, &answer) {
            self.note::<()>(peer, Size::Small, since, &Err(error.clone()));
        }
        answer
    }

    /// Learns the rosters of an answer: before the rest of it, which may count by them alone. There may be thousands of
    /// signatures in them, which are checked away from the I/O threads.
    async fn learn_rosters(&self, rosters: &[Bytes]) {
        if rosters.is_empty() {
            return;
        }
        let (directory, rosters) = (self.directory.clone(), rosters.to_vec());
        self.env.cpu(move || directory.learn_rosters(&rosters)).await;
    }

    /// Learns the rest of an answer; the peer that gave it, by its own announcement.
    fn learn_answer(
        &self,
        to: &Endpoint,
        answer: IntroduceResponse,
    ) -> Result<(IntroduceResponse, PeerId), CallError> {
        let wrong = |reason: String| CallError::WrongPeer { address: to.address.clone(), reason };
        let directory = &self.directory;
        for revocation in answer.revocations.iter().take(ORGANISATIONS_MAX) {
            if let Err(error) = directory.revoke(revocation) {
                tracing::debug!(%error, "a revocation that was told does not count");
            }
        }
        match directory.learn(&answer.announcement) {
            Ok(Learnt::Full) => return Err(wrong("the directory of peers is full".to_owned())),
            Ok(_) => {}
            Err(error) => return Err(wrong(error.to_string())),
        }
        // It was verified, or is known, or is older than what is known: whose it is is certain.
        let peer = Announcement::claims(&answer.announcement);
        let peer = peer.ok_or_else(|| wrong("it announced nobody".to_owned()))?;
        if to.peer.is_some_and(|expected| expected != peer) {
            return Err(wrong(format!("it announced itself as {peer}")));
        }
        directory.learn_from(&answer.peers);
        Ok((answer, peer))
    }
}
