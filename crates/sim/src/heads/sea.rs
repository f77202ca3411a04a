//! The engine's own simulated machine with a network that a plan can cut and slow down.
//!
//! Members listen where their committee says; here each *party* (a member, or the second machine that runs under a member's key)
//! has a port of its own for each start, and whoever dials an address reaches the party that it can reach there. What is sent
//! travels in a task of its own, so that a long way delays and does not slow down.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use commonware_runtime::telemetry::metrics::{Metric, Registered};
use commonware_runtime::{
    BlobVersion, Clock, Error, Handle, IoBufs, Listener, ListenerOf, Metrics, Name, Network,
    Resolver, Sink, SinkOf, Spawner, Storage, StreamOf, Supervisor, deterministic, signal,
};
use rand_core::{TryCryptoRng, TryRng};
use tokio::sync::mpsc;

/// Where the first member listens, as its committee says.
const FIRST_PORT: u16 = 3_000;
/// Where the ports begin at which parties really listen.
const REAL_PORTS: u16 = 5_000;
/// The first port that the engine's network gives to who dials.
const DIALER_PORTS: u16 = 32_768;

/// Where a member is, as its committee says.
pub(super) fn place(member: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_PORT + member as u16))
}

/// What the network is like now.
#[derive(Default)]
struct Charts {
    /// The parties of each member, with the port at which they listen.
    ports: BTreeMap<usize, Vec<(usize, u16)>>,
    started: u16,
    dialled: u16,
    dialers: BTreeMap<u16, usize>,
    cut: BTreeSet<(usize, usize)>,
    delays: BTreeMap<(usize, usize), Duration>,
}

/// The network of all parties.
#[derive(Clone, Default)]
pub(super) struct Sea(Arc<Mutex<Charts>>);

impl Sea {
    fn lock(&self) -> MutexGuard<'_, Charts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts two parties off from each other, or joins them again.
    pub(super) fn cut(&self, one: usize, other: usize, cut: bool) {
        let mut charts = self.lock();
        for pair in [(one, other), (other, one)] {
            if cut {
                charts.cut.insert(pair);
            } else {
                charts.cut.remove(&pair);
            }
        }
    }

    /// How long what one sends to another takes.
    pub(super) fn delay(&self, from: usize, to: usize, delay: Duration) {
        self.lock().delays.insert((from, to), delay);
    }

    /// A party runs no more: nobody reaches it.
    pub(super) fn gone(&self, party: usize) {
        let mut charts = self.lock();
        charts.ports.values_mut().for_each(|parties| parties.retain(|(one, _)| *one != party));
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.lock().cut.contains(&(from, to))
    }

    fn takes(&self, from: usize, to: usize) -> Duration {
        self.lock().delays.get(&(from, to)).copied().unwrap_or_default()
    }
}

/// A party's machine.
pub(super) struct Machine {
    inner: deterministic::Context,
    /// What lives as long as the party: its ways to others do, and not only as long as the task that opened them.
    root: Option<Arc<deterministic::Context>>,
    sea: Sea,
    member: usize,
    party: usize,
}

impl Machine {
    /// The machine of a party that runs under a member's key.
    pub(super) fn new(
        inner: &deterministic::Context,
        sea: &Sea,
        member: usize,
        party: usize,
    ) -> Self {
        Self { inner: inner.child("party"), root: None, sea: sea.clone(), member, party }
    }

    fn with(&self, inner: deterministic::Context) -> Self {
        let (root, sea) = (self.root.clone(), self.sea.clone());
        Self { inner, root, sea, member: self.member, party: self.party }
    }

    fn changed(
        self,
        change: impl FnOnce(deterministic::Context) -> deterministic::Context,
    ) -> Self {
        let Self { inner, root, sea, member, party } = self;
        Self { inner: change(inner), root, sea, member, party }
    }

    /// What goes to a party goes through a task of its own.
    fn wire(&self, mut sink: SinkOf<deterministic::Context>, to: usize) -> Wire {
        let (sender, mut receiver) = mpsc::unbounded_channel::<(SystemTime, IoBufs)>();
        let (sea, from) = (self.sea.clone(), self.party);
        let root = self.root.as_deref().unwrap_or(&self.inner);
        let task = root.child("wire").spawn(move |context| async move {
            while let Some((at, bytes)) = receiver.recv().await {
                if at > context.current() {
                    context.sleep_until(at).await;
                }
                if sea.is_cut(from, to) || sink.send(bytes).await.is_err() {
                    return;
                }
            }
        });
        drop(task);
        let clock = root.child("clock");
        Wire { clock, sea: self.sea.clone(), from, to, sender }
    }
}

/// The end of a connection at which a party sends.
pub(super) struct Wire {
    clock: deterministic::Context,
    sea: Sea,
    from: usize,
    to: usize,
    sender: mpsc::UnboundedSender<(SystemTime, IoBufs)>,
}

impl Sink for Wire {
    async fn send(&mut self, bufs: impl Into<IoBufs> + Send) -> Result<(), Error> {
        let at = self.clock.current() + self.sea.takes(self.from, self.to);
        self.sender.send((at, bufs.into())).map_err(|_| Error::Closed)
    }
}

/// Where a party takes connections.
pub(super) struct Harbour {
    inner: ListenerOf<deterministic::Context>,
    machine: Machine,
    place: SocketAddr,
}

impl Listener for Harbour {
    type Sink = Wire;
    type Stream = StreamOf<deterministic::Context>;

    async fn accept(&mut self) -> Result<(SocketAddr, Self::Sink, Self::Stream), Error> {
        let (from, sink, stream) = self.inner.accept().await?;
        let party = self.machine.sea.lock().dialers.get(&from.port()).copied();
        let wire = self.machine.wire(sink, party.unwrap_or(usize::MAX));
        Ok((from, wire, stream))
    }

    fn local_addr(&self) -> Result<SocketAddr, std::io::Error> {
        Ok(self.place)
    }
}

impl Network for Machine {
    type Listener = Harbour;

    async fn bind(&self, socket: SocketAddr) -> Result<Harbour, Error> {
        let real = {
            let mut charts = self.sea.lock();
            charts.started += 1;
            let real = REAL_PORTS + charts.started;
            let parties = charts.ports.entry(self.member).or_default();
            parties.retain(|(party, _)| *party != self.party);
            parties.push((self.party, real));
            real
        };
        let inner = self.inner.bind(SocketAddr::new(socket.ip(), real)).await?;
        Ok(Harbour { inner, machine: self.with(self.inner.child("harbour")), place: socket })
    }

    async fn dial(&self, socket: SocketAddr) -> Result<(SinkOf<Self>, StreamOf<Self>), Error> {
        let member = usize::from(socket.port().wrapping_sub(FIRST_PORT));
        let (to, real) = {
            let mut charts = self.sea.lock();
            let reached = charts.ports.get(&member).and_then(|parties| {
                let open = |(to, _): &&(usize, u16)| !charts.cut.contains(&(self.party, *to));
                parties.iter().find(open).copied()
            });
            let reached = reached.ok_or(Error::ConnectionFailed)?;
            let dialer = DIALER_PORTS + charts.dialled;
            charts.dialled += 1;
            charts.dialers.insert(dialer, self.party);
            reached
        };
        let (sink, stream) = self.inner.dial(SocketAddr::new(socket.ip(), real)).await?;
        Ok((self.wire(sink, to), stream))
    }
}

impl Supervisor for Machine {
    fn name(&self) -> Name {
        self.inner.name()
    }

    fn child(&self, label: &'static str) -> Self {
        self.with(self.inner.child(label))
    }

    fn with_attribute(self, key: &'static str, value: impl std::fmt::Display) -> Self {
        self.changed(|inner| inner.with_attribute(key, value))
    }
}

impl Spawner for Machine {
    fn shared(self, blocking: bool) -> Self {
        self.changed(|inner| inner.shared(blocking))
    }

    fn dedicated(self) -> Self {
        self.changed(deterministic::Context::dedicated)
    }

    fn spawn<F, Fut, T>(self, f: F) -> Handle<T>
    where
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let Self { inner, root, sea, member, party } = self;
        inner.spawn(move |inner| {
            let root = root.or_else(|| Some(Arc::new(inner.child("root"))));
            f(Self { inner, root, sea, member, party })
        })
    }

    async fn stop(self, value: i32, timeout: Option<Duration>) -> Result<(), Error> {
        self.inner.stop(value, timeout).await
    }

    fn stopped(&self) -> signal::Signal {
        self.inner.stopped()
    }
}

impl Metrics for Machine {
    fn register<N: Into<String>, H: Into<String>, M: Metric>(
        &self,
        name: N,
        help: H,
        metric: M,
    ) -> Registered<M> {
        self.inner.register(name, help, metric)
    }

    fn encode(&self) -> String {
        self.inner.encode()
    }
}

impl governor::clock::Clock for Machine {
    type Instant = SystemTime;

    fn now(&self) -> SystemTime {
        self.inner.current()
    }
}

impl governor::clock::ReasonablyRealtime for Machine {}

impl Clock for Machine {
    fn current(&self) -> SystemTime {
        self.inner.current()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.inner.sleep(duration)
    }

    fn sleep_until(
        &self,
        deadline: SystemTime,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.inner.sleep_until(deadline)
    }
}

impl TryRng for Machine {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.inner.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.inner.try_next_u64()
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.inner.try_fill_bytes(bytes)
    }
}

impl TryCryptoRng for Machine {}

impl Resolver for Machine {
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        self.inner.resolve(host).await
    }
}

impl Storage for Machine {
    type Blob = <deterministic::Context as Storage>::Blob;

    async fn open_versioned(
        &self,
        partition: &str,
        name: &[u8],
        versions: RangeInclusive<BlobVersion>,
    ) -> Result<(Self::Blob, u64, BlobVersion), Error> {
        self.inner.open_versioned(partition, name, versions).await
    }

    async fn remove(&self, partition: &str, name: Option<&[u8]>) -> Result<(), Error> {
        self.inner.remove(partition, name).await
    }

    async fn scan(&self, partition: &str) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.scan(partition).await
    }
}
