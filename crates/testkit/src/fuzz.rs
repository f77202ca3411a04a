//! One function a decoder: it takes any bytes, must not panic, and what decodes must encode to the same
//! bytes again.
//!
//! They are run twice: by `cargo fuzz` (the folder `fuzz/`, where a nightly compiler is there) and by
//! `tests/fuzz.rs` (and [`driver`], for crates whose decoders are not linked here) on the stable one, over the committed corpus, mutations of it and random bytes. The
//! corpus is `fuzz/corpus/NAME/`; `HOLD_GOLDEN=update` writes each target's seeds there.

pub mod crypto;
pub mod document;
pub mod driver;
pub mod overlay;
pub mod version;

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of its corpus folder and of its file in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// Runs it on some bytes; panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Bytes that decode, for mutations to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({})", self.name)
    }
}

/// All targets.
pub fn targets() -> impl Iterator<Item = Target> {
    let ours = crypto::TARGETS.iter().chain(document::TARGETS).chain(overlay::TARGETS);
    ours.chain(version::TARGETS).copied()
}

/// Runs the target with this name.
///
/// # Panics
/// Where there is none, or a promise is broken.
pub fn run(name: &str, data: &[u8]) {
    let target = targets().find(|target| target.name == name).expect("a target's name");
    (target.run)(data);
}
