//! The shape of source files: sizes, module docs, line lengths, file names.

use super::{Finding, Source};

/// The most lines of one file, its tests not counted.
const LINES_MAX: usize = 1_000;
/// Nine files of ten are shorter than this.
const LINES_P90: usize = 600;
/// Half of the files are shorter than this.
const LINES_MEDIAN: usize = 200;
/// The longest line of code, in characters. Docs and comments may be longer where a table or link needs it.
const COLUMNS_MAX: usize = 100;
/// A folder as it was when the program was compiled. A clone takes over what another compiled, so tests ask `testkit::manifest!()`.
const COMPILED_FOLDER: &str = "env!(\"CARGO_MANIFEST_DIR\")";
/// Whose own matter that is.
const MAY_NAME_FOLDERS: &[&str] = &["crates/testkit", "crates/xtask"];
/// Names that say nothing: a file is named after the noun it serves.
const BANNED_FILES: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "mod"];

/// Checks sizes, docs, lines and names of all Rust files.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut sizes = Vec::new();
    for source in sources.iter().filter(|source| is_rust(source)) {
        let lines = code_lines(source);
        if is_production(source) {
            sizes.push(lines);
        }
        let mut find = |line, what: String| {
            found.push(Finding { file: source.path.clone(), line, what });
        };
        if lines > LINES_MAX {
            find(0, format!("{lines} lines without tests; at most {LINES_MAX}: split it"));
        }
        let stem = source.path.file_stem().unwrap_or_default().to_string_lossy();
        if BANNED_FILES.contains(&stem.as_ref()) {
            find(0, format!("a file is named after the noun it serves, not {stem}"));
        }
        if is_production(source) && !source.text.trim_start().starts_with("//!") {
            find(1, "a module starts with a //! sentence of what it does".to_owned());
        }
        for (at, line) in source.text.lines().enumerate() {
            let comment = line.trim_start().starts_with("//");
            if !comment && line.chars().count() > COLUMNS_MAX && !line.contains('"') {
                find(at + 1, format!("a line of code has at most {COLUMNS_MAX} columns"));
            }
            let may = MAY_NAME_FOLDERS.iter().any(|folder| source.path.starts_with(folder));
            if !comment && !may && line.contains(COMPILED_FOLDER) {
                find(at + 1, "testkit::manifest!() is where it runs, this where it was".to_owned());
            }
        }
    }
    sizes.sort_unstable();
    for (part, max, name) in [(50, LINES_MEDIAN, "median"), (90, LINES_P90, "90th percentile")] {
        let at = sizes.get(sizes.len() * part / 100).copied().unwrap_or(0);
        if at >= max {
            let what = format!("the {name} file has {at} lines; under {max}");
            found.push(Finding { file: "crates".into(), line: 0, what });
        }
    }
    found
}

fn is_rust(source: &Source) -> bool {
    source.path.extension().is_some_and(|extension| extension == "rs")
}

/// Whether the file is part of a library or program rather than a test, bench or fuzz target.
fn is_production(source: &Source) -> bool {
    let test = |part: &std::ffi::OsStr| part == "tests" || part == "benches" || part == "fuzz";
    !source.path.with_extension("").iter().any(test)
}

/// Lines before the file's own tests.
fn code_lines(source: &Source) -> usize {
    let lines = source.text.lines();
    lines.take_while(|line| *line != "#[cfg(test)]").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let long = format!("//! Doc.\n{}", "x();\n".repeat(LINES_MAX));
        assert_eq!(check(&[source("crates/a/tests/a.rs", &long)]).len(), 1);
        let tests = format!("//! Doc.\n#[cfg(test)]\n{}", "x();\n".repeat(LINES_MAX));
        assert_eq!(check(&[source("crates/a/tests/a.rs", &tests)]), []);
    }

    #[test]
    fn folders_of_the_compiler_are_found() {
        let text = format!("//! Doc.\nlet path = {COMPILED_FOLDER};\n");
        assert_eq!(check(&[source("crates/a/tests/a.rs", &text)]).len(), 1);
        assert_eq!(check(&[source("crates/testkit/src/lib.rs", &text)]), []);
    }

    #[test]
    fn missing_docs_bad_names_and_long_lines_are_found() {
        assert_eq!(check(&[source("crates/a/src/a.rs", "fn a() {}\n")]).len(), 1);
        assert_eq!(check(&[source("crates/a/src/utils.rs", "//! Doc.\n")]).len(), 1);
        let wide = format!("//! Doc.\nlet {} = 1;\n", "x".repeat(COLUMNS_MAX));
        assert_eq!(check(&[source("crates/a/src/a.rs", &wide)]).len(), 1);
    }
}
