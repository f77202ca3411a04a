//! Which delta stands for a value, and an application's own.
//!
//! [`Codecs::compress`] tries splice first, since values edited in place cost a comparison; where that leaves more than half of
//! the value, zstd with the ancestor's value as dictionary; where that leaves more than seven eighths, none, and the
//! version stays plain. Splice gives up as soon as it is over its room.
//!
//! An application registers a pair of functions under a number of its own, from [`OWN_CODECS`] on: one that decrypts
//! two sealed values, finds their delta and seals that, for example, which no peer could. Whoever expands such a form
//! needs the same pair under the same number, so its forms are for the application's own disk and peers.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use crypto::RecordId;

use crate::form::{FORM_HEAD_BYTES_MAX, head_into};
use crate::version::View;
use crate::{VersionError, dictionary, splice};

/// The number of [`splice`].
pub const SPLICE: u8 = 1;
/// The number of zstd with the ancestor's value as raw dictionary.
pub const ZSTD: u8 = 2;
/// The numbers that applications may take.
pub const OWN_CODECS: RangeInclusive<u8> = 128..=255;

/// A pair of functions of an application's own. Both are called from many threads at once.
pub trait Codec: Send + Sync {
    /// Appends a delta that makes `value` of `base` to `out`, at most `room` bytes of it. `false` where it does not fit; what
    /// was appended then does not matter.
    fn compress(&self, base: &[u8], value: &[u8], room: usize, out: &mut Vec<u8>) -> bool;

    /// Appends the value of exactly `length` bytes that `delta` makes of `base` to `out`, which has the room. `false` where it
    /// makes none: the delta may be anybody's bytes. Must not allocate by what the delta says.
    fn expand(&self, base: &[u8], delta: &[u8], length: usize, out: &mut Vec<u8>) -> bool;
}

/// The codecs that a program knows: its own two, and those that applications registered.
#[derive(Clone, Default)]
pub struct Codecs {
    own: BTreeMap<u8, Arc<dyn Codec>>,
}

impl Codecs {
    /// Splice and zstd.
    pub fn new() -> Self {
        Self::default()
    }

    /// These, and an application's own.
    ///
    /// # Errors
    /// [`VersionError::Codec`] for a number that is not of [`OWN_CODECS`], or is taken.
    pub fn with(mut self, number: u8, codec: Arc<dyn Codec>) -> Result<Self, VersionError> {
        if !OWN_CODECS.contains(&number) || self.own.contains_key(&number) {
            return Err(VersionError::Codec(number));
        }
        self.own.insert(number, codec);
        Ok(self)
    }

    /// Appends the form of a version against an ancestor with this value to `out`. `false`, and `out` as it was, where the
    /// version is to stay plain.
    pub fn compress_into(
        &self,
        version: &View<'_>,
        ancestor: &RecordId,
        ancestor_value: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let (value, start) = (version.value, out.len());
        if value.is_empty() {
            return false;
        }
        head_into(version, value.len(), SPLICE, ancestor, out);
        if splice::compress(ancestor_value, value, value.len() / 2, out) {
            return true;
        }
        out[start] = ZSTD;
        let done = dictionary::compress(ancestor_value, value, value.len() / 8 * 7, out);
        if !done {
            out.truncate(start);
        }
        done
    }

    /// The form of a version against an ancestor with this value, encoded; `None` where the version is to stay plain.
    pub fn compress(
        &self,
        version: &View<'_>,
        ancestor: &RecordId,
        ancestor_value: &[u8],
    ) -> Option<Bytes> {
        let mut out = Vec::with_capacity(FORM_HEAD_BYTES_MAX + version.value.len());
        self.compress_into(version, ancestor, ancestor_value, &mut out).then(|| out.into())
    }

    /// As [`Codecs::compress`], by the codec with this number alone, wherever it makes less than the value.
    ///
    /// # Errors
    /// [`VersionError::Codec`] for a number that is not known.
    pub fn compress_by(
        &self,
        number: u8,
        version: &View<'_>,
        ancestor: &RecordId,
        ancestor_value: &[u8],
    ) -> Result<Option<Bytes>, VersionError> {
        let value = version.value;
        let mut out = Vec::with_capacity(FORM_HEAD_BYTES_MAX + value.len());
        head_into(version, value.len(), number, ancestor, &mut out);
        let (start, room) = (out.len(), value.len().saturating_sub(1));
        let fits = match number {
            SPLICE => splice::compress(ancestor_value, value, room, &mut out),
            ZSTD => dictionary::compress(ancestor_value, value, room, &mut out),
            _ => self.own(number)?.compress(ancestor_value, value, room, &mut out),
        };
        // What an application's function did to it is not believed.
        let fits = fits && (start..=start + room).contains(&out.len());
        Ok(fits.then(|| out.into()))
    }

    /// Appends the value that a delta makes to `out`.
    pub(crate) fn expand(
        &self,
        number: u8,
        base: &[u8],
        delta: &[u8],
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), VersionError> {
        let start = out.len();
        let made = match number {
            SPLICE => splice::expand(base, delta, length, out),
            ZSTD => dictionary::expand(base, delta, length, out),
            _ => self.own(number)?.expand(base, delta, length, out),
        };
        if made && out.len() == start + length {
            return Ok(());
        }
        Err(VersionError::Delta { codec: number, length })
    }

    fn own(&self, number: u8) -> Result<&dyn Codec, VersionError> {
        self.own.get(&number).map(|codec| &**codec).ok_or(VersionError::Codec(number))
    }
}

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries([SPLICE, ZSTD].iter().chain(self.own.keys())).finish()
    }
}
