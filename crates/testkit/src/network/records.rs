//! Valid records without an author: pages, stripes and envelopes whose sealed parts are noise.

use bytes::Bytes;
use crypto::{AuthorKey, ReaderKey, RecordId, Suite};
use document::{Document, Envelope, Page, ParityBuffer, Record, Stripe, Striped};
use erasure::Code;

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
    page_of(suite, number, 0, ciphertext_bytes)
}

fn page_of(suite: Suite, number: usize, index: usize, ciphertext_bytes: usize) -> Record {
    let page = Page {
        author: AuthorKey::new(key("author", number).public()),
        index: index as u32,
        ciphertext: noise("page", number + 1_000_000 * index, ciphertext_bytes.max(17)),
        mac: fixed("mac", number),
    };
    Record::of(suite, &Document::Page(page))
}

/// A stripe of k pages with so much sealed noise each, the last one a byte less, and the parity that goes with them.
///
/// # Panics
/// Where `k` and `n` are no stripe.
pub fn stripe(number: usize, k: usize, n: usize, ciphertext_bytes: usize) -> Striped {
    let bytes = |index: usize| ciphertext_bytes.max(18) - usize::from(index + 1 == k);
    let page = |index| page_of(Suite::Holdfast1, number, index, bytes(index));
    stripe_of((0..k).map(page).collect(), n)
}

/// The stripe of these pages.
///
/// # Panics
/// Where they and `n` are no stripe.
pub fn stripe_of(pages: Vec<Record>, n: usize) -> Striped {
    let (suite, k) = (Suite::Holdfast1, pages.len());
    let coded: Vec<&[u8]> = pages.iter().map(|page| &page.bytes[..]).collect();
    let longest = coded.iter().map(|bytes| bytes.len()).max().unwrap_or_default();
    let buffer = |index: usize| ParityBuffer::new(index as u32, longest).expect("a parity's index");
    let mut buffers: Vec<ParityBuffer> = (k..n).map(buffer).collect();
    let mut parity: Vec<&mut [u8]> = buffers.iter_mut().map(ParityBuffer::bytes_mut).collect();
    let code = Code::new(k, n).expect("a code of this shape");
    code.encode(&coded, &mut parity).expect("as many and as long as the code wants");
    let parity = buffers.into_iter().map(|buffer| buffer.record(suite)).collect();
    Stripe::of(suite, pages, parity).expect("a stripe")
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
