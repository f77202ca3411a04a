//! A TCP relay that can cut, stall, or flip one byte at an offset of either direction.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::task::JoinSet;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// From the caller to the peer.
    Out,
    /// Back.
    Back,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    None,
    /// This bit mask is flipped into the byte at the offset.
    Flip(Way, u64, u8),
    /// The connection ends before the byte at the offset.
    Cut(Way, u64),
    /// Nothing more passes from the offset on.
    Stall(Way, u64),
}

/// It ends with its last clone; so do its connections.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) bytes: Arc<[AtomicU64; 2]>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr, fault: Fault) -> Self {
        Self::of(to, fault, usize::MAX).await
    }

    /// Lets so many connections through; of later ones nothing passes.
    pub(crate) async fn of(to: SocketAddr, fault: Fault, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let bytes: Arc<[AtomicU64; 2]> = Arc::default();
        let (counted, passed) = (connections.clone(), bytes.clone());
        let task = tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((from, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let passed = passed.clone();
                all.spawn(async move {
                    if number >= most {
                        return std::future::pending().await;
                    }
                    let Ok(there) = TcpStream::connect(to).await else { return };
                    let _ = (from.set_nodelay(true), there.set_nodelay(true));
                    let (from_read, from_write) = from.into_split();
                    let (there_read, there_write) = there.into_split();
                    // The end of either direction ends both.
                    tokio::select! {
                        () = pass(from_read, there_write, Way::Out, fault, &passed[0]) => {}
                        () = pass(there_read, from_write, Way::Back, fault, &passed[1]) => {}
                    }
                });
            }
        });
        Self { address, connections, bytes, task }
    }

    pub(crate) fn passed(&self, way: Way) -> u64 {
        self.bytes[usize::from(way == Way::Back)].load(Ordering::SeqCst)
    }
}

async fn pass(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    way: Way,
    fault: Fault,
    passed: &AtomicU64,
) {
    let (mut at, mut buffer) = (0u64, vec![0; 64 << 10]);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut count = count as u64;
        let inside = |offset: u64| offset >= at && offset < at + count;
        let (mut cut, mut stall) = (false, false);
        match fault {
            Fault::Flip(of, offset, mask) if of == way && inside(offset) => {
                buffer[usize::try_from(offset - at).unwrap()] ^= mask;
            }
            Fault::Cut(of, offset) if of == way && inside(offset) => {
                (cut, count) = (true, offset - at);
            }
            Fault::Stall(of, offset) if of == way && inside(offset) => {
                (stall, count) = (true, offset - at);
            }
            _ => {}
        }
        if to.write_all(&buffer[..usize::try_from(count).unwrap()]).await.is_err() || cut {
            return;
        }
        at += count;
        passed.fetch_add(count, Ordering::SeqCst);
        if stall {
            std::future::pending::<()>().await;
        }
    }
}
