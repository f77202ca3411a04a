//! Q1: the right bytes or an error, never other bytes. Also a read that fails may have given right bytes alone.

use author::AuthorError;

use crate::history::History;

/// Compares what a read gave with what it should give.
pub fn check(history: &History, got: &[u8], wanted: &[u8], complete: bool) {
    let right = if complete { got == wanted } else { wanted.starts_with(got) };
    if !right {
        let differs = got.iter().zip(wanted).position(|(a, b)| a != b);
        let what = format!(
            "a read gave {} bytes for {} (complete: {complete}), which differ at {differs:?}",
            got.len(),
            wanted.len()
        );
        history.find("Q1", what);
    }
}

/// Errors that no holder can cause while proofs are made: what was fetched proved itself and does not open.
pub fn check_error(history: &History, what: &str, error: &AuthorError) {
    if matches!(error, AuthorError::Corrupt { .. } | AuthorError::Content(_)) {
        history.find("Q1", format!("a {what} got what its author did not make: {}", text(error)));
    }
}

/// An error with what caused it.
pub fn text(error: &AuthorError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Needle;

    #[test]
    fn other_bytes_are_found() {
        let clock = std::sync::Arc::new(testkit::time::VirtualClock::new());
        let history = History::new(clock, Needle::new(1), false);
        check(&history, b"abc", b"abc", true);
        check(&history, b"ab", b"abc", false);
        assert_eq!(history.lock().findings, []);
        check(&history, b"ab", b"abc", true);
        check(&history, b"abd", b"abcd", false);
        check(&history, b"abcd", b"abc", false);
        assert_eq!(history.lock().findings.len(), 3);
    }
}
