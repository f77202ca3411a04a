//! A put of a file, which goes on where an interrupted put of the same file was.
//!
//! Large files alone have a [`journal`](crate::journal): below [`JOURNAL_FROM_BYTES`] sending again costs less than
//! keeping one. Without one (no file, another put of it is running, the home cannot be written) a put is as any other.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use placement::Profile;

use crate::author::Author;
use crate::below::Below;
use crate::error::AuthorError;
use crate::home::Home;
use crate::job::Job;
use crate::journal::{self, Folder, Header, Held, Journal, Source};
use crate::progress::Progress;
use crate::put::Start;
use crate::put::source::{Opened, Stream};
use crate::types::{PutOptions, PutReport};

/// Files over so many bytes have a journal while they are put.
pub const JOURNAL_FROM_BYTES: u64 = 16 << 20;
/// Where the journals are, in the home.
const FOLDER: &str = "journals";
/// How many digits of a source's hash name its journal.
const NAME_BYTES: usize = 16;

/// A journal's place that this put has for itself, and what a journal there must say.
#[derive(Clone)]
struct Place {
    held: Arc<Held>,
    source: Source,
    /// The digest of this put's options, and those of an interrupted one that it may go on with, each with how the content is kept by it.
    options: Vec<(Profile, [u8; 32])>,
}

/// What a put of a file is asked for.
struct Asked {
    /// Resolved.
    options: PutOptions,
    /// How the content was asked to be kept.
    profile: Option<Profile>,
    resume: bool,
}

impl Author {
    /// Stores a file, for this user and the readers named; goes on where a put of the same file with the same options was
    /// interrupted, and where they name no profile with the one that it began with, if enough peers answer for that. With `resume` off it starts anew, keeps no journal and removes one that is there.
    ///
    /// Whoever writes to the file meanwhile is not kept from it: [`PutReport::changed`] says whether its length or its time was another
    /// at the end.
    ///
    /// Cancel safe as [`Author::put`]; the journal stays and is used by the next put of the file.
    ///
    /// # Errors
    /// As [`Author::put`], and [`AuthorError::Io`] about the file.
    pub async fn put_file(
        &self,
        path: &Path,
        options: PutOptions,
        resume: bool,
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        self.put_path(path.to_owned(), open, (options, resume), progress).await
    }

    /// As [`Author::put_file`], of what was found below a folder and was a file then: where it or a folder above it is a link or a pipe
    /// by now, of somebody who may write there, it is refused.
    ///
    /// # Errors
    /// As [`Author::put_file`].
    pub async fn put_found_file(
        &self,
        folder: &Arc<Below>,
        path: &Path,
        options: PutOptions,
        resume: bool,
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        let (folder, below) = (Arc::clone(folder), path.to_owned());
        let whole = folder.path().join(path);
        self.put_path(whole, move |_| folder.file(&below), (options, resume), progress).await
    }

    async fn put_path(
        &self,
        path: PathBuf,
        open: impl FnOnce(&Path) -> io::Result<File> + Send + 'static,
        (options, resume): (PutOptions, bool),
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        let profile = options.profile;
        let opened = Job::blocking(self.env(), move || opened(&path, open));
        let (file, about, absolute) = opened.await.ok_or(AuthorError::Stopped)??;
        let bytes = about.is_file().then_some(about.len());
        let options = self.resolved(options, bytes).await?;
        if !about.is_file() {
            // A pipe gives what it has, and has no journal.
            let start = self.start(&options).await?;
            let stream = Stream(tokio::fs::File::from_std(file));
            return self.put_from(stream, &options, start, None, &progress).await;
        }
        let file = Arc::new(file);
        let asked = Asked { options, profile, resume };
        let report = self.put_opened(&file, &about, absolute, asked, progress).await?;
        let looked = Job::blocking(self.env(), move || file.metadata().map(|now| state(&now)));
        let is_same = matches!(looked.await, Some(Ok(now)) if now == state(&about));
        Ok(PutReport { changed: !is_same, ..report })
    }

    /// Stores a regular file.
    async fn put_opened(
        &self,
        file: &Arc<File>,
        about: &Metadata,
        absolute: Option<PathBuf>,
        asked: Asked,
        progress: Arc<dyn Progress>,
    ) -> Result<PutReport, AuthorError> {
        let opened = || Opened::new(self.env(), file);
        let place = match absolute.filter(|_| about.len() > JOURNAL_FROM_BYTES) {
            Some(absolute) => self.place(absolute, about, &asked).await,
            None => None,
        };
        let options = asked.options;
        if let Some((journal, profile)) = self.left_behind(place.clone()).await {
            let begun = PutOptions { profile: Some(profile), ..options.clone() };
            // What it stored is paid until the time that was set when it began.
            let is_paid = self.is_paid_long_enough(journal.header().created, &begun);
            let counter = journal.header().counter;
            // What its holders were told to drop is not there, whatever they once acknowledged.
            let forgotten =
                self.at_home(move |home| Ok(home.forgotten()?.contains(&counter))).await?;
            if is_paid && !forgotten {
                if begun.profile != options.profile {
                    tracing::info!(%profile, "an interrupted put keeps the profile that it began with");
                }
                let start = self.started(journal.header(), &begun).await?;
                let put = self.put_from(opened(), &begun, start, Some(&journal), &progress).await;
                if !matches!(put, Err(AuthorError::Changed)) {
                    return self.ended(&journal, put).await;
                }
                tracing::info!("the file changed since its put was interrupted: it starts anew");
            }
            journal.close();
            progress.restarted();
        }
        let start = self.start(&options).await?;
        match self.begun(place, &start).await {
            Some(journal) => {
                let put = self.put_from(opened(), &options, start, Some(&journal), &progress).await;
                self.ended(&journal, put).await
            }
            None => self.put_from(opened(), &options, start, None, &progress).await,
        }
    }

    /// The place of a file's journal; `None` where there can be none, or shall not.
    async fn place(&self, path: PathBuf, about: &Metadata, asked: &Asked) -> Option<Place> {
        let (options, resume) = (self.digests(asked)?, asked.resume);
        let about = about.clone();
        let now = UNIX_EPOCH + Duration::from_millis(self.env().clock.unix_ms());
        let place = move |home: &Home| {
            let source = source(home, &path, &about);
            let folder = journals(home);
            let own = name(&source);
            folder.prune(now, &own);
            let held = folder.take(&own).and_then(|held| match held {
                Some(held) if !resume => held.remove().map(|()| None),
                held => Ok(held),
            });
            Ok(held.map(|held| held.map(|held| Place { held: Arc::new(held), source, options })))
        };
        without(self.at_home(place).await.ok()?)?
    }

    /// The digests of these options, those of this put first; `None` where they are not resolved.
    fn digests(&self, asked: &Asked) -> Option<Vec<(Profile, [u8; 32])>> {
        let profiles = self.may_have_begun(asked.profile, asked.options.profile?).into_iter();
        let each = profiles.map(|profile| {
            let options = PutOptions { profile: Some(profile), ..asked.options.clone() };
            (profile, journal::digest(self.suite(), &self.network(), &options))
        });
        Some(each.collect())
    }

    /// The journal that an interrupted put left in this place, where it may be gone on with; and how that one keeps the content.
    async fn left_behind(&self, place: Option<Place>) -> Option<(Arc<Journal>, Profile)> {
        let Place { held, source, options } = place?;
        let salt = self.env().random();
        let digests: Vec<[u8; 32]> = options.iter().map(|(_, digest)| *digest).collect();
        let resume =
            move |home: &Home| Ok(Journal::resume(held, home.keyring(), &salt, &source, &digests));
        let journal = without(self.at_home(resume).await.ok()?)??;
        let begun = options.iter().find(|(_, digest)| *digest == journal.header().options);
        begun.map(|(profile, _)| (Arc::new(journal), *profile))
    }

    /// A new journal in this place.
    async fn begun(&self, place: Option<Place>, start: &Start) -> Option<Arc<Journal>> {
        let Place { held, source, options } = place?;
        let (_, options) = *options.first()?;
        let header = Header {
            eek: start.eek.to_bytes(),
            counter: start.counter(),
            created: start.created,
            source,
            options,
        };
        let salt = self.env().random();
        let begin = move |home: &Home| Ok(Journal::begin(held, home.keyring(), &salt, header));
        without(self.at_home(begin).await.ok()?).map(Arc::new)
    }

    /// Removes the journal of a put that is done.
    async fn ended(
        &self,
        journal: &Arc<Journal>,
        put: Result<PutReport, AuthorError>,
    ) -> Result<PutReport, AuthorError> {
        let report = put?;
        let journal = Arc::clone(journal);
        let removed = Job::blocking(self.env(), move || journal.remove()).await;
        if let Some(Err(error)) = removed {
            // It says nothing that is not so: the next put of this file would go on with it to the same address.
            tracing::warn!(%error, "the journal of a put that is done cannot be removed");
        }
        Ok(report)
    }
}

/// The journals of a home.
pub(crate) fn journals(home: &Home) -> Folder {
    Folder::at(home.dir().join(FOLDER))
}

/// A put does without a journal where the system refuses it one.
fn without<T>(journal: io::Result<T>) -> Option<T> {
    journal
        .inspect_err(|error| tracing::warn!(%error, "no journal: this put cannot be resumed"))
        .ok()
}

fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens a file; also by which name its journal knows it, where it has one: what is reached by a handle alone (a pipe of the
/// shell's, a file that was removed) has none.
fn opened(
    path: &Path,
    open: impl FnOnce(&Path) -> io::Result<File>,
) -> Result<(File, Metadata, Option<PathBuf>), AuthorError> {
    let failed = |source| AuthorError::Io { action: "read", path: path.to_owned(), source };
    let file = open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    Ok((file, about, path.canonicalize().ok()))
}

/// How long a file is, and when it was written to.
fn state(about: &Metadata) -> (u64, (i64, u32)) {
    (about.len(), (about.mtime(), u32::try_from(about.mtime_nsec()).unwrap_or_default()))
}

fn source(home: &Home, path: &Path, about: &Metadata) -> Source {
    let (bytes, changed) = state(about);
    Source {
        path: home.keyring().journal_source(path.as_os_str().as_bytes()),
        bytes,
        changed,
        inode: about.ino(),
        device: about.dev(),
    }
}

/// What the journal of a source is called.
fn name(source: &Source) -> String {
    source.path.iter().take(NAME_BYTES).map(|byte| format!("{byte:02x}")).collect()
}
