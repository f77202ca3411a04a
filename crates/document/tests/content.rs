//! Content of every kind of size comes back as it was, in both suites, whole and in ranges.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;

use bytes::Bytes;
use crypto::{AuthorKey, Eek, NetworkId, ReaderKey, RecordId, SecretKey, Suite};
use document::{
    CHUNK_BYTES_MAX, ContentInfo, Document, DocumentError, EntryContent, EntryMetadata,
    EntryOpener, EntrySealer, INLINE_BYTES_MAX, Kind, Layout, Record, SealedContent, envelope,
    offline, prove,
};
use proptest::prelude::*;

const NETWORK: NetworkId = NetworkId::new([9; 32]);
const MIB: usize = 1 << 20;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn eek(byte: u8) -> Eek {
    Eek::from_bytes(&[byte; 108])
}

fn noise(length: usize) -> Vec<u8> {
    let hashes =
        (0..length.div_ceil(32) as u64).flat_map(|i| Suite::Holdfast1.hash(&i.to_le_bytes()));
    hashes.take(length).collect()
}

fn text(length: usize) -> Vec<u8> {
    b"the light is on, the light is off; ".iter().copied().cycle().take(length).collect()
}

struct Stored {
    records: HashMap<RecordId, Record>,
    envelope: envelope::Envelope,
}

impl Stored {
    fn entry(&self) -> document::Entry {
        match prove_any(&self.records[&self.envelope.entry]) {
            Document::Entry(entry) => entry,
            _ => panic!("an entry"),
        }
    }
}

fn prove_any(record: &Record) -> Document {
    Document::decode(&record.bytes).unwrap()
}

fn seal(suite: Suite, content: &[u8], info: ContentInfo) -> Result<Stored, DocumentError> {
    let author = secret(1);
    let sealing = offline::Sealing {
        suite,
        network: NETWORK,
        author: &author,
        reader: ReaderKey::new(secret(2).public()),
        eek: eek(5),
        info,
        created_time: 1,
    };
    let mut order = Vec::new();
    let sealed = offline::seal(sealing, &mut &content[..], &mut |record| {
        order.push(record);
        Ok(())
    })?;
    let last: Vec<Kind> = order.iter().rev().take(2).map(|record| record.kind).collect();
    assert_eq!(last, [Kind::Envelope, Kind::Entry], "what names others comes after them");
    let mut records = HashMap::new();
    for record in order {
        prove(suite, &record).unwrap();
        assert!(records.insert(record.id, record).is_none(), "each record once");
    }
    assert_eq!(sealed.content_bytes, content.len() as u64);
    let Document::Envelope(envelope) = prove_any(&records[&sealed.envelope]) else {
        panic!("an envelope")
    };
    Ok(Stored { records, envelope })
}

fn open(suite: Suite, stored: &Stored) -> Result<(Vec<u8>, EntryMetadata), DocumentError> {
    let mut content = Vec::new();
    let fetch = &mut |id: &_| Ok(stored.records.get(id).map(|record| record.bytes.clone()));
    let metadata =
        offline::open(suite, NETWORK, &stored.envelope, &secret(2), fetch, &mut content)?;
    Ok((content, metadata))
}

#[test]
fn contents_around_every_boundary_come_back() {
    let inline = INLINE_BYTES_MAX as usize;
    let sizes = [
        1,
        2,
        100,
        inline - 1,
        inline,
        inline + 1,
        2 * MIB - 1,
        2 * MIB,
        2 * MIB + 1,
        4 * MIB,
        4 * MIB + 17,
    ];
    for suite in Suite::ALL {
        for content in sizes.into_iter().flat_map(|size| [noise(size), text(size)]) {
            let stored = seal(suite, &content, ContentInfo::default()).unwrap();
            let (opened, metadata) = open(suite, &stored).unwrap();
            assert!(opened == content, "{suite}, {} bytes", content.len());
            assert_eq!(metadata.uncompressed_size, content.len() as u64);
        }
    }
}

#[test]
fn empty_content_is_stored_in_holdfast_1_and_refused_in_libri_1() {
    let stored = seal(Suite::Holdfast1, b"", ContentInfo::default()).unwrap();
    assert_eq!(open(Suite::Holdfast1, &stored).unwrap().0, b"");
    let refused = seal(Suite::Libri1, b"", ContentInfo::default());
    assert!(matches!(refused, Err(DocumentError::Empty)));
}

#[test]
fn small_content_is_inline_unless_its_metadata_is_long() {
    let is_inline = |suite, length, name: usize| {
        let info = ContentInfo { filepath: "n".repeat(name), ..ContentInfo::default() };
        let stored = seal(suite, &noise(length), info).unwrap();
        assert_eq!(open(suite, &stored).unwrap().0.len(), length);
        let inline = matches!(stored.entry().content, EntryContent::Inline(_));
        assert_eq!(stored.records.len(), if inline { 2 } else { 3 });
        inline
    };
    let (holdfast, libri) = (Suite::Holdfast1, Suite::Libri1);
    assert!(is_inline(holdfast, 16 << 10, 10) && is_inline(libri, 16 << 10, 10));
    assert!(!is_inline(holdfast, (16 << 10) + 1, 10) && is_inline(libri, MIB, 10));
    assert!(!is_inline(holdfast, 100, 512) && !is_inline(libri, 100, 512));
    let info = ContentInfo { filepath: "n".repeat(256 << 10), ..ContentInfo::default() };
    assert!(matches!(seal(holdfast, b"x", info), Err(DocumentError::TooLarge { .. })));
}

#[test]
fn pages_sealed_in_any_order_on_any_thread_are_the_same() {
    let content = noise(5 * MIB);
    let chunks: Vec<&[u8]> = content.chunks(CHUNK_BYTES_MAX).collect();
    let sealed = |backwards: bool| {
        let author = AuthorKey::new(secret(1).public());
        let mut sealer = EntrySealer::new(Suite::Holdfast1, eek(5), author);
        let mut macs = sealer.macs();
        let mut work: Vec<_> = chunks.iter().map(|c| (sealer.ticket().unwrap(), *c)).collect();
        if backwards {
            work.reverse();
        }
        let mut pages: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                work.into_iter().map(|(t, c)| scope.spawn(move || t.seal(c).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        pages.sort_by_key(|page| page.page.index);
        pages.iter().for_each(|page| macs.add(page));
        let ids = pages.iter().map(|page| page.record.id).collect();
        let info = ContentInfo::default();
        sealer.finish(macs, SealedContent::Pages(ids), info, 1).unwrap().entry
    };
    assert_eq!(sealed(false), sealed(true));
}

#[test]
fn a_range_takes_the_pages_it_covers_and_no_others() {
    let content = noise(7 * MIB + 5);
    let stored = seal(Suite::Holdfast1, &content, ContentInfo::default()).unwrap();
    let entry = stored.entry();
    let EntryContent::Pages(ids) = &entry.content else { panic!("pages") };
    let opener = EntryOpener::new(Suite::Holdfast1, &entry, eek(5)).unwrap();
    let (size, layout) = (opener.metadata().uncompressed_size, opener.layout().unwrap());
    for range in [0..1, 2 * MIB as u64 - 1..2 * MIB as u64 + 1, 7 * MIB as u64..size, 5..size] {
        let mut found = Vec::new();
        let pages = layout.chunks_of_range(range.clone(), size);
        assert!(pages.end - pages.start <= (range.end - range.start) / (2 * MIB as u64) + 2);
        let start = layout.chunk_range(pages.start, size).start;
        for index in pages {
            let Document::Page(page) = prove_any(&stored.records[&ids[index as usize]]) else {
                panic!("a page")
            };
            found.extend_from_slice(&opener.open_page(index as u32, &page).unwrap());
        }
        let (from, to) = ((range.start - start) as usize, (range.end - start) as usize);
        assert!(found[from..to] == content[range.start as usize..range.end as usize]);
    }
}

#[test]
fn the_layout_of_a_content_is_copies_layout() {
    let stored = seal(Suite::Holdfast1, b"x", ContentInfo::default()).unwrap();
    let opener = EntryOpener::new(Suite::Holdfast1, &stored.entry(), eek(5)).unwrap();
    assert_eq!(opener.layout(), Some(Layout::copies()));
    let stored = seal(Suite::Libri1, b"x", ContentInfo::default()).unwrap();
    let opener = EntryOpener::new(Suite::Libri1, &stored.entry(), eek(5)).unwrap();
    assert_eq!((opener.layout(), opener.page_count()), (None, None));
    assert_eq!(opener.metadata().info.media_type, "application/octet-stream");
}

#[test]
#[should_panic(expected = "an entry names every page that was sealed")]
fn a_page_that_was_sealed_cannot_be_left_out() {
    let author = AuthorKey::new(secret(1).public());
    let mut sealer = EntrySealer::new(Suite::Holdfast1, eek(5), author);
    let macs = sealer.macs();
    drop(sealer.ticket());
    let _ = sealer.finish(macs, SealedContent::Pages(vec![]), ContentInfo::default(), 1);
}

#[test]
fn a_chunk_too_long_is_refused() {
    let author = AuthorKey::new(secret(1).public());
    let mut sealer = EntrySealer::new(Suite::Holdfast1, eek(5), author);
    let refused = sealer.ticket().unwrap().seal(&vec![0; CHUNK_BYTES_MAX + 1]);
    assert!(matches!(refused, Err(DocumentError::Chunk { .. })));
}

/// A reader that gives a few bytes at a time, is interrupted, and at last fails if told to.
struct Slow<'a>(&'a [u8], usize, bool);

impl std::io::Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        if self.0.is_empty() && self.2 {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        let length = out.len().min(self.0.len()).min(1 + self.1 % 5000);
        let (now, rest) = self.0.split_at(length);
        out[..length].copy_from_slice(now);
        self.0 = rest;
        Ok(length)
    }
}

#[test]
fn how_the_bytes_come_does_not_matter_and_a_failing_source_fails_the_seal() {
    let content = text(3 * MIB);
    for suite in Suite::ALL {
        let author = secret(1);
        let seal = |source: &mut dyn std::io::Read| {
            let sealing = offline::Sealing {
                suite,
                network: NETWORK,
                author: &author,
                reader: ReaderKey::new(secret(2).public()),
                eek: eek(5),
                info: ContentInfo::default(),
                created_time: 1,
            };
            offline::seal(sealing, source, &mut |_| Ok(()))
        };
        let whole = seal(&mut &content[..]).unwrap();
        assert_eq!(seal(&mut Slow(&content, 0, false)).unwrap(), whole);
        let refused = seal(&mut Slow(&content, 0, true));
        assert!(matches!(refused, Err(DocumentError::Read(_))));
    }
}

#[test]
fn a_full_disk_fails_both_ways() {
    let author = secret(1);
    let sealing = offline::Sealing {
        suite: Suite::Holdfast1,
        network: NETWORK,
        author: &author,
        reader: ReaderKey::new(secret(2).public()),
        eek: eek(5),
        info: ContentInfo::default(),
        created_time: 1,
    };
    let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
    let refused = offline::seal(sealing, &mut &b"x"[..], &mut |_| Err(full()));
    assert!(matches!(refused, Err(DocumentError::Write(_))));
    let stored = seal(Suite::Holdfast1, b"content", ContentInfo::default()).unwrap();
    let fetch = &mut |id: &_| Ok(stored.records.get(id).map(|record| record.bytes.clone()));
    let mut nothing = &mut [0_u8; 3][..];
    let refused =
        offline::open(Suite::Holdfast1, NETWORK, &stored.envelope, &secret(2), fetch, &mut nothing);
    assert!(matches!(refused, Err(DocumentError::Write(_))));
}

#[test]
fn a_missing_record_is_named() {
    for suite in Suite::ALL {
        let stored = seal(suite, &noise(5 * MIB), ContentInfo::default()).unwrap();
        for (id, record) in &stored.records {
            if record.kind == Kind::Envelope {
                continue;
            }
            let fetch = &mut |asked: &RecordId| {
                Ok((asked != id).then(|| stored.records[asked].bytes.clone()))
            };
            let refused = offline::open(
                suite,
                NETWORK,
                &stored.envelope,
                &secret(2),
                fetch,
                &mut std::io::sink(),
            );
            assert!(matches!(refused, Err(DocumentError::Missing { kind, id: missing })
                    if kind == record.kind && missing == *id));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_content_comes_back(
        unit in proptest::collection::vec(any::<u8>(), 1..300),
        times in 1..300_usize,
        name in ".{0,30}",
    ) {
        let content = unit.repeat(times);
        let info = ContentInfo { filepath: name, ..ContentInfo::default() };
        for suite in Suite::ALL {
            let stored = seal(suite, &content, info.clone()).unwrap();
            let (opened, metadata) = open(suite, &stored).unwrap();
            prop_assert!(opened == content);
            prop_assert_eq!(&metadata.info.filepath, &info.filepath);
        }
    }
}

#[test]
fn pages_hold_no_plaintext() {
    let marker = Bytes::from_static(b"\x8f\x13marker-4b1d7e90\xf2\x07");
    let info = || ContentInfo {
        filepath: String::from_utf8_lossy(&marker).into_owned(),
        ..ContentInfo::default()
    };
    for suite in Suite::ALL {
        let stored = seal(suite, &[&noise(50_000)[..], &marker].concat(), info()).unwrap();
        let shows = |bytes: &Bytes| bytes.windows(8).any(|part| part == &marker[4..12]);
        let hit = stored.records.values().any(|record| shows(&record.bytes));
        // A control build without sealing shows the marker: the search can find it.
        assert_eq!(hit, !crypto::seal::SEALED);
    }
}
