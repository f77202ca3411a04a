#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

const MARKER: Marker = *b"\x01\x23\x45\x67\x89\xab\xcd\xef";

fn record(place: Place) -> Header {
    let content = Content::Record {
        kind: Kind::Page,
        place,
        length: 5,
        payload_crc: crc32c(b"hello"),
        form: false,
    };
    Header { id: RecordId::new([0x11; 32]), content }
}

fn encoded(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&MARKER, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes on disks that exist: a change here is a change of format, with a line in
/// `docs/formats/store.md`.
#[test]
fn golden_bytes() {
    let id = "11".repeat(32);
    let at_id = record(Place::new([0x11; 32]));
    let plain = format!("0123456789abcdef0300000000000005{id}9a71bb4c");
    assert_eq!(hex(&encoded(&at_id)), format!("{plain}5c1a4e1b"));
    let place = "22".repeat(32);
    let placed = format!("0123456789abcdef0302000000000005{id}9a71bb4c{place}");
    assert_eq!(hex(&encoded(&record(Place::new([0x22; 32])))), format!("{placed}91f1fec7"));
    let mut form = record(Place::new([0x22; 32]));
    if let Content::Record { kind, form, .. } = &mut form.content {
        (*kind, *form) = (Kind::Version, true);
    }
    let head = format!("0123456789abcdef0606000000000005{id}9a71bb4c{place}");
    assert_eq!(hex(&encoded(&form)), format!("{head}93a5e0af"));
    let removal = Header { id: RecordId::new([0x11; 32]), content: Content::Removal };
    let gone = format!("0123456789abcdef0001000000000000{id}00000000");
    assert_eq!(hex(&encoded(&removal)), format!("{gone}7d15d899"));
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    for place in [[0x11; 32], [0x22; 32]] {
        let header = record(Place::new(place));
        let mut bytes = encoded(&header);
        assert_eq!(bytes.len(), header.len());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&MARKER, &bytes), None, "bit {bit}");
            assert_eq!(Header::decode_unmarked(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Header::decode(&MARKER, &bytes), Some(header));
    }
}

/// A header with right checksums over what this release never writes.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Option<Header> {
    let mut bytes = encoded(&record(Place::new([0x11; 32])));
    bytes.truncate(52);
    change(&mut bytes);
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes.resize(HEADER_BYTES_MAX, 0);
    Header::decode(&MARKER, &bytes)
}

#[test]
fn values_that_are_never_written_are_no_header() {
    assert!(resealed(|_| {}).is_some());
    for (at, value) in
        [(8, 0), (8, 200), (9, 1), (9, 3), (9, 4), (9, 5), (9, 8), (10, 1), (11, 1), (12, 1)]
    {
        assert_eq!(resealed(|bytes| bytes[at] = value), None, "{value} at {at}");
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        id: [u8; 32],
        place: [u8; 32],
        kind in 0..Kind::ALL.len(),
        form: bool,
        length in 0u32..=RECORD_BYTES_MAX as u32,
        payload_crc: u32,
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let kind = if form { Kind::Version } else { Kind::ALL[kind] };
        let place = Place::new(place);
        let content = Content::Record { kind, place, length, payload_crc, form };
        let header = Header { id: RecordId::new(id), content };
        let mut bytes = encoded(&header);
        prop_assert_eq!(Header::decode(&MARKER, &bytes[..bytes.len() - 1]), None);
        bytes.extend(tail);
        prop_assert_eq!(Header::decode(&MARKER, &bytes), Some(header));
        prop_assert_eq!(Header::decode(&[0; 8], &bytes), None);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Header::decode_unmarked(&bytes);
        let _ = Header::decode(&MARKER, &bytes);
    }
}

#[test]
fn a_filler_is_zeros_and_nothing_else() {
    let filler = Header::filler(HEADER_BYTES + 5);
    let golden =
        format!("0123456789abcdef0008000000000005{}{:08x}", "00".repeat(32), crc32c(&[0; 5]));
    let bytes = encoded(&filler);
    assert_eq!(hex(&bytes[..52]), golden);
    assert_eq!(hex(&bytes[48..]), "45727635345a6a2e");
    for bytes in [HEADER_BYTES, HEADER_BYTES + 1, 4096, FILLER_BYTES_MAX] {
        let filler = Header::filler(bytes);
        assert_eq!(filler.frame_len(), bytes as u64);
        assert_eq!(Header::decode(&MARKER, &encoded(&filler)), Some(filler));
    }
    // Another kind, id, checksum or flag beside it, and one that is too long.
    for (at, value) in
        [(8, 3), (9, 9), (9, 10), (9, 12), (12, 1), (15, 6), (16, 1), (47, 1), (51, 0)]
    {
        let mut bytes = encoded(&filler);
        bytes.truncate(52);
        bytes[at] = value;
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes.resize(HEADER_BYTES_MAX, 0);
        assert_eq!(Header::decode(&MARKER, &bytes), None, "{value} at {at}");
    }
}

#[test]
fn fillers_shift_by_what_is_asked_for_and_have_room_for_a_header() {
    for period in [1, 4, 64, 512, 4096] {
        for by in 0..period {
            let bytes = filler_before(by, period);
            assert_eq!(bytes % period, by, "{by} of {period}");
            assert!(bytes == 0 || (HEADER_BYTES..=FILLER_BYTES_MAX).contains(&bytes), "{bytes}");
            assert!(bytes < period + HEADER_BYTES, "{bytes} is more than is needed");
        }
    }
}

/// Of what is before the first multiple of a write any front may be there, and zeros behind it; of the rest all is.
#[test]
fn a_filler_that_was_not_written_is_known_by_the_rest_of_it() {
    for (offset, ahead) in [(4096 - 3900_u64, 3900_usize), (4096 * 7 - 10, 10)] {
        let header = Header::filler(filler_before(ahead, WRITE_ALIGNMENT));
        let mut whole = encoded(&header);
        whole.resize(header.frame_len() as usize, 0);
        let unwritten = |bytes: &[u8]| Header::unwritten(&MARKER, offset, bytes);
        for written in [0, 1, 9, ahead.min(HEADER_BYTES), ahead] {
            let mut torn = whole.clone();
            torn[written..ahead].fill(0);
            assert_eq!(unwritten(&torn), Some(header), "{written} of {ahead} bytes");
            // Anything else in its place is no filler's.
            let mut other = torn.clone();
            other[ahead - 1] ^= 0x40;
            assert_eq!(unwritten(&other), None);
            if let Some(rest) = torn.get_mut(ahead) {
                *rest ^= 1;
                assert_eq!(unwritten(&torn), None);
            }
        }
        assert_eq!(unwritten(&whole[..whole.len() - 1]), None, "it is of another length");
    }
    // Where a write begins at a multiple, none of it goes through the cache; and no filler is so short or so long.
    assert_eq!(Header::unwritten(&MARKER, 4096, &[0; 100]), None);
    assert_eq!(Header::unwritten(&MARKER, 4000, &[0; HEADER_BYTES - 1]), None);
    assert_eq!(Header::unwritten(&MARKER, 1, &[0; FILLER_BYTES_MAX + 1]), None);
}
