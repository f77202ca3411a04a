//! What members tell each other beside votes.
//!
//! ```text
//! 1 block        block                                  2 submissions  (length 4 | submission) each
//! 3 want block   header digest 32                       4 want since   height 8
//! 5 since        certificate length 4 | certificate | (length 4 | block) each, in order; the certificate is the last one's
//! 6 how far      nonce 8                                7 this far     nonce 8 | view 8 | parent view 8 | epoch 8 | digest 32 | signature 48
//! 8 here         height 8                               9 want part    header digest 32 | offset 8
//! 10 part        certificate length 4 | certificate | total 8 | offset 8 | length 4 | bytes of a snapshot
//! 11 wish        wish | key 32 | signature 64              12 dealt      number 8 | length 4 | public message | length 4 | private message
//! 13 taken       number 8 | length 4 | acknowledgement     14 outline      header | (key of a submission 32) each, in order
//! ```
//! Nothing of it is believed: blocks by hash and execution, certificates by the group key, submissions by their signature. A *this
//! far* carries a notarisation, so no member can make another wait for a view that there is not. *Dealt* is secret: it goes to its one
//! player alone, over a connection that only the two can read.

use bytes::Bytes;

use crate::certificate::{CERTIFICATE_BYTES_MAX, LATER_MAX};
use crate::group::SIGNATURE_BYTES;
use crate::header::{BLOCK_BYTES_MAX, BLOCK_UPDATES_MAX, Header, HeaderDigest};
use crate::members::Signed;
use crate::reader::{Reader, put_long};
use crate::update::SUBMISSION_BYTES_MAX;
use crate::{CommitteeError, UpdateDigest};

/// The most blocks in one answer: the last one's certificate must reach from the first.
pub(crate) const SINCE_BLOCKS_MAX: usize = LATER_MAX;
/// The most bytes of a snapshot in one message.
pub(crate) const PART_BYTES_MAX: usize = 1 << 20;
/// The longest message of a dealer or a player, in bytes.
pub(crate) const DEALT_BYTES_MAX: usize = 8 << 10;
/// The most submissions in one message.
pub(crate) const SUBMISSIONS_MAX: usize = 1_024;

/// The highest notarisation that a member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notarised {
    pub(crate) view: u64,
    pub(crate) parent_view: u64,
    pub(crate) epoch: u64,
    pub(crate) digest: [u8; 32],
    pub(crate) signature: [u8; SIGNATURE_BYTES],
}

impl Notarised {
    /// Its epoch and view.
    pub(crate) const fn round(&self) -> (u64, u64) {
        (self.epoch, self.view)
    }
}

/// A block without its submissions, which are named by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) header: Box<Header>,
    pub(crate) submissions: Vec<UpdateDigest>,
}

/// A message between members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Block(Bytes),
    Submissions(Vec<Bytes>),
    WantBlock(HeaderDigest),
    WantSince(u64),
    Since { certificate: Bytes, blocks: Vec<Bytes> },
    HowFar(u64),
    ThisFar { nonce: u64, notarised: Notarised },
    Here(u64),
    WantPart { digest: HeaderDigest, offset: u64 },
    Part { certificate: Bytes, total: u64, offset: u64, bytes: Bytes },
    Wish(Signed),
    Dealt { number: u64, public: Bytes, private: Bytes },
    Taken { number: u64, acknowledgement: Bytes },
    Outline(Outline),
}

/// The same with one bit changed in the middle.
#[cfg(feature = "planted-bugs")]
fn changed(bytes: &Bytes) -> Bytes {
    let (mut bytes, at) = (bytes.to_vec(), bytes.len() / 2);
    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
    bytes.into()
}

impl Message {
    /// What a member that forges says instead.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn forged(&self) -> Self {
        let mut message = self.clone();
        match &mut message {
            Self::Block(bytes) | Self::Part { bytes, .. } => *bytes = changed(bytes),
            Self::Submissions(all) => all.iter_mut().for_each(|one| *one = changed(one)),
            Self::Since { blocks, .. } => blocks.iter_mut().for_each(|one| *one = changed(one)),
            Self::ThisFar { notarised, .. } => notarised.view += 1_000,
            Self::Outline(outline) => outline.header.updates[0] ^= 1,
            _ => {}
        }
        message
    }

    /// The encoding.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Block(block) => {
                out.push(1);
                out.extend_from_slice(block);
            }
            Self::Submissions(all) => {
                out.push(2);
                all.iter().for_each(|one| put_long(&mut out, one));
            }
            Self::WantBlock(digest) => {
                out.push(3);
                out.extend_from_slice(digest.as_bytes());
            }
            Self::WantSince(height) => {
                out.push(4);
                out.extend_from_slice(&height.to_be_bytes());
            }
            Self::Since { certificate, blocks } => {
                out.push(5);
                put_long(&mut out, certificate);
                blocks.iter().for_each(|block| put_long(&mut out, block));
            }
            Self::HowFar(nonce) => {
                out.push(6);
                out.extend_from_slice(&nonce.to_be_bytes());
            }
            Self::ThisFar { nonce, notarised } => {
                out.push(7);
                out.extend_from_slice(&nonce.to_be_bytes());
                out.extend_from_slice(&notarised.view.to_be_bytes());
                out.extend_from_slice(&notarised.parent_view.to_be_bytes());
                out.extend_from_slice(&notarised.epoch.to_be_bytes());
                out.extend_from_slice(&notarised.digest);
                out.extend_from_slice(&notarised.signature);
            }
            Self::Here(height) => {
                out.push(8);
                out.extend_from_slice(&height.to_be_bytes());
            }
            Self::WantPart { digest, offset } => {
                out.push(9);
                out.extend_from_slice(digest.as_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
            }
            Self::Part { certificate, total, offset, bytes } => {
                out.push(10);
                put_long(&mut out, certificate);
                out.extend_from_slice(&total.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
                put_long(&mut out, bytes);
            }
            Self::Wish(signed) => {
                out.push(11);
                out.extend_from_slice(&signed.encode());
            }
            Self::Dealt { number, public, private } => {
                out.push(12);
                out.extend_from_slice(&number.to_be_bytes());
                put_long(&mut out, public);
                put_long(&mut out, private);
            }
            Self::Taken { number, acknowledgement } => {
                out.push(13);
                out.extend_from_slice(&number.to_be_bytes());
                put_long(&mut out, acknowledgement);
            }
            Self::Outline(Outline { header, submissions }) => {
                out.push(14);
                out.extend_from_slice(&header.encode());
                submissions.iter().for_each(|one| out.extend_from_slice(one.as_bytes()));
            }
        }
        out
    }

    /// Decodes and checks the form.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("message of a member", bytes);
        let message = match reader.u8()? {
            1 => return Ok(Self::Block(bytes.slice_ref(reader.rest()))),
            2 => Self::Submissions(read_all(
                &mut reader,
                bytes,
                "bytes of a bundle",
                SUBMISSION_BYTES_MAX,
                SUBMISSIONS_MAX,
            )?),
            3 => Self::WantBlock(HeaderDigest::new(reader.array()?)),
            4 => Self::WantSince(reader.u64()?),
            5 => {
                let certificate = reader.long("bytes of a certificate", CERTIFICATE_BYTES_MAX)?;
                let certificate = bytes.slice_ref(certificate);
                let (what, max) = ("bytes of a block", BLOCK_BYTES_MAX);
                let blocks = read_all(&mut reader, bytes, what, max, SINCE_BLOCKS_MAX)?;
                Self::Since { certificate, blocks }
            }
            6 => Self::HowFar(reader.u64()?),
            7 => Self::ThisFar {
                nonce: reader.u64()?,
                notarised: Notarised {
                    view: reader.u64()?,
                    parent_view: reader.u64()?,
                    epoch: reader.u64()?,
                    digest: reader.array()?,
                    signature: reader.array()?,
                },
            },
            8 => Self::Here(reader.u64()?),
            9 => {
                Self::WantPart { digest: HeaderDigest::new(reader.array()?), offset: reader.u64()? }
            }
            10 => {
                let certificate = reader.long("bytes of a certificate", CERTIFICATE_BYTES_MAX)?;
                let (total, offset) = (reader.u64()?, reader.u64()?);
                let part = reader.long("bytes of a snapshot's part", PART_BYTES_MAX)?;
                let [certificate, part] = [certificate, part].map(|one| bytes.slice_ref(one));
                Self::Part { certificate, total, offset, bytes: part }
            }
            11 => return Ok(Self::Wish(Signed::decode(reader.rest())?)),
            12 => {
                let number = reader.u64()?;
                let public = bytes.slice_ref(reader.long("bytes of a part", DEALT_BYTES_MAX)?);
                let private = bytes.slice_ref(reader.long("bytes of a part", DEALT_BYTES_MAX)?);
                Self::Dealt { number, public, private }
            }
            13 => {
                let number = reader.u64()?;
                let taken = reader.long("bytes of an acknowledgement", DEALT_BYTES_MAX)?;
                Self::Taken { number, acknowledgement: bytes.slice_ref(taken) }
            }
            14 => {
                let header = Box::new(Header::read(&mut reader)?);
                let (found, max) = (reader.rest().len() / 32, BLOCK_UPDATES_MAX);
                if found > max {
                    return Err(CommitteeError::TooLarge { what: "submissions", found, max });
                }
                let mut submissions = Vec::with_capacity(found);
                for _ in 0..found {
                    submissions.push(UpdateDigest::new(reader.array()?));
                }
                Self::Outline(Outline { header, submissions })
            }
            _ => return Err(CommitteeError::Field("kind of the message")),
        };
        reader.end()?;
        Ok(message)
    }
}

fn read_all(
    reader: &mut Reader<'_>,
    bytes: &Bytes,
    what: &'static str,
    bytes_max: usize,
    max: usize,
) -> Result<Vec<Bytes>, CommitteeError> {
    let mut all = Vec::new();
    while !reader.rest().is_empty() {
        if all.len() == max {
            let found = max + 1;
            return Err(CommitteeError::TooLarge { what: "parts of a message", found, max });
        }
        all.push(bytes.slice_ref(reader.long(what, bytes_max)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_encoding() {
        let [one, two] = [&b"one"[..], b"two"].map(Bytes::from_static);
        let notarised =
            Notarised { view: 1, parent_view: 2, epoch: 3, digest: [4; 32], signature: [5; 48] };
        let all = [
            Message::Submissions(vec![one.clone(), two.clone()]),
            Message::WantBlock(HeaderDigest::new([7; 32])),
            Message::WantSince(9),
            Message::Since { certificate: one.clone(), blocks: vec![one.clone(), two] },
            Message::HowFar(3),
            Message::ThisFar { nonce: 6, notarised },
            Message::Here(8),
            Message::WantPart { digest: HeaderDigest::new([7; 32]), offset: 4 },
            Message::Part { certificate: one.clone(), total: 9, offset: 2, bytes: one.clone() },
            Message::Dealt { number: 7, public: one.clone(), private: one.clone() },
            Message::Taken { number: 7, acknowledgement: one.clone() },
            Message::Wish(crate::members::tests::signed()),
            Message::Outline(Outline {
                header: Box::new(crate::proving::Founded::new(4).tip),
                submissions: vec![UpdateDigest::new([5; 32]), UpdateDigest::new([6; 32])],
            }),
        ];
        for message in all {
            let bytes = Bytes::from(message.encode());
            assert_eq!(Message::decode(&bytes).expect("our own"), message);
            for at in 0..bytes.len() {
                let cut = Message::decode(&bytes.slice(..at));
                assert!(cut.is_err() || cut.is_ok_and(|cut| cut != message), "{at}");
            }
            if !matches!(message, Message::Block(_)) {
                let longer = [&bytes[..], &[0]].concat();
                assert!(Message::decode(&longer.into()).is_err(), "a byte behind it: {message:?}");
            }
        }
        let block = Message::Block(one);
        assert_eq!(Message::decode(&block.encode().into()).expect("our own"), block);
        let many = Message::Submissions(vec![Bytes::from_static(b"x"); SUBMISSIONS_MAX + 1]);
        assert!(Message::decode(&many.encode().into()).is_err());
    }
}
