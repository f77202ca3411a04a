//! `hold put`: a file, a folder of files, or a pipe into the network.

pub(crate) mod artifact;
mod below;
mod packed;

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use author::{
    Author, AuthorError, Below, Progress, PutOptions, PutReport, Resumed, SchemaArtifact,
};
use clap::Args;
use crypto::ReaderKey;
use placement::Profile;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::Plain;
use crate::progress::Bar;
use crate::several::{self, Doing};
use crate::span::{self, Span};
use crate::{address, connect, late, pipes};

/// How long a run waits for copies that are late when all is acknowledged: as long as the walk itself tries.
const LATE_COPIES_LIMIT: Duration = walk::WALK_LIMIT;

/// What is stored and paid for, and not noted in the home.
pub(super) const UNNOTED: &str = "the home could not be written, so `hold renew --all` does not know of this: keep the address, and renew by it";
/// What is stored of a file that was written to meanwhile.
const CHANGED: &str = "the file changed while it was read: what is stored may be no state that it ever had; put it again";

/// `hold put`.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// A file; a folder, whose regular files go one by one, links not followed; or - for standard input
    #[arg(value_name = "FILE|DIR|-")]
    source: PathBuf,
    /// Share it with this reader too (hold keys show)
    #[arg(long, value_name = "READER", value_delimiter = ',')]
    to: Vec<String>,
    /// The name sealed with it [default: the file's]
    #[arg(long)]
    name: Option<String>,
    /// The media type sealed with it [default: by the name's end]
    #[arg(long = "type", value_name = "TYPE")]
    media_type: Option<String>,
    /// Where its schema is found, sealed with it
    #[arg(long, value_name = "GROUP/PROJECT/PATH/NAME@VERSION", value_parser = artifact::parse)]
    schema: Option<SchemaArtifact>,
    /// Where its data dictionary is found, sealed with it
    #[arg(long, value_name = "GROUP/PROJECT/PATH/NAME@VERSION", value_parser = artifact::parse)]
    data_dictionary: Option<SchemaArtifact>,
    /// How it is kept: K/N (N fragments, any K bring it back), lean (10/16), archive (16/64), storj (29/80),
    /// or copies:N [default: the network's, or by the number of its peers]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// How long it is paid for: a number and s, m, h, d, w or y [default: lease_days of holdfast.toml,
    /// else a year]
    #[arg(long = "for", value_name = "TIME", value_parser = span::of_lease)]
    span: Option<Span>,
    /// A folder as one content: a tar of its files and folders, with one address (hold get --unpack)
    #[arg(long)]
    pack: bool,
    /// Start anew where a put of the same file was interrupted, and keep nothing to go on from
    #[arg(long)]
    no_resume: bool,
}

/// An envelope for a reader.
#[derive(Serialize)]
struct EnvelopeResult {
    /// The reader's key it is sealed to.
    reader: String,
    /// What that reader opens.
    address: String,
}

/// What an interrupted put had stored and this run did not send again.
#[derive(Serialize)]
struct ResumedResult {
    /// Bytes of their records, one copy counted.
    bytes: u64,
    /// How many pages.
    pages: u64,
}

/// `hold put`: one line a file.
#[derive(Serialize)]
struct PutResult {
    /// What this user opens it by.
    address: String,
    /// Its entry's id.
    entry: String,
    /// Length of the content.
    bytes: u64,
    /// Bytes of records at all holders that acknowledged.
    stored: u64,
    /// How it is kept: K/N or copies:N.
    profile: String,
    /// Copies acknowledged of the record, or fragments of the stripe, that has the fewest of those it wants.
    acked: u32,
    /// Copies that this record, or fragments that this stripe, should have.
    wanted: u32,
    /// Whether every record and stripe has all that it should.
    full: bool,
    /// Bytes this run sent, all copies counted.
    sent: u64,
    /// What an interrupted put had stored before; zeros where there was none.
    resumed: ResumedResult,
    /// Until when it is paid for, Unix seconds; none where nobody vouches for this user.
    until: Option<u64>,
    /// Whether the home notes that, so that `hold renew --all` knows of it.
    noted: bool,
    /// Whether the file was written to while it was read.
    changed: bool,
    /// How long it took.
    seconds: f64,
    /// One a reader of `--to`.
    envelopes: Vec<EnvelopeResult>,
    /// The file, where a folder was put.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl fmt::Display for PutResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        if let Some(name) = &self.name {
            write!(f, "  {}", Plain(name))?;
        }
        for envelope in &self.envelopes {
            write!(f, "\n{}  to {}", envelope.address, envelope.reader)?;
        }
        let ResumedResult { bytes, pages } = self.resumed;
        if pages > 0 {
            write!(f, "\nresumed: {pages} pages ({bytes} bytes) were stored already")?;
        }
        Ok(())
    }
}

impl PutResult {
    fn new(report: &PutReport, name: Option<String>) -> Self {
        let envelopes = report.envelopes.iter().map(|shared| EnvelopeResult {
            reader: shared.reader.to_string(),
            address: address::text(&shared.address),
        });
        let Resumed { bytes, pages } = report.resumed;
        Self {
            address: address::text(&report.address),
            entry: report.entry.to_string(),
            bytes: report.bytes,
            stored: report.stored,
            profile: report.profile.to_string(),
            acked: report.acked,
            wanted: report.wanted,
            full: report.full,
            sent: report.sent,
            resumed: ResumedResult { bytes, pages },
            until: report.until,
            noted: report.noted,
            changed: report.changed,
            seconds: report.seconds,
            envelopes: envelopes.collect(),
            name,
        }
    }
}

impl Put {
    /// Runs it: 0 when every copy is stored, 3 when only those that must be were (a signal ends the wait for the others), some files of
    /// a folder were not, or what is stored is not what the file is; 1 when an address could not be printed, and of a folder no more is
    /// begun then.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let readers = address::readers(&self.to)?;
        session.out.can_deliver()?;
        if self.source.as_os_str() == "-" {
            if self.pack {
                return Err(HoldError::argument("--pack", "a folder is packed, not a pipe"));
            }
            let stdin = pipes::stdin()?;
            let author = connect::author(session).await?;
            let options = self.options(&author, readers, self.name.clone(), None);
            let put = |progress| author.put(stdin, options, progress);
            return one(session, put).await;
        }
        // Looked at before the passphrase is asked for.
        let about = std::fs::metadata(&self.source).map_err(HoldError::io("read", &self.source))?;
        if about.file_type().is_socket() {
            let (what, path) = ("a file, a folder or a pipe", self.source.clone());
            return Err(HoldError::NotA { what, path });
        }
        if self.pack {
            return self.packed(session, readers).await;
        }
        if about.is_dir() {
            if self.name.is_some() {
                let reason = "a folder's files have names of their own; --pack makes one file of them, which has a name";
                return Err(HoldError::argument("--name", reason));
            }
            let found = below::items(&self.source)?;
            found.left_out.tell(session);
            let files = found.files();
            if let Some(path) = files.iter().find(|path| path.to_str().is_none()) {
                let text =
                    format!("the name {path:?} is not UTF-8; --pack keeps names as they are");
                return Err(HoldError::argument("DIR", text));
            }
            let author = connect::author(session).await?;
            return self.folder(session, &author, readers, files).await;
        }
        if about.is_file() {
            // A pipe is opened once: its writer is told at the first close that nobody reads.
            std::fs::File::open(&self.source).map_err(HoldError::io("read", &self.source))?;
        }
        let author = connect::author(session).await?;
        let base = self.source.file_name().map(|name| name.to_string_lossy().into_owned());
        // What a pipe will give is not known.
        let size = Some(about.len()).filter(|_| about.is_file());
        let options = self.options(&author, readers, self.name.clone().or(base), size);
        let put = |progress| author.put_file(&self.source, options, !self.no_resume, progress);
        one(session, put).await
    }

    fn options(
        &self,
        author: &Author,
        readers: Vec<ReaderKey>,
        name: Option<String>,
        size_hint: Option<u64>,
    ) -> PutOptions {
        PutOptions {
            name,
            media_type: self.media_type.clone(),
            readers,
            size_hint,
            schema: self.schema.clone(),
            data_dictionary: self.data_dictionary.clone(),
            profile: self.profile,
            lease_seconds: self.span.map(|Span(seconds)| seconds),
            // The process ends after it, and with it the copies that are still on their way; not those that a librarian sends.
            full_wait: (!author.walker().is_thin()).then_some(LATE_COPIES_LIMIT),
            ..PutOptions::default()
        }
    }

    async fn packed(&self, session: &Session, readers: Vec<ReaderKey>) -> Result<Exit, HoldError> {
        if !self.source.is_dir() {
            return Err(HoldError::argument("--pack", "a folder is packed, not a file"));
        }
        let author = connect::author(session).await?;
        let folder = self.source.canonicalize().map_err(HoldError::io("read", &self.source))?;
        let base = folder.file_name().map(|name| format!("{}.tar", name.to_string_lossy()));
        let mut options = self.options(&author, readers, self.name.clone().or(base), None);
        options.media_type.get_or_insert_with(|| packed::MEDIA_TYPE.to_owned());
        let found = below::items(&folder)?;
        found.left_out.tell(session);
        let mut packed = packed::Packed::new(&folder, found.items);
        let put = |progress| author.put(&mut packed, options, progress);
        let report = match stored(session, Bar::new(&session.out, "put"), put).await? {
            Ok(report) => PutReport { changed: packed.changed().is_some(), ..report },
            Err(error) => return Err(packed.failure().unwrap_or_else(|| error.into())),
        };
        if let Some(path) = packed.changed() {
            session
                .out
                .warn(format_args!("{}: it was written to while it was read", path.display()));
        }
        told(session, &report, None)
    }

    /// Files in order of their names, as [`several`] does them.
    async fn folder(
        &self,
        session: &Session,
        author: &Author,
        readers: Vec<ReaderKey>,
        files: Vec<PathBuf>,
    ) -> Result<Exit, HoldError> {
        let below = Below::open(&self.source).map_err(HoldError::io("read", &self.source))?;
        let below = &Arc::new(below);
        let named = files.into_iter().map(|path| {
            let name = path.strip_prefix(&self.source).unwrap_or(&path);
            (name.to_string_lossy().into_owned(), path)
        });
        let one = |name, path: PathBuf, bar: Arc<Bar>| {
            let size = std::fs::metadata(&path).map(|about| about.len()).ok();
            let options = self.options(author, readers.clone(), Some(name), size);
            async move {
                let resume = !self.no_resume;
                let found = path.strip_prefix(&self.source).unwrap_or(&path);
                let put = |progress| author.put_found_file(below, found, options, resume, progress);
                Ok(stored(session, bar, put).await??)
            }
        };
        let told = |report: PutReport, name| told(session, &report, Some(name));
        let doing = Doing { verb: "put", done: "stored" };
        let exits = several::files(&session.out, doing, named.collect(), one, told).await?;
        if exits.iter().all(|exit| *exit == Exit::Done) {
            session.out.note("full: all copies and fragments of all files are stored");
        }
        Ok(Exit::of_all(&exits))
    }
}

/// Runs a put; one that a signal comes to when all of it is acknowledged waits no longer for its late copies.
///
/// # Errors
/// [`HoldError::Interrupted`] where a signal came before.
async fn stored<F: Future>(
    session: &Session,
    bar: Arc<Bar>,
    put: impl FnOnce(Arc<dyn Progress>) -> F,
) -> Result<F::Output, HoldError> {
    session.hears();
    late::until_stopped(&session.stop, bar, put).await.ok_or(HoldError::Interrupted)
}

/// Puts one content, and prints what became of it.
async fn one<F: Future<Output = Result<PutReport, AuthorError>>>(
    session: &Session,
    put: impl FnOnce(Arc<dyn Progress>) -> F,
) -> Result<Exit, HoldError> {
    let report = stored(session, Bar::new(&session.out, "put"), put).await??;
    told(session, &report, None)
}

/// Prints what became of a put. The result is the last word: on a terminal that is what one copies. Its address is told nowhere else.
fn told(session: &Session, report: &PutReport, name: Option<String>) -> Result<Exit, HoldError> {
    let of = match report.profile {
        Profile::Copies(_) => "copies",
        Profile::Stripe { .. } => "copies or fragments",
    };
    // Of a folder's files only those that lack something are worth a line each.
    if report.full && name.is_none() {
        session.out.note(format_args!("full: all {of} are stored ({})", report.profile));
    }
    if !report.full {
        session.out.warn(format_args!(
            "stored, and safe against fewer losses than wanted: of one record or stripe {} of {} {of} are \
             confirmed; repair owes the others",
            report.acked, report.wanted
        ));
    }
    let of_file = |warning: &str| match &name {
        Some(name) => session.out.warn(format_args!("{name}: {warning}")),
        None => session.out.warn(warning),
    };
    if report.changed {
        of_file(CHANGED);
    }
    if !report.noted {
        of_file(UNNOTED);
    }
    let is_whole = report.full && report.noted && !report.changed;
    session.out.deliver(&PutResult::new(report, name))?;
    Ok(if is_whole { Exit::Done } else { Exit::Partly })
}
