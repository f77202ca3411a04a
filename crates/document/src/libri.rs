//! `libri-1`'s compression: the whole content as one gzip stream, cut into chunks of 2 MiB.
//!
//! The original cuts after it compresses, so nothing but the whole stream, from its start, can be read:
//! no byte ranges, one thread. It is here for interchange.

use std::io::Write;

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compression, Decompress, FlushDecompress, Status};

use crate::DocumentError;
use crate::metadata::CompressionCodec;
use crate::record::CHUNK_BYTES_MAX;

/// Decompressed bytes come in parts of at most this many.
const PART_BYTES: usize = 256 << 10;
/// gzip's largest window, as a base-2 logarithm.
const WINDOW_BITS: u8 = 15;

/// The compressor is fed in blocks of this many bytes: what it writes depends on how it is fed, and one
/// content should become one stream, however its bytes come.
const BLOCK_BYTES: usize = 64 << 10;

/// Compresses a content and cuts it.
pub struct LibriCompressor {
    encoder: GzEncoder<Vec<u8>>,
    block: Vec<u8>,
}

impl LibriCompressor {
    /// Nothing fed yet.
    pub fn new() -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::default());
        Self { encoder, block: Vec::with_capacity(BLOCK_BYTES) }
    }

    /// Takes the next bytes of the content.
    ///
    /// # Errors
    /// [`DocumentError::Compress`].
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), DocumentError> {
        while !bytes.is_empty() {
            let room = BLOCK_BYTES - self.block.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = rest;
            if self.block.len() == BLOCK_BYTES {
                self.encoder.write_all(&self.block).map_err(DocumentError::Compress)?;
                self.block.clear();
            }
        }
        Ok(())
    }

    /// The next full chunk, where there is one. Take all of them after each push: they are held in memory.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let out = self.encoder.get_mut();
        if out.len() < CHUNK_BYTES_MAX {
            return None;
        }
        let rest = out.split_off(CHUNK_BYTES_MAX);
        Some(std::mem::replace(out, rest))
    }

    /// Ends the stream: the last chunks, at least one unless full ones were taken and nothing is left.
    ///
    /// # Errors
    /// [`DocumentError::Compress`].
    pub fn finish(mut self) -> Result<Vec<Vec<u8>>, DocumentError> {
        self.encoder.write_all(&self.block).map_err(DocumentError::Compress)?;
        let rest = self.encoder.finish().map_err(DocumentError::Compress)?;
        Ok(rest.chunks(CHUNK_BYTES_MAX).map(<[u8]>::to_vec).collect())
    }
}

impl Default for LibriCompressor {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for LibriCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LibriCompressor(..)")
    }
}

/// Decompresses a content from its chunks, in order, to at most the stated size.
pub struct LibriDecompressor {
    /// None for content that was not compressed.
    gzip: Option<Decompress>,
    ended: bool,
    bytes: u64,
    bytes_max: u64,
}

impl LibriDecompressor {
    /// For a content of `size` bytes compressed by `codec` ([`CompressionCodec::None`] or `Gzip`).
    pub fn new(codec: CompressionCodec, size: u64) -> Self {
        let gzip = (codec == CompressionCodec::Gzip).then(|| Decompress::new_gzip(WINDOW_BITS));
        Self { gzip, ended: false, bytes: 0, bytes_max: size }
    }

    /// Takes the next chunk and hands on what it decompresses to, in parts of at most 256 KiB.
    ///
    /// # Errors
    /// [`DocumentError::Size`] above the stated size, [`DocumentError::Stream`] for what is no gzip stream
    /// or goes on after its end, and the errors of `out`.
    pub fn push(
        &mut self,
        chunk: &Bytes,
        out: &mut dyn FnMut(Bytes) -> Result<(), DocumentError>,
    ) -> Result<(), DocumentError> {
        let Some(gzip) = &mut self.gzip else {
            self.bytes += chunk.len() as u64;
            if self.bytes > self.bytes_max {
                return Err(DocumentError::Size("plaintext"));
            }
            return if chunk.is_empty() { Ok(()) } else { out(chunk.clone()) };
        };
        let mut rest = &chunk[..];
        loop {
            if self.ended {
                return if rest.is_empty() { Ok(()) } else { Err(DocumentError::Stream) };
            }
            let (taken, made) = (gzip.total_in(), gzip.total_out());
            let mut part = Vec::with_capacity(PART_BYTES);
            let status = gzip
                .decompress_vec(rest, &mut part, FlushDecompress::None)
                .map_err(|_| DocumentError::Stream)?;
            rest = &rest[(gzip.total_in() - taken) as usize..];
            self.ended = status == Status::StreamEnd;
            self.bytes = gzip.total_out();
            if self.bytes > self.bytes_max {
                return Err(DocumentError::Size("plaintext"));
            }
            let progress = self.bytes > made;
            if progress {
                out(part.into())?;
            }
            // Nothing taken in and nothing given out: it wants the next chunk.
            if !self.ended && !progress && gzip.total_in() == taken {
                return if rest.is_empty() { Ok(()) } else { Err(DocumentError::Stream) };
            }
        }
    }

    /// Ends: the stream must have ended too, at exactly the stated size.
    ///
    /// # Errors
    /// [`DocumentError::Stream`], [`DocumentError::Size`].
    pub fn finish(self) -> Result<(), DocumentError> {
        if self.gzip.is_some() && !self.ended {
            return Err(DocumentError::Stream);
        }
        if self.bytes != self.bytes_max {
            return Err(DocumentError::Size("plaintext"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for LibriDecompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LibriDecompressor({} of {} bytes)", self.bytes, self.bytes_max)
    }
}

#[cfg(test)]
mod tests;
