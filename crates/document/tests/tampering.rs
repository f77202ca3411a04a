//! The right bytes or an error: every single bit of small documents is flipped, with their ids as they were
//! (a corrupt holder) and computed anew (an author of lies who has no key).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;

use bytes::Bytes;
use crypto::{Class, Classified, Eek, NetworkId, ReaderKey, RecordId, SecretKey, Suite};
use document::{
    ContentInfo, Document, DocumentError, EntryContent, EntryOpener, Record, SealedContent,
    envelope, offline, prove,
};

const NETWORK: NetworkId = NetworkId::new([9; 32]);
const CONTENT: &[u8] = b"small content, small content, small content";

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn eek() -> Eek {
    Eek::from_bytes(&[5; 108])
}

/// Envelope, entry and, where the name is long, a page.
fn sealed(suite: Suite, name_bytes: usize) -> Vec<Record> {
    let author = secret(1);
    let sealing = offline::Sealing {
        suite,
        network: NETWORK,
        author: &author,
        reader: ReaderKey::new(secret(2).public()),
        eek: eek(),
        info: ContentInfo { filepath: "n".repeat(name_bytes), ..ContentInfo::default() },
        created_time: 1,
    };
    let mut records = Vec::new();
    offline::seal(sealing, &mut &CONTENT[..], &mut |record| {
        records.push(record);
        Ok(())
    })
    .unwrap();
    records.reverse();
    records
}

fn open(
    suite: Suite,
    envelope: &Bytes,
    others: &HashMap<RecordId, Bytes>,
) -> Result<Vec<u8>, DocumentError> {
    let Document::Envelope(envelope) = Document::decode(envelope)? else {
        return Err(DocumentError::Kind);
    };
    let mut content = Vec::new();
    let fetch = &mut |id: &_| Ok(others.get(id).cloned());
    offline::open(suite, NETWORK, &envelope, &secret(2), fetch, &mut content)?;
    Ok(content)
}

fn flips(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let bytes = bytes.clone();
    (0..bytes.len() * 8).map(move |bit| {
        let mut bad = bytes.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        bad.into()
    })
}

#[test]
fn a_flipped_bit_in_any_record_is_never_proven() {
    for suite in Suite::ALL {
        for record in sealed(suite, 600) {
            for bytes in flips(&record.bytes) {
                assert!(prove(suite, &Record { bytes, ..record.clone() }).is_err());
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_holders_record_fails_the_read() {
    for suite in Suite::ALL {
        let records = sealed(suite, 600);
        let (envelope, others) = records.split_first().unwrap();
        let good: HashMap<_, _> = others.iter().map(|r| (r.id, r.bytes.clone())).collect();
        assert_eq!(open(suite, &envelope.bytes, &good).unwrap(), CONTENT);
        for record in others {
            for bytes in flips(&record.bytes) {
                let mut bad = good.clone();
                bad.insert(record.id, bytes);
                assert!(open(suite, &envelope.bytes, &bad).is_err());
            }
        }
        // In libri-1 the sign of the author's point is not in the KEK: its flip gives the same content.
        let opened = flips(&envelope.bytes).filter_map(|bytes| open(suite, &bytes, &good).ok());
        let opened: Vec<Vec<u8>> = opened.collect();
        assert!(opened.iter().all(|content| content == CONTENT));
        assert_eq!(opened.len(), usize::from(suite == Suite::Libri1));
    }
}

/// Whoever has no key but makes records with ids of their own gets no other bytes read.
#[test]
fn forged_pages_and_entries_never_open_to_other_bytes() {
    for suite in Suite::ALL {
        let records = sealed(suite, 600);
        let (entry, page) = (&records[1], &records[2]);
        let Ok(Document::Entry(good)) = Document::decode(&entry.bytes) else { panic!("an entry") };
        let opener = EntryOpener::new(suite, &good, eek()).unwrap();
        let Ok(Document::Page(sealed)) = Document::decode(&page.bytes) else { panic!("a page") };
        let chunk = opener.open_page(0, &sealed).unwrap();
        for bytes in flips(&page.bytes) {
            if let Ok(Document::Page(forged)) = Document::decode(&bytes)
                && let Ok(opened) = opener.open_page(0, &forged)
            {
                // The author's key is the one part that neither MAC nor tag covers.
                assert_eq!(opened, chunk);
                assert_ne!(forged.author, sealed.author);
            }
        }
        for bytes in flips(&entry.bytes) {
            if let Ok(Document::Entry(forged)) = Document::decode(&bytes)
                && let Ok(opened) = EntryOpener::new(suite, &forged, eek())
            {
                assert!(opened.metadata() == opener.metadata());
            }
        }
    }
}

#[test]
fn pages_in_another_order_are_refused_before_a_byte_is_out() {
    let content: Vec<u8> = (0..5_000_000_u32).map(|i| (i >> 12) as u8).collect();
    for suite in Suite::ALL {
        let mut sealer = document::EntrySealer::new(suite, eek(), secret(1).public().into());
        let mut macs = sealer.macs();
        if suite == Suite::Libri1 {
            macs.add_plaintext(&content);
        }
        let mut pages = Vec::new();
        for chunk in content.chunks(document::CHUNK_BYTES_MAX) {
            let page = sealer.ticket().unwrap().seal(chunk).unwrap();
            macs.add(&page);
            pages.push(page);
        }
        let ids = pages.iter().map(|page| page.record.id).collect();
        let info = ContentInfo::default();
        let finished = sealer.finish(macs, SealedContent::Pages(ids), info, 1).unwrap();
        let Ok(Document::Entry(mut entry)) = Document::decode(&finished.entry.bytes) else {
            panic!("an entry")
        };
        let EntryContent::Pages(ids) = &mut entry.content else { panic!("pages") };
        ids.swap(0, 1);
        let forged = Record::of(suite, &Document::Entry(entry));
        let sealed = envelope::seal(
            suite,
            NETWORK,
            forged.id,
            &secret(1),
            &ReaderKey::new(secret(2).public()),
            &eek(),
        );
        let envelope = Record::of(suite, &Document::Envelope(sealed));
        let others: HashMap<_, _> = pages
            .iter()
            .map(|page| (page.record.id, page.record.bytes.clone()))
            .chain([(forged.id, forged.bytes.clone())])
            .collect();
        let refused = open(suite, &envelope.bytes, &others).unwrap_err();
        assert!(matches!(refused, DocumentError::PageIndex { wanted: 0, found: 1 }));
        assert_eq!(refused.class(), Class::Corrupt);
    }
}

#[test]
fn an_envelope_opens_for_its_reader_in_its_network_alone() {
    let reader = ReaderKey::new(secret(2).public());
    for suite in Suite::ALL {
        let entry = RecordId::new([8; 32]);
        let sealed = envelope::seal(suite, NETWORK, entry, &secret(1), &reader, &eek());
        assert!(envelope::open(suite, NETWORK, &sealed, &secret(2)).is_ok());
        // Not even for its author: a put keeps its own self-addressed envelope.
        for other in [1, 3] {
            let refused = envelope::open(suite, NETWORK, &sealed, &secret(other)).unwrap_err();
            assert!(matches!(refused, DocumentError::NotForReader));
            assert_eq!(refused.class(), Class::Denied);
        }
        let elsewhere = envelope::open(suite, NetworkId::NONE, &sealed, &secret(2));
        assert_eq!(elsewhere.is_ok(), suite == Suite::Libri1);
        // In holdfast-1 it cannot be pointed at another entry either.
        let moved = envelope::Envelope { entry: RecordId::new([7; 32]), ..sealed };
        let moved = envelope::open(suite, NETWORK, &moved, &secret(2));
        assert_eq!(moved.is_ok(), suite == Suite::Libri1);
    }
}

#[test]
fn libri_1_repeats_a_pairs_key_so_the_pair_is_recognised_either_way_round() {
    let keys = [secret(1).public(), secret(2).public(), secret(3).public()];
    let sealed = envelope::seal(
        Suite::Libri1,
        NETWORK,
        RecordId::new([8; 32]),
        &secret(1),
        &keys[1].into(),
        &eek(),
    );
    assert!(sealed.is_between(&keys[0].into(), &keys[1].into()));
    assert!(sealed.is_between(&keys[1].into(), &keys[0].into()));
    assert!(!sealed.is_between(&keys[0].into(), &keys[2].into()));
    assert!(!sealed.is_between(&keys[0].into(), &keys[0].into()));
}

#[test]
fn another_entrys_key_is_refused() {
    for suite in Suite::ALL {
        let records = sealed(suite, 4);
        let Ok(Document::Entry(entry)) = Document::decode(&records[1].bytes) else {
            panic!("an entry")
        };
        let refused = EntryOpener::new(suite, &entry, Eek::from_bytes(&[6; 108])).unwrap_err();
        assert!(matches!(refused, DocumentError::Seal(crypto::SealError::Mac)));
    }
}

/// An author who states a small size for a page that inflates: refused within the stated size.
#[test]
fn an_authors_bomb_stays_within_its_stated_size() {
    let zeros = vec![0; document::CHUNK_BYTES_MAX];
    let suite = Suite::Holdfast1;
    let mut sealer = document::EntrySealer::new(suite, eek(), secret(1).public().into());
    let mut macs = sealer.macs();
    let page = sealer.ticket().unwrap().seal(&zeros).unwrap();
    assert!(page.page.ciphertext.len() < 500);
    macs.add(&document::SealedPage { chunk_bytes: 5, ..page.clone() });
    let content = SealedContent::Single(Box::new(page));
    let finished = sealer.finish(macs, content, ContentInfo::default(), 1).unwrap();
    let Ok(Document::Entry(entry)) = Document::decode(&finished.entry.bytes) else {
        panic!("an entry")
    };
    let EntryContent::Inline(page) = &entry.content else { panic!("inline") };
    let refused = EntryOpener::new(suite, &entry, eek()).unwrap().open_page(0, page);
    assert!(matches!(refused, Err(DocumentError::Chunk { wanted: 5 })));
}
