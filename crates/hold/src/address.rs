//! Addresses as people write them, and file names that a stranger chose.

use crypto::genesis::hides;
use crypto::{ReaderKey, RecordId};

use crate::error::HoldError;

/// What stands before the key in text.
const SCHEME: &str = "hold:";
/// The longest file name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// `hold:<64 hex digits>`.
pub(crate) fn text(address: &RecordId) -> String {
    format!("{SCHEME}{address}")
}

/// The address in a text, with or without `hold:`.
///
/// # Errors
/// Where it is none.
pub(crate) fn parse(text: &str) -> Result<RecordId, HoldError> {
    let bare = text.strip_prefix(SCHEME).unwrap_or(text);
    bare.parse().map_err(HoldError::parse("an address (hold: and 64 hex digits)", text))
}

/// The reader keys that an argument lists.
///
/// # Errors
/// Where one is none.
pub(crate) fn readers(texts: &[String]) -> Result<Vec<ReaderKey>, HoldError> {
    let parse = |text: &String| {
        text.parse()
            .map_err(HoldError::parse("a reader's key (66 hex digits, hold keys show)", text))
    };
    texts.iter().map(parse).collect()
}

/// A file name in the current folder from the name an author gave: its last part, nothing hidden, no
/// letters that make it look like another. A stranger wrote it, so it must not choose where it goes.
pub(crate) fn file_name(name: Option<&str>, address: &RecordId) -> String {
    let last = name.unwrap_or_default().rsplit(['/', '\\']).next().unwrap_or_default();
    let mut safe = String::new();
    for letter in last.chars().filter(|letter| !hides(*letter)) {
        if safe.len() + letter.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        safe.push(letter);
    }
    let safe = safe.trim_start_matches(['.', '-', ' ']).trim_end().to_owned();
    if safe.is_empty() { address.to_string() } else { safe }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_its_scheme() {
        let id = RecordId::new([0xab; 32]);
        assert_eq!(parse(&text(&id)).unwrap(), id);
        assert_eq!(parse(&id.to_string()).unwrap(), id);
        assert!(parse("hold:").is_err());
        assert!(parse("hold:abcd").is_err());
    }

    #[test]
    fn a_strangers_name_stays_in_the_folder() {
        let id = RecordId::new([0xab; 32]);
        let name = |name| file_name(Some(name), &id);
        assert_eq!(name("letter.txt"), "letter.txt");
        assert_eq!(name("../../etc/passwd"), "passwd");
        assert_eq!(name("a\\b\\c.txt"), "c.txt");
        assert_eq!(name(".bashrc"), "bashrc");
        assert_eq!(name("-rf"), "rf");
        assert_eq!(name("a\u{1b}[31m\nb"), "a[31mb");
        assert_eq!(name("invoice\u{202e}fdp.exe"), "invoicefdp.exe");
        for none in ["", "..", "/", ".", "a/"] {
            assert_eq!(name(none), id.to_string(), "{none:?}");
        }
        assert_eq!(file_name(None, &id), id.to_string());
        assert_eq!(name(&"ü".repeat(300)).len(), NAME_BYTES_MAX);
    }
}
