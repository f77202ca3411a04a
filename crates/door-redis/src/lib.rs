//! The door that Redis's clients use: RESP2 and RESP3 over versioned objects.
//!
//! A key is an object, each SET of it a version on the one before: nothing is overwritten, and
//! `HOLD.PREV`, `HOLD.LOG` and `HOLD.TIPS` read what was. Tools that speak to Redis work as they
//! are. It is not a cache that forgets under pressure, not a message broker and no place for
//! scripts: what is missing says so.
//!
//! ```text
//! circle      the loop: one thread waits for sockets, serves, commits, sends
//! connection  one caller's bytes: parse -> run -> reply; ahead looks at the SETs that come next
//! run         finds the command in the table, executes it, takes it back where it fails
//! commands    one file a group of commands
//! door        keys: looked up in slots, read, written as versions; batch takes writes back
//! keyspace    what the door needs of the engine
//! engine      how `objects` does that
//! ```
//!
//! Why one thread, how keys are objects, and what a failed commit does: `docs/adr/0007`. What
//! users and operators need: `docs/doors/redis.md`.
#![forbid(unsafe_code)]

mod ahead;
mod batch;
mod circle;
mod commands;
mod connection;
mod counters;
mod door;
mod engine;
mod error;
mod fail;
mod fields;
mod glob;
mod keyspace;
mod members;
mod merging;
mod number;
mod options;
mod parse;
mod ranked;
mod reply;
mod run;
mod session;
mod slots;
mod sorted;
mod table;
mod value;
mod writer;

pub use counters::Metrics;
pub use engine::{Engine, EngineError};
pub use error::{DoorError, Refusal};
pub use keyspace::{Keyspace, Made, Put, Stored, Tip};
pub use options::{Compress, Limits, Options};
pub use table::page;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;

use env::Clock;
use mio::net::TcpListener;
use mio::{Poll, Waker};

use crate::circle::{Circle, WAKER};
use crate::door::Door;

/// An open door. Dropping it closes it, without waiting for its thread.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    endings: mpsc::Sender<SyncSender<()>>,
    metrics: Arc<Metrics>,
    thread: Option<JoinHandle<()>>,
}

/// Opens a door: loads the keys, listens, and serves on a thread of its own.
///
/// It takes the caller's time while it loads. `clock` says when keys end; its `sleep` is not used.
///
/// # Errors
/// [`DoorError`]: the address is taken, or reachable by others without a password; the keys cannot
/// be loaded.
pub fn open(
    mut options: Options,
    keyspace: Box<dyn Keyspace>,
    clock: Arc<dyn Clock>,
) -> Result<Handle, DoorError> {
    if !options.listen.ip().is_loopback() && options.password.is_none() {
        return Err(DoorError::Exposed(options.listen));
    }
    let address = options.listen;
    let listen = |source| DoorError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    options.listen = address;
    let door = Door::open(options, keyspace, clock.unix_ms()).map_err(DoorError::Load)?;
    let poll = Poll::new().map_err(DoorError::System)?;
    let waker = Waker::new(poll.registry(), WAKER).map_err(DoorError::System)?;
    let (endings, asked) = mpsc::channel();
    let mut circle = Circle::new(door, poll, listener, clock, asked);
    circle.listen().map_err(DoorError::System)?;
    let (stop, metrics) = (circle.stop.clone(), circle.metrics.clone());
    let thread = std::thread::Builder::new()
        .name("door-redis".to_owned())
        .spawn(move || circle.run())
        .map_err(DoorError::System)?;
    tracing::info!(%address, "the Redis door is open; its objects are open ones");
    let waker = Arc::new(waker);
    Ok(Handle { address, stop, waker, endings, metrics, thread: Some(thread) })
}

impl Handle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Has the loop look at [`Keyspace::changed`] soon.
    pub fn wake(&self) {
        let _ = self.waker.wake();
    }

    /// What ends the door's writes while it goes on to serve reads.
    pub fn writes(&self) -> Writes {
        Writes { waker: self.waker.clone(), endings: self.endings.clone() }
    }

    /// Closes the door: requests that have come are answered, then the connections end. Waits for
    /// that, some seconds where a caller does not read.
    pub fn close(mut self) {
        self.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the door's thread ended with a panic");
        }
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.waker.wake();
    }
}

/// Ends the writes of a door, which goes on to serve reads.
#[derive(Clone, Debug)]
pub struct Writes {
    waker: Arc<Waker>,
    endings: mpsc::Sender<SyncSender<()>>,
}

impl Writes {
    /// Has every command from now on that would write answered with an error, and waits until it is so: what was
    /// answered before is committed then, and whoever attests it has it. Of a door that is closed it waits for nothing.
    pub fn end(&self) {
        let (done, ended) = mpsc::sync_channel(1);
        if self.endings.send(done).is_ok() {
            let _ = self.waker.wake();
            // An error says that the door's thread has ended, and with it writes.
            let _ = ended.recv();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}
