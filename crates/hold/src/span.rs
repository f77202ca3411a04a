//! Lengths of time as people write them: `90d`, `12h`, `2y`.

use std::str::FromStr;

use crypto::lease::LEASE_SECONDS_MAX;

/// A length of time in seconds, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) u64);

/// Why a text is no length of time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a whole number and s, m, h, d, w or y (of 365 days), say 90d")]
pub(crate) struct SpanError;

const UNITS: [(char, u64); 6] =
    [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800), ('y', 31_536_000)];

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let unit = text.chars().next_back().ok_or(SpanError)?;
        let (_, seconds) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or(SpanError)?;
        let count = text.strip_suffix(unit).unwrap_or_default();
        if !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SpanError);
        }
        let count: u64 = count.parse().map_err(|_| SpanError)?;
        count.checked_mul(seconds).filter(|span| *span > 0).map(Self).ok_or(SpanError)
    }
}

/// A time that a lease may last, as clap reads it.
pub(crate) fn of_lease(text: &str) -> Result<Span, String> {
    let Span(seconds) = text.parse().map_err(|error: SpanError| error.to_string())?;
    let days = LEASE_SECONDS_MAX / 86_400;
    match seconds <= LEASE_SECONDS_MAX {
        true => Ok(Span(seconds)),
        false => Err(format!("at most {days}d: nobody is paid for longer; renew it later")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_a_number_and_a_unit() {
        for (text, seconds) in [("1s", 1), ("5m", 300), ("90d", 7_776_000), ("2y", 63_072_000)] {
            assert_eq!(text.parse(), Ok(Span(seconds)));
        }
        for text in ["", "d", "0d", "-1d", "+1d", "1.5h", "90", "1 d", "9999999999999999999y", "1é"]
        {
            assert_eq!(text.parse::<Span>(), Err(SpanError), "{text}");
        }
    }

    #[test]
    fn a_lease_is_no_longer_than_anybody_is_paid_for() {
        assert_eq!(of_lease("3660d"), Ok(Span(LEASE_SECONDS_MAX)));
        for text in ["3661d", "100y"] {
            assert!(of_lease(text).is_err_and(|why| why.contains("3660d")), "{text}");
        }
    }
}
