//! What can be wrong with a peer, and how often it was called.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use crypto::RecordId;
use document::Record;
use env::calls::{CallError, FindRequest, FindResponse, VerifyResponse};

/// What is wrong with a peer, as its callers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Connections are refused at once.
    Down,
    /// It takes connections and never answers.
    Hang,
    /// It answers, so much later.
    Delay(Duration),
    /// It sends each record so much later, and answers all else at once.
    LateRecords(Duration),
    /// It answers every call with this error.
    Error(CallError),
    /// It answers every write with this error; reads are honest.
    Writes(CallError),
    /// What `Get` is asked for one of these ends with this error, as one whose holder refused it; all else is honest.
    Refused(BTreeSet<RecordId>, CallError),
    /// It acknowledges writes and keeps nothing.
    Forget,
    /// It says that it does not have what it has.
    Deny,
    /// One byte of every record and MAC it sends is flipped.
    Flip,
    /// It sends this record whatever is asked for.
    Other(Record),
    /// It claims to have everything, and makes up the bytes.
    Garbage,
}

/// Calls that reached one peer's address, by method; a batch counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `Introduce`.
    pub introduce: u64,
    /// `Find`.
    pub find: u64,
    /// `FindBatch`.
    pub find_batch: u64,
    /// `Verify` and its batch form.
    pub verify: u64,
    /// `Store`.
    pub store: u64,
    /// `StoreBatch`.
    pub store_batch: u64,
    /// `Put` and `Get`.
    pub put_get: u64,
    /// `Subscribe`.
    pub subscribe: u64,
    /// `Objects`.
    pub objects: u64,
    /// Requests about what both should hold.
    pub keep: u64,
    /// Of leases.
    pub lease: u64,
    /// `Committee`.
    pub committee: u64,
    /// `Watch`.
    pub watch: u64,
    /// Calls running now.
    pub running: u64,
    /// The most calls that ran at once.
    pub running_max: u64,
}

impl Counts {
    /// Calls of all methods.
    pub fn total(&self) -> u64 {
        let reads = self.find + self.find_batch + self.verify;
        let writes = self.store + self.store_batch;
        let objects = self.objects + self.keep + self.watch;
        self.introduce + reads + writes + self.put_get + self.subscribe + objects
    }
}

/// The same bytes with one bit of the middle one flipped; of none, one byte.
pub(super) fn flipped(bytes: &[u8]) -> Bytes {
    let mut bytes = if bytes.is_empty() { vec![0] } else { bytes.to_vec() };
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes.into()
}

impl Fault {
    /// What a peer with this fault says instead of the honest `answer`.
    pub(super) fn find(&self, asked: &FindRequest, answer: FindResponse) -> FindResponse {
        match (self, answer) {
            (Self::Deny, _) => FindResponse::Closest(Vec::new()),
            (Self::Flip, FindResponse::Found(record)) => {
                let bytes = flipped(&record.bytes);
                FindResponse::Found(Record { bytes, ..record })
            }
            (Self::Other(record), _) => FindResponse::Found(record.clone()),
            (Self::Garbage, _) => {
                let bytes = Bytes::from_static(b"made up");
                let kind = document::Kind::Page;
                FindResponse::Found(Record { kind, id: asked.id, place: asked.place, bytes })
            }
            (_, answer) => answer,
        }
    }

    /// What a peer with this fault proves instead.
    pub(super) fn verify(&self, answer: VerifyResponse) -> VerifyResponse {
        match (self, answer) {
            (Self::Deny, _) => VerifyResponse::Closest(Vec::new()),
            (Self::Flip, VerifyResponse::Mac(mut mac)) => {
                mac[0] ^= 1;
                VerifyResponse::Mac(mac)
            }
            (Self::Garbage | Self::Other(_), _) => VerifyResponse::Mac([7; 32]),
            (_, answer) => answer,
        }
    }
}
