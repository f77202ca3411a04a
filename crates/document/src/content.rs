//! The two ends of a content's way: bytes of any lengths become chunks, and chunks in order become the
//! content again, with the whole's sizes and MACs checked at its end.

use std::sync::Arc;

use bytes::Bytes;
use crypto::{ChunkTag, Suite};

use crate::libri::{LibriCompressor, LibriDecompressor};
use crate::macs::ContentMacs;
use crate::metadata::EntryMetadata;
use crate::open::{Chunk, EntryOpener};
use crate::record::CHUNK_BYTES_MAX;
use crate::{DocumentError, Page};

/// Cuts a stream of bytes into the chunks to be sealed; in `libri-1` it compresses first.
#[derive(Debug)]
pub struct ContentCutter(Cutter);

#[derive(Debug)]
enum Cutter {
    Plain { buffer: Vec<u8>, cut: bool },
    Libri(Box<LibriCompressor>),
}

impl ContentCutter {
    /// Nothing fed yet.
    pub fn new(suite: Suite) -> Self {
        Self(match suite {
            Suite::Holdfast1 => Cutter::Plain { buffer: Vec::new(), cut: false },
            Suite::Libri1 => Cutter::Libri(Box::default()),
        })
    }

    /// Takes the next bytes. Take all chunks after each push: they are held in memory.
    ///
    /// # Errors
    /// [`DocumentError::Compress`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        match &mut self.0 {
            Cutter::Plain { buffer, .. } => {
                buffer.extend_from_slice(bytes);
                Ok(())
            }
            Cutter::Libri(compressor) => compressor.push(bytes),
        }
    }

    /// The next full chunk, where there is one.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        match &mut self.0 {
            Cutter::Plain { buffer, cut } => {
                if buffer.len() < CHUNK_BYTES_MAX {
                    return None;
                }
                *cut = true;
                let rest = buffer.split_off(CHUNK_BYTES_MAX);
                Some(std::mem::replace(buffer, rest))
            }
            Cutter::Libri(compressor) => compressor.next_chunk(),
        }
    }

    /// Ends the content: the chunks that are left. Empty content is one empty chunk in `holdfast-1`.
    ///
    /// # Errors
    /// [`DocumentError::Compress`].
    pub fn finish(self) -> Result<Vec<Vec<u8>>, DocumentError> {
        match self.0 {
            Cutter::Plain { buffer, cut } if buffer.is_empty() && cut => Ok(Vec::new()),
            Cutter::Plain { buffer, .. } if buffer.is_empty() => Ok(vec![buffer]),
            Cutter::Plain { buffer, .. } => {
                Ok(buffer.chunks(CHUNK_BYTES_MAX).map(<[u8]>::to_vec).collect())
            }
            Cutter::Libri(compressor) => compressor.finish(),
        }
    }
}

/// Puts a content together from its opened pages, fed in order.
///
/// Bytes that it hands on are the right ones as far as each page proves them. Whether they are all is
/// known when [`ContentAssembler::finish`] answers: a file gets its final name then, not before.
#[derive(Debug)]
pub struct ContentAssembler {
    metadata: Arc<EntryMetadata>,
    macs: ContentMacs,
    libri: Option<LibriDecompressor>,
}

impl ContentAssembler {
    pub(crate) fn new(opener: &EntryOpener) -> Self {
        let metadata = opener.shared_metadata();
        let libri = (opener.suite() == Suite::Libri1)
            .then(|| LibriDecompressor::new(metadata.codec, metadata.uncompressed_size));
        Self { metadata, macs: opener.macs(), libri }
    }

    /// The index of the page that is due.
    pub const fn next_index(&self) -> u64 {
        self.macs.pages()
    }

    /// Takes the next page and the chunk it opened to ([`EntryOpener::open_chunk`]), and hands on the content's bytes: the chunk
    /// itself in `holdfast-1`, what it decompresses to, in parts, in `libri-1`.
    ///
    /// # Errors
    /// [`DocumentError`], and the errors of `out`.
    ///
    /// # Panics
    /// Where the page is not the one that is due: that is the caller's defect, not the network's.
    pub fn push(
        &mut self,
        page: &Page,
        chunk: &Chunk,
        out: &mut dyn FnMut(Bytes) -> Result<(), DocumentError>,
    ) -> Result<(), DocumentError> {
        self.push_page(page)?;
        self.push_chunk(&chunk.bytes, chunk.tag.as_ref(), out)
    }

    /// The first half of [`ContentAssembler::push`]: takes the next page. Its chunk follows.
    ///
    /// # Errors
    /// [`DocumentError::Size`] where there is more of it than stated.
    ///
    /// # Panics
    /// As [`ContentAssembler::push`].
    pub fn push_page(&mut self, page: &Page) -> Result<(), DocumentError> {
        assert_eq!(self.next_index(), u64::from(page.index), "pages are fed in order");
        self.macs.add_page(page);
        if self.macs.ciphertext_bytes() > self.metadata.ciphertext_size {
            return Err(DocumentError::Size("ciphertext"));
        }
        Ok(())
    }

    /// The second half: takes the chunk that the page opened to, whole with its tag where it has one; else it may be in parts, in
    /// order. Whoever must not hold all that a chunk decompresses to (in `libri-1` some thousand times its size) feeds small parts.
    ///
    /// # Errors
    /// [`DocumentError`], and the errors of `out`.
    ///
    /// # Panics
    /// Where a chunk has a tag and should have none, or the other way round: that is the caller's defect.
    pub fn push_chunk(
        &mut self,
        part: &Bytes,
        tag: Option<&ChunkTag>,
        out: &mut dyn FnMut(Bytes) -> Result<(), DocumentError>,
    ) -> Result<(), DocumentError> {
        let macs = &mut self.macs;
        let Some(libri) = &mut self.libri else {
            match tag {
                Some(tag) => macs.add_chunk(tag, part.len() as u64),
                None => macs.add_plaintext(part),
            }
            return if part.is_empty() { Ok(()) } else { out(part.clone()) };
        };
        libri.push(part, &mut |bytes| {
            macs.add_plaintext(&bytes);
            out(bytes)
        })
    }

    /// Ends: both sizes and both MACs must be those of the metadata.
    ///
    /// # Errors
    /// [`DocumentError::Size`], [`DocumentError::Stream`], [`DocumentError::WholeMac`].
    pub fn finish(self) -> Result<(), DocumentError> {
        if self.macs.ciphertext_bytes() != self.metadata.ciphertext_size {
            return Err(DocumentError::Size("ciphertext"));
        }
        let plaintext_bytes = self.macs.plaintext_bytes();
        let metadata = &self.metadata;
        let (plaintext, ciphertext) =
            self.macs.verify(&metadata.uncompressed_mac, &metadata.ciphertext_mac);
        if !ciphertext {
            return Err(DocumentError::WholeMac("ciphertext"));
        }
        if let Some(libri) = self.libri {
            libri.finish()?;
        }
        if plaintext_bytes != metadata.uncompressed_size {
            return Err(DocumentError::Size("plaintext"));
        }
        if plaintext { Ok(()) } else { Err(DocumentError::WholeMac("plaintext")) }
    }
}
