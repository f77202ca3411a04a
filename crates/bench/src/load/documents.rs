//! The documents of a load: what one upload stores, sealed as an author of the original would.
//!
//! A document is one page, which lies inline in its entry (`libri-1`), and three envelopes: the
//! author's own and two readers'. Content is random, so its gzip stream, which the format asks for,
//! is one of stored blocks: the same bytes that compressing it would come to, without the time.

use std::io::Write;

use bytes::Bytes;
use crypto::{AuthorKey, EEK_BYTES, Eek, NetworkId, ReaderKey, SecretKey, Suite};
use document::{
    CHUNK_BYTES_MAX, ContentInfo, Document, EntrySealer, Record, SealedContent, envelope,
};
use env::{Entropy, SystemEntropy};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::BenchError;
use crate::seeded::Seeded;

const SUITE: Suite = Suite::Libri1;
/// What gzip's stored blocks and its head may add.
const GZIP_ROOM: usize = 1 << 10;

/// How large documents are: a gamma distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) shape: f64,
    /// In bytes.
    pub(crate) scale: f64,
}

impl Sizes {
    /// The paper's: a mean of 256 KB, 95 % in 18 to 794 KB.
    pub(crate) const PAPER: Self = Self { shape: 1.5, scale: 170e3 };

    pub(crate) fn mean(&self) -> f64 {
        self.shape * self.scale
    }

    /// A size that one page holds.
    pub(crate) fn draw(&self, seeded: &mut Seeded) -> usize {
        let drawn = seeded.gamma(self.shape, self.scale) as usize;
        drawn.clamp(1, CHUNK_BYTES_MAX - GZIP_ROOM)
    }
}

/// What one upload stores.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) entry: Record,
    /// The author's own, and two readers'.
    pub(crate) envelopes: [Record; 3],
}

/// Seals uploads for one network.
#[derive(Clone)]
pub(crate) struct Sealing {
    network: NetworkId,
    readers: [ReaderKey; 3],
}

/// A key of the system's randomness.
pub(crate) fn fresh_key() -> SecretKey {
    loop {
        let mut bytes = [0; 32];
        SystemEntropy.fill(&mut bytes);
        // All but some 2^-128 of these are keys.
        if let Ok(key) = SecretKey::from_bytes(&bytes) {
            return key;
        }
    }
}

impl Sealing {
    pub(crate) fn new(network: NetworkId) -> Self {
        let readers = std::array::from_fn(|_| ReaderKey::new(fresh_key().public()));
        Self { network, readers }
    }

    /// An upload of so many bytes of content.
    ///
    /// # Errors
    /// [`BenchError::Document`]: none is expected.
    pub(crate) fn upload(&self, bytes: usize, seeded: &mut Seeded) -> Result<Upload, BenchError> {
        let mut content = vec![0; bytes];
        seeded.fill(&mut content);
        let stream = gzip(&content).map_err(BenchError::io("compress", "content"))?;
        let mut eek = [0; EEK_BYTES];
        SystemEntropy.fill(&mut eek);
        let eek = Eek::from_bytes(&eek);
        let author = fresh_key();
        let mut sealer = EntrySealer::new(SUITE, eek.clone(), AuthorKey::new(author.public()));
        let mut macs = sealer.macs();
        let page = sealer.ticket()?.seal(&stream)?;
        macs.add_plaintext(&content);
        macs.add(&page);
        let info =
            ContentInfo { media_type: "application/octet-stream".into(), ..ContentInfo::default() };
        let sealed = SealedContent::Single(Box::new(page));
        let entry = sealer.finish(macs, sealed, info, 1)?.entry;
        // In this suite no pair of keys may seal twice: each envelope has an author key of its own.
        let envelopes = self.readers.map(|reader| {
            let sealed = envelope::seal(SUITE, self.network, entry.id, &fresh_key(), &reader, &eek);
            Record::of(SUITE, &Document::Envelope(sealed))
        });
        Ok(Upload { entry, envelopes })
    }
}

fn gzip(content: &[u8]) -> std::io::Result<Bytes> {
    let out = Vec::with_capacity(content.len() + GZIP_ROOM);
    let mut encoder = GzEncoder::new(out, Compression::none());
    encoder.write_all(content)?;
    encoder.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use document::{EntryContent, EntryOpener, Kind, prove};

    use super::*;

    #[test]
    fn an_upload_is_what_an_author_stores_and_a_reader_opens() {
        let network = NetworkId::new([4; 32]);
        let mut sealing = Sealing::new(network);
        let reader = fresh_key();
        sealing.readers[1] = ReaderKey::new(reader.public());
        let Upload { entry, envelopes } = sealing.upload(100_000, &mut Seeded::new(1)).unwrap();
        for (record, kind) in [(&entry, Kind::Entry), (&envelopes[0], Kind::Envelope)] {
            assert_eq!(record.kind, kind);
            prove(SUITE, record).unwrap();
        }
        let Document::Envelope(sealed) = Document::decode(&envelopes[1].bytes).unwrap() else {
            panic!("an envelope");
        };
        assert_eq!(sealed.entry, entry.id);
        let eek = envelope::open(SUITE, network, &sealed, &reader).unwrap();
        let Document::Entry(decoded) = Document::decode(&entry.bytes).unwrap() else {
            panic!("an entry");
        };
        let opener = EntryOpener::new(SUITE, &decoded, eek).unwrap();
        let EntryContent::Inline(page) = &decoded.content else { panic!("one page, inline") };
        let chunk = opener.open_chunk(0, page, |len| vec![0; len]).unwrap();
        let mut assembler = opener.assembler();
        let mut content = Vec::new();
        assembler
            .push(page, &chunk, &mut |bytes| {
                content.extend_from_slice(&bytes);
                Ok(())
            })
            .unwrap();
        assembler.finish().unwrap();
        let mut expected = vec![0; 100_000];
        Seeded::new(1).fill(&mut expected);
        assert!(content == expected);
    }

    #[test]
    fn every_size_fits_one_page() {
        let mut seeded = Seeded::new(1);
        let huge = Sizes { shape: 1.5, scale: 1e9 };
        let bytes = huge.draw(&mut seeded);
        let upload = Sealing::new(NetworkId::new([4; 32])).upload(bytes, &mut seeded).unwrap();
        assert!(upload.entry.bytes.len() > CHUNK_BYTES_MAX - (64 << 10));
        assert_eq!(Sizes { shape: 1.0, scale: 1e-9 }.draw(&mut seeded), 1);
        assert!((Sizes::PAPER.mean() - 255e3).abs() < 1.0);
    }
}
