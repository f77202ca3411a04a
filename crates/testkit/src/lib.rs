//! What tests of several crates share: a network without wires, virtual time. A development crate: never shipped.

pub mod crowd;
pub mod disk;
pub mod fuzz;
pub mod golden;
pub mod network;
pub mod overlay;
pub mod store;
pub mod time;

use std::sync::OnceLock;

/// The folder of the crate whose test runs: as cargo tells the running test, and `compiled` where nobody tells. A clone takes over
/// what another compiled, from a folder that may be gone.
pub fn manifest(compiled: &'static str) -> &'static str {
    static FOLDER: OnceLock<String> = OnceLock::new();
    FOLDER
        .get_or_init(|| std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| compiled.to_owned()))
}

/// [`manifest()`] of the crate that calls it.
#[macro_export]
macro_rules! manifest {
    () => {
        $crate::manifest(env!("CARGO_MANIFEST_DIR"))
    };
}
