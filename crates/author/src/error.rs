//! Why an author could not do what was asked.

use std::io;
use std::path::PathBuf;

use crypto::{Class, Classified, RecordId};
use placement::Profile;
use walk::WalkError;

/// What a record was needed for, so that an error says more than an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// An envelope: the address itself.
    Envelope,
    /// The entry an envelope names.
    Entry,
    /// The n-th page of the content.
    Page(u32),
    /// The n-th list of the content's pages or stripes.
    List(u32),
    /// The n-th stripe of the content.
    Stripe(u32),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Envelope => f.write_str("the envelope"),
            Self::Entry => f.write_str("the entry"),
            Self::Page(index) => write!(f, "page {index}"),
            Self::List(number) => write!(f, "list {number} of the pages"),
            Self::Stripe(number) => write!(f, "stripe {number}"),
        }
    }
}

/// Why an author could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorError {
    /// There is no keyring in the folder.
    #[error("there is no keyring in {}", .0.display())]
    NoKeyring(PathBuf),
    /// There is a keyring already; it is never overwritten.
    #[error("there is a keyring in {} already; it is not overwritten", .0.display())]
    KeyringExists(PathBuf),
    /// The passphrase does not open the keyring.
    #[error("the passphrase does not open the keyring")]
    WrongPassphrase,
    /// Words that make no keyring, or a keyring's file of a version that this program does not know.
    #[error("the keyring cannot be opened")]
    Keyring(#[source] crypto::KeyringError),
    /// The keyring's file is empty, cut short or otherwise not what was written. Its words make it anew.
    #[error("the keyring {} is damaged", path.display())]
    DamagedKeyring {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: crypto::KeyringError,
    },
    /// Another program holds the lock of the home for longer than it may.
    #[error("another program holds {}", .0.display())]
    Locked(PathBuf),
    /// Every counter was issued.
    #[error("the keyring has issued every key it can; make a new one")]
    Exhausted,
    /// Nobody vouches for this user, so nobody pays.
    #[error("no pass: an organisation of the network must vouch for this user to pay for contents")]
    NoPass,
    /// A lease could not be signed: the pass is none, or the time nobody takes.
    #[error("a lease could not be signed")]
    Lease(#[source] crypto::lease::LeaseError),
    /// What is stored now would be dropped at once, and what was stored before is dropped already.
    #[error(
        "all of this put is paid until one time, {until} (Unix seconds), which was over before the end of it: put it again and pay for \
         longer (hold put --for)"
    )]
    PaidTimeOver {
        /// Until when it was paid, Unix seconds.
        until: u64,
    },
    /// None of this user's keys opens the envelope.
    #[error("{address} is not sealed to any key of this keyring")]
    NotForUs {
        /// The envelope.
        address: RecordId,
    },
    /// There is such a record, but it is no envelope.
    #[error("{address} is not the address of a content: it is a record of kind {found}")]
    NotAnAddress {
        /// What was given.
        address: RecordId,
        /// What it is.
        found: &'static str,
    },
    /// A record could not be found.
    #[error("cannot fetch {part}")]
    Fetch {
        /// What it was needed for.
        part: Part,
        /// Why not.
        #[source]
        source: WalkError,
    },
    /// What a renewal was of is gone, and was taken out of what this home notes as paid for.
    #[error(
        "{part} of {address} is gone: nothing is paid for there any more, and it is not renewed again"
    )]
    Gone {
        /// The content, or the envelope to somebody else.
        address: RecordId,
        /// What of it was looked for.
        part: Part,
        /// What the holders said.
        #[source]
        source: WalkError,
    },
    /// A record could not be stored at enough holders.
    #[error("cannot store {part}")]
    Store {
        /// What it was.
        part: Part,
        /// Why not.
        #[source]
        source: WalkError,
    },
    /// A librarian's log cannot be followed, and no other was left to try.
    #[error("no librarian lets its log be followed")]
    Follow(#[source] env::calls::CallError),
    /// No peer of the network is known that could be asked.
    #[error("no peer of the network is known")]
    NoPeers,
    /// What was fetched does not open: its author's fault or a forgery.
    #[error("{part} is not what it should be")]
    Corrupt {
        /// Which record.
        part: Part,
        /// What is wrong.
        #[source]
        source: document::DocumentError,
    },
    /// The content as a whole is not what its author sealed.
    #[error("the content is not what its author sealed")]
    Content(#[source] document::DocumentError),
    /// The content or what goes with it cannot be sealed.
    #[error("this cannot be sealed")]
    Unsealable(#[source] document::DocumentError),
    /// The content is empty, which `libri-1` cannot say.
    #[error("a network of suite libri-1 stores no empty content")]
    Empty,
    /// More readers than one put takes.
    #[error("{0} readers are too many for one put; share with the others afterwards")]
    TooManyReaders(usize),
    /// A profile with more fragments or copies than peers are known: two of them would lie on one machine.
    #[error("{profile} takes {} peers, one for each {}, and {known} are known", one_each(*.profile).0, one_each(*.profile).1)]
    TooFewPeers {
        /// The profile, that of the put or of the network.
        profile: Profile,
        /// Peers known.
        known: usize,
    },
    /// Stripes in a network that has none.
    #[error("a network of suite libri-1 keeps copies: nothing can be kept as {profile}")]
    LibriCopies {
        /// What was asked for.
        profile: Profile,
    },
    /// A profile where a librarian walks for this program.
    #[error(
        "a librarian that walks for this program keeps copies as its network does, not {profile}"
    )]
    ThinCopies {
        /// What was asked for.
        profile: Profile,
    },
    /// A check where a librarian walks for this program, which asks no holders.
    #[error("a librarian walks for this program, which asks no holders")]
    ThinSurvey,
    /// A stripe's fragments do not fit together: a header whose author lies, or a defect.
    #[error("the erasure code refused a stripe")]
    Code(#[source] erasure::ErasureError),
    /// The byte range does not lie in the content.
    #[error("bytes {start} to {end} are not within the {size} bytes of the content")]
    Range {
        /// The first byte asked for.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// Bytes of the content.
        size: u64,
    },
    /// The source of a put could not be read.
    #[error("cannot read what is to be put")]
    Read(#[source] io::Error),
    /// The sink of a get could not be written.
    #[error("cannot write what was got")]
    Write(#[source] io::Error),
    /// The operating system, about a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What is being put is not what an interrupted put of it read. [`crate::Author::put_file`] starts anew where it meets
    /// this and never answers it.
    #[error("this is not what the interrupted put of it read")]
    Changed,
    /// A part of the work ended before it was done: the program is shutting down, or a defect.
    #[error("the work was stopped before it was done")]
    Stopped,
}

impl Classified for AuthorError {
    fn class(&self) -> Class {
        match self {
            Self::NoKeyring(_) => Class::NotFound,
            Self::KeyringExists(_) => Class::Conflict,
            Self::WrongPassphrase | Self::NotForUs { .. } | Self::NoPass => Class::Denied,
            Self::Keyring(source) => source.class(),
            Self::Lease(source) => source.class(),
            Self::NotAnAddress { .. }
            | Self::Empty
            | Self::TooManyReaders(_)
            | Self::LibriCopies { .. }
            | Self::ThinCopies { .. }
            | Self::ThinSurvey
            | Self::Range { .. }
            | Self::Unsealable(_)
            | Self::PaidTimeOver { .. }
            | Self::Exhausted => Class::Invalid,
            Self::Fetch { source, .. } | Self::Gone { source, .. } | Self::Store { source, .. } => {
                source.class()
            }
            Self::Follow(source) => source.class(),
            Self::NoPeers | Self::TooFewPeers { .. } => Class::Unavailable,
            Self::Locked(_) => Class::Busy,
            Self::Read(source) | Self::Write(source) | Self::Io { source, .. } => of_io(source),
            Self::DamagedKeyring { .. } | Self::Corrupt { .. } | Self::Content(_) => Class::Corrupt,
            Self::Changed => Class::Conflict,
            Self::Stopped | Self::Code(_) => Class::Bug,
        }
    }
}

/// How many peers a profile takes one of which for each, and of what.
const fn one_each(profile: Profile) -> (u32, &'static str) {
    match profile {
        Profile::Copies(copies) => (copies, "copy"),
        Profile::Stripe { n, .. } => (n, "fragment"),
    }
}

/// The class of what the operating system says.
fn of_io(error: &io::Error) -> Class {
    match error.kind() {
        io::ErrorKind::NotFound => Class::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Class::Denied,
        io::ErrorKind::AlreadyExists => Class::Conflict,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Class::Busy,
        io::ErrorKind::InvalidInput
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory => Class::Invalid,
        _ => Class::Unavailable,
    }
}
