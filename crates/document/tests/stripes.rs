//! Content in stripes, offline: any k fragments bring it back, whatever its length.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use crypto::{Eek, NetworkId, ReaderKey, RecordId, SecretKey, Suite};
use document::offline::stripes::{CodeFailure, Coder};
use document::offline::{self, Sealing};
use document::{
    ContentInfo, Document, DocumentError, EntryContent, Kind, Record, Stripe, envelope, prove,
};
use proptest::prelude::*;

const SUITE: Suite = Suite::Holdfast1;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn sealing(author: &SecretKey, suite: Suite) -> Sealing<'_> {
    Sealing {
        suite,
        network: NetworkId::NONE,
        author,
        reader: ReaderKey::new(secret(2).public()),
        eek: Eek::from_bytes(&[5; 108]),
        info: ContentInfo::default(),
        created_time: 1,
    }
}

/// One fragment of parity, the sum of the pages: enough to see that whatever is missing is asked of the code.
struct Sum;

fn add(to: &mut [u8], bytes: &[u8]) {
    to.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
}

impl Coder for Sum {
    fn encode(&self, pages: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodeFailure> {
        let [parity] = parity else { return Err("one parity".into()) };
        pages.iter().for_each(|page| add(parity, page));
        Ok(())
    }

    fn rebuild(
        &self,
        n: u32,
        bytes: usize,
        given: &[(u32, Bytes)],
        wanted: u32,
        out: &mut [u8],
    ) -> Result<(), CodeFailure> {
        assert_eq!(given.len() as u32, n - 1);
        assert!(given.iter().all(|(index, part)| *index != wanted && part.len() <= bytes));
        given.iter().for_each(|(_, bytes)| add(out, bytes));
        Ok(())
    }
}

type Records = BTreeMap<RecordId, Record>;

fn seal(k: u32, content: &[u8]) -> Result<(Records, RecordId), DocumentError> {
    let (author, mut records) = (secret(1), Records::new());
    let mut emit = |record: Record| {
        assert!(records.insert(record.id, record).is_none(), "each once");
        Ok(())
    };
    let sealing = sealing(&author, SUITE);
    let sealed = offline::stripes::seal(sealing, (k, k + 1), &Sum, &mut &content[..], &mut emit)?;
    Ok((records, sealed.envelope))
}

fn open(records: &Records, envelope: &RecordId, code: bool) -> Result<Vec<u8>, DocumentError> {
    let Document::Envelope(envelope) = prove(SUITE, &records[envelope])? else {
        panic!("an envelope")
    };
    assert!(envelope::open(SUITE, NetworkId::NONE, &envelope, &secret(2)).is_ok());
    let mut out = Vec::new();
    let mut fetch = |id: &RecordId| Ok(records.get(id).map(|record| record.bytes.clone()));
    let code: Option<&dyn Coder> = if code { Some(&Sum) } else { None };
    let none = NetworkId::NONE;
    offline::open_with(SUITE, none, &envelope, &secret(2), code, &mut fetch, &mut out)?;
    Ok(out)
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let blocks = (0..length.div_ceil(32) as u64).flat_map(|at| SUITE.hash(&at.to_be_bytes()));
    blocks.take(length).collect()
}

fn fragments(records: &Records) -> Vec<(RecordId, RecordId)> {
    let fragments = records.values().filter(|record| record.place != record.id.into());
    fragments.map(|record| (RecordId::new(*record.place.as_bytes()), record.id)).collect()
}

#[test]
fn stripes_of_two_segments_open_with_one_fragment_less_each() {
    let content = noise((8 << 20) + 100);
    let (mut records, envelope) = seal(4, &content).unwrap();
    let kind = |kind| records.values().filter(|record| record.kind == kind).count();
    assert_eq!((kind(Kind::Page), kind(Kind::Parity), kind(Kind::Stripe)), (8, 2, 2));
    for record in records.values() {
        assert!(prove(SUITE, record).is_ok(), "{record:?}");
    }
    assert!(open(&records, &envelope, false).unwrap() == content, "no code is needed");
    let stripes: Vec<RecordId> = records
        .values()
        .filter(|record| record.kind == Kind::Stripe)
        .map(|record| record.id)
        .collect();
    let all = fragments(&records);
    let of = |stripe: &RecordId, at: usize| {
        all.iter().filter(|(of, _)| of == stripe).map(|(_, id)| *id).nth(at).unwrap()
    };
    for stripe in &stripes {
        records.remove(&of(stripe, 0));
    }
    assert!(open(&records, &envelope, true).unwrap() == content);
    records.remove(&of(&stripes[0], 1));
    let few = open(&records, &envelope, true);
    assert!(matches!(few, Err(DocumentError::TooFew { found: 3, needed: 4, .. })), "{few:?}");
    assert!(matches!(open(&records, &envelope, false), Err(DocumentError::Missing { .. })));
}

#[test]
fn what_fits_into_an_entry_is_no_stripe() {
    for length in [0, 1, 16 << 10] {
        let (records, envelope) = seal(3, &noise(length)).unwrap();
        assert_eq!(records.len(), 2, "entry and envelope");
        assert_eq!(open(&records, &envelope, false).unwrap(), noise(length));
    }
}

#[test]
fn no_stripes_of_other_numbers_or_in_libri_1() {
    let author = secret(1);
    let seal = |suite, shape| {
        let sealing = sealing(&author, suite);
        offline::stripes::seal(sealing, shape, &Sum, &mut &b"content"[..], &mut |_| Ok(()))
    };
    for shape in [(0, 1), (1, 1), (4, 4), (5, 4), (255, 257), (256, 257)] {
        assert!(matches!(seal(SUITE, shape), Err(DocumentError::Field(_))), "{shape:?}");
    }
    assert!(seal(SUITE, (255, 256)).is_ok());
    assert!(matches!(seal(Suite::Libri1, (2, 3)), Err(DocumentError::Suite(_))));
}

#[test]
fn a_page_made_again_that_is_another_and_a_stripe_of_another_k_fail_the_read() {
    let (records, envelope) = seal(2, &noise(40_000)).unwrap();
    let Some(header) = records.values().find(|record| record.kind == Kind::Stripe) else {
        panic!("a header")
    };
    let Ok(Document::Stripe(stripe)) = prove(SUITE, header) else { panic!("a header") };
    // The parity of a liar: its own record, listed in the header, with bytes that the code would not make.
    let mut lying = records.clone();
    let mut buffer = document::ParityBuffer::new(2, stripe.fragment_bytes()).unwrap();
    buffer.bytes_mut().fill(7);
    let parity = buffer.record(SUITE);
    let mut ids = stripe.fragments().to_vec();
    ids[2] = parity.id;
    let liar = Stripe::new(stripe.lengths().to_vec(), ids).unwrap();
    let liar = Record::of(SUITE, &Document::Stripe(liar));
    lying.insert(parity.id, parity);
    lying.remove(&stripe.fragments()[0]);
    let (entry, envelope_again) = renamed(&records, &envelope, header.id, liar.id, 2);
    lying.extend([(liar.id, liar)].into_iter().chain(entry));
    let refused = open(&lying, &envelope_again, true);
    assert!(matches!(refused, Err(DocumentError::Id(id)) if id == stripe.fragments()[0]));

    let (entry, envelope_again) = renamed(&records, &envelope, header.id, header.id, 3);
    let mut other = records.clone();
    other.extend(entry);
    // The count of stripes is right for both; the header's k is not the entry's.
    let refused = open(&other, &envelope_again, true);
    assert!(matches!(refused, Err(DocumentError::StripePages { wanted: 3, found: 2, .. })));
}

/// The entry with another stripe, or of another k, and an envelope of it.
fn renamed(
    records: &Records,
    envelope: &RecordId,
    from: RecordId,
    to: RecordId,
    k: u32,
) -> (Vec<(RecordId, Record)>, RecordId) {
    let Ok(Document::Envelope(old)) = prove(SUITE, &records[envelope]) else { panic!() };
    let Ok(Document::Entry(mut entry)) = prove(SUITE, &records[&old.entry]) else { panic!() };
    let EntryContent::Stripes { ids, .. } = &entry.content else { panic!("stripes") };
    let ids = ids.iter().map(|id| if *id == from { to } else { *id }).collect();
    entry.content = EntryContent::Stripes { k, ids };
    let entry = Record::of(SUITE, &Document::Entry(entry));
    let eek = Eek::from_bytes(&[5; 108]);
    let reader = ReaderKey::new(secret(2).public());
    let sealed = envelope::seal(SUITE, NetworkId::NONE, entry.id, &secret(1), &reader, &eek);
    let sealed = Record::of(SUITE, &Document::Envelope(sealed));
    let id = sealed.id;
    (vec![(entry.id, entry), (sealed.id, sealed)], id)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// One fragment of each stripe may be missing, whichever it is.
    #[test]
    fn any_length_opens_without_any_one_fragment(
        k in 1..9u32,
        length in 0..200_000usize,
        at in any::<prop::sample::Index>(),
    ) {
        let content = noise(length);
        let (mut records, envelope) = seal(k, &content).unwrap();
        let fragments = fragments(&records);
        if !fragments.is_empty() {
            records.remove(&fragments[at.index(fragments.len())].1);
        }
        prop_assert!(open(&records, &envelope, true).unwrap() == content);
    }

    /// decode(encode(x)) == x, and no two headers have the same bytes.
    #[test]
    fn headers_are_what_was_encoded(
        lengths in prop::collection::vec(any::<u32>(), 1..=255),
        parity in 1..=255usize,
        seed in any::<u64>(),
    ) {
        let longest = document::stripe::page_bytes_max(lengths.len() as u32) as u32;
        let lengths: Vec<u32> = lengths.into_iter().map(|length| 1 + length % longest).collect();
        let n = (lengths.len() + parity).min(256);
        let id = |at: usize| {
            RecordId::new(SUITE.hash(&[seed.to_be_bytes(), at.to_be_bytes()].concat()))
        };
        let stripe = Stripe::new(lengths, (0..n).map(id).collect()).unwrap();
        let bytes = Document::Stripe(stripe.clone()).encode();
        prop_assert_eq!(Document::decode(&bytes).unwrap(), Document::Stripe(stripe));
    }

    /// The same of parity and of entries with stripes; a byte changed anywhere is refused or another document.
    #[test]
    fn a_changed_byte_is_refused_or_another_document(
        index in 1..=255u32,
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let parity = Document::Parity(document::Parity { index, bytes: bytes.into() });
        let encoded = parity.encode();
        prop_assert_eq!(&Document::decode(&encoded).unwrap(), &parity);
        let mut changed = encoded.to_vec();
        changed[at.index(encoded.len())] ^= flip;
        if let Ok(other) = Document::decode(&changed.clone().into()) {
            prop_assert!(other != parity);
            prop_assert_eq!(other.encode(), changed);
        }
    }
}
