//! `hold object put --lines`: each line of the input a version, on the one before.
//!
//! What is there to be read goes as one batch, under one signature, while the next lines come: a lone line waits for
//! nothing, and many share what a put costs. A line is told when its version is stored, in order; the first that is not
//! ends it.

use std::collections::VecDeque;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use author::objects::{
    INLINE_VALUE_BYTES_MAX, Object, Objects, ObjectsError, VersionId, WriteOptions, Written,
};
use bytes::Bytes;
use crypto::{Class, Classified};
use tokio::sync::mpsc;

use super::write;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// Lines that are read ahead, and the versions of one batch.
const AHEAD: usize = 256;
/// Bytes of one batch, about.
const BATCH_BYTES: usize = 2 << 20;

/// Batches whose last copies are waited for beside the next.
const BEHIND_MAX: usize = 16;

/// How long a batch is sent again where too few holders can be reached: one that was killed is back by then.
const AGAIN_FOR: Duration = Duration::from_secs(60);
/// How long it waits between.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Lines as they are read.
type Lines = mpsc::Receiver<Result<Vec<u8>, HoldError>>;

/// Reads lines on a thread of its own, without their ends, until the input ends or nobody wants more.
fn read(path: PathBuf) -> Lines {
    let (send, receive) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let each = |line| send.blocking_send(line).is_ok();
        if let Err(error) = read_all(&path, &each) {
            each(Err(error));
        }
    });
    receive
}

fn read_all(
    path: &Path,
    each: &impl Fn(Result<Vec<u8>, HoldError>) -> bool,
) -> Result<(), HoldError> {
    let failed = || HoldError::io("read", path);
    let mut input: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => {
            let file = std::fs::File::open(path).map_err(failed())?;
            Box::new(std::io::BufReader::new(file))
        }
    };
    loop {
        let mut line = Vec::new();
        let most = INLINE_VALUE_BYTES_MAX as u64 + 2;
        let read = std::io::Read::take(&mut input, most).read_until(b'\n', &mut line);
        if read.map_err(failed())? == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() > INLINE_VALUE_BYTES_MAX {
            let text = format!("a line of over {INLINE_VALUE_BYTES_MAX} bytes");
            return Err(HoldError::argument("--lines", text));
        }
        if !each(Ok(line)) {
            return Ok(());
        }
    }
}

/// What has come by now, as values of one batch; an error behind them is told when they are stored.
fn gather(first: Vec<u8>, lines: &mut Lines) -> (Vec<Bytes>, Option<HoldError>) {
    let (mut values, mut bytes) = (vec![Bytes::from(first)], 0);
    while values.len() < AHEAD && bytes < BATCH_BYTES {
        match lines.try_recv() {
            Ok(Ok(next)) => {
                bytes += next.len();
                values.push(next.into());
            }
            Ok(Err(error)) => return (values, Some(error)),
            Err(_) => break,
        }
    }
    (values, None)
}

/// Sends one batch. Where too few holders can be reached it is sent again for a while: the same values make the same
/// versions, so nothing is there twice.
async fn send(
    (objects, object): (&Objects, &Object),
    values: &[Bytes],
    base: Option<VersionId>,
    options: WriteOptions,
) -> Result<Vec<Result<Written, ObjectsError>>, HoldError> {
    let started = Instant::now();
    loop {
        let (mut batch, mut base) = (objects.batch(options), base);
        for value in values {
            base = Some(batch.put(object, base.as_ref(), value.clone()).await?);
        }
        let away = |error: &ObjectsError| error.class() == Class::Unavailable;
        match batch.send().await {
            Ok(sent) if !sent.iter().any(|one| one.as_ref().is_err_and(away)) => return Ok(sent),
            Err(error) if !away(&error) => return Err(error.into()),
            outcome if started.elapsed() > AGAIN_FOR => return Ok(outcome?),
            _ => tokio::time::sleep(AGAIN_AFTER).await,
        }
    }
}

/// Puts them all.
pub(super) async fn put(
    session: &Session,
    (objects, object): (&Objects, &Object),
    path: PathBuf,
    mut base: Option<VersionId>,
    options: WriteOptions,
) -> Result<Exit, HoldError> {
    let mut lines = read(path);
    let mut behind = Behind::default();
    while let Some(first) = lines.recv().await {
        let (values, ended) = gather(first?, &mut lines);
        // All of a batch share the copies that are on their way.
        let mut last: Option<Written> = None;
        for written in send((objects, object), &values, base, options).await? {
            let written = written?;
            base = Some(written.id);
            write::tell(session, &written, written.acked)?;
            last = Some(written);
        }
        if let Some(last) = last {
            behind.push(has_all(last)).await;
        }
        if let Some(error) = ended {
            return Err(error);
        }
    }
    Ok(if behind.all_have().await { Exit::Done } else { Exit::Partly })
}

/// Whether a batch gets all the copies that were wanted, once what is on its way has ended.
async fn has_all(mut last: Written) -> bool {
    last.rest.wait(walk::WALK_LIMIT).await.acked >= last.wanted
}

/// The batches whose copies are still on their way, oldest first: at most [`BEHIND_MAX`], which bounds how far a slow holder is
/// left behind.
struct Behind<F> {
    waiting: VecDeque<F>,
    /// Whether one of those before had too few copies at its end.
    short: bool,
}

impl<F> Default for Behind<F> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), short: false }
    }
}

impl<F: Future<Output = bool>> Behind<F> {
    /// Adds a batch; where there are too many, the oldest is waited for.
    async fn push(&mut self, batch: F) {
        self.waiting.push_back(batch);
        if self.waiting.len() > BEHIND_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.short |= !oldest.await;
        }
    }

    /// Waits for all; whether each had all its copies at its end.
    async fn all_have(mut self) -> bool {
        while let Some(oldest) = self.waiting.pop_front() {
            self.short |= !oldest.await;
        }
        !self.short
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn one_batch_that_lacks_copies_is_told_however_many_come_after_it() {
        for count in [1, BEHIND_MAX, 3 * BEHIND_MAX] {
            for short in [None, Some(0), Some(count / 2), Some(count - 1)] {
                let mut behind = Behind::default();
                for number in 0..count {
                    behind.push(ready(Some(number) != short)).await;
                    assert!(behind.waiting.len() <= BEHIND_MAX);
                }
                assert_eq!(behind.all_have().await, short.is_none(), "{short:?} of {count}");
            }
        }
    }
}
