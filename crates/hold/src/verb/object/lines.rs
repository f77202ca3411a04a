//! `hold object put --lines`: each line of the input a version, on the one before.
//!
//! What is there to be read goes as one batch, under one signature, while the next lines come: a lone line waits for
//! nothing, and many share what a put costs. A line is told when its version is stored, in order; the first that is not
//! ends it.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use author::objects::{INLINE_VALUE_BYTES_MAX, Object, Objects, VersionId, WriteOptions};
use tokio::sync::mpsc;

use super::write;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// Lines that are read ahead, and the versions of one batch.
const AHEAD: usize = 256;
/// Bytes of one batch, about.
const BATCH_BYTES: usize = 2 << 20;

/// Reads lines on a thread of its own, without their ends, until the input ends or nobody wants more.
fn read(path: PathBuf) -> mpsc::Receiver<Result<Vec<u8>, HoldError>> {
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

/// Puts them all.
pub(super) async fn put(
    session: &Session,
    (objects, object): (&Objects, &Object),
    path: PathBuf,
    mut base: Option<VersionId>,
    options: WriteOptions,
) -> Result<Exit, HoldError> {
    let mut lines = read(path);
    let mut rests = Vec::new();
    while let Some(first) = lines.recv().await {
        let mut batch = objects.batch(options);
        let (mut line, mut bytes, mut ended) = (Some(first?), 0, None);
        while let Some(value) = line.take() {
            bytes += value.len();
            base = Some(batch.put(object, base.as_ref(), value).await?);
            if batch.len() < AHEAD && bytes < BATCH_BYTES {
                match lines.try_recv() {
                    Ok(Ok(next)) => line = Some(next),
                    Ok(Err(error)) => ended = Some(error),
                    Err(_) => {}
                }
            }
        }
        for written in batch.send().await? {
            let written = written?;
            base = Some(written.id);
            write::tell(session, &written, written.acked)?;
            // All of a batch share the copies that are on their way.
            rests.truncate(1);
            rests.push((written.rest, written.wanted));
        }
        if let Some(error) = ended {
            return Err(error);
        }
    }
    let mut exit = Exit::Done;
    for (mut rest, wanted) in rests {
        if rest.wait(walk::WALK_LIMIT).await.acked < wanted {
            exit = Exit::Partly;
        }
    }
    Ok(exit)
}
