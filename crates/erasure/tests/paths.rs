//! Every path of this processor makes the bytes of the definition: at every length, every alignment, every number of
//! outputs, with fragments that end early, and when data is added fragment by fragment.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "scalar/reference.rs"]
mod reference;

use erasure::{Code, Given, Path, Wanted};
use reference::{Products, bytes, combine, generator};

fn encoded(code: &Code, data: &[&[u8]], length: usize) -> Vec<Vec<u8>> {
    // Not zeros: what was there must not count.
    let mut parity = vec![vec![0xaa; length]; code.parity()];
    let mut rooms: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[..]).collect();
    code.encode(data, &mut rooms).unwrap();
    parity
}

fn all_paths(k: usize, n: usize) -> Vec<Code> {
    let paths = Path::available();
    assert_eq!(paths.last().unwrap().name(), "portable");
    assert_eq!(paths[0], Path::best());
    paths.into_iter().map(|path| Code::on(path, k, n).unwrap()).collect()
}

#[test]
fn every_coefficient_multiplies_every_byte_as_defined() {
    // With k = 128 and n = 256 each element but 0 is a coefficient; columns hold all bytes.
    let products = Products::new();
    let every: Vec<u8> = (0..=255).collect();
    let wanted = &generator(128, 256)[128..];
    for code in all_paths(128, 256) {
        for column in 0..128 {
            let mut data = vec![&[][..]; 128];
            data[column] = &every;
            let parity = encoded(&code, &data, 256);
            for (row, parity) in wanted.iter().zip(parity) {
                let expected: Vec<u8> =
                    every.iter().map(|byte| products.of(row[column], *byte)).collect();
                assert_eq!(parity, expected, "{code:?}");
            }
        }
    }
}

#[test]
fn every_length_and_alignment_gives_the_bytes_of_the_definition() {
    let products = Products::new();
    let matrix = &generator(3, 7)[3..];
    let source: Vec<Vec<u8>> = (0..3).map(|seed| bytes(seed, 1000)).collect();
    for length in (0..=200).chain([255, 256, 257, 511, 512, 513, 800]) {
        for shift in [0, 1, 7, 16, 31, 32, 33, 63] {
            let data: Vec<&[u8]> =
                source.iter().enumerate().map(|(i, row)| &row[shift + i..][..length]).collect();
            let expected = combine(&products, matrix, &data);
            for code in all_paths(3, 7) {
                // Outputs with room on both sides, at another alignment than the inputs.
                let mut parity = vec![vec![0xaa; length + 100]; 4];
                let mut rooms: Vec<&mut [u8]> =
                    parity.iter_mut().map(|row| &mut row[65 - shift..][..length]).collect();
                code.encode(&data, &mut rooms).unwrap();
                for (parity, expected) in parity.iter().zip(&expected) {
                    let (before, rest) = parity.split_at(65 - shift);
                    let (made, after) = rest.split_at(length);
                    assert_eq!(made, expected, "{code:?} {length} bytes at {shift}");
                    assert!(before.iter().chain(after).all(|byte| *byte == 0xaa), "{code:?}");
                }
            }
        }
    }
}

#[test]
fn every_number_of_outputs_and_inputs_gives_the_bytes_of_the_definition() {
    let products = Products::new();
    for (k, n) in (1..=20).map(|m| (5, 5 + m)).chain((1..=20).map(|k| (k, k + 3))) {
        let source: Vec<Vec<u8>> = (0..k).map(|seed| bytes(seed, 333)).collect();
        let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
        let expected = combine(&products, &generator(k, n)[k..], &data);
        for code in all_paths(k, n) {
            assert_eq!(encoded(&code, &data, 333), expected, "{code:?}");
        }
    }
}

#[test]
fn strips_meet_without_a_seam() {
    let products = Products::new();
    for (k, n, length) in [(2, 5, 150_001), (16, 48, 70_000), (29, 80, 20_011), (255, 256, 9_000)] {
        let source: Vec<Vec<u8>> = (0..k).map(|seed| bytes(seed, length)).collect();
        let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
        let expected = combine(&products, &generator(k, n)[k..], &data);
        for code in all_paths(k, n) {
            assert!(encoded(&code, &data, length) == expected, "{code:?}");
        }
    }
}

#[test]
fn data_that_ends_early_counts_as_followed_by_zeros() {
    let products = Products::new();
    let lengths = [0, 700, 64, 65, 699, 1, 700, 300];
    let source: Vec<Vec<u8>> =
        lengths.iter().enumerate().map(|(seed, length)| bytes(seed, *length)).collect();
    let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
    let mut expected = combine(&products, &generator(8, 16)[8..], &data);
    expected.iter_mut().for_each(|row| row.resize(710, 0));
    for code in all_paths(8, 16) {
        let parity = encoded(&code, &data, 710);
        assert_eq!(parity, expected, "{code:?}");
        // And back: each lost page in a room of its own length, given ones as short as they are.
        let given: Vec<Given<'_>> =
            (8..16).map(|index| Given { index, bytes: &parity[index - 8] }).collect();
        let mut rooms: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0xaa; *length]).collect();
        let rows = rooms.iter_mut().enumerate();
        let mut wanted: Vec<Wanted<'_>> =
            rows.map(|(index, bytes)| Wanted { index, bytes }).collect();
        code.reconstruct(710, &given, &mut wanted).unwrap();
        assert_eq!(rooms, source, "{code:?}");
        let mixed: Vec<Given<'_>> = (0..4)
            .map(|index| Given { index, bytes: data[index] })
            .chain((10..14).map(|index| Given { index, bytes: &parity[index - 8] }))
            .collect();
        let mut last = vec![0xaa; 300];
        let mut parity_too = vec![0xaa; 710];
        code.reconstruct(
            710,
            &mixed,
            &mut [
                Wanted { index: 15, bytes: &mut parity_too },
                Wanted { index: 7, bytes: &mut last },
            ],
        )
        .unwrap();
        assert_eq!((&last, &parity_too), (&source[7], &parity[7]), "{code:?}");
    }
}

#[test]
fn some_of_the_parity_is_the_same_as_all_of_it() {
    let source: Vec<Vec<u8>> = (0..5).map(|seed| bytes(seed, 100)).collect();
    let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
    for code in all_paths(5, 12) {
        let all = encoded(&code, &data, 100);
        let (mut a, mut b) = (vec![1; 100], vec![2; 100]);
        let wanted = &mut [Wanted { index: 11, bytes: &mut a }, Wanted { index: 5, bytes: &mut b }];
        code.encode_some(&data, wanted).unwrap();
        assert_eq!((&a, &b), (&all[6], &all[0]));
        // A code of fewer fragments has the same first ones.
        let fewer = Code::on(code.path(), 5, 7).unwrap();
        assert_eq!(encoded(&fewer, &data, 100), all[..2]);
    }
}

#[test]
fn adding_data_in_any_order_is_encoding_it() {
    let source: Vec<Vec<u8>> = [300, 40, 301].iter().map(|n| bytes(*n, *n)).collect();
    let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
    for code in all_paths(3, 9) {
        let mut parity = vec![vec![0; 301]; 6];
        for index in [2, 0, 1] {
            let rows = parity.iter_mut().enumerate();
            let mut wanted: Vec<Wanted<'_>> =
                rows.map(|(row, bytes)| Wanted { index: 3 + row, bytes }).collect();
            code.add(index, data[index], &mut wanted).unwrap();
        }
        assert_eq!(parity, encoded(&code, &data, 301), "{code:?}");
    }
}

#[test]
fn copies_are_copies() {
    let page = bytes(1, 77);
    for code in all_paths(1, 5) {
        assert_eq!(encoded(&code, &[&page], 77), vec![page.clone(); 4]);
        let mut back = vec![0; 77];
        let wanted = &mut [Wanted { index: 0, bytes: &mut back }];
        code.reconstruct(77, &[Given { index: 4, bytes: &page }], wanted).unwrap();
        assert_eq!(back, page);
    }
}

#[test]
fn verifying_finds_any_flipped_byte() {
    let source: Vec<Vec<u8>> = (0..3).map(|seed| bytes(seed, 40_000)).collect();
    for code in all_paths(3, 6) {
        let mut fragments = source.clone();
        let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
        fragments.extend(encoded(&code, &data, 40_000));
        let verify = |fragments: &[Vec<u8>]| {
            let all: Vec<&[u8]> = fragments.iter().map(|row| &row[..]).collect();
            code.verify(&all[..3], &all[3..]).unwrap()
        };
        assert!(verify(&fragments));
        for index in 0..6 {
            for at in [0, 16_383, 16_384, 39_999] {
                fragments[index][at] ^= 0x10;
                assert!(!verify(&fragments), "{code:?} fragment {index} at {at}");
                fragments[index][at] ^= 0x10;
            }
        }
        assert!(verify(&fragments));
    }
}
