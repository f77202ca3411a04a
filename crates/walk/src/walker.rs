//! Storing and finding records at their holders: what librarians and authors call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crypto::lease::Shown;
use crypto::{PeerId, Place, RecordId};
use document::{Document, Kind, Record};
use env::Env;
use env::calls::{CallError, Calls, Credential, Endpoint, FindRequest, FindResponse};
use placement::{Redundancy, View, redundancy};

use crate::background::{Background, Rest, Unfinished};
use crate::core::{Core, LocalStore, Wanted};
use crate::directory::Directory;
use crate::error::WalkError;
use crate::finding::{Finding, FoundAt};
use crate::hedge::Budget;
use crate::line::{Line, Load, Moved, SENT_FIRST_BYTES, TAKEN_FIRST_BYTES};
use crate::owing::Owing;
use crate::storing::Storing;
use crate::through::Through;

/// What a walker is told when it is made.
#[derive(Clone, Default)]
pub struct WalkOptions {
    /// This program's own store, where it is a holder: read and written without a call. It counts only where the
    /// directory knows which peer this program is.
    pub own: Option<Arc<dyn LocalStore>>,
    /// What vouches for this program when the walker introduces it (see [`Walker::set_credential`]).
    pub credential: Credential,
    /// Librarians that walk for this program, at these addresses, the first that is well; it calls no other peer. Empty
    /// where it walks by itself.
    pub through: Vec<String>,
}

/// A record whose acknowledged copies are durable.
#[derive(Debug)]
pub struct Stored {
    /// Copies that are durable: at least W.
    pub acked: u32,
    /// Copies wanted: N.
    pub wanted: u32,
    /// Whether any of those that are durable was not there before.
    pub new: bool,
    /// Who has them.
    pub holders: Vec<PeerId>,
    /// The other copies, on their way.
    pub rest: Rest,
}

/// A record that was found and proven.
#[derive(Clone, Debug)]
pub struct Found {
    /// The record; its bytes hash to its id.
    pub record: Record,
    /// What its bytes say, checked in form.
    pub document: Document,
    /// Who sent it.
    pub from: PeerId,
    /// Whether a better-ranked holder that should have answered failed or lied: its copy needs a look.
    pub degraded: bool,
}

/// Stores and finds records at their holders. Shared; cheap calls in parallel are what it is for.
///
/// Dropping it aborts copies that are still being finished behind; [`Walker::drain`] waits for them.
pub struct Walker {
    pub(crate) core: Arc<Core>,
    pub(crate) background: Arc<Background>,
}

impl Walker {
    /// A walker over these calls and peers.
    pub fn new(
        env: Env,
        calls: Arc<dyn Calls>,
        directory: Arc<Directory>,
        options: WalkOptions,
    ) -> Arc<Self> {
        let own = directory.own().zip(options.own);
        let background = Background::new(env.clone());
        let credential = Mutex::new(options.credential);
        let through = Through::new(&options.through);
        // Who lets a librarian walk has a short line: one record at a time, until it is known to be wider.
        let [sent, taken] = match through {
            Some(_) => [document::DOCUMENT_BYTES_MAX; 2],
            None => [SENT_FIRST_BYTES, TAKEN_FIRST_BYTES],
        };
        let (budget, line) = (Budget::new(), Arc::new(Line::new(env.clone(), sent, taken)));
        let owing = Arc::new(Owing::default());
        let core = Core { env, calls, directory, budget, line, owing, own, credential, through };
        Arc::new(Self { core: Arc::new(core), background })
    }

    /// The peers it walks over.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.core.directory
    }

    /// How it calls peers: for what is asked of one librarian and not of a record's holders.
    pub fn calls(&self) -> &Arc<dyn Calls> {
        &self.core.calls
    }

    /// Asks one peer for a record of about so many bytes, which waits for its turn on the line: many at once are not late for one
    /// another's sake. The record is not proven.
    ///
    /// # Errors
    /// The call's; [`CallError::TimedOut`] where no answer came in time.
    pub async fn find_at(
        &self,
        peer: &PeerId,
        to: &Endpoint,
        request: FindRequest,
        bytes: usize,
    ) -> Result<FindResponse, CallError> {
        let core = &self.core;
        let turn = core.line.turn(Load::taken(bytes)).await;
        let limit = turn.limit();
        let answer = core.bounded(to, limit, core.calls.find(to, request, limit)).await;
        let moved = match &answer {
            Ok(FindResponse::Found(_)) => Moved::Yes,
            Err(CallError::TimedOut { .. }) => Moved::NotInTime,
            _ => Moved::Nothing,
        };
        turn.ended(moved, peer, core.directory.view().len());
        answer
    }

    /// What vouches for this program from now on: its pass, or its newest announcement.
    pub fn set_credential(&self, credential: Credential) {
        *self.core.credential.lock().unwrap_or_else(PoisonError::into_inner) = credential;
    }

    /// What vouches for this program now.
    pub fn credential(&self) -> Credential {
        self.core.credential()
    }

    /// The copies that this program sends of a record of this kind, in the network as it is known now: one where a
    /// librarian walks for it.
    ///
    /// Where fewer peers can be reached than acknowledge it there, of a document so many do as in a network of those alone
    /// ([`Directory::reached`]). Of what changes under its name W stays: a reader asks so many that one of W is among them.
    pub fn redundancy(&self, kind: Kind) -> Redundancy {
        self.copies_of(kind, None, Directory::reached)
    }

    /// As [`Walker::redundancy`], by the peers that this program heard ([`Directory::heard`]), and where a put asked for so many
    /// copies of each page: those are no fewer then, whoever can be reached.
    pub fn redundancy_to_put(&self, kind: Kind, asked: Option<u32>) -> Redundancy {
        self.copies_of(kind, asked, Directory::heard)
    }

    fn copies_of(
        &self,
        kind: Kind,
        asked: Option<u32>,
        within_reach: impl FnOnce(&Directory, &View, usize) -> Option<View>,
    ) -> Redundancy {
        if self.is_thin() {
            return Redundancy { copies: 1, acknowledged: 1 };
        }
        let directory: &Directory = &self.core.directory;
        let genesis = directory.genesis();
        let view: &View = &directory.view();
        let of = |peers: usize| redundancy(kind, peers, genesis.suite, asked.or(genesis.copies));
        let all = of(view.len());
        if !kind.is_document() {
            return all;
        }
        let reached = within_reach(directory, view, all.acknowledged as usize);
        let Some(reached) = reached else { return all };
        let peers = reached.len().max(asked.unwrap_or(0) as usize);
        // N stays: repair makes the others when there are peers for them.
        Redundancy { acknowledged: of(peers).acknowledged.min(all.acknowledged), ..all }
    }

    /// Stores a record at its holders; answers when W copies are durable. The other copies go on behind.
    ///
    /// The record must be one that its holders accept: its id the hash of its bytes. Dropping the future before the
    /// answer stops the copies that are on their way; those already stored stay.
    ///
    /// # Errors
    /// [`WalkError`] where fewer than W copies became durable.
    pub async fn store(&self, record: Record, redundancy: Redundancy) -> Result<Stored, WalkError> {
        self.store_leased(record, Vec::new(), redundancy).await
    }

    /// As [`Walker::store`], with the leases that the record is paid by: each with the leaf of its place alone.
    ///
    /// # Errors
    /// As [`Walker::store`].
    pub async fn store_leased(
        &self,
        record: Record,
        leases: Vec<Shown>,
        redundancy: Redundancy,
    ) -> Result<Stored, WalkError> {
        if let Some(through) = &self.core.through {
            return self.core.store_through(through, record, leases).await;
        }
        let view = self.core.directory.view();
        if view.is_empty() {
            return Err(WalkError::NoPeers { tried: Vec::new() });
        }
        let storing = Storing::new(self.core.clone(), &view, record, leases, redundancy);
        self.finish(storing).await
    }

    /// Waits for the W copies of a record and hands the others over to be finished behind.
    pub(crate) async fn finish(&self, mut storing: Storing) -> Result<Stored, WalkError> {
        storing.acknowledged().await?;
        let (wanted, new) = (storing.redundancy.copies, storing.new);
        let rest = self.background.finish(Unfinished::Copies(Box::new(storing))).await;
        let reached = rest.reached();
        Ok(Stored { acked: reached.acked, wanted, new, holders: reached.holders, rest })
    }

    /// Finds a record and proves it. `kind` is checked where it is given.
    ///
    /// Cancel safe: nothing is kept of a dropped call.
    ///
    /// # Errors
    /// [`WalkError`]: see the module `finding` for what decides between *not found*, *unavailable* and *corrupt*.
    pub async fn find(
        &self,
        kind: Option<Kind>,
        id: RecordId,
        place: Place,
    ) -> Result<Found, WalkError> {
        let wanted = Wanted::new(kind, FindRequest { id, place });
        if let Some(through) = &self.core.through {
            return self.core.find_through(through, wanted).await.map(Found::from);
        }
        let mut finding = Finding::new(self.core.clone(), wanted);
        if let Some(found) = finding.local().await {
            return Ok(Found::from(found));
        }
        finding.run().await.map(Found::from)
    }

    /// [`Walker::find`] at other peers alone: for what the own store is known to have lost.
    ///
    /// # Errors
    /// As there.
    pub async fn find_elsewhere(&self, id: RecordId, place: Place) -> Result<Found, WalkError> {
        let wanted = Wanted::new(None, FindRequest { id, place });
        let mut finding = Finding::new(self.core.clone(), wanted);
        finding.leave_out_own();
        finding.run().await.map(Found::from)
    }

    /// How much longer than elsewhere what this program sends is waited for, since its line is slow; nothing where it is not.
    pub fn patience(&self) -> Duration {
        self.core.line.patience()
    }

    /// Waits until no copies are on their way any more, at most `limit`; tells how many records are left then.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.background.drain(limit).await
    }
}

impl From<FoundAt> for Found {
    fn from(found: FoundAt) -> Self {
        let FoundAt { proven, from, degraded } = found;
        Self { record: proven.record, document: proven.document, from, degraded }
    }
}
