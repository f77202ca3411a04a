//! How many files and sockets this process may have open.
//!
//! A shell gives 1,024, and a peer of some hundred connections and segments comes near it: then it takes no connections and begins
//! no segment. The system lets a process have up to its hard limit for the asking.

use rpc::ServerLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a peer needs for itself, beside a door's callers: its segments, its links and its callers.
const RESERVED: usize = 4_096;

/// More are of no use, and some systems allow a billion.
const WANTED: u64 = 1 << 20;

/// Raises the limit to what the system allows; how many there may be.
pub(crate) fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(WANTED).min(WANTED);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// So many connections of a door as were wanted, or as many as `limit` open files leave for them: at least a quarter of it.
pub(crate) fn for_door(wanted: usize, limit: usize) -> usize {
    wanted.min(limit.saturating_sub(RESERVED).max(limit / 4)).max(1)
}

/// What a listener of a peer takes where so many files may be open: a quarter of them at most, of which one source has half at
/// most, so that two listeners leave half to segments and links.
pub(crate) fn for_listener(limit: usize) -> ServerLimits {
    let wanted = ServerLimits::default();
    let connections = wanted.connections.min(limit / 4).max(1);
    // Peers behind one address are one source.
    let per_source = wanted.connections_per_source.min(connections / 2).max(1);
    ServerLimits { connections, connections_per_source: per_source, ..wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_system_allows() {
        let all = raise();
        let now = getrlimit(Resource::Nofile);
        let wanted = now.maximum.unwrap_or(WANTED).min(WANTED);
        assert!(now.current.is_none_or(|current| current >= wanted), "{now:?}");
        assert_eq!(all, raise(), "nothing is left to raise");
    }

    #[test]
    fn listeners_leave_files_to_their_peer() {
        let all = ServerLimits::default();
        let of = |limit| {
            let limits = for_listener(limit);
            (limits.connections, limits.connections_per_source)
        };
        assert_eq!(of(65_536), (all.connections, all.connections_per_source));
        assert_eq!(of(1_024), (256, 128), "two of them leave half");
        assert_eq!(of(0), (1, 1));
    }

    #[test]
    fn a_door_leaves_files_to_its_peer() {
        assert_eq!(for_door(10_000, 1 << 20), 10_000);
        assert_eq!(for_door(10_000, 8_192), 4_096);
        assert_eq!(for_door(10_000, 1_024), 256);
        assert_eq!(for_door(10, 1_024), 10);
        assert_eq!(for_door(10_000, 0), 1);
    }
}
