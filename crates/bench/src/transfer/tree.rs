//! Many small files: a folder put at once and got back at once, beside what others do with it.
//!
//! Ours is `hold put DIR` and `hold get --list`, each a run from its start to its end, less what the
//! same takes with a folder of one file: that is mostly the opening of the keyring.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::beside::{Beside, Content, Ours, Rivals, Work};
use super::{TRANSFER_LIMIT, content, settle};
use crate::Bench;
use crate::community::{Community, Home};
use crate::error::BenchError;
use crate::full::are_full;
use crate::program::Run;
use crate::report::Report;
use crate::seeded::Seeded;

/// Bytes of each.
const FILE_BYTES: usize = 4096;
/// Files of one folder below.
const FOLDER_FILES: usize = 1000;
/// The most files of a run.
pub(super) const FILES_MAX: usize = 100_000;

/// How a folder goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// As one content, which is how a folder is shared whole (`hold put DIR --pack`), and what a backup does.
    Packed,
    /// Each file with an address of its own.
    OneByOne,
}

/// One transfer of ours.
#[derive(Clone, Debug, Serialize)]
struct Went {
    work: Work,
    way: Way,
    files: usize,
    bytes: u64,
    seconds: f64,
    start_seconds: f64,
    files_s: f64,
    stored_bytes: Option<u64>,
}

/// Writes so many files of so many random bytes, in folders of a thousand.
pub(crate) fn write(
    tree: &Path,
    (files, bytes): (usize, usize),
    bench: &Bench,
) -> Result<(), BenchError> {
    let (mut seeded, mut bytes) = (Seeded::new(files as u64), vec![0; bytes]);
    for number in 0..files {
        bench.stop.check()?;
        let folder = tree.join(format!("d{:03}", number / FOLDER_FILES));
        fs::create_dir_all(&folder).map_err(BenchError::io("make", &folder))?;
        let path = folder.join(format!("f{number:06}"));
        seeded.fill(&mut bytes);
        fs::write(&path, &bytes).map_err(BenchError::io("write", &path))?;
    }
    Ok(())
}

/// Checks that two folders hold the same files.
///
/// # Errors
/// [`BenchError::Wrong`] where they do not.
pub fn same_tree(left: &Path, right: &Path, bench: &Bench) -> Result<(), BenchError> {
    let (ours, theirs) = (files_below(left)?, files_below(right)?);
    if ours != theirs {
        return Err(BenchError::Wrong("other files are there"));
    }
    ours.iter().try_for_each(|name| content::same(&left.join(name), &right.join(name), &bench.stop))
}

/// The files below a folder, by their names from it, in order.
fn files_below(top: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let (mut files, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        let failed = || BenchError::io("look into", &folder);
        for entry in fs::read_dir(&folder).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            match path.strip_prefix(top) {
                _ if path.is_dir() => folders.push(path),
                Ok(name) => files.push(name.to_owned()),
                Err(_) => (),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Puts and gets so many small files, each time followed by a turn of the others.
pub(super) fn run(
    bench: &Bench,
    community: &mut Community,
    home: &Home,
    (files, tries): (usize, usize),
    programs: &mut [Box<dyn Beside>],
    report: &mut Report,
) -> Result<(), BenchError> {
    let (tree, one) = (community.path().join("tree"), community.path().join("one"));
    write(&tree, (files, FILE_BYTES), bench)?;
    write(&one, (1, FILE_BYTES), bench)?;
    let bytes = (files * FILE_BYTES) as u64;
    let mut rivals = Rivals::new(programs, bytes, format!("{files} files of 4 KiB"));
    let (mut packed, mut one_by_one) = (Medians::default(), Medians::default());
    for _ in 0..tries {
        for (way, medians) in [(Way::Packed, &mut packed), (Way::OneByOne, &mut one_by_one)] {
            let start = round(bench, community, home, &one, way, None)?;
            rustix::fs::sync();
            let took = round(bench, community, home, &tree, way, Some(&rivals))?;
            community.check()?;
            let went = |work, took: Duration, start: Duration, stored_bytes| {
                let seconds = took.saturating_sub(start).as_secs_f64().max(1e-3);
                let (files_s, start_seconds) = (files as f64 / seconds, start.as_secs_f64());
                Went { work, way, files, bytes, seconds, start_seconds, files_s, stored_bytes }
            };
            let put = went(Work::Put, took.put, start.put, Some(took.stored_bytes));
            let get = went(Work::Get, took.get, start.get, None);
            bench.tell(format!(
                "{files} files of 4 KiB, {}: put {:.0} a second, get {:.0}",
                if way == Way::Packed { "packed" } else { "one by one" },
                put.files_s,
                get.files_s
            ));
            report.run(&put)?;
            report.run(&get)?;
            medians.puts.push(put);
            medians.gets.push(get);
        }
        rivals.turn(bench, Content::Tree(&tree), community.path())?;
    }
    rivals.conclude(report, Content::Tree(&tree), packed.of_both())?;
    rivals.also(report, "one_by_one", one_by_one.of_both());
    Ok(())
}

/// What was measured of one way.
#[derive(Default)]
struct Medians {
    puts: Vec<Went>,
    gets: Vec<Went>,
}

impl Medians {
    fn of_both(&mut self) -> (Ours, Ours) {
        (median(&mut self.puts), median(&mut self.gets))
    }
}

/// The one in the middle by time; of two the slower.
fn median(went: &mut [Went]) -> Ours {
    went.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = went.get(went.len() / 2);
    Ours {
        seconds: middle.map_or(f64::NAN, |went| went.seconds),
        stored_bytes: middle.and_then(|went| went.stored_bytes),
    }
}

/// What one put and one get of a folder took.
struct Took {
    put: Duration,
    get: Duration,
    stored_bytes: u64,
}

/// In and out, compared, each after a rest where it is held against others' transfers. What came out stays until all is measured: ext4 looks past each inode that was deleted within the
/// last minute whenever it makes another near by, so that after removing 10,000 files whoever is next made 1,200 a second
/// and not 22,000.
fn round(
    bench: &Bench,
    community: &Community,
    home: &Home,
    tree: &Path,
    way: Way,
    beside: Option<&Rivals>,
) -> Result<Took, BenchError> {
    let rest = || beside.map_or(Ok(()), |rivals| rivals.rest(bench));
    settle(bench, community)?;
    let before = community.stored()?;
    let list = community.path().join("list");
    let file = File::create(&list).map_err(BenchError::io("write", &list))?;
    let mut command = home.command(&community.program, ["put", "--json"]);
    if way == Way::Packed {
        command.arg("--pack");
    }
    rest()?;
    // Ten thousand lines are more than is kept of a run's output.
    let put = timed(bench, command.arg(tree).stdout(file))?;
    are_full(&fs::read_to_string(&list).map_err(BenchError::io("read", &list))?)?;
    settle(bench, community)?;
    let stored_bytes = community.stored()?.saturating_sub(before);
    let outs = (0..).map(|number: usize| community.path().join(format!("tree-out-{number}")));
    let out = outs.into_iter().find(|out| !out.exists()).unwrap_or_default();
    let mut command = home.command(&community.program, ["get", "--json"]);
    match way {
        Way::Packed => command.arg("--unpack").arg(address(&list)?),
        Way::OneByOne => command.arg("--list").arg(&list),
    };
    rest()?;
    let get = timed(bench, command.arg("-o").arg(&out))?;
    same_tree(tree, &out, bench)?;
    Ok(Took { put, get, stored_bytes })
}

/// The address in the one line that a put printed.
fn address(list: &Path) -> Result<String, BenchError> {
    let text = fs::read_to_string(list).map_err(BenchError::io("read", list))?;
    let line = serde_json::from_str::<serde_json::Value>(text.trim()).ok();
    let address = line.as_ref().and_then(|line| line.get("address")?.as_str());
    address.map(str::to_owned).ok_or(BenchError::Wrong("a put printed no address"))
}

/// A run from its start to its end.
fn timed(bench: &Bench, command: &mut std::process::Command) -> Result<Duration, BenchError> {
    let started = Instant::now();
    Run::start(command)?.finish(TRANSFER_LIMIT, &bench.stop)?;
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_too_few_or_another_is_seen() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        for tree in [&a, &b] {
            write(tree, (1003, FILE_BYTES), &bench).unwrap();
        }
        same_tree(&a, &b, &bench).unwrap();
        let name = b.join("d001/f001002");
        let mut bytes = fs::read(&name).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
        bytes[9] ^= 1;
        fs::write(&name, bytes).unwrap();
        assert!(same_tree(&a, &b, &bench).is_err());
        fs::remove_file(&name).unwrap();
        assert!(same_tree(&a, &b, &bench).is_err());
    }
}
