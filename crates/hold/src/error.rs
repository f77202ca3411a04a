//! Why a verb failed: one line, the chain of causes, an exit code, and the command that helps.

use std::io;
use std::path::PathBuf;

use author::AuthorError;
use crypto::{Class, Classified};

use crate::config::settings::SettingError;
use crate::exit::Exit;

/// How a peer comes by another certificate; its request was kept.
const SIGN_ANEW: &str = "have it signed anew, and put that in its place: hold org sign-peer --dir ORG \
                         --network NET --request D/peer.request -o CERT";
/// What helps where a disk is full.
const NO_SPACE: &str = "free some space, or choose another disk";
/// Where a mistyped setting is looked up.
const KEYS_LISTED: &str = "docs/reference/configuration.md lists every key";

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HoldError {
    /// The operating system, about a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The operating system, about a listener.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The result could not be printed.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// A result could not be put into JSON.
    #[error("cannot encode the result")]
    Json(#[source] serde_json::Error),
    /// A file is there already and is never overwritten.
    #[error("{} exists already; it is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file that must be there is not.
    #[error("missing: {what}, {}", path.display())]
    Missing {
        /// What it should hold.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// The command that makes it.
        hint: &'static str,
    },
    /// A file holds something else.
    #[error("{} is not {what}", path.display())]
    NotA {
        /// What it should be.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// An argument or a setting cannot be what it is.
    #[error("{name}: {reason}")]
    Argument {
        /// Which argument or setting.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A text that should be a key, an id or an address.
    #[error("{text:?} is not {what}")]
    Parse {
        /// What was given, cut short.
        text: String,
        /// What it should be.
        what: &'static str,
        /// Why not.
        #[source]
        source: crypto::ParseIdError,
    },
    /// A configuration file.
    #[error("{} cannot be read as configuration", path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: SettingError,
    },
    /// A genesis.
    #[error(transparent)]
    Genesis(#[from] crypto::GenesisError),
    /// A file that should hold a genesis.
    #[error("{} does not count as a network file", path.display())]
    GenesisFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: crypto::GenesisError,
    },
    /// A roster.
    #[error(transparent)]
    Roster(#[from] crypto::RosterError),
    /// An organisation signs one roster of a number.
    #[error("another roster numbered {number} was signed already: {other}")]
    SignedOther {
        /// The number.
        number: u64,
        /// The hash of the one that was signed.
        other: crypto::RecordId,
    },
    /// The organisation that vouched for this user left while it ran.
    #[error("by roster {number} nobody vouches for this user any more")]
    Left {
        /// The roster's number.
        number: u64,
    },
    /// A file of rosters, or of one.
    #[error("{} does not count in this network", path.display())]
    RosterFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: crypto::RosterError,
    },
    /// A file that should hold a document.
    #[error("{} does not count as a document", path.display())]
    DocumentFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: document::DocumentError,
    },
    /// A file that should hold a peer's certificate.
    #[error("{} does not count as the peer's certificate", path.display())]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: crypto::CertificateError,
    },
    /// A certificate, a pass or an announcement.
    #[error(transparent)]
    Certificate(#[from] crypto::CertificateError),
    /// A key.
    #[error(transparent)]
    Key(#[from] crypto::KeyError),
    /// The keyring, or what an author does with the network.
    #[error(transparent)]
    Author(#[from] author::AuthorError),
    /// A document.
    #[error(transparent)]
    Document(#[from] document::DocumentError),
    /// A file whose bytes are not those its name says.
    #[error("{} is damaged: its bytes are not those its name says", .0.display())]
    Damaged(PathBuf),
    /// In `libri-1` a pair of keys seals one entry's key, ever.
    #[error("this author and reader already share a key that sealed another content ({})", .0.display())]
    UsedPair(PathBuf),
    /// A call to one librarian.
    #[error("cannot ask {address}")]
    Call {
        /// Which one.
        address: String,
        /// Why not.
        #[source]
        source: env::calls::CallError,
    },
    /// A page of metrics on this machine.
    #[error("no peer answers at {address}, where its directory says")]
    Page {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nobody of the network answered, or nobody could do what was asked.
    #[error(transparent)]
    Walk(#[from] walk::WalkError),
    /// Identity, TLS or the listener.
    #[error(transparent)]
    Rpc(#[from] rpc::RpcError),
    /// The listener for signed requests.
    #[error(transparent)]
    Signed(rpc::RpcError),
    /// A peer that does not start or does not end well.
    #[error(transparent)]
    Librarian(#[from] librarian::LibrarianError),
    /// A peer's store.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// Versioned objects.
    #[error(transparent)]
    Objects(#[from] objects::ObjectsError),
    /// Versioned objects, as a client reaches them.
    #[error(transparent)]
    ObjectsOf(#[from] author::objects::ObjectsError),
    /// Certified heads.
    #[error(transparent)]
    Certified(#[from] author::certified::CertifiedError),
    /// A committee, its files, or what it certified.
    #[error(transparent)]
    Committee(#[from] committee::CommitteeError),
    /// Founders that did not come.
    #[error("{waits} founders did not show their member in time, first the one at {first}")]
    Founders {
        /// How many.
        waits: usize,
        /// Where the first of them was looked for.
        first: String,
    },
    /// Members that are as they were.
    #[error("the members are as they were: {why}")]
    Unchanged {
        /// Why nothing came of it.
        why: String,
    },
    /// A change of the members that goes on.
    #[error("the members have not changed yet: {progress}")]
    Changing {
        /// How far it is.
        progress: String,
    },
    /// An object is at several versions, and a verb needs one.
    #[error("the object is at {versions} versions{}: which is meant?", or_more(*more))]
    Branches {
        /// How many there are.
        versions: usize,
        /// Whether there may be more.
        more: bool,
    },
    /// An object is at no version.
    #[error("the object has no version yet")]
    NoVersion,
    /// What an object is at was written by keys that its policy does not list.
    #[error("{0} versions are the newest, and by writers that the policy does not list any more")]
    Unlisted(usize),
    /// A branch that no head is known of.
    #[error("branch {0:?} has no head yet")]
    NoHead(String),
    /// A branch that is at other heads than was expected.
    #[error("branch {0:?} is at other heads than expected: somebody moved it on")]
    Moved(String),
    /// A version without a value.
    #[error("version {0} has no value: the object was deleted there")]
    Deleted(String),
    /// A door.
    #[error(transparent)]
    Door(#[from] door_redis::DoorError),
    /// A peer's overlay.
    #[error(transparent)]
    Overlay(#[from] overlay::OverlayError),
    /// An experiment.
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    /// A step of the demonstration did not hold.
    #[error("step {step} did not hold: {why}")]
    Demo {
        /// Which one.
        step: u32,
        /// What was seen.
        why: String,
    },
    /// What was asked about is not well, as the results that were printed say.
    #[error("{why}")]
    NotWell {
        /// What is not.
        why: String,
        /// How the worst of it ends a run.
        exit: Exit,
    },
    /// The passphrase was not given, or not the same twice.
    #[error("{0}")]
    Passphrase(&'static str),
    /// Another process works on the same directory.
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// A home that notes nothing as paid for. Not success: whoever renews what it has by `--all` alone would lose it, and never hear why.
    #[error("nothing is noted here as paid for, so nothing was renewed")]
    NothingNoted,
    /// Logs that have nothing of a keyring.
    #[error("nothing of this keyring was found in the librarians' logs")]
    NothingFound,
    /// No librarian to ask is known.
    #[error("no librarian is known")]
    NoVia,
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

/// How a number is told that may be too small.
pub(crate) const fn or_more(more: bool) -> &'static str {
    if more { " or more" } else { "" }
}

impl HoldError {
    /// For `map_err` on a call about a file.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// An argument's or a setting's fault.
    pub(crate) fn argument(name: &'static str, reason: impl Into<String>) -> Self {
        Self::Argument { name, reason: reason.into() }
    }

    /// A text that is not the id or key it should be.
    pub(crate) fn parse(
        what: &'static str,
        text: &str,
    ) -> impl FnOnce(crypto::ParseIdError) -> Self {
        let text = text.chars().take(80).collect();
        move |source| Self::Parse { text, what, source }
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Io { source, .. } => io_exit(source),
            Self::Listen { source, .. } => listen_exit(source),
            Self::Output(_) | Self::Json(_) => Exit::Failed,
            Self::Left { .. } => Exit::Denied,
            Self::Exists(_) | Self::SignedOther { .. } => Exit::Conflict,
            Self::Missing { .. } => Exit::NotFound,
            Self::NotA { .. } | Self::Argument { .. } | Self::Parse { .. } => Exit::Invalid,
            Self::Setting { .. } | Self::Passphrase(_) | Self::NoVia => Exit::Invalid,
            Self::Genesis(source) | Self::GenesisFile { source, .. } => source.class().into(),
            Self::Roster(source) | Self::RosterFile { source, .. } => source.class().into(),
            Self::DocumentFile { source, .. } => document_exit(source),
            Self::Certificate(source) | Self::CertificateFile { source, .. } => {
                source.class().into()
            }
            Self::Key(source) => source.class().into(),
            Self::Author(source) => author_exit(source),
            Self::Document(source) => document_exit(source),
            Self::Damaged(_) => Exit::Corrupt,
            Self::UsedPair(_) => Exit::Conflict,
            Self::Call { source, .. } => source.class().into(),
            Self::Page { .. } => Exit::Unavailable,
            Self::Walk(source) => source.class().into(),
            Self::Rpc(source) | Self::Signed(source) => rpc_exit(source),
            Self::Librarian(librarian::LibrarianError::Listen { source, .. })
            | Self::Door(door_redis::DoorError::Listen { source, .. }) => listen_exit(source),
            Self::Librarian(source) => source.class().into(),
            Self::Store(store::StoreError::Stopped) => Exit::Interrupted,
            Self::Store(store::StoreError::Io { source, .. }) => io_exit(source),
            Self::Store(source) => source.class().into(),
            Self::Objects(source) => source.class().into(),
            Self::ObjectsOf(author::objects::ObjectsError::Author(source)) => author_exit(source),
            Self::ObjectsOf(source) => source.class().into(),
            Self::Certified(author::certified::CertifiedError::Objects(source)) => {
                source.class().into()
            }
            Self::Certified(source) => source.class().into(),
            Self::Committee(source) => source.class().into(),
            Self::Founders { .. } | Self::Unchanged { .. } | Self::Changing { .. } => {
                Exit::Unavailable
            }
            Self::Branches { .. } | Self::Unlisted(_) | Self::Moved(_) => Exit::Conflict,
            Self::NoVersion | Self::NoHead(_) | Self::Deleted(_) => Exit::NotFound,
            Self::NothingNoted | Self::NothingFound => Exit::NotFound,
            Self::Door(source) => source.class().into(),
            Self::Overlay(source) => source.class().into(),
            Self::Demo { .. } => Exit::Failed,
            Self::NotWell { exit, .. } => *exit,
            Self::Locked(_) => Exit::Busy,
            Self::Bench(bench::BenchError::Interrupted) => Exit::Interrupted,
            Self::Bench(source) => source.class().into(),
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// The command that helps, where there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Missing { hint, .. } => hint,
            Self::Author(source)
            | Self::ObjectsOf(author::objects::ObjectsError::Author(source)) => match source {
                AuthorError::TooFewPeers { known, .. } => return Some(few_peers_hint(*known)),
                source => author_hint(source)?,
            },
            Self::ObjectsOf(source) => objects_hint(source)?,
            Self::Certified(source) => crate::verb::head::hint(source)?,
            Self::Committee(source) => crate::verb::head::committee_hint(source)?,
            Self::Founders { .. } => {
                "hold committee init runs at all founders at the same time, beside their librarians"
            }
            Self::Unchanged { .. } => {
                "hold committee status says who is away; ask again, without them, or for fewer (--least)"
            }
            Self::Changing { .. } => {
                "the wish stays: it is done once n - f operators asked for the same; asking again follows it"
            }
            Self::Branches { .. } => {
                "hold object tips lists them; name one with --base, or hold object merge"
            }
            Self::Unlisted(_) => {
                "hold object tips lists them; put a version on one with --base to keep it, or list its writer again"
            }
            Self::NoHead(_) => "hold head update makes the first",
            Self::Moved(_) => "hold head read, and decide anew",
            Self::NoVersion => "hold object put makes the first",
            Self::Deleted(_) => "hold object log shows what was there before",
            Self::NothingNoted => {
                "what was put with another home, or by these words on another machine, is noted by hold keys recover, or \
                 renewed by its address: hold renew ADDRESS"
            }
            Self::NothingFound => {
                "are these the words, and is this the network? What is older than the logs is found by its address alone"
            }
            Self::Call { .. } | Self::Walk(_) | Self::NotWell { exit: Exit::Unavailable, .. } => {
                "hold doctor --via HOST:PORT"
            }
            Self::Page { .. } => "was it killed? hold peer run --dir D",
            Self::UsedPair(_) => "another --author-key: libri-1 would repeat key and nonce",
            Self::Locked(_) => {
                "stop the other process that has it open (hold peer run, hold serve), or name another directory"
            }
            Self::Store(store::StoreError::NotEmpty(_)) | Self::Exists(_) => {
                "choose another name, or move what is there away"
            }
            Self::Store(store::StoreError::NotASnapshot(_)) => {
                "hold peer snapshot --dir D --to SNAPSHOT makes one; an unfinished one is of no use"
            }
            Self::Store(store::StoreError::SnapshotFile { .. }) => {
                "restore an older or a newer snapshot: each is whole by itself"
            }
            Self::Store(store::StoreError::Full | store::StoreError::FullAt(_)) => NO_SPACE,
            Self::Io { source, .. } | Self::Store(store::StoreError::Io { source, .. })
                if is_full(source) =>
            {
                NO_SPACE
            }
            Self::Store(store::StoreError::Io { source, .. })
                if io_exit(source) == Exit::Denied =>
            {
                "whoever runs this must be able to read and write there (a peer: in all of D): ls -ld shows \
                 whose it is, chown gives it; or mount its disk for writing"
            }
            Self::Setting {
                source: SettingError::Unknown { nearest: Some(known), .. }, ..
            } => {
                return Some(format!("did you mean `{known}`? {KEYS_LISTED}"));
            }
            Self::Setting { .. } => KEYS_LISTED,
            Self::Left { .. } => {
                "its organisation left the network, changed its key, or revoked this user's: hold doctor"
            }
            Self::SignedOther { .. } => {
                "two rosters of one number divide the network; where the other one was given up by \
                 all who have it: --instead"
            }
            Self::NoVia => "name a librarian: --via HOST:PORT, HOLD_VIA, or `via` in holdfast.toml",
            Self::Passphrase(crate::passphrase::NO_TERMINAL) => {
                "set HOLD_PASSPHRASE or --passphrase-file, or use a terminal"
            }
            Self::Roster(source) | Self::RosterFile { source, .. } => roster_hint(source)?,
            Self::Certificate(source) => certificate_hint(source)?,
            Self::Librarian(librarian::LibrarianError::Certificate(source)) => {
                certificate_hint(source)?
            }
            Self::CertificateFile { source, .. } => certificate_hint(source).unwrap_or(SIGN_ANEW),
            _ => return self.listen_hint(),
        };
        Some(hint.to_owned())
    }

    /// What helps where the system lets nobody listen, and by which setting another port or address is chosen.
    fn listen_hint(&self) -> Option<String> {
        let (kind, by) = match self {
            Self::Listen { source, .. }
            | Self::Door(door_redis::DoorError::Listen { source, .. }) => {
                (source.kind(), "--listen")
            }
            Self::Rpc(rpc::RpcError::Listen { source, .. }) => {
                (source.kind(), "`listen` in D/peer.toml")
            }
            Self::Signed(rpc::RpcError::Listen { source, .. }) => {
                (source.kind(), "--signed-listen, or `signed_listen` in D/peer.toml")
            }
            Self::Librarian(librarian::LibrarianError::Listen { source, .. }) => {
                (source.kind(), "`metrics` in D/peer.toml")
            }
            Self::Overlay(overlay::OverlayError::Listen { in_use, .. }) => {
                let kind = if *in_use { io::ErrorKind::AddrInUse } else { io::ErrorKind::Other };
                (kind, "`p2p_listen` in D/peer.toml")
            }
            _ => return None,
        };
        Some(match kind {
            io::ErrorKind::AddrInUse => format!("another program has the port; choose one by {by}"),
            io::ErrorKind::PermissionDenied => {
                format!("ports below 1024 are not for every user; choose another one by {by}")
            }
            io::ErrorKind::AddrNotAvailable => {
                format!("this machine has no such address; name one of its own by {by}")
            }
            _ => format!("name an address of this machine and a free port by {by}"),
        })
    }
}

/// What opens nothing is a wrong key; what the system says of a file is told as for our own files.
fn author_exit(error: &AuthorError) -> Exit {
    match error {
        AuthorError::WrongPassphrase | AuthorError::NotForUs { .. } => Exit::WrongKey,
        AuthorError::Read(source) | AuthorError::Write(source) => io_exit(source),
        AuthorError::Io { source, .. } => io_exit(source),
        other => other.class().into(),
    }
}

fn document_exit(error: &document::DocumentError) -> Exit {
    use document::DocumentError as Error;
    match error {
        Error::NotForReader => Exit::WrongKey,
        Error::Read(source) | Error::Write(source) => io_exit(source),
        other => other.class().into(),
    }
}

/// A port that another program has is busy, and one that is not for this user is denied.
fn listen_exit(source: &io::Error) -> Exit {
    match source.kind() {
        io::ErrorKind::AddrInUse => Exit::Busy,
        io::ErrorKind::PermissionDenied => Exit::Denied,
        _ => Exit::Unavailable,
    }
}

fn rpc_exit(error: &rpc::RpcError) -> Exit {
    match error {
        rpc::RpcError::Listen { source, .. } => listen_exit(source),
        other => other.class().into(),
    }
}

fn certificate_hint(error: &crypto::CertificateError) -> Option<&'static str> {
    use crypto::CertificateError as Error;
    Some(match error {
        Error::Organisation(_) => {
            "hold network show NET lists who takes part; hold network apply --network NET \
             --via HOST:PORT fetches a newer roster"
        }
        Error::Time { .. } => {
            "hold doctor, which compares the clocks; an expired certificate is renewed by \
             `hold org sign-peer`"
        }
        Error::Revoked(_) => {
            "where that was a mistake: hold org revoke --undo, and hold peer set --revocations; else \
             begin with an empty peer: hold peer init"
        }
        _ => return None,
    })
}

fn roster_hint(error: &crypto::RosterError) -> Option<&'static str> {
    use crypto::RosterError as Error;
    Some(match error {
        Error::NotEnough { .. } => {
            "more organisations must sign it: hold org sign-roster --dir ORG --network NET \
             --roster FILE, at each"
        }
        Error::Number { .. } | Error::Link(_) => {
            "hold network apply --network NET --via HOST:PORT brings NET to the newest roster; \
             then propose the change again"
        }
        Error::Signer(_) => "only organisations that the roster before lists sign the next one",
        _ => return None,
    })
}

/// The command that helps with an object.
fn objects_hint(error: &author::objects::ObjectsError) -> Option<&'static str> {
    use author::objects::ObjectsError as Error;
    Some(match error {
        Error::NoObject(_) => "hold object create NAME, or look at owner and name",
        Error::ExistsOtherwise { .. } => "another name",
        Error::Exists(_) => "hold object policy OBJECT shows it, --set says it anew",
        Error::Denied { .. } => "its owner lists readers and writers: hold object policy",
        Error::Conflict(_) => "hold object merge with a value of yours",
        Error::Full(_) => "hold object policy OBJECT --set --region BYTES",
        Error::NotYet { .. } | Error::Unavailable { .. } | Error::NotStored(_) => {
            "hold doctor --via HOST:PORT"
        }
        Error::Walk(walk::WalkError::ObjectsThrough) => {
            "without --thin: objects need their holders"
        }
        _ => return None,
    })
}

/// What so many peers can keep.
fn few_peers_hint(known: usize) -> String {
    let copies = known.clamp(1, placement::PAGE_COPIES as usize);
    let stripes = match known {
        0 | 1 => String::new(),
        known => format!("K/N with N at most {known}, or "),
    };
    format!(
        "hold peer status lists the peers; in a network that has just started try again shortly; a smaller \
         profile fits them: --profile {stripes}copies:{copies}"
    )
}

fn author_hint(error: &AuthorError) -> Option<&'static str> {
    Some(match error {
        AuthorError::NoKeyring(_) => "hold keys init --network NET --org ORG",
        AuthorError::Keyring(crypto::KeyringError::Words(_)) => {
            "24 words as `hold keys export` printed them, in their order, with blanks between"
        }
        AuthorError::DamagedKeyring { .. } => {
            "move that file away, leave what lies beside it, and make it anew of its 24 words: \
             hold keys recover --network NET"
        }
        AuthorError::KeyringExists(_) => "another --home, or move what is there away",
        AuthorError::WrongPassphrase => {
            "HOLD_PASSPHRASE and --passphrase-file come before a prompt"
        }
        AuthorError::NotForUs { .. } => {
            "an address opens for one reader: where you are the author, take what hold put printed and not what hold share did; else \
             let its author share it: hold share ADDRESS --to (your hold keys show)"
        }
        AuthorError::LibriCopies { .. } | AuthorError::ThinCopies { .. } => {
            "leave --profile out, or (with --thin) walk yourself: without --thin"
        }
        AuthorError::ThinSurvey => "walk yourself: without --thin",
        // A file or a pipe of this machine: the network is not to blame.
        AuthorError::Read(_) | AuthorError::Write(_) | AuthorError::Io { .. } => return None,
        // It says all itself: nothing is to be done.
        AuthorError::Gone { .. } => return None,
        AuthorError::Fetch { source: walk::WalkError::TooFewFragments { class, .. }, .. }
            if *class != crypto::Class::Unavailable =>
        {
            "what is left of it: hold check --read-data ADDRESS"
        }
        _ => match Exit::from(error.class()) {
            Exit::Unavailable => "hold doctor --via HOST:PORT",
            Exit::NotFound => "an address is of one network: is it this one? (hold doctor)",
            Exit::Denied => {
                "a pass of an organisation of the network (hold doctor); with --thin, a librarian \
                 of the pass's own organisation"
            }
            _ => return None,
        },
    })
}

/// Whether the disk, or the user's quota, has no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A file that is missing is not found, one that may not be read is the caller's to mend, a full disk is a limit; the rest
/// of what a system says is a failure of the surroundings.
fn io_exit(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Denied,
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => Exit::Conflict,
        io::ErrorKind::ResourceBusy => Exit::Busy,
        // A limit: the disk's, or one that somebody set for this user or for this process's files (`ulimit -f`).
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::Busy,
        io::ErrorKind::FileTooLarge => Exit::Busy,
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => Exit::Invalid,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Exit::Invalid,
        // Text that is none: a list, words.
        io::ErrorKind::InvalidData => Exit::Invalid,
        // Links that lead to each other.
        _ if error.raw_os_error() == Some(libc::ELOOP) => Exit::Invalid,
        _ => Class::Bug.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Every listener of a peer and of a door, and by what its port is chosen.
    #[test]
    fn a_taken_port_is_busy_and_the_hint_names_its_setting() {
        let taken = || io::Error::from(io::ErrorKind::AddrInUse);
        let at = SocketAddr::from(([127, 0, 0, 1], 7100));
        let address = at.to_string();
        let of_rpc = || rpc::RpcError::Listen { address: address.clone(), source: taken() };
        let of_overlay = overlay::OverlayError::Listen {
            address: address.clone(),
            reason: taken().to_string(),
            in_use: true,
        };
        let of_page = librarian::LibrarianError::Listen { address: at, source: taken() };
        let of_door = door_redis::DoorError::Listen { address: at, source: taken() };
        let all = [
            (HoldError::Rpc(of_rpc()), "by `listen` in D/peer.toml"),
            (HoldError::Signed(of_rpc()), "`signed_listen` in D/peer.toml"),
            (HoldError::Overlay(of_overlay), "by `p2p_listen` in D/peer.toml"),
            (HoldError::Librarian(of_page), "by `metrics` in D/peer.toml"),
            (HoldError::Door(of_door), "by --listen"),
            (HoldError::Listen { address: address.clone(), source: taken() }, "by --listen"),
        ];
        for (error, by) in all {
            let hint = error.hint().unwrap_or_default();
            assert!(hint.starts_with("another program has the port"), "{error}: {hint}");
            assert!(hint.ends_with(by), "{error}: {hint}");
            assert_eq!(error.exit(), Exit::Busy, "{error}");
            assert!(error.to_string().contains("7100"), "{error}");
        }
    }

    #[test]
    fn a_store_that_may_not_be_written_is_told_by_its_path_with_what_to_do() {
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
            let (action, file) = ("open", "/srv/peer/store/lock".to_owned());
            let source = kind.into();
            let error = HoldError::from(store::StoreError::Io { action, file, source });
            assert!(error.to_string().contains("/srv/peer/store/lock"), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("chown")), "{kind}");
            assert_eq!(error.exit(), Exit::Denied, "{kind}");
        }
    }

    #[test]
    fn versions_of_which_there_may_be_more_are_told_so() {
        let told = |more| HoldError::Branches { versions: 64, more }.to_string();
        assert!(told(true).contains("64 versions or more:"), "{}", told(true));
        assert!(told(false).contains("64 versions:"), "{}", told(false));
    }

    #[test]
    fn a_hint_for_too_few_peers_is_of_what_they_can_keep() {
        let hint = |known| {
            let profile = placement::Profile::Copies(9);
            let error = HoldError::Author(AuthorError::TooFewPeers { profile, known });
            error.hint().unwrap_or_default()
        };
        assert!(hint(1).ends_with("--profile copies:1"), "{}", hint(1));
        assert!(hint(2).ends_with("--profile K/N with N at most 2, or copies:2"), "{}", hint(2));
        assert!(hint(7).ends_with("--profile K/N with N at most 7, or copies:3"), "{}", hint(7));
    }

    #[test]
    fn a_full_disk_is_a_limit_and_the_hint_says_what_helps() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let of_snapshot = store::StoreError::FullAt("snap".into());
        for error in [HoldError::io("write", "peer.toml")(full()), of_snapshot.into()] {
            assert_eq!(error.exit(), Exit::Busy, "{error}");
            assert_eq!(error.hint().as_deref(), Some(NO_SPACE), "{error}");
        }
    }

    #[test]
    fn links_that_lead_to_each_other_are_wrong_input() {
        let error = HoldError::io("read", "loop")(io::Error::from_raw_os_error(libc::ELOOP));
        assert_eq!(error.exit(), Exit::Invalid);
    }

    #[test]
    fn an_address_of_another_machine_is_told_as_that() {
        let source = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let error = rpc::RpcError::Listen { address: "192.0.2.1:1".to_owned(), source };
        let hint = HoldError::Rpc(error).hint().unwrap_or_default();
        assert!(hint.contains("no such address") && hint.contains("`listen`"), "{hint}");
    }
}
