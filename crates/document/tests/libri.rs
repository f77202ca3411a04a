//! `libri-1` against bytes of the original program (testdata/libri): single documents, and two whole ones.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use crypto::{Class, Classified, Eek, NetworkId, RecordId, SecretKey, Suite};
use document::{
    CompressionCodec, Document, DocumentError, EntryContent, EntryMetadata, EntryOpener, Envelope,
    Publication, Record, envelope, offline, prove,
};

const SUITE: Suite = Suite::Libri1;

fn testdata() -> PathBuf {
    Path::new(testkit::manifest!()).join("../../testdata/libri")
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

struct Vectors(serde_json::Value);

impl Vectors {
    fn load() -> Self {
        let bytes = std::fs::read(testdata().join("vectors.json")).unwrap();
        Self(serde_json::from_slice(&bytes).unwrap())
    }

    fn bytes(&self, name: &str) -> Bytes {
        hex::decode(self.0[name].as_str().unwrap()).unwrap().into()
    }

    fn id(&self, name: &str) -> RecordId {
        RecordId::from_slice(&self.bytes(name)).unwrap()
    }

    /// A document of the vectors, proven, and the same when it is encoded again.
    fn document(&self, name: &str) -> Document {
        let (record, document) = Record::from_bytes(SUITE, self.bytes(name)).unwrap();
        assert_eq!(prove(SUITE, &record).unwrap(), document);
        assert_eq!(document.encode(), self.bytes(name), "{name}");
        assert_eq!(Record::of(SUITE, &document), record);
        document
    }

    fn eek(&self) -> Eek {
        let bytes = self.bytes("eek_aes|page_iv_seed|hmac|metadata_iv");
        Eek::from_bytes(&bytes[..].try_into().unwrap())
    }

    fn envelope(&self) -> Envelope {
        match self.document("envelope_doc") {
            Document::Envelope(envelope) => envelope,
            other => panic!("an envelope, not {other:?}"),
        }
    }

    fn entry(&self, name: &str) -> document::Entry {
        match self.document(name) {
            Document::Entry(entry) => entry,
            other => panic!("an entry, not {other:?}"),
        }
    }
}

#[test]
fn the_envelope() {
    let vectors = Vectors::load();
    let found = vectors.envelope();
    let eek = envelope::open(SUITE, NetworkId::NONE, &found, &secret(2)).unwrap();
    assert_eq!(*eek.to_bytes(), *vectors.eek().to_bytes());
    let entry = vectors.id("entry_key");
    let ours = envelope::seal(SUITE, NetworkId::NONE, entry, &secret(1), &found.reader, &eek);
    assert_eq!(ours, found);
    assert_eq!(SUITE.id(&vectors.bytes("envelope_doc")), vectors.id("envelope_key"));
}

#[test]
fn the_page() {
    let vectors = Vectors::load();
    let Document::Page(page) = vectors.document("page_doc") else { panic!("a page") };
    assert_eq!(SUITE.id(&vectors.bytes("page_doc")), vectors.id("page_key"));
    let eek = vectors.eek();
    assert_eq!(eek.verify_mac(SUITE, &page.ciphertext, &page.mac), Ok(()));
    assert_eq!(
        eek.open_page(SUITE, page.index, &page.ciphertext).unwrap(),
        b"libri page plaintext"
    );
}

#[test]
fn the_publication() {
    let vectors = Vectors::load();
    let publication = Publication::decode(&vectors.bytes("publication")).unwrap();
    let ours = Publication::from_envelope(vectors.id("envelope_key"), &vectors.envelope());
    assert_eq!(publication, ours);
    assert_eq!(publication.encode(), vectors.bytes("publication"));
    assert_eq!(publication.key(SUITE), vectors.id("publication_key"));
}

#[test]
fn the_metadata() {
    let vectors = Vectors::load();
    let plain = vectors.bytes("metadata_plain");
    let metadata = EntryMetadata::decode(&plain).unwrap();
    assert_eq!(metadata.info.media_type, "text/plain");
    assert_eq!(metadata.codec, CompressionCodec::None);
    assert_eq!((metadata.ciphertext_size, metadata.uncompressed_size), (36, 20));
    assert_eq!((metadata.ciphertext_mac, metadata.uncompressed_mac), ([7; 32], [9; 32]));
    assert_eq!(metadata.encode().unwrap(), plain);
}

/// The entries carry placeholder MACs: their parts open, the whole of one must not.
#[test]
fn the_entry_opens_in_parts_and_fails_at_the_whole_ciphertexts_mac() {
    let vectors = Vectors::load();
    let entry = vectors.entry("entry_doc");
    assert_eq!(SUITE.id(&vectors.bytes("entry_doc")), vectors.id("entry_key"));
    let opener = EntryOpener::new(SUITE, &entry, vectors.eek()).unwrap();
    assert_eq!(opener.metadata().encode().unwrap(), vectors.bytes("metadata_plain"));
    let EntryContent::Inline(page) = &entry.content else { panic!("one page") };
    assert_eq!(opener.open_page(0, page).unwrap()[..], *b"libri page plaintext");

    let mut written = Vec::new();
    let refused = offline::open(
        SUITE,
        NetworkId::NONE,
        &vectors.envelope(),
        &secret(2),
        &mut |id| Ok((*id == vectors.id("entry_key")).then(|| vectors.bytes("entry_doc"))),
        &mut written,
    );
    let refused = refused.unwrap_err();
    assert!(matches!(refused, DocumentError::WholeMac("ciphertext")), "{refused}");
    assert_eq!(refused.class(), Class::Corrupt);
}

/// It names one page twice, so its second page has the wrong index.
#[test]
fn the_entry_of_two_pages_opens_in_parts_alone() {
    let vectors = Vectors::load();
    let entry = vectors.entry("multi_page_entry_doc");
    let EntryContent::Pages(ids) = &entry.content else { panic!("pages") };
    assert_eq!(*ids, [vectors.id("page_key"); 2]);
    let opener = EntryOpener::new(SUITE, &entry, vectors.eek()).unwrap();
    let Document::Page(page) = vectors.document("page_doc") else { panic!("a page") };
    assert_eq!(opener.open_page(0, &page).unwrap()[..], *b"libri page plaintext");
    let refused = opener.open_page(1, &page);
    assert!(matches!(refused, Err(DocumentError::PageIndex { wanted: 1, found: 0 })));
}

/// Opens a set of documents of the original and compares the content's SHA-256.
fn open_set(directory: &str, address: &str, length: usize, sha256: &str) {
    let directory = testdata().join(directory);
    let read = |id: &RecordId| std::fs::read(directory.join(format!("{id}.doc"))).map(Bytes::from);
    for file in std::fs::read_dir(&directory).unwrap() {
        let file = file.unwrap();
        let bytes = Bytes::from(std::fs::read(file.path()).unwrap());
        let (record, document) = Record::from_bytes(SUITE, bytes.clone()).unwrap();
        assert_eq!(format!("{}.doc", record.id), file.file_name().to_string_lossy());
        assert!(document.encode() == bytes, "{}", record.id);
    }
    let address: RecordId = address.parse().unwrap();
    let (_, document) = Record::from_bytes(SUITE, read(&address).unwrap()).unwrap();
    let Document::Envelope(envelope) = document else { panic!("an envelope") };
    let open = |reader: u8, out: &mut Vec<u8>| {
        let fetch = &mut |id: &RecordId| read(id).map(Some);
        offline::open(SUITE, NetworkId::NONE, &envelope, &secret(reader), fetch, out)
    };
    let mut content = Vec::new();
    let metadata = open(2, &mut content).unwrap();
    assert_eq!((content.len(), metadata.uncompressed_size), (length, length as u64));
    assert_eq!(hex::encode(SUITE.hash(&content)), sha256);
    let refused = open(3, &mut Vec::new()).unwrap_err();
    assert!(matches!(refused, DocumentError::NotForReader));
    assert_eq!(refused.class(), Class::Denied);
}

#[test]
fn the_single_page_set() {
    open_set(
        "single-page",
        "d61402a209aee07a70b260ffe57284e65ecd20913e406e72edcfeb950f561737",
        2_984_489,
        "ddcb017d5cbffcc4b9ce982fde01a75668c1e514156471348986d1dff52aaa43",
    );
}

#[test]
fn the_three_pages_set() {
    open_set(
        "three-pages",
        "958407de810f8d0cd17dd96a2a586116039737c1a185fc8144b9d2f0fd5753ce",
        5_000_000,
        "e2e7e9d3544c6368d42c0adb0f07c50b1f3d9c07b2d89aead008c1637a12fc2d",
    );
}
