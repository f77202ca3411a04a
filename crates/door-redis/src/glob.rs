//! Patterns of KEYS, SCAN and CONFIG GET: `*`, `?`, `[a-c]`, `[^a]`, `\`.
//!
//! At a mismatch only the last star is tried again, so the time is the product of both lengths at
//! most: a pattern of many stars is no attack.

/// The longest pattern. A field has up to 2 MiB, and the time is the product of both.
pub(crate) const PATTERN_BYTES_MAX: usize = 1_024;

/// Whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
        } else if let Some(next) = one(pattern, p, text[t]) {
            p = next;
            t += 1;
        } else if let Some((after, from)) = star {
            p = after;
            t = from + 1;
            star = Some((after, t));
        } else {
            return false;
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|rest| *rest == b'*')
}

/// Where the pattern goes on if its item at `at` matches `byte`.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (*literal == byte).then_some(at + 1),
    }
}

/// The same for a class, from behind its bracket. One without an end ends with the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (low, high) = (from.min(to), from.max(to));
                found |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes = [
            ("*", ""),
            ("*", "abc"),
            ("a*c", "abbc"),
            ("a*c*", "abcbd"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("a\\*", "a*"),
            ("[\\]]", "]"),
            ("[abc", "b"),
            ("", ""),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let no = [("a", ""), ("h[^a]llo", "hallo"), ("a\\*", "ab"), ("?", ""), ("a*c", "abcd")];
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_are_no_attack() {
        let text = "a".repeat(4096);
        assert!(!matches(("a*".repeat(200) + "b").as_bytes(), text.as_bytes()));
    }
}
