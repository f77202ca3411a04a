//! The code: which coefficients make a fragment from others, and the calls that use them.
//!
//! Fragments 0 to k-1 are data, the others parity: fragment r is the sum over c of data c times
//! 1 / (r xor c). The coefficients from *any* k fragments come from Lagrange's formula instead of an
//! inverted matrix: seen as a generalised Reed-Solomon code, fragment i is v(i) * f(i) for one
//! polynomial f of degree below k, and k values of f give every other. The ADR "Stripes, and the
//! erasure code under them" has the formula and why the code is this one.
//!
//! Invariants: 1 <= k <= n <= 256 ([`Code::new`]); nothing is written before all of a call's
//! arguments hold.

use crate::ErasureError;
use crate::combine::{self, Path, Start};
use crate::field::{self, ORDER};

/// The most fragments of a stripe (n): the field has no more elements.
pub const FRAGMENTS_MAX: usize = 256;
/// Parity is checked in parts of this many bytes, so that checking needs no second copy of it.
const VERIFY_BYTES: usize = 16 << 10;

/// A fragment that is there.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Which, from 0 to n-1.
    pub index: usize,
    /// Its bytes; those of data may be fewer than the stripe's fragments have, zeros follow.
    pub bytes: &'a [u8],
}

/// A fragment to be made.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Which, from 0 to n-1.
    pub index: usize,
    /// Where its bytes go; of data, the first so many.
    pub bytes: &'a mut [u8],
}

/// A code of k data fragments and n in all. Cheap to make and to clone; usable from any thread.
#[derive(Clone)]
pub struct Code {
    data: usize,
    fragments: usize,
    /// The logarithm of v(i) for each fragment.
    multipliers: Vec<u8>,
    path: Path,
}

impl Code {
    /// The code of `data` of `fragments`, on the fastest path of this processor. `data` = 1 is copies.
    ///
    /// # Errors
    /// [`ErasureError::Shape`] unless 1 <= `data` <= `fragments` <= 256.
    pub fn new(data: usize, fragments: usize) -> Result<Self, ErasureError> {
        Self::on(Path::best(), data, fragments)
    }

    /// The same code on a path of the caller's choice; the bytes are the same.
    ///
    /// # Errors
    /// As [`Code::new`].
    pub fn on(path: Path, data: usize, fragments: usize) -> Result<Self, ErasureError> {
        if data == 0 || data > fragments || fragments > FRAGMENTS_MAX {
            return Err(ErasureError::Shape { data, fragments });
        }
        let multiplier = |index| match data {
            // Copies: with v = 1 everywhere, every coefficient is 1.
            1 => 0,
            _ => (ORDER - log_product(index, 0..data) % ORDER) % ORDER,
        };
        let multipliers = (0..fragments).map(|index| multiplier(index) as u8).collect();
        Ok(Self { data, fragments, multipliers, path })
    }

    /// Data fragments (k).
    pub fn data(&self) -> usize {
        self.data
    }

    /// Fragments in all (n).
    pub fn fragments(&self) -> usize {
        self.fragments
    }

    /// Parity fragments (n - k).
    pub fn parity(&self) -> usize {
        self.fragments - self.data
    }

    /// The path it runs on.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Makes all parity from the k data fragments, in order. All of `parity` is of one length, which
    /// is at least that of the longest data fragment; shorter ones count as followed by zeros.
    /// CPU work: it belongs off the I/O threads.
    ///
    /// # Errors
    /// [`ErasureError::Count`], [`ErasureError::Length`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), ErasureError> {
        count(self.parity(), parity.len())?;
        let parity = parity.iter_mut().zip(self.data..);
        let mut wanted: Vec<_> = parity.map(|(bytes, index)| Wanted { index, bytes }).collect();
        self.encode_some(data, &mut wanted)
    }

    /// As [`Code::encode`], only the parity fragments that are named.
    ///
    /// # Errors
    /// [`ErasureError`] other than `TooFew`.
    pub fn encode_some(
        &self,
        data: &[&[u8]],
        wanted: &mut [Wanted<'_>],
    ) -> Result<(), ErasureError> {
        count(self.data, data.len())?;
        self.check_parity(wanted)?;
        // Where no parity is wanted, data may have any length.
        let Some(first) = wanted.first() else { return Ok(()) };
        let length = first.bytes.len();
        for (index, bytes) in data.iter().enumerate() {
            self.check_length(index, bytes.len(), length)?;
        }
        let matrix = self.parity_coefficients(wanted, 0..self.data);
        combine::combine(self.path, &matrix, data, &mut outputs(wanted), Start::Zero);
        Ok(())
    }

    /// Adds what data fragment `index` contributes to parity that began as zeros. When each data
    /// fragment was added once, in any order, the parity is that of [`Code::encode`]. Slower than
    /// that (parity is read and written once a call), for a writer that cannot keep all data.
    ///
    /// # Errors
    /// [`ErasureError`] other than `TooFew` and `Count`.
    pub fn add(
        &self,
        index: usize,
        data: &[u8],
        parity: &mut [Wanted<'_>],
    ) -> Result<(), ErasureError> {
        if index >= self.data {
            return Err(ErasureError::Index(index));
        }
        self.check_parity(parity)?;
        if let Some(first) = parity.first() {
            self.check_length(index, data.len(), first.bytes.len())?;
        }
        let matrix = self.parity_coefficients(parity, index..index + 1);
        combine::combine(self.path, &matrix, &[data], &mut outputs(parity), Start::Keep);
        Ok(())
    }

    /// Makes the wanted fragments, data or parity, from any k given ones of a stripe whose fragments
    /// have `fragment_bytes` bytes. Given and wanted data may be shorter: what is missing of given
    /// data is zeros, of wanted data the first bytes are made. More than k given are allowed; the
    /// first k count. A wanted fragment that is among those is copied.
    ///
    /// Bytes that are not those of the code make wrong bytes, not an error: the caller compares
    /// hashes. CPU work: it belongs off the I/O threads.
    ///
    /// # Errors
    /// [`ErasureError`] other than `Count`.
    pub fn reconstruct(
        &self,
        fragment_bytes: usize,
        given: &[Given<'_>],
        wanted: &mut [Wanted<'_>],
    ) -> Result<(), ErasureError> {
        self.check_indexes(given.iter().map(|given| given.index))?;
        self.check_indexes(wanted.iter().map(|wanted| wanted.index))?;
        let given_lengths = given.iter().map(|given| (given.index, given.bytes.len()));
        let wanted_lengths = wanted.iter().map(|wanted| (wanted.index, wanted.bytes.len()));
        for (index, bytes) in given_lengths.chain(wanted_lengths) {
            self.check_length(index, bytes, fragment_bytes)?;
        }
        let Some(given) = given.get(..self.data) else {
            return Err(ErasureError::TooFew { wanted: self.data, found: given.len() });
        };
        let inputs: Vec<&[u8]> = given.iter().map(|given| given.bytes).collect();
        let from: Vec<usize> = given.iter().map(|given| given.index).collect();
        let to: Vec<usize> = wanted.iter().map(|wanted| wanted.index).collect();
        let matrix = self.coefficients(&from, &to);
        combine::combine(self.path, &matrix, &inputs, &mut outputs(wanted), Start::Zero);
        Ok(())
    }

    /// Whether the parity is that of the data: all n fragments of a stripe, in order.
    ///
    /// # Errors
    /// [`ErasureError::Count`], [`ErasureError::Length`].
    pub fn verify(&self, data: &[&[u8]], parity: &[&[u8]]) -> Result<bool, ErasureError> {
        count(self.data, data.len())?;
        count(self.parity(), parity.len())?;
        let length = parity.first().map_or(0, |first| first.len());
        for (index, bytes) in data.iter().chain(parity).enumerate() {
            // Without parity there is nothing that data could be longer than.
            if !parity.is_empty() {
                self.check_length(index, bytes.len(), length)?;
            }
        }
        let mut room = vec![0; parity.len() * VERIFY_BYTES.min(length)];
        for start in (0..length).step_by(VERIFY_BYTES) {
            let end = length.min(start + VERIFY_BYTES);
            let part = |bytes: &'_ &[u8]| start.min(bytes.len())..end.min(bytes.len());
            let inputs: Vec<&[u8]> = data.iter().map(|bytes| &bytes[part(bytes)]).collect();
            let mut made: Vec<&mut [u8]> = room.chunks_mut(end - start).collect();
            made.truncate(parity.len());
            self.encode(&inputs, &mut made)?;
            if made.iter().zip(parity).any(|(made, parity)| **made != parity[start..end]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The coefficients of data `columns` in the wanted parity, a row a wanted fragment.
    fn parity_coefficients(
        &self,
        wanted: &[Wanted<'_>],
        columns: std::ops::Range<usize>,
    ) -> Vec<u8> {
        let coefficient = |row: usize, column: usize| match self.data {
            1 => 1,
            _ => field::exp(ORDER - field::log((row ^ column) as u8)),
        };
        let rows = wanted.iter().map(|wanted| wanted.index);
        rows.flat_map(|row| columns.clone().map(move |column| coefficient(row, column))).collect()
    }

    /// The coefficients that make the fragments `to` from the k fragments `from`, a row a fragment.
    fn coefficients(&self, from: &[usize], to: &[usize]) -> Vec<u8> {
        // Of each given fragment: v(j) times the product over the other given ones of (j xor l).
        let below: Vec<u32> = from
            .iter()
            .map(|&j| u32::from(self.multipliers[j]) + log_product(j, from.iter().copied()))
            .collect();
        let mut matrix = Vec::with_capacity(to.len() * from.len());
        for &w in to {
            if from.contains(&w) {
                matrix.extend(from.iter().map(|&j| u8::from(j == w)));
                continue;
            }
            let above = u32::from(self.multipliers[w]) + log_product(w, from.iter().copied());
            matrix.extend(from.iter().zip(&below).map(|(&j, below)| {
                let below = below + field::log((w ^ j) as u8);
                field::exp(above + (ORDER - below % ORDER))
            }));
        }
        matrix
    }

    /// Wanted fragments are parity, each once, of one length.
    fn check_parity(&self, wanted: &[Wanted<'_>]) -> Result<(), ErasureError> {
        self.check_indexes(wanted.iter().map(|wanted| wanted.index))?;
        let length = wanted.first().map_or(0, |first| first.bytes.len());
        for wanted in wanted {
            if wanted.index < self.data {
                return Err(ErasureError::Index(wanted.index));
            }
            self.check_length(wanted.index, wanted.bytes.len(), length)?;
        }
        Ok(())
    }

    fn check_indexes(&self, indexes: impl Iterator<Item = usize>) -> Result<(), ErasureError> {
        let mut seen = [false; FRAGMENTS_MAX];
        for index in indexes {
            if index >= self.fragments {
                return Err(ErasureError::Index(index));
            }
            if std::mem::replace(&mut seen[index], true) {
                return Err(ErasureError::Twice(index));
            }
        }
        Ok(())
    }

    /// Data may be shorter than the stripe's fragments, parity is as long.
    fn check_length(&self, index: usize, found: usize, wanted: usize) -> Result<(), ErasureError> {
        let right = if index < self.data { found <= wanted } else { found == wanted };
        if right { Ok(()) } else { Err(ErasureError::Length { index, wanted, found }) }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({} of {}, {})", self.data, self.fragments, self.path.name())
    }
}

fn count(wanted: usize, found: usize) -> Result<(), ErasureError> {
    if wanted == found { Ok(()) } else { Err(ErasureError::Count { wanted, found }) }
}

fn outputs<'a>(wanted: &'a mut [Wanted<'_>]) -> Vec<&'a mut [u8]> {
    wanted.iter_mut().map(|wanted| &mut *wanted.bytes).collect()
}

/// The logarithm, not reduced, of the product of (`index` xor l) over the other l.
fn log_product(index: usize, others: impl IntoIterator<Item = usize>) -> u32 {
    let others = others.into_iter().filter(|other| *other != index);
    others.map(|other| field::log((index ^ other) as u8)).sum()
}
