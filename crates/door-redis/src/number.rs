//! Numbers as Redis reads and writes them.
//!
//! Integers are strict: no spaces, no plus, no leading zeros. Scores are doubles, written with the
//! fewest digits that read back as the same. INCRBYFLOAT adds decimals exactly where both have at
//! most 17 places: Redis has 64 bits of mantissa there, and 0.1 + 0.2 must be 0.3.

/// Decimal places that are added exactly.
const PLACES_MAX: u32 = 17;
/// Digits before the exact sum falls back to doubles; two such numbers fit 128 bits.
const DIGITS_MAX: usize = 36;

/// A strict integer.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        value = value.checked_mul(10)?;
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

/// A double that is a number; infinities are.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse::<f64>().ok().filter(|value| !value.is_nan())
}

/// A double that is near to what the text says: infinite only where that is, and zero likewise. The bounds of ranges and what
/// INCRBYFLOAT adds may be any, as in Redis.
pub(crate) fn score(text: &[u8]) -> Option<f64> {
    let value = double(text)?;
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let is_beyond = match value {
        0.0 => mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9')),
        _ => value.is_infinite() && mantissa.iter().any(u8::is_ascii_digit),
    };
    (!is_beyond).then_some(value)
}

/// Appends an integer.
pub(crate) fn push_integer(into: &mut Vec<u8>, value: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        into.push(b'-');
    }
    into.extend_from_slice(&digits[at..]);
}

/// Up to this whole doubles are written as integers: half of the largest `long long`, as `double2ll` of Redis 7.2 has it.
const WHOLE_MAX: f64 = 4_611_686_018_427_387_904.0;

/// A double's text.
pub(crate) fn text(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if value.is_nan() {
        return "nan".into();
    }
    if value == value.trunc() && value.abs() <= WHOLE_MAX {
        let sign = if value.is_sign_negative() && value == 0.0 { "-" } else { "" };
        return format!("{sign}{}", value as i64);
    }
    scientific_or_plain(value)
}

/// The shortest digits, with an exponent where the plain form would be mostly zeros.
fn scientific_or_plain(value: f64) -> String {
    let form = format!("{value:e}");
    let (mantissa, exponent) = form.split_once('e').unwrap_or((&form, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.chars().filter(char::is_ascii_digit).count() as i32;
    let power = exponent - (digits - 1);
    let plain =
        (power >= 0 && exponent < digits + 7) || (power < 0 && (power > -7 || exponent.abs() < 4));
    if plain {
        format!("{value}")
    } else {
        format!("{mantissa}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

/// Why a sum of floats is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FloatError {
    /// One of them is no number.
    NotANumber,
    /// The sum is none.
    Infinite,
}

/// The sum of two floats as INCRBYFLOAT writes it: never with an exponent.
pub(crate) fn add(a: &[u8], b: &[u8]) -> Result<String, FloatError> {
    let (x, y) = (double(a), double(b));
    let (Some(x), Some(y)) = (x, y) else { return Err(FloatError::NotANumber) };
    if let (Some(a), Some(b)) = (decimal(a), decimal(b))
        && let Some(sum) = a.checked_add(b)
    {
        return Ok(places(sum));
    }
    let sum = x + y;
    if sum.is_finite() { Ok(format!("{sum}")) } else { Err(FloatError::Infinite) }
}

/// A decimal as an integer of the smallest places.
fn decimal(text: &[u8]) -> Option<i128> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut parts = text.splitn(2, |byte| matches!(byte, b'e' | b'E'));
    let (text, exponent) = (parts.next()?, parts.next());
    let exponent: i64 = match exponent {
        Some(exponent) => std::str::from_utf8(exponent).ok()?.parse::<i16>().ok()?.into(),
        None => 0,
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let digits = whole.iter().chain(fraction).skip_while(|digit| **digit == b'0');
    // So many zeros follow its digits.
    let missing = i64::from(PLACES_MAX) - i64::try_from(fraction.len()).ok()? + exponent;
    let missing = usize::try_from(missing).ok()?;
    if digits.clone().count().checked_add(missing)? > DIGITS_MAX {
        // Of nothing there may be many.
        return (digits.count() == 0).then_some(0);
    }
    let zeros = std::iter::repeat_n(&b'0', missing);
    let mut value: i128 = 0;
    for digit in digits.chain(zeros) {
        value = value * 10 + i128::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    Some(if negative { -value } else { value })
}

fn places(value: i128) -> String {
    let unit = 10_u128.pow(PLACES_MAX);
    let sign = if value < 0 { "-" } else { "" };
    let (whole, fraction) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
    let text = format!("{sign}{whole}.{fraction:0width$}", width = PLACES_MAX as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        for good in ["0", "-1", "9223372036854775807", "-9223372036854775808", "10"] {
            assert_eq!(integer(good.as_bytes()), good.parse().ok(), "{good}");
        }
        for bad in ["", "-", "+1", "01", "-0", " 1", "1 ", "1a", "9223372036854775808", "0x1"] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn integers_are_written_whole() {
        for value in [0, 7, -7, 10, i64::MAX, i64::MIN] {
            let mut text = Vec::new();
            push_integer(&mut text, value);
            assert_eq!(text, value.to_string().as_bytes());
        }
    }

    #[test]
    fn doubles_are_written_as_redis_does() {
        let cases = [
            (3.0, "3"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e16, "10000000000000000"),
            (1_732_000_000_123_456_789.0, "1732000000123456768"),
            (-1.7e18, "-1700000000000000000"),
            (1e19, "1e+19"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (0.000123, "0.000123"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (17_179_869_184.0, "17179869184"),
            (2.34567, "2.34567"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(value), expected);
        }
        assert_eq!(double(b"nan"), None);
        assert_eq!(double(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(double(b" 1"), None);
    }

    /// As Redis 7.0 has it.
    #[test]
    fn a_score_that_no_double_is_near_is_none() {
        for beyond in ["1e400", "-1e400", "1e-400", "-0.01E-400", &"9".repeat(400), "nan", "x"] {
            assert_eq!(score(beyond.as_bytes()), None, "{beyond}");
        }
        for (text, value) in [
            ("inf", f64::INFINITY),
            ("+inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0e-400", 0.0),
            ("0.0e999", 0.0),
            ("-0", 0.0),
            ("1e-310", 1e-310),
            ("-1.5e3", -1_500.0),
        ] {
            assert_eq!(score(text.as_bytes()), Some(value), "{text}");
        }
        assert_eq!(double(b"1e400"), Some(f64::INFINITY));
    }

    #[test]
    fn sums_of_decimals_are_exact() {
        let sum = |a: &str, b: &str| add(a.as_bytes(), b.as_bytes());
        assert_eq!(sum("0.1", "0.2"), Ok("0.3".into()));
        assert_eq!(sum("10.50", "0.1"), Ok("10.6".into()));
        assert_eq!(sum("5.0e3", "2.0e2"), Ok("5200".into()));
        assert_eq!(sum("9007199254740993", "1e0"), Ok("9007199254740994".into()));
        assert_eq!(sum("1234567890123456789", "1E+1"), Ok("1234567890123456799".into()));
        assert_eq!(sum("0.2", "1e-1"), Ok("0.3".into()));
        assert_eq!(sum("0.25", "-125.0e-3"), Ok("0.125".into()));
        assert_eq!(sum("0000000000000000000000000000000000000000000001", "0e9"), Ok("1".into()));
        assert_eq!(sum("1e300", "1"), Ok(format!("{}", 1e300)));
        assert_eq!(sum("1", "1e-300"), Ok("1".into()));
        assert_eq!(sum("1", "1e"), Err(FloatError::NotANumber));
        assert_eq!(sum("1", "1e1.5"), Err(FloatError::NotANumber));
        assert_eq!(sum("3", "-3.0"), Ok("0".into()));
        assert_eq!(sum("-1.5", "0.25"), Ok("-1.25".into()));
        assert_eq!(sum("x", "1"), Err(FloatError::NotANumber));
        assert_eq!(sum("inf", "1"), Err(FloatError::Infinite));
    }
}
