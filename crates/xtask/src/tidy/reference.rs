//! The reference is whole: every `HOLD_` variable that any file names is listed, and every JSON field.

use super::{Finding, Source};
use crate::reference::{JSON_PAGE, json};

/// The page of variables.
const ENVIRONMENT: &str = "docs/reference/environment.md";
/// This crate names what is none, in its tests.
const OWN: &str = "crates/xtask";
/// How our variables begin.
const PREFIX: &str = "HOLD_";

/// Checks sources, scripts and pages.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut found = json::findings(sources);
    let listed = page(sources, ENVIRONMENT);
    for source in sources.iter().filter(|source| !source.path.starts_with(OWN)) {
        for (at, line) in source.text.lines().enumerate() {
            for name in variables(line).filter(|name| !listed.contains(&format!("`{name}`"))) {
                let what =
                    format!("{name} is not in {ENVIRONMENT}: add it to hold/src/environment.rs");
                found.push(Finding { file: source.path.clone(), line: at + 1, what });
            }
        }
    }
    if page(sources, JSON_PAGE) != json::page(sources) {
        let what = "stale: cargo xtask reference".to_owned();
        found.push(Finding { file: JSON_PAGE.into(), line: 0, what });
    }
    found
}

fn page<'a>(sources: &'a [Source], path: &str) -> &'a str {
    let page = sources.iter().find(|source| source.path.as_os_str() == path);
    page.map_or("", |page| &page.text)
}

/// The names in a line that are variables of ours.
fn variables(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.len() > PREFIX.len() && word.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_not_listed_is_found() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let listed = source(ENVIRONMENT, "| `HOLD_ONE` | one |");
        let json = source(JSON_PAGE, &json::page(&[]));
        let uses = source("crates/a/src/a.rs", "var(\"HOLD_ONE\") var(\"HOLD_ONES\") HOLD_");
        let found = check(&[listed, json, uses]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("HOLD_ONES"), "{found:?}");
        assert_eq!(check(&[source(JSON_PAGE, "old")]).len(), 1);
    }
}
