//! turmoil's network and time as the transport and the programs see them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use env::{Clock, Env, Task, Tasks};
use futures::FutureExt;
use futures::future::BoxFuture;
use rpc::{Dial, Duplex, Listen};
use testkit::time::{START_UNIX_S, SeededEntropy};

/// Opens connections from the host this is called on.
pub(super) struct Sockets;

#[async_trait]
impl Dial for Sockets {
    async fn dial(&self, address: &str) -> io::Result<Box<dyn Duplex>> {
        Ok(Box::new(turmoil::net::TcpStream::connect(address).await?))
    }
}

/// A listener of the host it was made on.
pub(super) struct Port {
    listener: turmoil::net::TcpListener,
    address: SocketAddr,
}

impl Port {
    pub(super) async fn open(port: u16) -> io::Result<Self> {
        let listener = turmoil::net::TcpListener::bind(("0.0.0.0", port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

#[async_trait]
impl Listen for Port {
    async fn accept(&self) -> io::Result<(Box<dyn Duplex>, SocketAddr)> {
        let (stream, from) = self.listener.accept().await?;
        Ok((Box::new(stream), from))
    }

    fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The simulation's time, the same on all hosts, through their restarts.
#[derive(Default)]
struct SimulatedClock {
    /// What was told last, for whoever asks while no host runs (say, what a crash drops).
    last_us: AtomicU64,
}

impl Clock for SimulatedClock {
    fn unix_ms(&self) -> u64 {
        START_UNIX_S * 1000 + u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn elapsed(&self) -> Duration {
        if let Some(now) = turmoil::sim_elapsed() {
            let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
            self.last_us.fetch_max(now_us, Ordering::SeqCst);
        }
        Duration::from_micros(self.last_us.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

/// Tasks of the host they are spawned on: a crash drops them. Blocking and CPU work is done inline.
struct HostTasks;

impl Tasks for HostTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        let handle = tokio::spawn(work);
        let abort = handle.abort_handle();
        let done = async move {
            if let Err(error) = handle.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        };
        Task::new(done.boxed(), Box::new(move || abort.abort()))
    }

    fn cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn parallelism(&self) -> usize {
        1
    }
}

/// Surroundings of one run of a host's program.
pub(super) fn env_of(seed: u64) -> Env {
    Env {
        clock: Arc::new(SimulatedClock::default()),
        entropy: Arc::new(SeededEntropy::new(seed)),
        tasks: Arc::new(HostTasks),
    }
}
