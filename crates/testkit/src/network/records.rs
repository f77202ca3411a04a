//! Valid records without an author: pages and envelopes whose sealed parts are noise.

use bytes::Bytes;
use crypto::{AuthorKey, ReaderKey, RecordId, Suite};
use document::{Document, Envelope, Page, Record};

use super::key;

/// Bytes that look random and that `name` and `number` decide.
pub fn noise(name: &str, number: usize, len: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(len + 32);
    let mut block = 0_u32;
    while bytes.len() < len {
        let input = format!("{name} {number} {block}");
        bytes.extend(Suite::Holdfast1.hash(input.as_bytes()));
        block += 1;
    }
    bytes.truncate(len);
    bytes.into()
}

fn fixed<const N: usize>(name: &str, number: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&noise(name, number, N));
    bytes
}

/// A page with so much sealed noise (at least 17 bytes: a codec and a tag).
pub fn page(suite: Suite, number: usize, ciphertext_bytes: usize) -> Record {
    let page = Page {
        author: AuthorKey::new(key("author", number).public()),
        index: 0,
        ciphertext: noise("page", number, ciphertext_bytes.max(17)),
        mac: fixed("mac", number),
    };
    Record::of(suite, &Document::Page(page))
}

/// An envelope that seals noise to nobody.
pub fn envelope(suite: Suite, number: usize) -> Record {
    let envelope = Envelope {
        entry: RecordId::new(fixed("entry", number)),
        author: AuthorKey::new(key("author", number).public()),
        reader: ReaderKey::new(key("reader", number).public()),
        eek_ciphertext: fixed("eek", number),
        eek_ciphertext_mac: fixed("mac", number),
    };
    Record::of(suite, &Document::Envelope(envelope))
}
