//! Wrong arguments are refused with nothing written, and the other code of this kind agrees about what comes back.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "scalar/reference.rs"]
mod reference;

use crypto::{Class, Classified};
use erasure::{Code, ErasureError, FRAGMENTS_MAX, Given, Wanted};
use reference::bytes;

#[test]
fn only_shapes_within_bounds_are_codes() {
    for (data, fragments) in
        [(0, 0), (0, 1), (2, 1), (1, 257), (257, 257), (usize::MAX, usize::MAX)]
    {
        let refused = Code::new(data, fragments).unwrap_err();
        assert_eq!(refused, ErasureError::Shape { data, fragments });
        assert_eq!(refused.class(), Class::Invalid);
    }
    for (data, fragments) in [(1, 1), (1, FRAGMENTS_MAX), (256, 256), (255, 256)] {
        let code = Code::new(data, fragments).unwrap();
        let shape = (code.data(), code.fragments(), code.parity());
        assert_eq!(shape, (data, fragments, fragments - data));
    }
}

#[test]
fn wrong_fragments_are_refused_before_a_byte_is_written() {
    let code = Code::new(2, 4).unwrap();
    let [a, b] = [[1; 10], [2; 10]];
    let encode = |data: &[&[u8]], lengths: &[usize]| {
        let mut rooms: Vec<Vec<u8>> = lengths.iter().map(|length| vec![7; *length]).collect();
        let mut parity: Vec<&mut [u8]> = rooms.iter_mut().map(|room| &mut room[..]).collect();
        let refused = code.encode(data, &mut parity).unwrap_err();
        assert!(rooms.iter().flatten().all(|byte| *byte == 7));
        refused
    };
    let count = |wanted, found| ErasureError::Count { wanted, found };
    assert_eq!(encode(&[&a], &[10, 10]), count(2, 1));
    assert_eq!(encode(&[&a, &b, &a], &[10, 10]), count(2, 3));
    assert_eq!(encode(&[&a, &b], &[10]), count(2, 1));
    assert_eq!(encode(&[&a, &b], &[10, 10, 10]), count(2, 3));
    let length = |index, wanted, found| ErasureError::Length { index, wanted, found };
    assert_eq!(encode(&[&a, &b], &[10, 11]), length(3, 10, 11));
    assert_eq!(encode(&[&a[..9], &b], &[9, 9]), length(1, 9, 10));
    let mut room = [7; 10];
    for (index, error) in [(1, ErasureError::Index(1)), (4, ErasureError::Index(4))] {
        let wanted = &mut [Wanted { index, bytes: &mut room }];
        assert_eq!(code.encode_some(&[&a, &b], wanted), Err(error.clone()));
        assert_eq!(code.add(0, &a, wanted), Err(error));
    }
    let wanted = &mut [Wanted { index: 2, bytes: &mut room }];
    assert_eq!(code.add(2, &a, wanted), Err(ErasureError::Index(2)));
    assert_eq!(code.add(0, &[0; 11], wanted), Err(length(0, 10, 11)));
    assert_eq!(room, [7; 10]);
    assert_eq!(code.verify(&[&a], &[&b, &b]), Err(count(2, 1)));
    assert_eq!(code.verify(&[&a, &a], &[&b]), Err(count(2, 1)));
    assert_eq!(code.verify(&[&a, &a], &[&b, &b[1..]]), Err(length(3, 10, 9)));
}

#[test]
fn wrong_reconstructions_are_refused_before_a_byte_is_written() {
    let code = Code::new(2, 4).unwrap();
    let (full, short) = ([1; 10], [1; 9]);
    let attempt = |given: &[(usize, &[u8])], wanted: &[(usize, usize)]| {
        let given: Vec<Given<'_>> =
            given.iter().map(|&(index, bytes)| Given { index, bytes }).collect();
        let mut rooms: Vec<Vec<u8>> = wanted.iter().map(|(_, length)| vec![7; *length]).collect();
        let mut wanted: Vec<Wanted<'_>> = rooms
            .iter_mut()
            .zip(wanted)
            .map(|(bytes, &(index, _))| Wanted { index, bytes })
            .collect();
        let refused = code.reconstruct(10, &given, &mut wanted).unwrap_err();
        assert!(rooms.iter().flatten().all(|byte| *byte == 7));
        refused
    };
    let few = attempt(&[(3, &full)], &[(0, 10)]);
    assert_eq!(few, ErasureError::TooFew { wanted: 2, found: 1 });
    assert_eq!(few.class(), Class::Unavailable);
    assert_eq!(attempt(&[(3, &full), (3, &full)], &[(0, 10)]), ErasureError::Twice(3));
    assert_eq!(attempt(&[(3, &full), (4, &full)], &[(0, 10)]), ErasureError::Index(4));
    assert_eq!(attempt(&[(3, &full), (2, &full)], &[(0, 1), (0, 1)]), ErasureError::Twice(0));
    assert_eq!(
        attempt(&[(3, &full), (2, &full)], &[(usize::MAX, 1)]),
        ErasureError::Index(usize::MAX)
    );
    let length = |index, found| ErasureError::Length { index, wanted: 10, found };
    assert_eq!(attempt(&[(3, &short), (2, &full)], &[(0, 10)]), length(3, 9));
    assert_eq!(attempt(&[(3, &full), (2, &full)], &[(0, 11)]), length(0, 11));
    assert_eq!(attempt(&[(0, &full), (1, &full)], &[(3, 9)]), length(3, 9));
}

#[test]
fn nothing_wanted_and_nothing_in_it_are_no_errors() {
    let code = Code::new(2, 4).unwrap();
    code.encode(&[&[], &[]], &mut [&mut [], &mut []]).unwrap();
    code.encode_some(&[&[], &[]], &mut []).unwrap();
    code.reconstruct(0, &[Given { index: 3, bytes: &[] }, Given { index: 2, bytes: &[] }], &mut [])
        .unwrap();
    assert!(code.verify(&[&[], &[]], &[&[], &[]]).unwrap());
    let whole = Code::new(3, 3).unwrap();
    whole.encode(&[b"a", b"bc", b""], &mut []).unwrap();
    assert!(whole.verify(&[b"a", b"bc", b""], &[]).unwrap());
}

/// Another implementation of another code (its parity differs, as it must): both bring back the same data from
/// the same losses.
#[test]
fn an_independent_code_brings_back_the_same_data() {
    for (k, n, length) in [(4, 8, 640), (10, 16, 1_000), (16, 48, 128), (29, 80, 64)] {
        let source: Vec<Vec<u8>> = (0..k).map(|seed| bytes(seed, length)).collect();
        let lost: Vec<usize> = (0..k).filter(|index| index % 2 == 0).take(n - k).collect();

        let code = Code::new(k, n).unwrap();
        let data: Vec<&[u8]> = source.iter().map(|row| &row[..]).collect();
        let mut parity = vec![vec![0; length]; n - k];
        let mut rooms: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[..]).collect();
        code.encode(&data, &mut rooms).unwrap();
        let kept = (0..k).filter(|index| !lost.contains(index));
        let given: Vec<Given<'_>> = kept
            .clone()
            .map(|index| Given { index, bytes: &source[index] })
            .chain((k..n).map(|index| Given { index, bytes: &parity[index - k] }))
            .take(k)
            .collect();
        let mut ours = vec![vec![0; length]; lost.len()];
        let mut wanted: Vec<Wanted<'_>> =
            ours.iter_mut().zip(&lost).map(|(bytes, &index)| Wanted { index, bytes }).collect();
        code.reconstruct(length, &given, &mut wanted).unwrap();

        let theirs_parity = reed_solomon_simd::encode(k, n - k, &source).unwrap();
        let theirs = reed_solomon_simd::decode(
            k,
            n - k,
            kept.map(|index| (index, &source[index])),
            theirs_parity.iter().enumerate(),
        )
        .unwrap();
        for (ours, index) in ours.iter().zip(lost) {
            assert_eq!(ours, &source[index]);
            assert_eq!(ours, &theirs[&index]);
        }
    }
}
