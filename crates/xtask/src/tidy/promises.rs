//! Pages that name tests: every row of a table whose last column is `test` names one that exists, or says why none
//! does.
//!
//! A test is named `crate::function`. A row without one begins its cell with `none:` and the reason, so that what
//! is not held is seen.

use std::collections::BTreeSet;

use super::{Finding, Source};

/// The pages that make promises.
const PAGES: &[&str] = &["SECURITY.md", "docs/internals/hostile-inputs.md"];
/// The header of a column of tests.
const COLUMN: &str = "test";
/// What a cell without a test begins with.
const NONE: &str = "none:";

/// Checks the pages.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let tests: BTreeSet<String> = sources.iter().flat_map(tests).collect();
    let mut found = Vec::new();
    for page in PAGES {
        match sources.iter().find(|source| source.path.as_os_str() == *page) {
            Some(source) => rows(source, &tests, &mut found),
            None => {
                let what = "this page of promises is missing".to_owned();
                found.push(Finding { file: page.into(), line: 0, what });
            }
        }
    }
    found
}

fn rows(page: &Source, tests: &BTreeSet<String>, found: &mut Vec<Finding>) {
    let (mut inside, mut promises) = (false, 0);
    for (at, line) in page.text.lines().enumerate() {
        let mut find = |what: String| {
            found.push(Finding { file: page.path.clone(), line: at + 1, what });
        };
        let Some(cell) = last_cell(line) else {
            inside = false;
            continue;
        };
        if cell == COLUMN {
            inside = true;
            continue;
        }
        if !inside || cell.chars().all(|c| c == '-') {
            continue;
        }
        promises += 1;
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        for name in names.iter().filter(|name| !tests.contains(**name)) {
            find(format!("no test is named {name}"));
        }
        if names.is_empty() && !cell.starts_with(NONE) {
            find(format!("name the test that holds it (`crate::function`), or `{NONE}` and why"));
        }
    }
    if promises == 0 {
        let what = format!("no table with a last column `{COLUMN}`");
        found.push(Finding { file: page.path.clone(), line: 0, what });
    }
}

fn last_cell(line: &str) -> Option<&str> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    row.rsplit('|').next().map(str::trim)
}

/// The tests in a file, as `crate::function`; those in macros too, so it goes by lines.
fn tests(source: &Source) -> Vec<String> {
    let mut parts = source.path.iter().map(|part| part.to_string_lossy());
    let (Some(top), Some(name)) = (parts.next(), parts.next()) else { return Vec::new() };
    if top != "crates" || source.path.extension().is_none_or(|extension| extension != "rs") {
        return Vec::new();
    }
    let (mut marked, mut found) = (false, Vec::new());
    for line in source.text.lines().map(str::trim) {
        marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.split_once("fn ").filter(|(before, _)| {
            before.split_whitespace().all(|word| ["pub", "async", "pub(crate)"].contains(&word))
        });
        if let (true, Some((_, rest))) = (marked, function) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            found.push(format!(
                "{name}::{}",
                rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
            ));
            marked = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn a_promise_without_its_test_is_found() {
        let code = source(
            "crates/a/src/a.rs",
            "#[test]\nfn holds() {}\n  #[tokio::test(x)]\n  async fn holds_too() {}\nfn no_test() {}",
        );
        let page = |cell: &str| {
            let text = format!(
                "| what | test |\n|---|---|\n| x | {cell} |\n\n| a | b |\n|---|---|\n| x | y |"
            );
            PAGES.iter().map(|page| source(page, &text)).collect::<Vec<_>>()
        };
        let count = |cell: &str| {
            let mut sources = page(cell);
            sources.push(source("crates/a/src/a.rs", &code.text));
            check(&sources).len() / PAGES.len()
        };
        assert_eq!(count("`a::holds`, `a::holds_too`"), 0);
        assert_eq!(count("none: it cannot be tested"), 0);
        for bad in ["`a::no_test`", "`b::holds`", "`a::holds`, `a::gone`", "", "surely", "`holds`"]
        {
            assert_eq!(count(bad), 1, "{bad}");
        }
        assert_eq!(check(&[code]).len(), PAGES.len(), "a page that is gone");
    }
}
