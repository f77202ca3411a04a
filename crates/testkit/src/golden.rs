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

/// Compares every block of a page in `docs/formats/` that is marked `hex NAME` with the golden file of that
/// name. In such a block a line is hex, then at least two spaces and a remark, or a remark alone.
///
/// # Panics
/// Where one differs, or the page has none.
pub fn check_page(manifest: &str, page: &str) {
    let path = Path::new(manifest).join("../../docs/formats").join(page);
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let mut blocks = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let block = lines.by_ref().take_while(|line| *line != "```");
        let found: String = block.map(|line| line.split("  ").next().unwrap_or_default()).collect();
        // A page may show a format of another crate.
        let owner = std::fs::read_dir(Path::new(manifest).join("..")).expect("crates/");
        let owner = owner
            .map(|entry| entry.expect("readable").path())
            .find(|crate_| crate_.join(format!("tests/golden/{name}.hex")).exists())
            .unwrap_or_else(|| panic!("{page}: no crate has golden bytes {name}"));
        let golden = read(&owner.to_string_lossy(), name);
        assert_eq!(found, hex(&golden), "{page}: the example {name}");
        blocks += 1;
    }
    assert!(blocks > 0, "{page} has examples");
}
