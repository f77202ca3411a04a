//! Answers that keep the network whole.
//!
//! Here is checked that an answer has the shape and the bounds of one; that it answers what was asked, in `fitting`. What
//! it says is believed by nobody: records and proofs prove themselves.

use document::Record;
use document::proof::{PROOF_CHUNK_BYTES, PROOF_PATH_BYTES_MAX, PROOF_VALUE_BYTES};
use env::calls::keep::{
    CLAIMS_MAX, COMPANIONS_MAX, ChunkProof, ClaimAnswer, CompareAnswer, FetchAnswer, HAVE_MAX,
    HELD_MAX, KeepAnswer,
};

use super::{
    NOT_CLAIMS, OVER_HAVE, at_most, check_count, check_fetch, check_prove, closed_words, peer, view,
};
use crate::convert::{Open, Wrong, copied};
use crate::limits::RECORD_BYTES_MAX;
use crate::proto;
use crate::proto::keep_response::Answer as Wire;

impl Open<KeepAnswer> for proto::KeepResponse {
    fn open(self) -> Result<KeepAnswer, Wrong> {
        Ok(match self.answer.ok_or(Wrong("no known answer that keeps the network"))? {
            Wire::Compare(answer) => KeepAnswer::Compare(answer.open()?),
            Wire::Lists(lists) => KeepAnswer::Lists(lists.open()?),
            Wire::Claim(claim) => {
                check_count(claim.stripes.len(), CLAIMS_MAX, NOT_CLAIMS)?;
                let all = claim.stripes.into_iter().map(Open::open);
                KeepAnswer::Claim(all.collect::<Result<_, _>>()?)
            }
            Wire::Settled(proto::KeepSettledAnswer {}) => KeepAnswer::Settled,
            Wire::Fetch(fetch) => {
                check_fetch(fetch.answers.len())?;
                let all = fetch.answers.into_iter().map(Open::open);
                KeepAnswer::Fetch(all.collect::<Result<_, _>>()?)
            }
            Wire::Have(have) => {
                at_most(have.held.len(), HAVE_MAX, OVER_HAVE)?;
                let held = |byte: &u8| match byte {
                    0 => Ok(false),
                    1 => Ok(true),
                    _ => Err(Wrong("held is neither 0 nor 1")),
                };
                KeepAnswer::Have(have.held.iter().map(held).collect::<Result<_, _>>()?)
            }
            Wire::Prove(prove) => {
                check_prove(prove.answers.len())?;
                let all = prove.answers.into_iter().map(Open::open);
                KeepAnswer::Prove(all.collect::<Result<_, _>>()?)
            }
            Wire::Look(look) => KeepAnswer::Look(look.in_work),
        })
    }
}

impl Open<CompareAnswer> for proto::KeepCompareAnswer {
    fn open(self) -> Result<CompareAnswer, Wrong> {
        // So many, each after the one before, are at most 256.
        if !self.differ.is_sorted_by(|a, b| a < b) {
            return Err(Wrong("parts that differ are not ascending"));
        }
        let (view, words) = (view(&self.view)?, self.words.open()?);
        Ok(CompareAnswer { differ: self.differ.to_vec(), view, words })
    }
}

impl From<CompareAnswer> for proto::KeepCompareAnswer {
    fn from(answer: CompareAnswer) -> Self {
        let (view, words) = (copied(&answer.view), closed_words(&answer.words));
        Self { differ: answer.differ.into(), view, words }
    }
}

impl Open<ClaimAnswer> for proto::ClaimedStripe {
    fn open(self) -> Result<ClaimAnswer, Wrong> {
        let claimed_by = match self.claimed_by.len() {
            0 => None,
            _ => Some(peer(&self.claimed_by)?),
        };
        at_most(self.held.len(), HELD_MAX, "over 16 fragments of a stripe")?;
        if !self.held.is_sorted_by(|a, b| a < b) {
            return Err(Wrong("fragments that are held are not ascending"));
        }
        Ok(ClaimAnswer { held: self.held.to_vec(), claimed_by })
    }
}

impl From<ClaimAnswer> for proto::ClaimedStripe {
    fn from(answer: ClaimAnswer) -> Self {
        let claimed_by = answer.claimed_by.map(|peer| copied(peer.as_bytes()));
        Self { held: answer.held.into(), claimed_by: claimed_by.unwrap_or_default() }
    }
}

impl Open<FetchAnswer> for proto::FetchAnswer {
    fn open(self) -> Result<FetchAnswer, Wrong> {
        use proto::fetch_answer::Result as Wire;
        Ok(match self.result.ok_or(Wrong("neither record nor why not"))? {
            Wire::Found(found) => {
                at_most(found.companions.len(), COMPANIONS_MAX, "over 4 companions")?;
                let companions: Result<Vec<Record>, _> =
                    found.companions.into_iter().map(Open::open).collect();
                FetchAnswer::Found { record: found.record.open()?, companions: companions? }
            }
            Wire::NotHere(proto::NotHere {}) => FetchAnswer::Absent,
            Wire::Later(proto::NotNow {}) => FetchAnswer::Later,
        })
    }
}

impl From<FetchAnswer> for proto::FetchAnswer {
    fn from(answer: FetchAnswer) -> Self {
        use proto::fetch_answer::Result as Wire;
        let result = match answer {
            FetchAnswer::Found { record, companions } => Wire::Found(proto::FetchedRecord {
                record: Some(record.into()),
                companions: companions.into_iter().map(Into::into).collect(),
            }),
            FetchAnswer::Absent => Wire::NotHere(proto::NotHere {}),
            FetchAnswer::Later => Wire::Later(proto::NotNow {}),
        };
        Self { result: Some(result) }
    }
}

impl Open<Option<ChunkProof>> for proto::ProveAnswer {
    fn open(self) -> Result<Option<ChunkProof>, Wrong> {
        use proto::prove_answer::Result as Wire;
        let proof = match self.result.ok_or(Wrong("neither proof nor none"))? {
            Wire::Proof(proto::ChunkProof { length, chunk, path, last, last_path }) => {
                ChunkProof { length, chunk, path, last, last_path }
            }
            Wire::NotHere(proto::NotHere {}) => return Ok(None),
        };
        check_proof(&proof)?;
        Ok(Some(proof))
    }
}

/// The bounds of a proof; whether it proves anything, its id says.
pub(super) fn check_proof(proof: &ChunkProof) -> Result<(), Wrong> {
    let length = proof.length as usize;
    check_count(length, RECORD_BYTES_MAX, "the length of a record over 2 MiB + 1 KiB, or 0")?;
    check_count(proof.chunk.len(), PROOF_CHUNK_BYTES, "a chunk is not 1 to 1,024 bytes")?;
    at_most(proof.last.len(), PROOF_CHUNK_BYTES, "a last chunk of over 1,024 bytes")?;
    for path in [&proof.path, &proof.last_path] {
        at_most(path.len(), PROOF_PATH_BYTES_MAX, "a path of over 12 values")?;
        if !path.len().is_multiple_of(PROOF_VALUE_BYTES) {
            return Err(Wrong("values of a path are not 32 bytes each"));
        }
    }
    Ok(())
}

impl From<Option<ChunkProof>> for proto::ProveAnswer {
    fn from(proof: Option<ChunkProof>) -> Self {
        use proto::prove_answer::Result as Wire;
        let result = match proof {
            Some(ChunkProof { length, chunk, path, last, last_path }) => {
                Wire::Proof(proto::ChunkProof { length, chunk, path, last, last_path })
            }
            None => Wire::NotHere(proto::NotHere {}),
        };
        Self { result: Some(result) }
    }
}
