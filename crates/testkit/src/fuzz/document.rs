//! Decoders of `document`: documents, sealed metadata, publications, filters, and what is under the seal; and proofs
//! of chunks.

use bytes::Bytes;
use crypto::{AuthorKey, Eek, NetworkId, Place, ReaderKey, SecretKey, Suite};
use document::proof::{ChunkProof, prove_chunk, verify_chunk};
use document::{
    Bloom, CompressionCodec, ContentInfo, Document, DocumentError, Entry, EntryContent,
    EntryMetadata, EntryOpener, EntrySealer, LibriCompressor, LibriDecompressor, Page,
    ParityBuffer, Publication, Record, SealedContent, Stripe, Striped, WholeMacs, offline, prove,
};

use super::Target;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "document", run: run_document, seeds: documents },
    Target { name: "entry-metadata", run: run_metadata, seeds: || vec![metadata(99)] },
    Target { name: "publication", run: run_publication, seeds: publications },
    Target { name: "bloom", run: run_bloom, seeds: blooms },
    Target { name: "chunk", run: run_chunk, seeds: chunks },
    Target { name: "list-page", run: run_list_page, seeds: || vec![vec![7; 64]] },
    Target { name: "libri-stream", run: run_libri_stream, seeds: libri_streams },
    Target { name: "chunk-proof", run: run_chunk_proof, seeds: chunk_proofs },
];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn eek() -> Eek {
    Eek::from_bytes(&std::array::from_fn(|i| i as u8 + 1))
}

/// Records of a small content, with its page inline, or outside as its metadata is long.
fn sealed(suite: Suite, name_bytes: usize) -> Vec<Record> {
    let (author, reader) = (secret(1), secret(2));
    let sealing = offline::Sealing {
        suite,
        network: NetworkId::NONE,
        author: &author,
        reader: ReaderKey::new(reader.public()),
        eek: eek(),
        info: ContentInfo { filepath: "n".repeat(name_bytes), ..ContentInfo::default() },
        created_time: 1_700_000_000,
    };
    let mut records = Vec::new();
    let mut emit = |record| {
        records.push(record);
        Ok(())
    };
    offline::seal(sealing, &mut &b"a small content"[..], &mut emit).expect("a small content");
    records
}

fn documents() -> Vec<Vec<u8>> {
    let all = Suite::ALL.into_iter().flat_map(|suite| [sealed(suite, 4), sealed(suite, 600)]);
    all.flatten().chain(striped()).map(|record| record.bytes.to_vec()).collect()
}

/// A stripe of two pages and one parity, and its entry.
fn striped() -> Vec<Record> {
    let (suite, author) = (Suite::Holdfast1, AuthorKey::new(secret(1).public()));
    let content = b"a small content, which an author would keep in its entry";
    let mut sealer = EntrySealer::new(suite, eek(), author);
    let mut macs = sealer.macs();
    let mut pages = Vec::new();
    for chunk in [&content[..28], &content[28..]] {
        let sealed = sealer.ticket().and_then(|ticket| ticket.seal(chunk)).expect("short");
        macs.add(&sealed);
        pages.push(sealed.record);
    }
    let longest = pages.iter().map(|page| page.bytes.len()).max().expect("two");
    let mut parity = ParityBuffer::new(2, longest).expect("short");
    parity.bytes_mut().fill(7);
    let parity = vec![parity.record(suite)];
    let Striped { header, fragments, .. } = Stripe::of(suite, pages, parity).expect("a stripe");
    let named = SealedContent::Stripes { k: 2, ids: vec![header.id] };
    let info = ContentInfo::default();
    let finished = sealer.finish(macs, named, info, 1_700_000_000).expect("a small content");
    let mut records = vec![header, finished.entry];
    records.extend(fragments);
    records
}

fn metadata(uncompressed_size: u64) -> Vec<u8> {
    let metadata = EntryMetadata {
        info: ContentInfo {
            media_type: "text/plain".into(),
            filepath: "dir/file".into(),
            properties: [("name".to_owned(), b"value".to_vec())].into(),
            ..ContentInfo::default()
        },
        codec: CompressionCodec::ZstdChunks,
        ciphertext_size: 116,
        ciphertext_mac: [7; 32],
        uncompressed_size,
        uncompressed_mac: [9; 32],
        whole_macs: WholeMacs::Tags,
    };
    metadata.encode().expect("small")
}

fn publications() -> Vec<Vec<u8>> {
    let records = sealed(Suite::Holdfast1, 4);
    let envelope = records.last().expect("an envelope comes last");
    let Ok(Document::Envelope(document)) = Document::decode(&envelope.bytes) else {
        panic!("an envelope comes last")
    };
    vec![Publication::from_envelope(envelope.id, &document).encode().to_vec()]
}

fn blooms() -> Vec<Vec<u8>> {
    let mut bloom = Bloom::with_capacity(3, 42);
    bloom.insert(secret(1).public().as_bytes());
    vec![bloom.encode().to_vec()]
}

/// A size, then what is under a page's seal: one chunk raw, one compressed.
fn chunks() -> Vec<Vec<u8>> {
    let suite = Suite::Holdfast1;
    let text = b"the same again and again. ".repeat(20);
    let mut sealer = EntrySealer::new(suite, eek(), AuthorKey::new(secret(1).public()));
    let sealed = sealer.ticket().and_then(|ticket| ticket.seal(&text)).expect("short");
    let frame = eek().open_page(suite, 0, &sealed.page.ciphertext).expect("our own");
    let size = (text.len() as u16).to_be_bytes();
    vec![vec![0, 3, 0, b'a', b'b', b'c'], [&size[..], &frame].concat()]
}

fn libri_streams() -> Vec<Vec<u8>> {
    let mut compressor = LibriCompressor::new();
    compressor.push(&b"the same again and again. ".repeat(20)).expect("memory");
    compressor.finish().expect("memory")
}

fn run_document(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let Ok(document) = Document::decode(&data) else { return };
    assert_eq!(document.encode(), data);
    for suite in Suite::ALL {
        let mut record = Record::of(suite, &document);
        if let Document::Parity(_) = document {
            assert!(prove(suite, &record).is_err(), "parity lives at its stripe");
            record.place = Place::new([7; 32]);
        }
        let proven = prove(suite, &record);
        match proven {
            Err(DocumentError::Suite(_)) => assert!(suite == Suite::Libri1),
            proven => assert_eq!(proven.expect("decoded before"), document),
        }
    }
    if let Document::Entry(entry) = document {
        for suite in Suite::ALL {
            // Under the right key it is one of the seeds; else it must be refused.
            let _ = EntryOpener::new(suite, &entry, eek());
        }
    }
}

fn run_metadata(data: &[u8]) {
    // In any order, so the bytes may differ; the meaning must not.
    if let Ok(metadata) = EntryMetadata::decode(data) {
        let again = metadata.encode().expect("no longer than before");
        assert!(EntryMetadata::decode(&again).expect("our own") == metadata);
    }
}

fn run_publication(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(publication) = Publication::decode(&data) {
        assert_eq!(publication.encode(), data);
    }
}

fn run_bloom(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(mut bloom) = Bloom::decode(&data) {
        assert_eq!(bloom.encode(), data);
        bloom.insert(b"key");
        assert!(bloom.may_contain(b"key"));
    }
}

/// An opener of an entry that states this size, and a page with this under its seal.
fn opener_and_page(size: u64, index: u32, plaintext: &[u8]) -> (EntryOpener, Page) {
    let (suite, eek, author) = (Suite::Holdfast1, eek(), AuthorKey::new(secret(1).public()));
    let ciphertext = eek.seal_page(suite, index, plaintext.to_vec()).expect("short");
    let mac = eek.whole_keys().page_mac(&ciphertext).expect("it has a tag");
    let page = Page { author, index, ciphertext: ciphertext.into(), mac };
    let (metadata, metadata_ciphertext_mac) =
        eek.seal_metadata(suite, metadata(size)).expect("short");
    let entry = Entry {
        author,
        content: EntryContent::Inline(page.clone()),
        created_time: 1,
        metadata_ciphertext: metadata.into(),
        metadata_ciphertext_mac,
    };
    (EntryOpener::new(suite, &entry, eek).expect("our own"), page)
}

fn run_chunk(data: &[u8]) {
    let Some((size, plaintext)) = data.split_first_chunk::<2>() else { return };
    let size = u16::from_be_bytes(*size);
    let (opener, page) = opener_and_page(u64::from(size), 0, plaintext);
    if let Ok(chunk) = opener.open_page(0, &page) {
        assert_eq!(chunk.len(), usize::from(size));
    }
}

fn run_list_page(data: &[u8]) {
    let (opener, page) = opener_and_page(1, 1 << 31, data);
    if let Ok(ids) = opener.open_list(0, &page) {
        // One page was called for, so one id is all that may come out.
        assert_eq!(ids.len(), 1);
        assert_eq!(ids[0].as_bytes()[..], *data);
    }
}

fn run_libri_stream(data: &[u8]) {
    const SIZE: u64 = 520;
    for codec in [CompressionCodec::Gzip, CompressionCodec::None] {
        let mut decompressor = LibriDecompressor::new(codec, SIZE);
        let mut length = 0;
        let (first, second) = data.split_at(data.len() / 2);
        let done = [first, second].into_iter().try_for_each(|part| {
            decompressor.push(&Bytes::copy_from_slice(part), &mut |bytes| {
                length += bytes.len() as u64;
                Ok(())
            })
        });
        assert!(length <= SIZE);
        if done.and_then(|()| decompressor.finish()).is_ok() {
            assert_eq!(length, SIZE);
        }
    }
}

/// Where in the bytes of a case the record begins: before it are the number of the chunk, and which bit of the proof is flipped.
const PROVEN_AT: usize = 8;

fn chunk_proofs() -> Vec<Vec<u8>> {
    let head = [[3, 0, 0, 0], [9, 0, 0, 0]].concat();
    let record = |len: usize| (0..len).map(|i| i as u8).collect::<Vec<_>>();
    [1, 1024, 1025, 5_000].map(|len| [head.clone(), record(len)].concat()).to_vec()
}

/// A chunk of any bytes is proven; with any bit of its proof flipped it is not; and any bytes are a proof or an error.
fn run_chunk_proof(data: &[u8]) {
    let Some((head, bytes)) = data.split_at_checked(PROVEN_AT) else { return };
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let (chunk, flipped) = (number(0), number(4) as usize);
    let id = Suite::Holdfast1.id(bytes);
    let Some(proof) = prove_chunk(bytes, chunk) else { return };
    verify_chunk(&id, chunk, &proof).expect("its own proof");
    let parts = [&proof.chunk, &proof.path, &proof.last, &proof.last_path];
    let mut all = parts.map(|part| part.to_vec());
    let total: usize = all.iter().map(Vec::len).sum();
    let mut at = flipped / 8 % total;
    for part in &mut all {
        if at < part.len() {
            part[at] ^= 1 << (flipped % 8);
            break;
        }
        at -= part.len();
    }
    let [chunk_bytes, path, last, last_path] = all.map(Bytes::from);
    let changed = ChunkProof { length: proof.length, chunk: chunk_bytes, path, last, last_path };
    assert!(verify_chunk(&id, chunk, &changed).is_err(), "a changed proof");
    let longer = ChunkProof { length: proof.length ^ (1 << (flipped % 32)), ..proof };
    assert!(verify_chunk(&id, chunk, &longer).is_err(), "a length that is another's");
    // Cut anywhere, the bytes as a proof of their own.
    let (one, other) = bytes.split_at(flipped % (bytes.len() + 1));
    let part = Bytes::copy_from_slice;
    let (path, last_path) = (part(one), part(other));
    let made_up =
        ChunkProof { length: chunk, chunk: part(other), path, last: part(one), last_path };
    assert!(verify_chunk(&id, flipped as u32, &made_up).is_err() || bytes.len() <= 1024);
}
