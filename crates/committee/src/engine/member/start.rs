//! What a member begins with: the chain as its log has it, and whether it may vote.

use std::collections::HashSet;

use bytes::Bytes;
use commonware_cryptography::bls12381::primitives::group::Share;

use super::epoch::votes_partition;
use crate::engine::chain::{Chain, Fit};
use crate::engine::charter::Charter;
use crate::engine::log::Found;
use crate::engine::{Runtime, files};
#[cfg(feature = "planted-bugs")]
use crate::planted;
use crate::{Block, CommitteeError};

/// The chain as the log has it.
pub(super) fn restore(
    chain: &mut Chain,
    charter: &Charter,
    found: Found,
) -> Result<(), CommitteeError> {
    let group = &charter.group;
    if let Some((certificate, state)) = found.snapshot {
        certificate.verify_own(&charter.rules.network, group)?;
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

/// The share, unless the member began to vote in this epoch and its votes are gone.
pub(super) async fn may_vote<E: Runtime>(
    context: &E,
    name: &str,
    epoch: u64,
    share: Option<Share>,
) -> Result<Option<Share>, CommitteeError> {
    let Some(share) = share else { return Ok(None) };
    let votes = match context.scan(&votes_partition(name, epoch)).await {
        Ok(names) => !names.is_empty(),
        Err(commonware_runtime::Error::PartitionMissing(_)) => false,
        Err(error) => return Err(CommitteeError::Storage(error)),
    };
    let began = files::began(context, name).await?;
    if began.is_some_and(|began| began > epoch) {
        tracing::error!(epoch, ?began, "this member voted in a later epoch: it follows");
        return Ok(None);
    }
    let forgot = began == Some(epoch) && !votes;
    #[cfg(feature = "planted-bugs")]
    let forgot = forgot && !planted::is_on(planted::PlantedBug::VoteAfterAmnesia);
    if forgot {
        tracing::error!("the votes of this member are gone: it follows, and votes no more");
        return Ok(None);
    }
    // First the place of the votes, then the note that they began: whoever dies between the two has not voted, and may.
    if !votes {
        let first = context.open(&votes_partition(name, epoch), &FIRST_VIEWS).await;
        first.map_err(CommitteeError::Storage)?;
    }
    files::begin(context, name, epoch).await?;
    Ok(Some(share))
}

/// What the engine's journal calls the file of its first views.
const FIRST_VIEWS: [u8; 8] = 0_u64.to_be_bytes();

#[cfg(test)]
mod tests {
    use commonware_runtime::{Runner as _, Storage as _, deterministic};

    use super::*;

    #[test]
    fn a_member_that_dies_before_its_first_vote_may_vote_and_one_that_lost_its_votes_may_not() {
        deterministic::Runner::default().start(|context| async move {
            let share = || Some(crate::proving::share());
            let may = async || may_vote(&context, "m", 0, share()).await.expect("a good disk");
            assert!(may().await.is_some(), "the first start");
            // It died before the engine wrote a vote.
            assert!(may().await.is_some(), "it has not voted");
            context.remove(&votes_partition("m", 0), None).await.expect("it began");
            assert!(may().await.is_none(), "its votes are gone");
            assert!(may_vote(&context, "n", 0, None).await.expect("a good disk").is_none());
        });
    }
}
