//! Checking a snapshot, and making a peer's directory of one.
//!
//! Files are read as plain files, so that a snapshot on a disk that is mounted for reading alone can
//! be restored. They are copied and never linked: the peer would write to the snapshot.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crypto::Suite;
use env::Env;
use env::disk::Disk;

use super::chain::{BUFFER_BYTES, Sink};
use super::manifest::{Checksum, FileLine, MANIFEST, Manifest};
use super::place::{self, Draft};
use super::{Fault, Layout, Progress, Summary, Watcher, read_manifest};
use crate::header::{Family, FileHeader};
use crate::journal::{Journal, JournalOptions, journal_name};
use crate::log::{CreateError, create, log_name, log_number};
use crate::{StoreError, io_error};

/// How far a restored journal goes on behind its last offset at least: more than a peer can have given since
/// the snapshot, at ten thousand a second for five days and at a thousand for fifty.
const OFFSETS_SKIPPED: u64 = 1 << 32;
/// And at most so many times as far, by chance: a snapshot may be restored a second time, and what was given since the first
/// must not be given again.
const SKIPS_MAX: u64 = 1 << 20;

/// How a snapshot is restored.
#[derive(Clone, Debug)]
pub struct RestoreOptions<'a> {
    /// Where things are.
    pub layout: Layout,
    /// What is written as the peer's key, where the snapshot has none.
    pub key: Option<&'a [u8]>,
}

/// Reads a whole snapshot and compares it with its manifest.
///
/// # Errors
/// [`StoreError::NotASnapshot`], [`StoreError::Manifest`], [`StoreError::SnapshotFile`], or the
/// system's.
pub fn verify(from: &Path, layout: &Layout, watcher: Watcher<'_>) -> Result<Summary, StoreError> {
    let manifest = checked_lengths(from)?;
    let mut progress = Progress::new(watcher, manifest.bytes());
    for (path, line) in &manifest.files {
        read_checked(from, path, line, &mut progress, &mut |_| Ok(()))?;
    }
    Ok(Summary::of(&manifest, layout))
}

/// Makes the peer's directory `to`, which may be there if it is empty, of the snapshot at `from`.
/// The publication log goes on with offsets that the peer never gave before.
///
/// # Errors
/// As [`verify`]; [`StoreError::NotEmpty`], [`StoreError::Written`], [`StoreError::FullAt`], or the system's. Nothing is left
/// then.
pub fn restore(
    from: &Path,
    to: &Path,
    env: &Env,
    options: &RestoreOptions<'_>,
    watcher: Watcher<'_>,
) -> Result<Summary, StoreError> {
    fill(from, to, env, options, watcher).map_err(|error| error.full_at(to))
}

fn fill(
    from: &Path,
    to: &Path,
    env: &Env,
    options: &RestoreOptions<'_>,
    watcher: Watcher<'_>,
) -> Result<Summary, StoreError> {
    let manifest = checked_lengths(from)?;
    let draft = Draft::new(to)?;
    let mut progress = Progress::new(watcher, manifest.bytes());
    let mut folder = (String::new(), place::open(draft.path())?);
    for (path, line) in &manifest.files {
        let (wanted, name) = path.split_once('/').unwrap_or(("", path));
        if folder.0 != wanted {
            folder.1.sync_names().map_err(io_error("sync", &folder.0))?;
            folder = (wanted.to_owned(), place::open(&draft.path().join(wanted))?);
        }
        let mut sink = Sink::create(&folder.1, name)?;
        read_checked(from, path, line, &mut progress, &mut |part| sink.push(name, part))?;
        sink.finish(name)?;
    }
    folder.1.sync_names().map_err(io_error("sync", &folder.0))?;
    let key = options.layout.key;
    if let Some(bytes) = options.key {
        let mut sink = Sink::create(&place::open(draft.path())?, key)?;
        sink.push(key, bytes)?;
        sink.finish(key)?;
    }
    move_journal_on(&draft, env, &options.layout)?;
    move_log_on(&draft, env, &options.layout, manifest.suite)?;
    draft.finish()?;
    let mut summary = Summary::of(&manifest, &options.layout);
    summary.with_key |= options.key.is_some();
    Ok(summary)
}

/// The manifest, where every file of it is there in its length.
fn checked_lengths(from: &Path) -> Result<Manifest, StoreError> {
    let manifest = read_manifest(from)?;
    for (path, line) in &manifest.files {
        let fault = |fault| StoreError::SnapshotFile { path: from.join(path), fault };
        let found = match std::fs::metadata(from.join(path)) {
            Ok(found) if found.is_file() => found.len(),
            Ok(_) => return Err(fault(Fault::Missing)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(fault(Fault::Missing));
            }
            Err(error) => return Err(io_error("read", path)(error)),
        };
        if found != line.bytes {
            return Err(fault(Fault::Length { found, wanted: line.bytes }));
        }
    }
    debug_assert!(!manifest.files.contains_key(MANIFEST), "`decode` refuses it");
    Ok(manifest)
}

/// Hands over a file's bytes in parts; an error after all of them where they are not what the
/// manifest says.
fn read_checked(
    from: &Path,
    path: &str,
    line: &FileLine,
    progress: &mut Progress<'_>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let read = io_error("read", path);
    let mut file = File::open(from.join(path)).map_err(&read)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut hasher = blake3::Hasher::new();
    let mut bytes = 0;
    loop {
        let len = file.read(&mut buffer).map_err(&read)?;
        if len == 0 {
            break;
        }
        bytes += len as u64;
        hasher.update(&buffer[..len]);
        each(&buffer[..len])?;
        progress.wait_for(len as u64)?;
    }
    let checksum: Checksum = *hasher.finalize().as_bytes();
    if bytes == line.bytes && checksum == line.checksum {
        return Ok(());
    }
    Err(StoreError::SnapshotFile { path: from.join(path), fault: Fault::Checksum })
}

/// Begins a new last segment of the log. The snapshot's last one may have gone on where it was taken, and a later snapshot have
/// that: what this peer writes must not be in a file of the same head.
fn move_log_on(draft: &Draft, env: &Env, layout: &Layout, suite: Suite) -> Result<(), StoreError> {
    let disk = place::open(&draft.path().join(layout.log))?;
    let names = disk.list().map_err(io_error("list", layout.log))?;
    let Some(last) = names.iter().filter_map(|name| log_number(name)).max() else { return Ok(()) };
    let number = last.saturating_add(1);
    begin(&disk, &log_name(number), Family::Log(suite), number.into(), env)
}

/// Makes a file with nothing but its head.
fn begin(
    disk: &dyn Disk,
    name: &str,
    family: Family,
    number: u64,
    env: &Env,
) -> Result<(), StoreError> {
    let header = FileHeader { number, marker: env.random() };
    match create(disk, name, family, header) {
        Ok(_) => Ok(()),
        Err(CreateError::Write(error) | CreateError::Sync(error)) => {
            Err(io_error("create", name)(error))
        }
    }
}

/// Begins a new last file of the journal, so far behind the others that no offset is given twice.
fn move_journal_on(draft: &Draft, env: &Env, layout: &Layout) -> Result<(), StoreError> {
    let disk = std::sync::Arc::new(place::open(&draft.path().join(layout.journal))?);
    let journal =
        Journal::open(disk.clone(), env.clone(), layout.prefix, JournalOptions::default())?;
    let chance = u64::from(u32::from_be_bytes(env.random())) % SKIPS_MAX;
    let number = journal.end().saturating_add((1 + chance) * OFFSETS_SKIPPED);
    drop(journal);
    begin(&*disk, &journal_name(layout.prefix, number), Family::Journal, number, env)
}
