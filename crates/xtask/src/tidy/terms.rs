//! The field's terms, one each: others are banned, and so is what must not be committed at all.

use super::{Finding, Source};

/// A banned word and what to say instead.
const WORDS: &[(&str, &str)] = &[
    ("shard", "fragment"),
    ("shards", "fragments"),
    ("pieces", "fragments, or parts"),
    ("todo", "do it, or write an issue"),
    ("fixme", "mend it, or write an issue"),
    ("xxx", "say what is meant"),
];

/// Text that must not stand in a source file, and why.
const TEXTS: &[(&str, &str)] = &[
    ("#[ignore", "a test that does not run is no test"),
    ("unimplemented!(", "deliver it, or leave it out"),
];

/// Files that speak about the terms themselves.
const ABOUT_TERMS: &[&str] = &["crates/xtask/src/tidy", "CONTRIBUTING.md"];

/// Looks for banned words in code, comments and docs.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in sources {
        let path = source.path.to_string_lossy();
        if ABOUT_TERMS.iter().any(|about| path.starts_with(about)) {
            continue;
        }
        for (at, line) in source.text.lines().enumerate() {
            for what in line_findings(line) {
                found.push(Finding { file: source.path.clone(), line: at + 1, what });
            }
        }
    }
    found
}

fn line_findings(line: &str) -> Vec<String> {
    let lower = line.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let banned = WORDS.iter().filter(|(word, _)| words.contains(word));
    let banned = banned.map(|(word, instead)| format!("not \"{word}\": {instead}"));
    let texts = TEXTS.iter().filter(|(text, _)| lower.contains(text));
    banned.chain(texts.map(|(text, why)| format!("not \"{text}\": {why}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_words_are_found_as_words_only() {
        assert_eq!(line_findings("// one Shard of it").len(), 1);
        assert_eq!(line_findings("let masterpieces = 1;"), Vec::<String>::new());
        assert_eq!(line_findings("#[ignore]").len(), 1);
    }
}
