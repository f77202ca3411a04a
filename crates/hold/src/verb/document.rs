//! `hold document`: seal, open and show documents as files, without a network.
//!
//! For debugging, for export, and for checking against other implementations. A document is the
//! file `<key>.doc`, the encoded `Document`; its key is the hash of its bytes under the suite.

mod coder;
mod show;

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use crypto::{AuthorKey, Eek, NetworkId, ReaderKey, RecordId, SecretKey, Suite};
use document::offline::{self, Sealing, stripes};
use document::{ContentInfo, Document, Envelope, Kind};
use env::Entropy;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::cli::Session;
use crate::draft::Draft;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::{client, leftovers, network_file, peerdir, pipes};

const KEY_HINT: &str = "a file with 64 hex digits";

/// What to do with documents.
#[derive(Debug, Subcommand)]
pub(crate) enum DocumentVerb {
    /// Seal a file to a reader; prints the envelope's key
    Seal(Seal),
    /// Open an envelope and write its content
    Open(Open),
    /// Show what a document is, as far as that can be seen without a key
    Show(show::Show),
}

/// `hold document seal`.
#[derive(Debug, Args)]
pub(crate) struct Seal {
    /// The file to seal
    file: PathBuf,
    #[command(flatten)]
    place: Documents,
    /// File with the author's private key in hex
    #[arg(long, value_name = "FILE")]
    author_key: PathBuf,
    /// The reader's public key in hex
    #[arg(long, value_name = "HEX")]
    reader: String,
    /// In stripes of K pages and N - K parity fragments, as 4/8 or by name (holdfast-1); without it in pages
    #[arg(long, value_name = "K/N")]
    stripes: Option<String>,
}

/// `hold document open`.
#[derive(Debug, Args)]
pub(crate) struct Open {
    /// The envelope's key
    envelope: String,
    #[command(flatten)]
    place: Documents,
    /// File with the reader's private key in hex
    #[arg(long, value_name = "FILE")]
    reader_key: PathBuf,
    /// Where the content goes; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Where the documents are and how they are sealed.
#[derive(Debug, Args)]
struct Documents {
    /// holdfast-1 or libri-1
    #[arg(long, default_value = "holdfast-1")]
    suite: String,
    /// Folder of <key>.doc files
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// The network the envelope is bound to (holdfast-1); without it none
    #[arg(long, value_name = "NET")]
    network: Option<PathBuf>,
}

/// `hold document seal`: what was sealed.
#[derive(Serialize)]
struct Sealed {
    /// The envelope's key.
    envelope: String,
    /// The entry's key.
    entry: String,
    /// Length of the content.
    bytes: u64,
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.envelope)
    }
}

/// `hold document open`: what was opened.
#[derive(Serialize)]
struct Opened {
    /// Length of the content.
    bytes: u64,
    /// Its media type.
    #[serde(rename = "type")]
    media_type: String,
    /// The name sealed with it.
    name: String,
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

impl DocumentVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Seal(args) => {
                let sealed = client::blocking(move || args.run()).await?;
                session.out.result(&sealed)?;
            }
            Self::Open(args) => args.run(session).await?,
            Self::Show(args) => session.out.result(&args.run()?)?,
        }
        Ok(Exit::Done)
    }
}

impl Documents {
    fn suite(&self) -> Result<Suite, HoldError> {
        let wrong = |error: crypto::UnknownSuite| HoldError::argument("--suite", error.to_string());
        self.suite.parse().map_err(wrong)
    }

    fn network(&self) -> Result<NetworkId, HoldError> {
        let genesis = self.network.as_deref().map(network_file::read_genesis).transpose()?;
        Ok(genesis.map_or(NetworkId::NONE, |genesis| genesis.network()))
    }

    fn path(&self, id: &RecordId) -> PathBuf {
        self.dir.join(format!("{id}.doc"))
    }

    /// The bytes of a document, proven by its name.
    fn read(&self, suite: Suite, id: &RecordId) -> Result<Option<Bytes>, HoldError> {
        let path = self.path(id);
        let bytes = match read_document(&path) {
            Err(HoldError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            read => read?,
        };
        if suite.id(&bytes) != *id {
            return Err(HoldError::Damaged(path));
        }
        Ok(Some(bytes))
    }
}

/// The bytes of a file that may be a document: one more than a document has at most.
fn read_document(path: &Path) -> Result<Bytes, HoldError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let limit = document::DOCUMENT_BYTES_MAX as u64 + 1;
    let read = fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(HoldError::io("read", path))?;
    Ok(bytes.into())
}

impl Seal {
    fn run(self) -> Result<Sealed, HoldError> {
        let (suite, network) = (self.place.suite()?, self.place.network()?);
        let shape = self.shape(suite)?;
        let author = files::read_secret_key(&self.author_key, KEY_HINT)?;
        let reader: ReaderKey =
            self.reader.parse().map_err(HoldError::parse("a reader's key", &self.reader))?;
        if suite == Suite::Libri1 {
            self.refuse_used_pair(&AuthorKey::new(author.public()), &reader)?;
        }
        let mut content = fs::File::open(&self.file).map_err(HoldError::io("read", &self.file))?;
        let filepath = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let media_type = author::media::by_name(&filepath).to_owned();
        let sealing = Sealing {
            suite,
            network,
            author: &author,
            reader,
            eek: fresh_eek(),
            info: ContentInfo { media_type, filepath, ..ContentInfo::default() },
            created_time: u32::try_from(peerdir::now_s()).unwrap_or(u32::MAX),
        };
        let (mut written, mut failed): (Vec<PathBuf>, Option<HoldError>) = (Vec::new(), None);
        let mut emit = |record: document::Record| {
            let path = self.place.path(&record.id);
            if let Err(error) = files::write_new(&path, &record.bytes, Access::Public) {
                let again = io::Error::other(error.to_string());
                failed.get_or_insert(error);
                return Err(again);
            }
            // Not before: till then a file of that name is another's.
            leftovers::begun(&path);
            written.push(path);
            Ok(())
        };
        let sealed = match shape {
            Some(shape) => stripes::seal(sealing, shape, &coder::Erasure, &mut content, &mut emit),
            None => offline::seal(sealing, &mut content, &mut emit),
        };
        if sealed.is_err() {
            written.iter().for_each(|path| drop(fs::remove_file(path)));
        }
        written.iter().for_each(|path| leftovers::kept(path));
        let sealed = match failed {
            Some(error) => return Err(error),
            None => sealed?,
        };
        Ok(Sealed {
            envelope: sealed.envelope.to_string(),
            entry: sealed.entry.to_string(),
            bytes: sealed.content_bytes,
        })
    }

    /// Of what stripes, if of any: k and n.
    fn shape(&self, suite: Suite) -> Result<Option<(u32, u32)>, HoldError> {
        let Some(text) = &self.stripes else { return Ok(None) };
        let wrong = |why: String| HoldError::argument("--stripes", why);
        if suite == Suite::Libri1 {
            return Err(wrong("libri-1 has no stripes".to_owned()));
        }
        match text.parse::<placement::Profile>() {
            Ok(placement::Profile::Stripe { k, n }) => Ok(Some((k, n))),
            Ok(placement::Profile::Copies(_)) => Err(wrong("copies are no stripes".to_owned())),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    /// In `libri-1` key and nonce follow from the pair of keys alone: a second EEK under them would
    /// be sealed with the nonce of the first.
    fn refuse_used_pair(&self, author: &AuthorKey, reader: &ReaderKey) -> Result<(), HoldError> {
        let dir = &self.place.dir;
        for item in fs::read_dir(dir).map_err(HoldError::io("read", dir))? {
            let path = item.map_err(HoldError::io("read", dir))?.path();
            if path.extension().is_none_or(|extension| extension != "doc") {
                continue;
            }
            if let Ok(Document::Envelope(envelope)) = Document::decode(&read_document(&path)?)
                && envelope.is_between(author, reader)
            {
                return Err(HoldError::UsedPair(path));
            }
        }
        Ok(())
    }
}

fn fresh_eek() -> Eek {
    let mut bytes = Zeroizing::new([0; crypto::EEK_BYTES]);
    env::SystemEntropy.fill(&mut *bytes);
    Eek::from_bytes(&bytes)
}

impl Open {
    async fn run(self, session: &Session) -> Result<(), HoldError> {
        let to_stdout = pipes::is_stdout(&self.output);
        if to_stdout {
            session.out.divert();
        }
        let draft = match to_stdout {
            true => None,
            false => {
                let output = self.output.clone();
                // A named pipe waits for its reader.
                Some(client::blocking(move || Draft::new(&output, true)).await?)
            }
        };
        let file = draft.as_ref().map(Draft::file).transpose()?;
        let opened = client::blocking(move || match file {
            Some(file) => self.open(&mut io::BufWriter::new(file)),
            None => self.open(&mut io::stdout().lock()),
        });
        let opened = match opened.await {
            // Whoever reads has what it wanted.
            Err(HoldError::Document(document::DocumentError::Write(error)))
                if to_stdout && error.kind() == io::ErrorKind::BrokenPipe =>
            {
                return Ok(());
            }
            opened => opened?,
        };
        draft.map_or(Ok(()), Draft::keep)?;
        session.out.result(&opened)
    }

    fn open(&self, out: &mut dyn Write) -> Result<Opened, HoldError> {
        let (suite, network) = (self.place.suite()?, self.place.network()?);
        let reader: SecretKey = files::read_secret_key(&self.reader_key, KEY_HINT)?;
        let text = self.envelope.strip_prefix("hold:").unwrap_or(&self.envelope);
        let id: RecordId = text.parse().map_err(HoldError::parse("an envelope's key", text))?;
        let envelope = self.envelope(suite, id)?;
        // Records are proven here, so that a damaged file is named.
        let mut damaged = None;
        let mut fetch = |id: &RecordId| {
            self.place.read(suite, id).map_err(|error| {
                let told = io::Error::other(error.to_string());
                damaged = Some(error);
                told
            })
        };
        let code: Option<&dyn stripes::Coder> = Some(&coder::Erasure);
        let opened = offline::open_with(suite, network, &envelope, &reader, code, &mut fetch, out);
        if let Some(error) = damaged {
            return Err(error);
        }
        let metadata = opened?;
        out.flush().map_err(document::DocumentError::Write)?;
        Ok(Opened {
            bytes: metadata.uncompressed_size,
            media_type: metadata.info.media_type,
            name: metadata.info.filepath,
        })
    }

    fn envelope(&self, suite: Suite, id: RecordId) -> Result<Envelope, HoldError> {
        let missing = document::DocumentError::Missing { kind: Kind::Envelope, id };
        let bytes = self.place.read(suite, &id)?.ok_or(missing)?;
        match Document::decode(&bytes)? {
            Document::Envelope(envelope) => Ok(envelope),
            _ => Err(document::DocumentError::OtherKind { id, wanted: Kind::Envelope }.into()),
        }
    }
}

/// How long a document's creation lies back, for people.
fn ago(created: u32) -> Duration {
    Duration::from_secs(peerdir::now_s().saturating_sub(u64::from(created)))
}
