//! The same file cut by hand into chunks, several runs putting them at once.
//!
//! Each run puts a folder with its part of the chunks. Opening the keyrings takes memory and
//! processor time that are no part of a transfer; the same number of runs that put next to nothing
//! is timed before and taken off. (Gets have no such form: a run gets one address, and its keyring
//! takes longer than a chunk.)

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::TRANSFER_LIMIT;
use crate::community::{Community, Home};
use crate::error::BenchError;
use crate::program::Run;
use crate::{Bench, size};

/// Runs at once at most: each takes scrypt's 128 MiB while it opens its keyring.
pub(super) const TRANSFERS_MAX: usize = 32;

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Split {
    work: &'static str,
    chunk_bytes: u64,
    transfers: usize,
    bytes: u64,
    seconds: f64,
    keyrings_seconds: f64,
    mb_s: f64,
    pub(super) to_whole: f64,
}

/// Puts `file` in chunks; `whole` is the rate of the whole file in MB/s.
pub(super) fn run(
    bench: &Bench,
    community: &Community,
    (file, chunk): (&Path, u64),
    transfers: usize,
    whole: f64,
) -> Result<Split, BenchError> {
    let homes = (0..transfers).map(|number| community.home(&format!("home{number}")));
    let homes = homes.collect::<Result<Vec<_>, _>>()?;
    let folders: Vec<PathBuf> =
        (0..transfers).map(|number| community.path().join(format!("part{number}"))).collect();
    for folder in &folders {
        fs::create_dir_all(folder).map_err(BenchError::io("make", folder))?;
        let tiny = folder.join("chunk");
        fs::write(&tiny, b"n").map_err(BenchError::io("write", &tiny))?;
    }
    let keyrings = put_all(bench, community, &homes, &folders)?.as_secs_f64();
    let bytes = cut(file, chunk, &folders, bench)?;
    let seconds = put_all(bench, community, &homes, &folders)?.as_secs_f64();
    let mb_s = bytes as f64 / 1e6 / (seconds - keyrings).max(1e-3);
    bench.tell(format!(
        "put in chunks of {}, {transfers} at once: {mb_s:.0} MB/s, whole {whole:.0}",
        size::text(chunk)
    ));
    Ok(Split {
        work: "put in chunks",
        chunk_bytes: chunk,
        transfers,
        bytes,
        seconds,
        keyrings_seconds: keyrings,
        mb_s,
        to_whole: mb_s / whole,
    })
}

/// All runs at once, from the first's start to the last's end.
fn put_all(
    bench: &Bench,
    community: &Community,
    homes: &[Home],
    folders: &[PathBuf],
) -> Result<Duration, BenchError> {
    let started = Instant::now();
    let runs = homes.iter().zip(folders).map(|(home, folder)| {
        let mut command = home.command(&community.program, ["put", "--json"]);
        Run::start(command.arg(folder))
    });
    for run in runs.collect::<Result<Vec<_>, _>>()? {
        run.finish(TRANSFER_LIMIT, &bench.stop)?;
    }
    Ok(started.elapsed())
}

/// Deals the file's chunks to the folders, in turn; how many bytes there were.
fn cut(file: &Path, chunk: u64, folders: &[PathBuf], bench: &Bench) -> Result<u64, BenchError> {
    let mut from = File::open(file).map_err(BenchError::io("read", file))?;
    let mut bytes = 0;
    for number in 0.. {
        bench.stop.check()?;
        let path = folders[number % folders.len()].join(match number / folders.len() {
            // In the stead of the one that was next to nothing.
            0 => "chunk".to_owned(),
            row => format!("chunk{row}"),
        });
        let failed = || BenchError::io("write", &path);
        let mut to = File::create(&path).map_err(failed())?;
        let copied = std::io::copy(&mut Read::take(&mut from, chunk), &mut to).map_err(failed())?;
        to.flush().and_then(|()| to.sync_all()).map_err(failed())?;
        bytes += copied;
        if copied < chunk {
            if copied == 0 {
                fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
            }
            break;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn chunks_are_dealt_in_turn_and_are_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"0123456789").unwrap();
        let folders = [folder.path().join("a"), folder.path().join("b")];
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        assert_eq!(cut(&file, 4, &folders, &bench).unwrap(), 10);
        let read = |folder: usize, name: &str| fs::read(folders[folder].join(name)).unwrap();
        assert_eq!(read(0, "chunk"), b"0123");
        assert_eq!(read(1, "chunk"), b"4567");
        assert_eq!(read(0, "chunk1"), b"89");
        fs::write(&file, b"01234567").unwrap();
        fs::remove_file(folders[0].join("chunk1")).unwrap();
        assert_eq!(cut(&file, 4, &folders, &bench).unwrap(), 8);
        assert!(!folders[0].join("chunk1").exists(), "no empty chunk at the end");
    }
}
