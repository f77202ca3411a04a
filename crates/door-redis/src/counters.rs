//! What the door has done, for operators.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the door's own thread counts.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters as anybody may read them: those of the last whole turn.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $($name: AtomicU64,)*
        }

        impl Metrics {
            pub(crate) fn publish(&self, counters: &Counters) {
                $(self.$name.store(counters.$name, Ordering::Relaxed);)*
            }

            $($(#[$doc])* pub fn $name(&self) -> u64 {
                self.$name.load(Ordering::Relaxed)
            })*

            /// All of them, with their names.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name()),)*]
            }
        }
    };
}

counters! {
    /// Commands executed.
    commands,
    /// Commands answered with an error.
    errors,
    /// Versions made.
    versions,
    /// Commits: writes of the log.
    commits,
    /// Commits that failed.
    failed_commits,
    /// Keys looked up that were there.
    hits,
    /// Keys looked up that were not there.
    misses,
    /// Values read again from the engine.
    reads,
    /// Keys deleted since they had ended.
    expired,
    /// Connections accepted.
    accepted,
    /// Connections refused: there were too many.
    refused,
    /// Connections cut off: a protocol error, a bound, or they did not read.
    cut_off,
    /// Connections now.
    clients,
    /// Keys now.
    keys,
    /// Bytes of values in memory now.
    cached_bytes,
    /// Bytes read from connections.
    received_bytes,
    /// Bytes written to connections.
    sent_bytes,
    /// Wrong passwords.
    wrong_passwords,
    /// Turns of the loop.
    turns,
}
