//! One program's turn: runs of its client, one after the other, each timed; the same runs for all that serve.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, BoxError, Stop, Theirs, Work};

use crate::error::RivalError;
use crate::process::{self, Ran};

/// Next to nothing, and yet enough that no program keeps it in its name.
const TINY_BYTES: usize = 1024;

/// Where clients run, and how long each may.
pub(crate) struct Turn<'a> {
    stop: &'a Stop,
    folder: &'a Path,
    limit: Duration,
    runs: Cell<u32>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(bench: &'a Bench, folder: &'a Path, limit: Duration) -> Self {
        Self { stop: &bench.stop, folder, limit, runs: Cell::new(0) }
    }

    /// Runs a client to its end.
    ///
    /// # Errors
    /// As [`process::run`].
    pub(crate) fn run(&self, command: Command) -> Result<Ran, RivalError> {
        let number = self.runs.replace(self.runs.get() + 1);
        let log = self.folder.join(format!("client{number}.log"));
        process::run(command, &log, self.limit, self.stop)
    }
}

/// A file of next to nothing: what it takes a client to start is timed with it.
pub(crate) fn tiny(folder: &Path) -> Result<PathBuf, RivalError> {
    let path = folder.join("tiny");
    std::fs::write(&path, [b'n'; TINY_BYTES]).map_err(RivalError::io("write", &path))?;
    Ok(path)
}

/// A program that serves, and its client.
pub(crate) trait Serving {
    /// Puts a file: how long the client took, and the name that the content is got by.
    fn put(&self, file: &Path) -> Result<(Duration, String), RivalError>;

    /// Gets a content to `out`, where nothing is, in the way of this number: how long the client took.
    fn get(&self, way: usize, name: &str, out: &Path) -> Result<Duration, RivalError>;

    /// The folders that hold what it stores.
    fn stores(&self) -> Vec<PathBuf>;
}

/// Puts a file and gets it in each of these ways, byte for byte, each after a rest. Before them a file of next to nothing goes the same ways: that
/// is what it takes the clients to start.
///
/// # Errors
/// What a run fails with, or where other bytes came out.
pub(crate) fn transfer(
    bench: &Bench,
    file: &Path,
    folder: &Path,
    ways: &[&'static str],
    serving: &dyn Serving,
) -> Result<Vec<Theirs>, BoxError> {
    let out = folder.join("out");
    let get = |way: usize, name: &str| {
        let removed = std::fs::remove_file(&out);
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(RivalError::io("remove", &out)(error));
        }
        serving.get(way, name, &out)
    };
    let (start, tiny) = serving.put(&tiny(folder)?)?;
    let starts: Vec<Duration> =
        (0..ways.len()).map(|way| get(way, &tiny)).collect::<Result<_, _>>()?;
    let before = process::bytes_below(&serving.stores())?;
    bench.rest()?;
    let (took, name) = serving.put(file)?;
    let stored_bytes = process::bytes_below(&serving.stores())?.saturating_sub(before);
    let mut done = vec![Theirs { work: Work::Put, way: "", took, start, stored_bytes }];
    for (number, (way, start)) in ways.iter().zip(starts).enumerate() {
        bench.rest()?;
        let took = get(number, &name)?;
        bench::same(file, &out, &bench.stop)?;
        done.push(Theirs { work: Work::Get, way, took, start, stored_bytes });
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A folder of files, by their numbers; the second way gives a byte less.
    struct Shelf(PathBuf);

    impl Serving for Shelf {
        fn put(&self, file: &Path) -> Result<(Duration, String), RivalError> {
            let bytes = std::fs::read(file).unwrap();
            let name = bytes.len().to_string();
            std::fs::write(self.0.join(&name), &bytes).unwrap();
            Ok((Duration::from_millis(bytes.len() as u64), name))
        }

        fn get(&self, way: usize, name: &str, out: &Path) -> Result<Duration, RivalError> {
            assert!(!out.exists());
            let bytes = std::fs::read(self.0.join(name)).unwrap();
            std::fs::write(out, &bytes[way..]).unwrap();
            Ok(Duration::from_millis(way as u64))
        }

        fn stores(&self) -> Vec<PathBuf> {
            vec![self.0.clone()]
        }
    }

    #[test]
    fn a_turn_is_timed_with_its_start_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf(folder.path().join("shelf"));
        std::fs::create_dir(&shelf.0).unwrap();
        let file = folder.path().join("content");
        std::fs::write(&file, vec![3; 5000]).unwrap();
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: Stop::default(),
            tell: Box::new(|_| ()),
        };
        let done = transfer(&bench, &file, folder.path(), &[""], &shelf).unwrap();
        let [put, get] = &done[..] else { panic!("{done:?}") };
        assert_eq!((put.took, put.start), (Duration::from_secs(5), Duration::from_millis(1024)));
        assert_eq!((put.stored_bytes, get.stored_bytes), (5000, 5000));
        let wrong = transfer(&bench, &file, folder.path(), &["", "elsewhere"], &shelf);
        assert!(wrong.is_err(), "the second way gives other bytes");
    }
}
