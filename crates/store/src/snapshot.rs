//! Snapshots of a peer's directory: taken while the peer runs, whole or against an earlier one, and
//! restored.
//!
//! ```text
//! take:    .NAME.part/ <- log, journal, all else -> manifest -> synced -> renamed to NAME
//! restore: manifest checked -> .NAME.part/ <- every file, its checksum checked -> journal moved on
//!          -> synced -> renamed to NAME
//! ```
//! Both only read what they copy from, so they need nothing of the running peer, and a peer that
//! does not start can be copied too. Nothing has the name it was asked for before it is whole: what a
//! crash leaves is `.NAME.part`, which the next try with the same name removes. Why what is copied is
//! a prefix of the log is said in `chain`; the format is `docs/formats/snapshots.md`.
//!
//! Everything here blocks, for as long as copying the store takes.

mod chain;
mod manifest;
mod place;
mod restoring;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crypto::{NetworkId, PeerId, Suite};
use env::disk::{DirDisk, Disk};
use zeroize::Zeroizing;

use self::chain::{Chain, Copied, Kind, Sink};
pub use self::manifest::ManifestError;
use self::manifest::{FileLine, MANIFEST, MANIFEST_BYTES_MAX, Manifest, is_name};
use self::place::Draft;
pub use self::restoring::{RestoreOptions, restore, verify};
use crate::{StoreError, io_error};

/// Files beside log and journal that are longer are left out: they are none of a peer's.
const OTHER_BYTES_MAX: u64 = 16 << 20;
/// Files beside log and journal at most; a peer has some dozens.
const OTHERS_MAX: usize = 100_000;

/// How a peer's directory is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The folder of the record log.
    pub log: &'static str,
    /// The folder of the journal.
    pub journal: &'static str,
    /// The prefix of the journal's files.
    pub prefix: &'static str,
    /// The file of the peer's private key.
    pub key: &'static str,
    /// Folders of which there must be no copy.
    pub never: &'static [&'static str],
}

/// What a snapshot is of, and how it is taken.
#[derive(Clone, Copy, Debug)]
pub struct TakeOptions<'a> {
    /// Where things are.
    pub layout: Layout,
    /// Whose snapshot it is.
    pub peer: PeerId,
    /// In which network.
    pub network: NetworkId,
    /// The network's suite.
    pub suite: Suite,
    /// Now, Unix milliseconds.
    pub unix_ms: u64,
    /// An earlier snapshot, whose unchanged files are linked.
    pub base: Option<&'a Path>,
    /// Whether the peer's private key is copied too.
    pub with_key: bool,
}

/// What a snapshot holds, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Whose it is.
    pub peer: PeerId,
    /// In which network.
    pub network: NetworkId,
    /// The network's suite.
    pub suite: Suite,
    /// When it was begun, Unix milliseconds.
    pub unix_ms: u64,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those, bytes that are links to files that were there.
    pub linked_bytes: u64,
    /// Whether the peer's private key is among them.
    pub with_key: bool,
    /// What was left out, as it is no file as a peer has: too long, of another name, or not to be followed; another snapshot; or,
    /// without the key, a copy of that.
    pub left_out: Vec<String>,
    /// Bytes of the log and the journal that the disk could not read: zeros stand for them.
    pub unread_bytes: u64,
}

/// What is wrong with a file of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// It is longer or shorter than it was.
    #[error("has {found} bytes instead of {wanted}")]
    Length {
        /// Bytes it has.
        found: u64,
        /// Bytes it had.
        wanted: u64,
    },
    /// Its bytes are others.
    #[error("has other bytes than it had")]
    Checksum,
}

/// Where copying is, for whoever watches or stands in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// A file is about to be opened, or copied.
    File,
    /// Everything is held, and is about to be compared with what is there now.
    Held,
}

/// Told how far copying is: bytes done, and how many there are about. It may wait, to slow the copying
/// down, and says whether to go on; else it ends with [`StoreError::Stopped`].
pub type Watcher<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Counts what was copied.
struct Progress<'a> {
    watcher: Option<Watcher<'a>>,
    /// Tests do here what a peer does meanwhile.
    #[cfg(test)]
    meanwhile: Option<&'a mut dyn FnMut(Moment)>,
    read: u64,
    total: u64,
    linked: u64,
    unread: u64,
}

impl<'a> Progress<'a> {
    fn none() -> Self {
        Self {
            watcher: None,
            #[cfg(test)]
            meanwhile: None,
            read: 0,
            total: 0,
            linked: 0,
            unread: 0,
        }
    }

    fn new(watcher: Watcher<'a>, total: u64) -> Self {
        Self { watcher: Some(watcher), total, ..Self::none() }
    }

    /// So many bytes more were read: tells, and lets the watcher hold up the work.
    fn wait_for(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.read += bytes;
        let (read, total) = (self.read, self.total.max(self.read));
        let goes_on = self.watcher.as_mut().is_none_or(|watcher| watcher(read, total));
        if goes_on { Ok(()) } else { Err(StoreError::Stopped) }
    }

    fn add(&mut self, bytes: u64, linked: bool) {
        self.linked += if linked { bytes } else { 0 };
    }

    fn moment(&mut self, _moment: Moment) {
        #[cfg(test)]
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile(_moment);
        }
    }
}

/// Takes a snapshot of the peer's directory at `peer` as the new folder `to`, which may be there if
/// it is empty.
///
/// # Errors
/// [`StoreError::NotEmpty`], [`StoreError::Written`] where another one is being taken there, [`StoreError::Inside`] where
/// that is in `peer`, [`StoreError::FullAt`], [`StoreError::Stopped`], [`StoreError::Unsettled`] where the peer's disk is nearly full
/// and its files go faster than they are copied, [`StoreError::NotASnapshot`] and
/// [`StoreError::Manifest`] of the base, or the system's. Nothing is left then.
pub fn take(
    peer: &Path,
    to: &Path,
    options: &TakeOptions<'_>,
    watcher: Watcher<'_>,
) -> Result<Summary, StoreError> {
    fill(peer, to, options, watcher).map_err(|error| error.full_at(to))
}

fn fill(
    peer: &Path,
    to: &Path,
    options: &TakeOptions<'_>,
    watcher: Watcher<'_>,
) -> Result<Summary, StoreError> {
    let base = options.base.map(read_manifest).transpose()?;
    let draft = Draft::new(to)?;
    let whole = |path: &Path| {
        path.canonicalize().map_err(|error| io_error("find", &path.display().to_string())(error))
    };
    if whole(draft.path())?.starts_with(whole(peer)?) {
        return Err(StoreError::Inside(to.to_owned()));
    }
    let mut progress = Progress::new(watcher, size_of(peer, &options.layout));
    let taken = copy_all(peer, draft.path(), options, base.as_ref(), &mut progress);
    let (copied, left_out) = taken?;
    let manifest = Manifest {
        network: options.network,
        peer: options.peer,
        suite: options.suite,
        unix_ms: options.unix_ms,
        files: copied,
    };
    let folder = place::open(draft.path())?;
    let mut sink = Sink::create(&folder, MANIFEST)?;
    sink.push(MANIFEST, manifest.encode().as_bytes())?;
    sink.finish(MANIFEST)?;
    draft.finish()?;
    let mut summary = Summary::of(&manifest, &options.layout);
    summary.linked_bytes = progress.linked;
    summary.left_out = left_out;
    summary.unread_bytes = progress.unread;
    Ok(summary)
}

type Files = BTreeMap<String, FileLine>;

fn copy_all(
    peer: &Path,
    into: &Path,
    options: &TakeOptions<'_>,
    base: Option<&Manifest>,
    progress: &mut Progress<'_>,
) -> Result<(Files, Vec<String>), StoreError> {
    let Layout { log, journal, prefix, .. } = options.layout;
    let mut files = Files::new();
    // An older one is never wrong, and a newer one than the journal would be.
    copy_mark(peer, into, options, &mut files)?;
    let mut numbered = Vec::new();
    // In this order: see the ADR on snapshots.
    for (folder, kind) in [(log, Kind::Log(options.suite)), (journal, Kind::Journal(prefix))] {
        numbered.extend(Numbered::open(peer, into, options, (folder, kind))?);
    }
    let chains: Vec<Chain<'_>> = numbered.iter().map(|one| one.chain(base)).collect();
    for (chain, copied) in chains.iter().zip(chain::copy(&chains, progress)?) {
        let folder = chain.folder;
        let lines = copied.into_iter();
        files.extend(lines.map(|(name, Copied { line, .. })| (format!("{folder}/{name}"), line)));
    }
    let left_out = copy_others(peer, into, options, &mut files)?;
    Ok((files, left_out))
}

/// A folder of numbered files, of the peer and of the snapshot, and an earlier snapshot's.
struct Numbered {
    folder: &'static str,
    kind: Kind<'static>,
    source: DirDisk,
    target: DirDisk,
    base: Option<DirDisk>,
}

impl Numbered {
    /// Opens one; `None` where the peer has none.
    fn open(
        peer: &Path,
        into: &Path,
        options: &TakeOptions<'_>,
        (folder, kind): (&'static str, Kind<'static>),
    ) -> Result<Option<Self>, StoreError> {
        let source_path = peer.join(folder);
        if !source_path.is_dir() {
            return Ok(None);
        }
        let source = place::open(&source_path)?;
        if source.is_behind() {
            // A peer that was killed left what it had not written yet: taking the lock writes it. One that runs has the lock.
            match source.lock() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                // Nor can anything else be: what is in the files is all that there is to be saved.
                Err(error) if is_unwritable(&error) => {
                    tracing::warn!(folder, %error, "what was acknowledged last may be missing");
                }
                held => drop(held.map_err(|error| {
                    io_error("open", "lock")(error).in_folder(&source).full_at(&source_path)
                })?),
            }
        }
        let target = place::open(&into.join(folder))?;
        let base = match options.base.map(|path| path.join(folder)) {
            Some(path) if path.is_dir() => Some(place::open(&path)?),
            _ => None,
        };
        Ok(Some(Self { folder, kind, source, target, base }))
    }

    /// How it is copied, against the earlier snapshot of this manifest.
    fn chain<'a>(&'a self, manifest: Option<&'a Manifest>) -> Chain<'a> {
        let Self { folder, kind, source, target, base } = self;
        let base = base.as_ref().map(|disk| disk as &dyn Disk).zip(manifest);
        Chain { kind: *kind, folder, source, target, base }
    }
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Copies the mark of the journal, up to which its owner has caught up: it lies beside the journal, and is replaced whole. Where the
/// disk cannot read it, it is left out, as a journal does without it.
fn copy_mark(
    peer: &Path,
    into: &Path,
    options: &TakeOptions<'_>,
    files: &mut Files,
) -> Result<(), StoreError> {
    let Layout { journal, prefix, .. } = options.layout;
    let name = crate::journal::mark::name(prefix);
    let bytes = match fs::read(peer.join(journal).join(&name)) {
        Ok(bytes) if bytes.len() as u64 <= OTHER_BYTES_MAX => bytes,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = name, %error, "a journal's mark cannot be read: it is left out");
            return Ok(());
        }
        _ => return Ok(()),
    };
    let target = place::open(&into.join(journal))?;
    let mut sink = Sink::create(&target, &name)?;
    sink.push(&name, &bytes)?;
    files.insert(format!("{journal}/{name}"), sink.finish(&name)?);
    Ok(())
}

/// The peer's private key as its file has it, where a snapshot is to be without it.
fn unwanted_key(
    peer: &Path,
    options: &TakeOptions<'_>,
) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    if options.with_key {
        return Ok(None);
    }
    let mut key = Zeroizing::new(Vec::new());
    let opened = fs::File::open(peer.join(options.layout.key));
    match opened.and_then(|file| file.take(OTHER_BYTES_MAX).read_to_end(&mut key)) {
        Ok(_) => Ok(Some(key)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", options.layout.key)(error)),
    }
}

/// Whether a file holds that key and nothing else: a copy that an operator made.
fn is_copy_of(key: &[u8], bytes: &[u8]) -> bool {
    let key = key.trim_ascii();
    !key.is_empty() && bytes.trim_ascii().eq_ignore_ascii_case(key)
}

/// Copies what is neither log nor journal. Those files are replaced whole and never written to, so
/// each is read as it was at one moment.
fn copy_others(
    peer: &Path,
    into: &Path,
    options: &TakeOptions<'_>,
    files: &mut Files,
) -> Result<Vec<String>, StoreError> {
    let mut left_out = Vec::new();
    let mut folders = vec![String::new()];
    let Layout { log, journal, key, never, .. } = options.layout;
    let unwanted = unwanted_key(peer, options)?;
    while let Some(folder) = folders.pop() {
        let mut target: Option<DirDisk> = None;
        let (names, others) = names_in(&peer.join(&folder))?;
        let below = |name: String| match folder.is_empty() {
            true => name,
            false => format!("{folder}/{name}"),
        };
        left_out.extend(others.into_iter().map(below));
        for name in names {
            let path = below(name.clone());
            let here = peer.join(&path);
            // Gone since: an operator's or a peer's draft.
            let Ok(found) = fs::symlink_metadata(&here) else { continue };
            let elsewhere =
                [log, journal].contains(&name.as_str()) || never.contains(&name.as_str());
            if folder.is_empty() && elsewhere || path == key && !options.with_key {
                continue;
            }
            if found.is_dir() && folder.is_empty() {
                // Another snapshot, which may have the key.
                match here.join(MANIFEST).is_file() {
                    true => left_out.push(path),
                    false => folders.push(name),
                }
                continue;
            }
            // A link to a file is as good as the file; where else one leads is not known to be the peer's.
            let found = if found.is_symlink() { fs::metadata(&here).ok() } else { Some(found) };
            let known =
                found.is_some_and(|found| found.is_file() && found.len() <= OTHER_BYTES_MAX);
            if !known || files.len() >= OTHERS_MAX {
                left_out.push(path);
                continue;
            }
            let bytes = match fs::read(&here) {
                Ok(bytes) => Zeroizing::new(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("read", &path)(error)),
            };
            if unwanted.as_ref().is_some_and(|key| is_copy_of(key, &bytes)) {
                left_out.push(path);
                continue;
            }
            if target.is_none() {
                target = Some(place::open(&into.join(&folder))?);
            }
            if let Some(target) = &target {
                let mut sink = Sink::create(target, &name)?;
                sink.push(&name, &bytes)?;
                files.insert(path, sink.finish(&name)?);
            }
        }
        if let Some(target) = target {
            use env::disk::Disk;
            target.sync_names().map_err(io_error("sync", &folder))?;
        }
    }
    Ok(left_out)
}

/// Names in a folder that a snapshot may have, in order; and others, but those of drafts and locks.
fn names_in(folder: &Path) -> Result<(Vec<String>, Vec<String>), StoreError> {
    let shown = folder.display().to_string();
    let entries = fs::read_dir(folder).map_err(io_error("list", &shown))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(io_error("list", &shown))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let (names, mut others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_name(name));
    others.retain(|name| !name.starts_with('.') && ![MANIFEST, "lock"].contains(&name.as_str()));
    Ok((names, others))
}

/// About how many bytes log and journal have.
fn size_of(peer: &Path, layout: &Layout) -> u64 {
    let folders = [layout.log, layout.journal].map(|folder| peer.join(folder));
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.sum()
}

impl Summary {
    fn of(manifest: &Manifest, layout: &Layout) -> Self {
        Self {
            peer: manifest.peer,
            network: manifest.network,
            suite: manifest.suite,
            unix_ms: manifest.unix_ms,
            files: manifest.files.len() as u64,
            bytes: manifest.bytes(),
            linked_bytes: 0,
            with_key: manifest.files.contains_key(layout.key),
            left_out: Vec::new(),
            unread_bytes: 0,
        }
    }
}

/// What the manifest of a snapshot says; its files are not looked at.
///
/// # Errors
/// [`StoreError::NotASnapshot`], [`StoreError::Manifest`], or the system's.
pub fn inspect(path: &Path, layout: &Layout) -> Result<Summary, StoreError> {
    Ok(Summary::of(&read_manifest(path)?, layout))
}

/// The manifest of the snapshot at `path`.
fn read_manifest(path: &Path) -> Result<Manifest, StoreError> {
    let file = path.join(MANIFEST);
    let shown = file.display().to_string();
    let len = match fs::metadata(&file) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_dir() => {
            return Err(StoreError::NotASnapshot(path.to_owned()));
        }
        Err(error) => return Err(io_error("read", &shown)(error)),
    };
    let refuse = |why| StoreError::Manifest { path: file.clone(), why };
    if len > MANIFEST_BYTES_MAX {
        return Err(refuse(ManifestError::Form));
    }
    let bytes = fs::read(&file).map_err(io_error("read", &shown))?;
    Manifest::decode(&bytes).map_err(refuse)
}

#[cfg(test)]
mod tests;
