//! Golden bytes: formats written with fixed keys and compared with a file, so that no byte changes by
//! accident.
//!
//! A file holds hex, 32 bytes a line, in `tests/golden/NAME.hex` of the crate that owns the format. To
//! change a format on purpose: run that crate's golden test with `HOLD_GOLDEN=update`, look at the diff,
//! and add a line in `docs/formats/` and one under Formats in the changelog.

use std::path::{Path, PathBuf};

/// The environment variable that, set to `update`, writes the files instead of comparing.
pub const VARIABLE: &str = "HOLD_GOLDEN";

/// Whether golden files and fuzz seeds are to be written.
pub fn updating() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == "update")
}

/// Compares bytes with the golden file `name` of the crate at `manifest` (its `CARGO_MANIFEST_DIR`).
///
/// # Panics
/// Where they differ, with what to do.
pub fn check(manifest: &str, name: &str, bytes: &[u8]) {
    let path = path(manifest, name);
    if updating() {
        let lines = bytes.chunks(32).map(|line| hex(line) + "\n");
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("writable");
        std::fs::write(&path, lines.collect::<String>()).expect("writable");
        return;
    }
    let golden = read(manifest, name);
    assert!(
        golden == bytes,
        "{name}: the bytes of this format changed.\n golden {}\n now    {}\nA change on purpose: \
         {VARIABLE}=update, then a line in docs/formats/ and the changelog.",
        hex(&golden),
        hex(bytes),
    );
}

/// The bytes of a golden file.
///
/// # Panics
/// Where it is missing or not hex.
pub fn read(manifest: &str, name: &str) -> Vec<u8> {
    let path = path(manifest, name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{} is missing; {VARIABLE}=update writes it", path.display()));
    let digits: Vec<u32> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|digit| digit.to_digit(16).expect("hex"))
        .collect();
    assert!(digits.len().is_multiple_of(2), "{name}: whole bytes");
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn path(manifest: &str, name: &str) -> PathBuf {
    Path::new(manifest).join("tests/golden").join(format!("{name}.hex"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
