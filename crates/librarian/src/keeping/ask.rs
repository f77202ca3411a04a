//! One call of a peer to another about what they keep.

use std::time::Duration;

use crypto::PeerId;
use env::calls::CallError;
use env::calls::keep::{KeepAnswer, KeepRequest};
use walk::Health;

use super::locked;
use crate::core::Core;

/// The deadline of a call that moves next to nothing.
pub(super) const SMALL_LIMIT: Duration = Duration::from_secs(10);
/// The deadline of a call that moves records.
pub(super) const LARGE_LIMIT: Duration = Duration::from_secs(60);

/// Asks a peer, and notes how well it is.
pub(super) async fn ask(
    core: &Core,
    peer: &PeerId,
    request: KeepRequest,
    limit: Duration,
) -> Result<KeepAnswer, CallError> {
    let to = core.directory.endpoint(peer).ok_or_else(|| CallError::Unreachable {
        address: peer.to_string(),
        reason: "it announced no address".to_owned(),
    })?;
    let since = core.env.clock.elapsed();
    let call = core.calls.keep(&to, request, limit);
    let answer = match core.env.within(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(CallError::TimedOut { address: to.address, limit }),
    };
    let now = core.env.clock.elapsed();
    let away = match &answer {
        Ok(_) => {
            if limit == SMALL_LIMIT {
                core.directory.good(peer, now.saturating_sub(since));
            }
            false
        }
        Err(error) => {
            core.directory.failed(peer, error);
            // One call that fails says nothing yet: anybody can refuse one.
            core.directory.health(peer) == Health::Away
        }
    };
    if let Some(keeping) = &core.keeping {
        let mut audits = locked(&keeping.audits);
        match away {
            true => audits.of(*peer).lost_sight(now),
            false => audits.of(*peer).seen(now),
        }
    }
    answer
}

/// An answer of another name than the request's.
pub(super) fn strange(peer: &PeerId) -> CallError {
    CallError::Corrupt {
        address: peer.to_string(),
        reason: "it answered another request than was asked".to_owned(),
    }
}
