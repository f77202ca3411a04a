//! See `crates/committee/tests/fuzz`.
#![no_main]

#[path = "../../crates/committee/tests/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = targets::TARGETS.iter().find(|target| target.name == "certified-members");
    (target.expect("a target's name").run)(data);
});
