use proptest::prelude::*;

use super::*;

/// Chunks of a content fed in parts.
fn compressed(content: &[u8], part: usize) -> Vec<Vec<u8>> {
    let mut compressor = LibriCompressor::new();
    let mut chunks = Vec::new();
    for part in content.chunks(part.max(1)) {
        compressor.push(part).expect("memory");
        chunks.extend(std::iter::from_fn(|| compressor.next_chunk()));
    }
    chunks.extend(compressor.finish().expect("memory"));
    chunks
}

fn decompressed(
    codec: CompressionCodec,
    chunks: &[Vec<u8>],
    size: u64,
) -> Result<Vec<u8>, DocumentError> {
    let mut decompressor = LibriDecompressor::new(codec, size);
    let mut content = Vec::new();
    for chunk in chunks {
        decompressor.push(&Bytes::copy_from_slice(chunk), &mut |part| {
            assert!(!part.is_empty() && part.len() <= PART_BYTES.max(chunk.len()));
            content.extend_from_slice(&part);
            Ok(())
        })?;
    }
    decompressor.finish()?;
    Ok(content)
}

fn noise(length: usize) -> Vec<u8> {
    let hashes = (0..length.div_ceil(32) as u64)
        .flat_map(|i| crypto::Suite::Holdfast1.hash(&i.to_le_bytes()));
    hashes.take(length).collect()
}

#[test]
fn a_long_stream_is_cut_at_two_mebibytes() {
    let content = noise(5_000_000);
    let chunks = compressed(&content, 100_000);
    assert_eq!(chunks.len(), 3);
    assert!(chunks[..2].iter().all(|chunk| chunk.len() == CHUNK_BYTES_MAX));
    let opened = decompressed(CompressionCodec::Gzip, &chunks, 5_000_000).expect("our own");
    assert!(opened == content);
}

#[test]
fn an_extra_empty_page_at_the_end_is_taken() {
    let mut chunks = compressed(b"content", 7);
    chunks.push(Vec::new());
    assert_eq!(decompressed(CompressionCodec::Gzip, &chunks, 7).expect("empty page"), b"content");
    let plain = [b"content".to_vec(), Vec::new()];
    assert_eq!(decompressed(CompressionCodec::None, &plain, 7).expect("empty page"), b"content");
}

#[test]
fn what_is_too_long_too_short_or_damaged_is_refused() {
    let chunks = compressed(b"content", 7);
    for size in [0, 6, 8] {
        let refused = decompressed(CompressionCodec::Gzip, &chunks, size);
        assert!(matches!(refused, Err(DocumentError::Size(_))), "{size}");
        let refused = decompressed(CompressionCodec::None, &[b"content".to_vec()], size);
        assert!(matches!(refused, Err(DocumentError::Size(_))), "{size}");
    }
    let cut = vec![chunks[0][..chunks[0].len() - 1].to_vec()];
    let more = vec![[&chunks[0][..], &[0]].concat()];
    let after = vec![chunks[0].clone(), vec![1]];
    for bad in [cut, more, after, vec![b"not gzip".to_vec()], vec![]] {
        let refused = decompressed(CompressionCodec::Gzip, &bad, 7);
        assert!(matches!(refused, Err(DocumentError::Stream)), "{refused:?}");
    }
}

/// A gigabyte of zeros in a megabyte: refused after one part more than the stated size.
#[test]
fn a_bomb_is_refused_after_the_stated_size() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..256 {
        encoder.write_all(&vec![0; 1 << 20]).expect("memory");
    }
    let bomb = Bytes::from(encoder.finish().expect("memory"));
    assert!(bomb.len() < 1 << 20);
    let mut decompressor = LibriDecompressor::new(CompressionCodec::Gzip, 1000);
    let mut handed_on = 0;
    let refused = decompressor.push(&bomb, &mut |part| {
        handed_on += part.len();
        Ok(())
    });
    assert!(matches!(refused, Err(DocumentError::Size(_))));
    assert_eq!(handed_on, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_content_round_trips(
        unit in proptest::collection::vec(any::<u8>(), 1..200),
        times in 1..2000_usize,
        part in 1..100_000_usize,
    ) {
        let content = unit.repeat(times);
        let chunks = compressed(&content, part);
        let opened = decompressed(CompressionCodec::Gzip, &chunks, content.len() as u64);
        prop_assert!(opened.expect("our own") == content);
    }

    #[test]
    fn any_flipped_byte_is_refused_or_does_not_matter(
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let content = b"some content, some content".to_vec();
        let mut chunks = compressed(&content, 100);
        let at = at.index(chunks[0].len());
        chunks[0][at] = to;
        // Its header has bytes without meaning; the checksum covers the rest.
        if let Ok(opened) = decompressed(CompressionCodec::Gzip, &chunks, content.len() as u64) {
            prop_assert_eq!(opened, content);
        }
    }
}
