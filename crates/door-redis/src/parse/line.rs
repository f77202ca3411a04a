//! Words of a line typed by hand, with quotes and escapes as in Redis.

/// The words, or none where a quote has no pair or is followed by other than a space.
pub(super) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let Some((first, after)) = rest.split_first() {
            if !is_space(*first) {
                break;
            }
            rest = after;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = one(rest, &mut word)?;
        words.push(word);
    }
}

/// Reads one word into `word`; gives what is behind it.
fn one<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((first, after)) = rest.split_first() {
        match first {
            b'"' => return end(double(after, word)?),
            b'\'' => return end(single(after, word)?),
            space if is_space(*space) => break,
            other => word.push(*other),
        }
        rest = after;
    }
    Some(rest)
}

/// A closing quote ends the word.
fn end(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|next| is_space(*next)).then_some(rest)
}

fn double<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                word.push(hex(*high)? << 4 | hex(*low)?);
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [b'"', after @ ..] => return Some(after),
            [other, after @ ..] => {
                word.push(*other);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn single<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Some(after),
            [other, after @ ..] => {
                word.push(*other);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0b | 0x0c | 0)
}
