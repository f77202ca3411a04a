//! What became of an update, and the tree over what became of all updates of a block.
//!
//! ```text
//! result   0 accepted: height 8
//!          1 moved on: there is one 1 [h 32 | l 8 | n 16 | height 8]
//!          2 not a writer   3 not stored: wanted 1 | found 1   4 expired   5 no object   6 rolled back: newest 8   7 full   8 not valid
//! leaf     H(0x00 | H("holdfast result v1" | index 4 | update digest 32 | result))       node  H(0x01 | left | right)
//! ```
//! H is BLAKE3; the tree is [`version::merkle`]'s, which has at most 65,536 leaves. An update that was accepted before is answered
//! with the height at which it was, which is lower than the block's.

use crypto::{RecordId, Suite};
use version::VersionId;
use version::merkle::Tree;

use crate::CommitteeError;
use crate::reader::Reader;
use crate::update::{UpdateDigest, put_version, read_version};

/// The longest encoded result, in bytes.
pub const OUTCOME_BYTES_MAX: usize = 2 + 56 + 8;

const PREFIX: &[u8] = b"holdfast result v1";
const WHAT: &str = "result";

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, since this height.
    Accepted {
        /// The height of the block that did it.
        height: u64,
    },
    /// Another update came first.
    MovedOn {
        /// Where the head is, and since which height; `None` where there is none.
        current: Option<(VersionId, u64)>,
    },
    /// The author may not write.
    NotAWriter,
    /// Too few receipts count.
    NotStored {
        /// Receipts wanted.
        wanted: u8,
        /// Receipts that count.
        found: u8,
    },
    /// The block is above the update's last valid height.
    Expired,
    /// The object is not known.
    NoObject,
    /// A later policy or certificate is known, or another of the same number.
    RolledBack {
        /// The newest number.
        newest: u64,
    },
    /// No room for another entry.
    Full,
    /// The policy or certificate does not hold.
    NotValid,
}

impl Outcome {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(OUTCOME_BYTES_MAX);
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Accepted { height } => {
                out.push(0);
                out.extend_from_slice(&height.to_be_bytes());
            }
            Self::MovedOn { current } => {
                out.extend_from_slice(&[1, u8::from(current.is_some())]);
                if let Some((version, height)) = current {
                    put_version(out, version);
                    out.extend_from_slice(&height.to_be_bytes());
                }
            }
            Self::NotAWriter => out.push(2),
            Self::NotStored { wanted, found } => out.extend_from_slice(&[3, *wanted, *found]),
            Self::Expired => out.push(4),
            Self::NoObject => out.push(5),
            Self::RolledBack { newest } => {
                out.push(6);
                out.extend_from_slice(&newest.to_be_bytes());
            }
            Self::Full => out.push(7),
            Self::NotValid => out.push(8),
        }
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new(WHAT, bytes);
        let outcome = match reader.u8()? {
            0 => Self::Accepted { height: reader.u64()? },
            1 => {
                let current = match reader.flag()? {
                    true => Some((read_version(&mut reader)?, reader.u64()?)),
                    false => None,
                };
                Self::MovedOn { current }
            }
            2 => Self::NotAWriter,
            3 => Self::NotStored { wanted: reader.u8()?, found: reader.u8()? },
            4 => Self::Expired,
            5 => Self::NoObject,
            6 => Self::RolledBack { newest: reader.u64()? },
            7 => Self::Full,
            8 => Self::NotValid,
            _ => return Err(CommitteeError::Field("kind of the result")),
        };
        reader.end()?;
        Ok(outcome)
    }

    /// The height at which it was done.
    ///
    /// # Errors
    /// The refusal.
    pub fn accepted(self) -> Result<u64, CommitteeError> {
        match self {
            Self::Accepted { height } => Ok(height),
            Self::MovedOn { current } => Err(CommitteeError::MovedOn { current }),
            Self::NotAWriter => Err(CommitteeError::NotAWriter),
            Self::NotStored { wanted, found } => Err(CommitteeError::NotStored { wanted, found }),
            Self::Expired => Err(CommitteeError::Expired),
            Self::NoObject => Err(CommitteeError::NoObject),
            Self::RolledBack { newest } => Err(CommitteeError::RolledBack { newest }),
            Self::Full => Err(CommitteeError::Full),
            Self::NotValid => Err(CommitteeError::NotValid),
        }
    }
}

/// What stands for one result in the tree.
pub(crate) fn leaf(index: u32, digest: &UpdateDigest, outcome: &Outcome) -> RecordId {
    let mut bytes = Vec::with_capacity(PREFIX.len() + 4 + 32 + OUTCOME_BYTES_MAX);
    bytes.extend_from_slice(PREFIX);
    bytes.extend_from_slice(&index.to_be_bytes());
    bytes.extend_from_slice(digest.as_bytes());
    outcome.write(&mut bytes);
    Suite::Holdfast1.id(&bytes)
}

/// The tree over a block's results; `None` where it has none.
pub(crate) fn tree<'a>(
    results: impl IntoIterator<Item = (&'a UpdateDigest, &'a Outcome)>,
) -> Option<Tree> {
    let leaves: Vec<RecordId> = results
        .into_iter()
        .zip(0..)
        .map(|((digest, outcome), index)| leaf(index, digest, outcome))
        .collect();
    Tree::new(Suite::Holdfast1, &leaves)
}
