//! Which compressor this build seals with: what is resumed must be sealed by the same one.

use crypto::Suite;

use crate::chunk::{SAMPLE_BYTES, SAMPLED_BYTES_MIN, STRIDE_BYTES, ZSTD_LEVEL};

/// `libri-1`'s: flate2 does not tell its backend's version, so it stands here and changes with the
/// dependency. What is forgotten here is still found: a page's id is compared before it is sent.
const GZIP: &str = "zlib-rs by flate2 1.1, level 6";

/// The name and version of the compressor of a suite. Two builds that say the same make the same
/// pages of the same chunks.
pub fn compressor(suite: Suite) -> String {
    match suite {
        Suite::Holdfast1 => format!(
            "zstd {}, level {ZSTD_LEVEL}, from {SAMPLED_BYTES_MIN} bytes on by samples of {SAMPLE_BYTES} in {STRIDE_BYTES}",
            zstd::zstd_safe::version_number()
        ),
        Suite::Libri1 => GZIP.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_name_their_own() {
        let [first, second] = Suite::ALL.map(compressor);
        assert_ne!(first, second);
        assert!(first.chars().any(|letter| letter.is_ascii_digit()));
    }
}
