//! A peer that leaves, and the door in its process.
//!
//! A librarian that leaves takes no records any more, and hands over those that it has. A door writes into the same store past
//! it: what it wrote behind the walk that hands over would be at nobody else. So the door's writes end first.
//!
//! ```text
//! no door -> opening -> open -> its writes are refused, all that it answered is stored and attested -> leaves -> left
//!    \--------------------------------------------------------------------------------------------/
//! ```
//! Invariants: 1. no door is opened on a peer that leaves; 2. the librarian leaves only while no door takes writes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use librarian::Librarian;
use tokio_util::sync::CancellationToken;

use crate::client::blocking;
use crate::error::HoldError;
use crate::out::one_line;
use crate::peerdir::{self, PeerConfig};
use crate::redis_door::DoorWrites;

const LEAVES: &str = "this peer leaves the network, and a door on it would take writes that nobody keeps: let it end \
                      with hold peer run, or to keep it set leaving = false in its peer.toml";

/// Checks that a peer is not set to leave.
///
/// # Errors
/// Where it is.
pub(crate) fn check_stays(config: &PeerConfig) -> Result<(), HoldError> {
    match config.leaving {
        true => Err(HoldError::argument("peer", LEAVES)),
        false => Ok(()),
    }
}

/// How far a peer is with leaving.
pub(crate) struct Leaving {
    state: Mutex<State>,
    left: CancellationToken,
}

#[derive(Clone)]
enum State {
    NoDoor,
    /// A door is being opened: who wants to leave waits for it.
    Opening,
    Open(DoorWrites),
    /// No door takes writes, nor will one.
    Leaves,
}

/// A door that is being opened; dropped, it was not.
pub(crate) struct Opening(Arc<Leaving>);

impl Opening {
    /// It is open.
    pub(crate) fn open(self, writes: DoorWrites) {
        *self.0.lock() = State::Open(writes);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Opening) {
            *state = State::NoDoor;
        }
    }
}

impl Leaving {
    /// Of a peer that starts, and whose settings say already that it leaves.
    pub(crate) fn new(leaves: bool) -> Arc<Self> {
        let state = if leaves { State::Leaves } else { State::NoDoor };
        Arc::new(Self { state: Mutex::new(state), left: CancellationToken::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to open a door.
    ///
    /// # Errors
    /// Where the peer leaves, or has a door.
    pub(crate) fn opening(self: &Arc<Self>) -> Result<Opening, HoldError> {
        let mut state = self.lock();
        let what = match *state {
            State::NoDoor => {
                *state = State::Opening;
                return Ok(Opening(Arc::clone(self)));
            }
            State::Opening | State::Open(_) => "this peer has a door already",
            State::Leaves => LEAVES,
        };
        Err(HoldError::argument("peer", what))
    }

    /// One step of leaving: ends the door's writes, then has the librarian leave, then notes that it has left.
    pub(crate) async fn go_on(&self, librarian: &Librarian, dir: &Path) {
        let state = self.lock().clone();
        match state {
            State::Opening => return,
            State::NoDoor => {
                let mut state = self.lock();
                if !matches!(*state, State::NoDoor) {
                    return;
                }
                *state = State::Leaves;
            }
            State::Open(writes) => {
                writes.end().await;
                *self.lock() = State::Leaves;
            }
            State::Leaves => {}
        }
        librarian.leave();
        if librarian.has_left() && !self.left.is_cancelled() {
            let dir = dir.to_owned();
            // It waits for the disk.
            if let Err(error) = blocking(move || peerdir::note_left(&dir, true)).await {
                tracing::error!(error = %one_line(&error), "that this peer has left could not be noted");
            }
            self.left.cancel();
        }
    }

    /// Waits until the peer has left.
    pub(crate) async fn left(&self) {
        self.left.cancelled().await;
    }
}
