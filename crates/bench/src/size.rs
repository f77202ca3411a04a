//! Sizes as people write them: `64MiB`, `1G`, `4096`.

const UNITS: [(&str, u32); 5] = [("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40)];

/// Bytes of `1GiB`, `1G` (the same), `300kB` (thousands), `4096`.
///
/// # Errors
/// What is wrong with the text, for people.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size such as 64MiB");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.to_ascii_uppercase();
    let (unit, binary) = match (unit.strip_suffix("IB"), unit.strip_suffix('B')) {
        (Some(unit), _) => (unit, true),
        (None, Some(unit)) => (unit, false),
        (None, None) => (unit.as_str(), true),
    };
    let at = UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let one = if binary { 1u64 << UNITS[at].1 } else { 1000u64.pow(at as u32) };
    number.checked_mul(one).ok_or_else(wrong)
}

/// A number of bytes for people: the largest unit that makes it whole, or one digit of it.
pub fn text(bytes: u64) -> String {
    let fits = |shift: u32| bytes >= 1 << shift;
    let (name, shift) = UNITS.iter().rev().find(|(_, shift)| fits(*shift)).unwrap_or(&UNITS[0]);
    match shift {
        0 => format!("{bytes} B"),
        _ if bytes.is_multiple_of(1 << shift) => format!("{} {name}iB", bytes >> shift),
        _ => format!("{:.1} {name}iB", bytes as f64 / (1u64 << shift) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_told() {
        let read = |text| parse(text).ok();
        assert_eq!(read("4096"), Some(4096));
        assert_eq!(read("64MiB"), Some(64 << 20));
        assert_eq!(read("1G"), Some(1 << 30));
        assert_eq!(read("1gib"), Some(1 << 30));
        assert_eq!(read("300kB"), Some(300_000));
        assert_eq!(read("7b"), Some(7));
        for bad in ["", "G", "-1", "1X", "1.5G", "99999999999T", "1 GiB"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!([text(0), text(1 << 30), text(3 << 19)], ["0 B", "1 GiB", "1.5 MiB"]);
    }
}
