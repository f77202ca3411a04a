//! Peers that do the least which the experiment asks for: what this machine leaves for it.
//!
//! A process for each, as ours are, on one thread. What is put goes to the three peers that its id draws, each appends it to its
//! one file and syncs that (those that wait are synced together), and two of three are waited for, as of ours. A get is read
//! from that file, or asked from the first of the three. Frames are a length and bytes over TCP. There is no encryption, hash,
//! signature, lease, rate, news, repair, nor any other protocol, so no storage of this kind can do with less here.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use crypto::{NetworkId, RecordId};
use document::Record;
use env::calls::CallError;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::COPIES;
use crate::Bench;
use crate::community::first_line;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::line::{self, Line};
use crate::load::documents::Sealing;
use crate::load::{Entries, Got};
use crate::ports::Ports;
use crate::process;
use crate::program::{Program, Run};
use crate::seeded::Seeded;

const NETWORK: NetworkId = NetworkId::new([9; 32]);
const ID_BYTES: usize = 32;
/// An id and what is asked stand before the bytes.
const HEAD_BYTES: usize = 1 + ID_BYTES;
/// Copies that are waited for.
const DURABLE: usize = COPIES as usize / 2 + 1;
/// Records that wait to be written by one peer.
const WRITES_MAX: usize = 1024;
/// Records synced together at most.
const TOGETHER_MAX: usize = 64;
const START_LIMIT: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Ask {
    /// To store what follows at its holders.
    Put = 1,
    /// To find a record.
    Get = 2,
    /// To store it here.
    Store = 3,
    /// To read it here.
    Fetch = 4,
}

impl Ask {
    fn of(byte: u8) -> Option<Self> {
        [Self::Put, Self::Get, Self::Store, Self::Fetch].into_iter().find(|ask| *ask as u8 == byte)
    }

    fn frame(self, id: &[u8; ID_BYTES], bytes: &[u8]) -> Bytes {
        let mut frame = BytesMut::with_capacity(HEAD_BYTES + bytes.len());
        frame.put_u8(self as u8);
        frame.put_slice(id);
        frame.put_slice(bytes);
        frame.freeze()
    }
}

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Site {
    file: PathBuf,
    which: usize,
    peers: Vec<SocketAddr>,
}

/// The peers that hold an id, of so many.
fn holders(id: &[u8; ID_BYTES], peers: usize) -> Vec<usize> {
    let mut word = [0; 8];
    word.copy_from_slice(&id[..8]);
    let (mut seeded, mut holders) = (Seeded::new(u64::from_le_bytes(word)), Vec::new());
    while holders.len() < peers.min(COPIES as usize) {
        let peer = seeded.below(peers);
        if !holders.contains(&peer) {
            holders.push(peer);
        }
    }
    holders
}

/// A record that is to be durable.
struct Writing {
    id: [u8; ID_BYTES],
    bytes: Bytes,
    written: oneshot::Sender<()>,
}

/// Where records lie in the file: offset and length.
type Index = Arc<Mutex<HashMap<[u8; ID_BYTES], (u64, usize)>>>;

/// Appends records, and syncs those together that wait.
fn write(
    mut file: &File,
    index: &Index,
    mut writes: mpsc::Receiver<Writing>,
) -> std::io::Result<()> {
    let (mut end, mut together) = (0, Vec::new());
    while let Some(first) = writes.blocking_recv() {
        together.push(first);
        while together.len() < TOGETHER_MAX {
            let Ok(next) = writes.try_recv() else { break };
            together.push(next);
        }
        for writing in &together {
            file.write_all(&writing.bytes)?;
        }
        file.sync_data()?;
        for writing in together.drain(..) {
            let length = writing.bytes.len();
            let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
            index.insert(writing.id, (end, length));
            end += length as u64;
            let _ = writing.written.send(());
        }
    }
    Ok(())
}

/// One of them.
struct Peer {
    site: Site,
    lines: Vec<OnceCell<Line>>,
    index: Index,
    file: Arc<File>,
    writes: mpsc::Sender<Writing>,
}

impl Peer {
    fn start(site: Site) -> Result<Arc<Self>, BenchError> {
        let file = File::options().read(true).append(true).create(true).open(&site.file);
        let file = Arc::new(file.map_err(BenchError::io("write", &site.file))?);
        let (writes, asked) = mpsc::channel(WRITES_MAX);
        let index = Index::default();
        let (kept, written) = (file.clone(), index.clone());
        std::thread::spawn(move || {
            if write(&kept, &written, asked).is_err() {
                // Who asks sees that nothing becomes durable.
                std::process::exit(1);
            }
        });
        let lines = site.peers.iter().map(|_| OnceCell::new()).collect();
        Ok(Arc::new(Self { site, lines, index, file, writes }))
    }

    async fn line(&self, peer: usize) -> std::io::Result<&Line> {
        self.lines[peer].get_or_try_init(|| Line::open(self.site.peers[peer])).await
    }

    /// Stores one copy; whether that worked.
    async fn store(&self, peer: usize, id: [u8; ID_BYTES], bytes: Bytes) -> bool {
        if peer != self.site.which {
            let Ok(line) = self.line(peer).await else { return false };
            return !line.ask(Ask::Store.frame(&id, &bytes)).await.is_empty();
        }
        let (written, done) = oneshot::channel();
        let writing = Writing { id, bytes, written };
        self.writes.send(writing).await.is_ok() && done.await.is_ok()
    }

    fn read(&self, id: &[u8; ID_BYTES]) -> Option<Bytes> {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let (offset, length) = index.get(id).copied()?;
        drop(index);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes.into())
    }

    /// Answers what one is asked; nothing where it cannot.
    async fn answer(self: Arc<Self>, asked: Bytes) -> Vec<Bytes> {
        let id = asked.get(1..HEAD_BYTES).and_then(|id| <[u8; ID_BYTES]>::try_from(id).ok());
        let ask = asked.first().copied().and_then(Ask::of);
        let (Some(id), Some(ask)) = (id, ask) else { return Vec::new() };
        let bytes = asked.slice(HEAD_BYTES..);
        let done = match ask {
            Ask::Store => self.store(self.site.which, id, bytes).await.then(Bytes::new),
            Ask::Fetch => self.read(&id),
            Ask::Put => self.put(id, bytes).await.then(Bytes::new),
            Ask::Get => self.get(&id).await,
        };
        done.into_iter().collect()
    }

    /// A record from here, if this is one of its holders, else from the first of the others that has it: of three one may be
    /// behind.
    async fn get(&self, id: &[u8; ID_BYTES]) -> Option<Bytes> {
        let holders = holders(id, self.lines.len());
        if let Some(bytes) = holders.contains(&self.site.which).then(|| self.read(id)).flatten() {
            return Some(bytes);
        }
        for holder in holders.into_iter().filter(|holder| *holder != self.site.which) {
            let line = self.line(holder).await.ok()?;
            if let Some(bytes) = line.ask(Ask::Fetch.frame(id, &[])).await.pop() {
                return Some(bytes);
            }
        }
        None
    }

    /// Stores all copies; whether so many as are waited for are durable. The others go on behind.
    async fn put(self: &Arc<Self>, id: [u8; ID_BYTES], bytes: Bytes) -> bool {
        let holders = holders(&id, self.lines.len());
        let wanted = DURABLE.min(holders.len());
        let copy = |holder| {
            let (this, bytes) = (self.clone(), bytes.clone());
            tokio::spawn(async move { this.store(holder, id, bytes).await })
        };
        let mut copies: FuturesUnordered<_> = holders.into_iter().map(copy).collect();
        let mut durable = 0;
        while durable < wanted {
            match copies.next().await {
                Some(stored) => durable += usize::from(matches!(stored, Ok(true))),
                None => return false,
            }
        }
        true
    }
}

/// Runs the peer of such a file until it is killed.
///
/// # Errors
/// [`BenchError`].
pub(super) fn serve(file: &Path) -> Result<(), BenchError> {
    let text = std::fs::read(file).map_err(BenchError::io("read", file))?;
    let site: Site = serde_json::from_slice(&text)?;
    let here = site.peers.get(site.which).copied();
    let here = here.ok_or(BenchError::Answer { verb: String::from("bench libri") })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::io("start", "a runtime"))?;
    let peer = Peer::start(site)?;
    let end: std::io::Result<()> = runtime.block_on(async {
        let listener = TcpListener::bind(here).await?;
        println!("ready");
        loop {
            let (stream, _) = listener.accept().await?;
            let peer = peer.clone();
            tokio::spawn(line::answer(stream, move |asked| peer.clone().answer(asked)));
        }
    });
    end.map_err(BenchError::io("listen at", here.to_string()))
}

/// Such processes, and connections to each.
pub(super) struct Bare {
    lines: Vec<Line>,
    sealing: Sealing,
    // In this order: processes end before their folder goes.
    runs: Vec<Run>,
    _folder: Folder,
}

impl Bare {
    /// Starts so many, and waits until they serve.
    pub(super) async fn start(bench: &Bench, count: usize) -> Result<Arc<Self>, BenchError> {
        let folder = Folder::new(bench.dir.as_deref())?;
        let mut ports = Ports::new();
        let mut place = || Ok::<_, BenchError>((Ipv4Addr::LOCALHOST, ports.free()?).into());
        let peers: Vec<SocketAddr> = (0..count).map(|_| place()).collect::<Result<_, _>>()?;
        let program = Program::new(&bench.program);
        let (mut runs, mut ready) = (Vec::new(), Vec::new());
        for which in 0..count {
            let file = folder.path().join(format!("{which}.json"));
            let site = Site { file: file.with_extension("log"), which, peers: peers.clone() };
            std::fs::write(&file, serde_json::to_vec(&site)?)
                .map_err(BenchError::io("write", &file))?;
            let mut command = program.command(["bench", "libri", "--as-bare"]);
            command.arg(&file);
            runs.push(Run::start_taking(&mut command, |child| ready.extend(first_line(child)))?);
        }
        for line in ready {
            let said = || Ok(line.try_recv().is_ok().then_some(()));
            bench.stop.until("a bare peer did not start", START_LIMIT, said)?;
        }
        let lines = line::all(&peers).await?;
        Ok(Arc::new(Self { lines, sealing: Sealing::new(NETWORK), runs, _folder: folder }))
    }

    /// Processor time of all of them so far.
    pub(super) fn cpu(&self) -> Duration {
        self.runs.iter().filter_map(|run| process::cpu(run.pid())).sum()
    }
}

impl Entries for Bare {
    fn sealing(&self) -> Sealing {
        self.sealing.clone()
    }

    async fn put(&self, seeded: &mut Seeded, record: Record) -> Result<(), CallError> {
        let line = &self.lines[seeded.below(self.lines.len())];
        let frame = Ask::Put.frame(record.id.as_bytes(), &record.bytes);
        line.ask(frame).await.pop().map(drop).ok_or_else(|| {
            let address = String::from("a bare peer");
            CallError::Unreachable { address, reason: String::from("it stored nothing") }
        })
    }

    async fn get(&self, seeded: &mut Seeded, id: RecordId) -> Result<Got, CallError> {
        let asked = seeded.below(self.lines.len());
        let frame = Ask::Get.frame(id.as_bytes(), &[]);
        let bytes = self.lines[asked].ask(frame).await.pop().ok_or(CallError::NotFound)?;
        let held = holders(id.as_bytes(), self.lines.len()).contains(&asked);
        Ok(Got { bytes, held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_different_peers_that_the_id_draws() {
        for peers in [1, 2, 3, 8, 64] {
            for first in 0..=255 {
                let id = [first; ID_BYTES];
                let mut drawn = holders(&id, peers);
                assert_eq!(drawn, holders(&id, peers));
                drawn.sort_unstable();
                drawn.dedup();
                assert_eq!(drawn.len(), peers.min(3));
                assert!(drawn.iter().all(|peer| *peer < peers));
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_asked_for_nothing() {
        assert!(Ask::of(0).is_none() && Ask::of(5).is_none());
        let frame = Ask::Store.frame(&[7; ID_BYTES], b"bytes");
        assert!(Ask::of(frame[0]) == Some(Ask::Store));
        assert_eq!(
            (&frame[1..HEAD_BYTES], &frame[HEAD_BYTES..]),
            (&[7; ID_BYTES][..], &b"bytes"[..])
        );
    }
}
