//! The bytes of `holdfast-1`'s documents with fixed keys. `HOLD_GOLDEN=update` writes them on purpose; see
//! `testkit::golden`. `docs/formats/documents.md` explains these very bytes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use crypto::{AuthorKey, Eek, NetworkId, OwnerKeys, ReaderKey, SecretKey, Suite};
use document::{
    Bloom, ContentInfo, Document, EntryOpener, EntrySealer, Finished, Layout, ParityBuffer,
    Publication, Record, SchemaArtifact, SealedContent, Stripe, WholeMacs, envelope, offline,
    prove,
};

const SUITE: Suite = Suite::Holdfast1;
const NETWORK: NetworkId = NetworkId::new([9; 32]);
const CREATED: u32 = 1_700_000_000;
const LETTER: &[u8] = b"Dear reader, the light is on.\n";

fn golden(name: &str, bytes: &[u8]) {
    testkit::golden::check(testkit::manifest!(), name, bytes);
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn author() -> AuthorKey {
    AuthorKey::new(secret(1).public())
}

fn reader() -> ReaderKey {
    ReaderKey::new(secret(2).public())
}

fn eek() -> Eek {
    Eek::from_bytes(&std::array::from_fn(|i| i as u8 + 1))
}

fn info() -> ContentInfo {
    ContentInfo {
        media_type: "text/plain".into(),
        filepath: "letter.txt".into(),
        ..ContentInfo::default()
    }
}

fn sealed(info: ContentInfo) -> Finished {
    let mut sealer = EntrySealer::new(SUITE, eek(), author());
    let mut macs = sealer.macs();
    let page = sealer.ticket().unwrap().seal(LETTER).unwrap();
    macs.add(&page);
    sealer.finish(macs, SealedContent::Single(Box::new(page)), info, CREATED).unwrap()
}

fn of_envelope(entry: &Record) -> Record {
    let sealed = envelope::seal(SUITE, NETWORK, entry.id, &secret(1), &reader(), &eek());
    Record::of(SUITE, &Document::Envelope(sealed))
}

#[test]
fn a_letter_inline_its_envelope_and_its_publication() {
    let finished = sealed(info());
    assert!(finished.page.is_none() && finished.lists.is_empty());
    golden("entry-inline", &finished.entry.bytes);
    golden("metadata", &finished.metadata.encode().unwrap());

    let record = of_envelope(&finished.entry);
    golden("envelope", &record.bytes);
    golden("envelope-id", record.id.as_bytes());
    let Ok(Document::Envelope(envelope)) = prove(SUITE, &record) else { panic!("an envelope") };

    let publication = Publication::from_envelope(record.id, &envelope);
    golden("publication", &publication.encode());
    golden("publication-key", publication.key(SUITE).as_bytes());
    assert_eq!(Publication::decode(&publication.encode()).unwrap(), publication);

    let mut content = Vec::new();
    let fetch = &mut |id: &_| Ok((finished.entry.id == *id).then(|| finished.entry.bytes.clone()));
    offline::open(SUITE, NETWORK, &envelope, &secret(2), fetch, &mut content).unwrap();
    assert_eq!(content, LETTER);
}

#[test]
fn metadata_with_everything_and_the_page_outside() {
    let artifact = |name: &str| SchemaArtifact {
        group: "group".into(),
        project: "project".into(),
        path: "path".into(),
        name: name.into(),
        version: "1.0".into(),
    };
    let everything = ContentInfo {
        properties: BTreeMap::from([
            ("a".to_owned(), b"first".to_vec()),
            ("long".to_owned(), vec![0x2e; 400]),
        ]),
        schema: Some(artifact("schema")),
        data_dictionary: Some(artifact("dictionary")),
        ..info()
    };
    let finished = sealed(everything);
    golden("metadata-full", &finished.metadata.encode().unwrap());
    golden("entry-pages", &finished.entry.bytes);
    golden("page", &finished.page.unwrap().bytes);
}

#[test]
fn an_empty_content() {
    let mut sealer = EntrySealer::new(SUITE, eek(), author());
    let mut macs = sealer.macs();
    let page = sealer.ticket().unwrap().seal(b"").unwrap();
    macs.add(&page);
    let content = SealedContent::Single(Box::new(page));
    let finished = sealer.finish(macs, content, ContentInfo::default(), CREATED).unwrap();
    golden("entry-empty", &finished.entry.bytes);
}

/// Two pages of the letter's halves and three fragments of parity.
#[test]
fn a_stripe_its_parity_and_its_entry() {
    const K: u32 = 2;
    let mut sealer = EntrySealer::new(SUITE, eek(), author());
    let mut macs = sealer.macs();
    let mut pages = Vec::new();
    for index in 0..2 {
        let range = Layout::new(K).chunk_range(index, LETTER.len() as u64);
        let chunk = &LETTER[range.start as usize..range.end as usize];
        let page = sealer.ticket().unwrap().seal(chunk).unwrap();
        macs.add(&page);
        pages.push(page.record);
    }
    let parity = parity(&[&pages[0].bytes, &pages[1].bytes]);
    let parity: Vec<Record> = parity.into_iter().map(|buffer| buffer.record(SUITE)).collect();
    golden("parity", &parity[0].bytes);
    let striped = Stripe::of(SUITE, pages, parity).unwrap();
    golden("stripe", &striped.header.bytes);
    golden("stripe-id", striped.header.id.as_bytes());
    let content = SealedContent::Stripes { k: K, ids: vec![striped.header.id] };
    let finished = sealer.finish(macs, content, info(), CREATED).unwrap();
    golden("entry-stripes", &finished.entry.bytes);

    let mut content = Vec::new();
    let mut records: Vec<Record> = striped.fragments;
    records.extend([striped.header, finished.entry.clone()]);
    let envelope = of_envelope(&finished.entry);
    let Ok(Document::Envelope(envelope)) = prove(SUITE, &envelope) else { panic!("an envelope") };
    let fetch = &mut |id: &_| {
        Ok(records.iter().find(|record| record.id == *id).map(|record| record.bytes.clone()))
    };
    offline::open(SUITE, NETWORK, &envelope, &secret(2), fetch, &mut content).unwrap();
    assert_eq!(content, LETTER);
}

/// The code 2 of 5 by its definition, since this crate does not know `erasure`: g(r, c) = 1 / (r xor c) over
/// GF(2^8) with 0x11D.
fn parity(pages: &[&[u8]; 2]) -> Vec<ParityBuffer> {
    let times = |a: u8, b: u8| {
        (0..8).fold((0u8, a), |(sum, a), bit| {
            let sum = if b >> bit & 1 == 1 { sum ^ a } else { sum };
            (sum, a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 })
        })
    };
    let times = |a, b| times(a, b).0;
    let inverse = |a: u8| (1..=255).find(|b| times(a, *b) == 1).unwrap();
    let longest = pages.iter().map(|page| page.len()).max().unwrap();
    let fragments = (2..5u8).map(|row| {
        let mut buffer = ParityBuffer::new(u32::from(row), longest).unwrap();
        for (column, page) in (0u8..).zip(pages) {
            let factor = inverse(row ^ column);
            for (sum, byte) in buffer.bytes_mut().iter_mut().zip(*page) {
                *sum ^= times(factor, *byte);
            }
        }
        buffer
    });
    fragments.collect()
}

#[test]
fn every_flipped_bit_of_the_records_of_a_stripe_is_refused_or_another_record() {
    for name in ["parity", "stripe", "entry-stripes"] {
        let bytes = testkit::golden::read(testkit::manifest!(), name);
        let whole = Document::decode(&bytes.clone().into()).unwrap();
        assert_eq!(whole.encode(), bytes);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let bad = Bytes::from(bad);
            if let Ok(document) = Document::decode(&bad) {
                assert!(document != whole, "{name} {bit}");
                assert_eq!(document.encode(), bad, "{name} {bit}");
            }
        }
        for length in 0..bytes.len() {
            assert!(Document::decode(&Bytes::copy_from_slice(&bytes[..length])).is_err());
        }
    }
}

#[test]
fn a_bloom_filter() {
    let mut bloom = Bloom::with_capacity(4, 42);
    bloom.insert(author().as_bytes());
    bloom.insert(reader().as_bytes());
    golden("bloom", &bloom.encode());
    assert_eq!(Bloom::decode(&bloom.encode()).unwrap(), bloom);
}

/// Compressed bytes depend on zstd's version, so this one is only opened: old data opens.
#[test]
fn an_entry_with_a_compressed_page_of_an_earlier_build_opens() {
    let text = LETTER.repeat(100);
    let mut sealer = EntrySealer::new(SUITE, eek(), author());
    let mut macs = sealer.macs();
    let page = sealer.ticket().unwrap().seal(&text).unwrap();
    assert!(page.page.ciphertext.len() < 200, "it compresses");
    macs.add(&page);
    let content = SealedContent::Single(Box::new(page));
    let finished = sealer.finish(macs, content, info(), CREATED).unwrap();
    if testkit::golden::updating() {
        golden("entry-compressed", &finished.entry.bytes);
    }
    let bytes = Bytes::from(testkit::golden::read(testkit::manifest!(), "entry-compressed"));
    let Ok(Document::Entry(entry)) = Document::decode(&bytes) else { panic!("an entry") };
    let opener = EntryOpener::new(SUITE, &entry, eek()).unwrap();
    let document::EntryContent::Inline(page) = &entry.content else { panic!("inline") };
    assert!(opener.open_page(0, page).unwrap() == text);
}

/// As entries were sealed before 29 November 2026.
#[test]
fn an_entry_whose_macs_are_of_bytes_opens_whole() {
    let bytes = Bytes::from(testkit::golden::read(testkit::manifest!(), "entry-inline-bytes"));
    let Ok(Document::Entry(entry)) = Document::decode(&bytes) else { panic!("an entry") };
    let opener = EntryOpener::new(SUITE, &entry, eek()).unwrap();
    assert_eq!(opener.metadata().whole_macs, WholeMacs::Bytes);
    let document::EntryContent::Inline(page) = &entry.content else { panic!("inline") };
    let chunk = opener.open_chunk(0, page, |len| vec![0; len]).unwrap();
    let mut assembler = opener.assembler();
    let mut content = Vec::new();
    let mut out = |bytes: Bytes| {
        content.extend_from_slice(&bytes);
        Ok(())
    };
    assembler.push(page, &chunk, &mut out).unwrap();
    assembler.finish().unwrap();
    assert_eq!(content, LETTER);
}

#[test]
fn the_examples_of_the_documentation_are_these_bytes() {
    testkit::golden::check_page(testkit::manifest!(), "documents.md");
}

#[test]
fn sealed_names_and_values_are_these() {
    let keys = OwnerKeys::new(&secret(1), &NETWORK);
    golden("sealed-name", &keys.name(SUITE, b"report"));
    let key = keys.content(&[7; 32]);
    let sealed = document::value::seal(SUITE, &key, 0, b"The light is on.\n").unwrap();
    golden("sealed-value", &sealed);
    let opened = document::value::open(SUITE, &key, 0, &sealed).unwrap();
    assert_eq!(opened[..], b"The light is on.\n"[..]);
}
