//! What a member begins with: the chain as its log has it, and whether it may vote.

use std::collections::HashSet;

use bytes::Bytes;
use commonware_cryptography::bls12381::primitives::group::Share;

use super::votes_partition;
use crate::engine::chain::{Chain, Fit};
use crate::engine::charter::Charter;
use crate::engine::log::Found;
use crate::engine::{Runtime, founding};
use crate::{Block, CommitteeError};

/// The chain as the log has it.
pub(super) fn restore(
    chain: &mut Chain,
    charter: &Charter,
    found: Found,
) -> Result<(), CommitteeError> {
    let group = &charter.group;
    if let Some((certificate, state)) = found.snapshot {
        certificate.verify(&charter.rules.network, group)?;
        chain.start_from(certificate, state);
    }
    let mut blocks: Vec<(Block, Bytes)> = found.blocks;
    blocks.sort_by_key(|(block, _)| block.header.height);
    let last = found.certificates.into_iter().next_back();
    // What is final is what the last certificate stands on; the others are candidates.
    let mut finals = HashSet::new();
    if let Some((_, certificate)) = &last {
        certificate.verify(&charter.rules.network, group)?;
        let mut at = certificate.header().digest();
        for (block, _) in blocks.iter().rev() {
            if block.header.digest() == at {
                finals.insert(at);
                at = block.header.parent;
            }
        }
    }
    for (block, bytes) in blocks {
        let digest = block.header.digest();
        let fit = chain.execute(block, bytes, |_| finals.contains(&digest));
        if let Fit::Bad(error) = fit {
            if finals.contains(&digest) {
                return Err(error);
            }
            tracing::warn!(%error, ?digest, "a block in the log that is not final does not hold");
            continue;
        }
        // Final blocks are many: the tip follows them as they are executed.
        if finals.contains(&digest) {
            let whole = last.as_ref().filter(|(_, one)| one.header().digest() == digest);
            match whole {
                Some((_, certificate)) if chain.above(&digest).is_some() => {
                    chain.finalise(&certificate.finalization()?)?;
                }
                _ => chain.fold(&digest),
            }
        }
    }
    Ok(())
}

/// The share, unless the member began to vote and its votes are gone.
pub(super) async fn may_vote<E: Runtime>(
    context: &E,
    name: &str,
    share: Option<Share>,
) -> Result<Option<Share>, CommitteeError> {
    let Some(share) = share else { return Ok(None) };
    let votes = match context.scan(&votes_partition(name)).await {
        Ok(names) => !names.is_empty(),
        Err(commonware_runtime::Error::PartitionMissing(_)) => false,
        Err(error) => return Err(CommitteeError::Storage(error)),
    };
    if founding::began(context, name).await? && !votes {
        tracing::error!("the votes of this member are gone: it follows, and votes no more");
        return Ok(None);
    }
    founding::begin(context, name).await?;
    Ok(Some(share))
}
