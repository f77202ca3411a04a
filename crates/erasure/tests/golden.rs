//! The bytes of parity never change. The golden files were made by klauspost/reedsolomon 1.12.4 (Go) with its option
//! `WithCauchyMatrix`, not by this program.
#![allow(clippy::unwrap_used, reason = "tests")]

use erasure::{Code, Path};
use testkit::golden;

/// k, n, bytes of a fragment.
const STRIPES: [(usize, usize, usize); 5] =
    [(4, 8, 32), (8, 16, 16), (16, 48, 8), (10, 16, 16), (29, 80, 8)];

#[test]
fn parity_is_what_another_implementation_made() {
    for (k, n, length) in STRIPES {
        // Byte i of data fragment c is 17 i + 29 c + 1 mod 256.
        let byte = |c: usize, i: usize| (17 * i + 29 * c + 1) as u8;
        let data: Vec<Vec<u8>> =
            (0..k).map(|c| (0..length).map(|i| byte(c, i)).collect()).collect();
        let data: Vec<&[u8]> = data.iter().map(|row| &row[..]).collect();
        for path in Path::available() {
            let mut parity = vec![vec![0; length]; n - k];
            let mut rooms: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[..]).collect();
            Code::on(path, k, n).unwrap().encode(&data, &mut rooms).unwrap();
            golden::check(testkit::manifest!(), &format!("parity-{k}-of-{n}"), &parity.concat());
        }
    }
}

#[test]
fn the_page_of_the_format_shows_these_bytes() {
    golden::check_page(testkit::manifest!(), "erasure.md");
}
