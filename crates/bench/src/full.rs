//! Whether a put that was timed stored everything.
//!
//! `hold put` ends with 3 where only what must be stored is, and a rate of fewer copies or fragments is not the rate of what is
//! promised: the programs beside ours are held to all of theirs.

use serde::Deserialize;
use serde_json::Value;

use crate::error::BenchError;

/// Of what `hold put --json` answers.
#[derive(Deserialize)]
struct Answer {
    full: bool,
    acked: u32,
    wanted: u32,
}

/// Checks one answer.
///
/// # Errors
/// [`BenchError::Short`], and [`BenchError::Json`] where it is no answer of a put.
pub(crate) fn is_full(answer: &Value) -> Result<(), BenchError> {
    let Answer { full, acked, wanted } = Answer::deserialize(answer)?;
    if full { Ok(()) } else { Err(BenchError::Short { acked, wanted }) }
}

/// Checks the answers of a folder's files, one a line.
///
/// # Errors
/// As [`is_full`].
pub(crate) fn are_full(list: &str) -> Result<(), BenchError> {
    list.lines().try_for_each(|line| is_full(&serde_json::from_str(line)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_answer_that_is_not_full_says_what_is_owed() {
        let line = |full, acked| {
            format!("{{\"address\":\"a\",\"full\":{full},\"acked\":{acked},\"wanted\":8}}\n")
        };
        are_full(&(line(true, 8) + &line(true, 8))).unwrap();
        let short = are_full(&(line(true, 8) + &line(false, 7))).unwrap_err();
        assert!(matches!(short, BenchError::Short { acked: 7, wanted: 8 }), "{short:?}");
        assert!(short.to_string().contains("7 of 8"), "{short}");
        assert!(is_full(&Value::Null).is_err(), "it says nothing");
        assert!(are_full("{\"acked\":8,\"wanted\":8}").is_err());
    }
}
