//! What an experiment's own processes say to each other: frames with numbers, many at once on one connection.
//!
//! ```text
//! asked     number 8 | length 4 | bytes
//! answered  number 8 | answers 4 | (length 4 | answer) each        no answers: it was refused, or is to be tried again
//! ```
//! It stands for the call through a librarian where a committee's members are processes of their own (`heads`), and for every
//! call where peers do nothing but pass bytes on (`libri::bare`).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::error::BenchError;

/// The longest frame, in bytes.
const FRAME_BYTES_MAX: u32 = 8 << 20;
/// Between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(50);
/// Frames that wait to be written.
const FRAMES_MAX: usize = 8_192;

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Vec<Bytes>>>>>;

/// A connection to a member.
#[derive(Clone)]
pub(crate) struct Line {
    next: Arc<std::sync::atomic::AtomicU64>,
    waiting: Waiting,
    frames: mpsc::Sender<(u64, Bytes)>,
}

/// Reads a length and so many bytes.
async fn read_long(reader: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Bytes> {
    let length = reader.read_u32().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    reader.read_exact(&mut bytes).await?;
    Ok(bytes.into())
}

async fn write_all(
    write: impl AsyncWriteExt + Unpin,
    frames: &mut mpsc::Receiver<(u64, Bytes)>,
) -> io::Result<()> {
    let mut write = BufWriter::new(write);
    while let Some((number, bytes)) = frames.recv().await {
        write.write_u64(number).await?;
        write.write_u32(bytes.len() as u32).await?;
        write.write_all(&bytes).await?;
        if frames.is_empty() {
            write.flush().await?;
        }
    }
    Ok(())
}

async fn read_all(read: impl AsyncReadExt + Unpin, answered: &Waiting) -> io::Result<()> {
    let mut read = BufReader::new(read);
    loop {
        let (number, count) = (read.read_u64().await?, read.read_u32().await?);
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push(read_long(&mut read).await?);
        }
        let mut waiting = answered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reply) = waiting.remove(&number) {
            let _ = reply.send(answers);
        }
    }
}

impl Line {
    /// Connects, and does so again when the member was started again: what was asked before has no answer then.
    pub(crate) async fn open(place: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(place).await?;
        let (frames, mut asked) = mpsc::channel::<(u64, Bytes)>(FRAMES_MAX);
        let waiting: Waiting = Arc::default();
        let answered = Arc::clone(&waiting);
        tokio::spawn(async move {
            loop {
                // A connection that does not batch is slower, and no reason to end.
                let _ = stream.set_nodelay(true);
                let (read, write) = stream.split();
                let ended = tokio::select! {
                    end = write_all(write, &mut asked) => end.is_ok(),
                    _ = read_all(read, &answered) => false,
                };
                answered.lock().unwrap_or_else(PoisonError::into_inner).clear();
                if ended {
                    return;
                }
                stream = loop {
                    match TcpStream::connect(place).await {
                        Ok(stream) => break stream,
                        Err(_) => tokio::time::sleep(RECONNECT).await,
                    }
                };
            }
        });
        Ok(Self { next: Arc::default(), waiting, frames })
    }

    /// What it was answered; nothing where it was refused.
    pub(crate) async fn ask(&self, asked: Bytes) -> Vec<Bytes> {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, reply);
        if self.frames.send((number, asked)).await.is_err() {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }
}

/// A connection to each of these.
pub(crate) async fn all(places: &[SocketAddr]) -> Result<Vec<Line>, BenchError> {
    let mut lines = Vec::new();
    for place in places {
        let line = Line::open(*place).await;
        lines.push(line.map_err(BenchError::io("reach", place.to_string()))?);
    }
    Ok(lines)
}

/// Answers one connection, all that is asked at once.
pub(crate) async fn answer<F>(stream: TcpStream, answered: impl Fn(Bytes) -> F) -> io::Result<()>
where
    F: Future<Output = Vec<Bytes>> + Send + 'static,
{
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    let (replies, mut written) = mpsc::channel::<(u64, Vec<Bytes>)>(FRAMES_MAX);
    tokio::spawn(async move {
        let mut write = BufWriter::new(write);
        while let Some((number, answers)) = written.recv().await {
            write.write_u64(number).await?;
            write.write_u32(answers.len() as u32).await?;
            for one in answers {
                write.write_u32(one.len() as u32).await?;
                write.write_all(&one).await?;
            }
            if written.is_empty() {
                write.flush().await?;
            }
        }
        io::Result::Ok(())
    });
    let mut read = BufReader::new(read);
    loop {
        let number = read.read_u64().await?;
        let asked = read_long(&mut read).await?;
        let (answers, replies) = (answered(asked), replies.clone());
        tokio::spawn(async move {
            let _ = replies.send((number, answers.await)).await;
        });
    }
}
