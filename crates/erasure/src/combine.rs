//! Sums of products over whole fragments: outputs = matrix * inputs, a strip of columns at a time.
//!
//! ```text
//!            columns ->   |  strip  |  strip  |  strip  |cut|
//! inputs     0 .. c       =========================-----       a shorter input ends: a cut
//! outputs    0 .. r       =============================
//! ```
//!
//! All inputs of a strip fit in the second-level cache, since outputs beyond the first group read
//! them again. Where inputs or outputs end is a cut; between two cuts the same inputs and outputs
//! take part, so the kernels see fragments of one length and zeros are never touched.
//!
//! Paths: see [`Path`]. All of them make the same bytes, which `tests/paths.rs` holds them to.

mod portable;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

/// What all inputs of one strip take of the second-level cache, in bytes.
const STRIP_INPUTS_BYTES: usize = 256 << 10;
/// The longest strip of one input, in bytes.
const STRIP_BYTES_MAX: usize = 32 << 10;
/// The shortest strip of one input, in bytes: below, starting a strip costs more than the cache saves.
const STRIP_BYTES_MIN: usize = 2 << 10;

/// The instructions that fragments are multiplied with. One can be had only where the processor has
/// them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Path(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    #[cfg(target_arch = "x86_64")]
    Gfni256,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Path {
    /// The paths this processor has, the fastest first; the last is the portable one.
    pub fn available() -> Vec<Self> {
        let mut paths = Vec::with_capacity(4);
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("gfni") && has!("avx512f") && has!("avx512bw") {
                paths.push(Self(Instructions::Gfni512));
            }
            if has!("gfni") && has!("avx2") {
                paths.push(Self(Instructions::Gfni256));
            }
            if has!("avx2") {
                paths.push(Self(Instructions::Avx2));
            }
        }
        paths.push(Self(Instructions::Portable));
        paths
    }

    /// The fastest path of this processor.
    pub fn best() -> Self {
        Self::available().first().copied().unwrap_or(Self(Instructions::Portable))
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni512 => "gfni-avx512",
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni256 => "gfni-avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            Instructions::Portable => "portable",
        }
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What the outputs begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Zeros: what was in them is overwritten.
    Zero,
    /// What is in them: sums are added to it.
    Keep,
}

/// One part of the work: all inputs and outputs reach to the end of `columns`.
struct Work<'a, 'b, 'c> {
    /// A row for each output, a column for each input.
    matrix: &'a [u8],
    inputs: &'a [&'a [u8]],
    outputs: &'b mut [&'c mut [u8]],
    columns: Range<usize>,
    start: Start,
}

/// Sums `matrix` (a row for each output, a column for each input) times the inputs into the outputs.
/// An input that is shorter than an output counts as followed by zeros.
///
/// # Panics
/// Where the matrix has another size.
pub(crate) fn combine(
    path: Path,
    matrix: &[u8],
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    start: Start,
) {
    assert_eq!(matrix.len(), inputs.len() * outputs.len(), "a coefficient a pair");
    let mut cuts: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
    cuts.extend(outputs.iter().map(|output| output.len()));
    cuts.sort_unstable();
    cuts.dedup();
    let mut from = 0;
    for cut in cuts {
        between_cuts(path, matrix, inputs, outputs, from..cut, start);
        from = cut;
    }
}

/// The same between two cuts, where an input or output either spans `columns` or takes no part.
fn between_cuts(
    path: Path,
    matrix: &[u8],
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    columns: Range<usize>,
    start: Start,
) {
    let spans = |length: usize| length >= columns.end;
    let rows = matrix.chunks(inputs.len().max(1));
    let mut live_matrix = Vec::with_capacity(matrix.len());
    let mut live_outputs: Vec<&mut [u8]> = Vec::with_capacity(outputs.len());
    for (output, row) in outputs.iter_mut().zip(rows) {
        if spans(output.len()) {
            let live = row.iter().zip(inputs).filter(|(_, input)| spans(input.len()));
            live_matrix.extend(live.map(|(coefficient, _)| coefficient));
            live_outputs.push(&mut **output);
        }
    }
    let live_inputs: Vec<&[u8]> =
        inputs.iter().copied().filter(|input| spans(input.len())).collect();
    if live_inputs.is_empty() {
        if start == Start::Zero {
            live_outputs.iter_mut().for_each(|output| output[columns.clone()].fill(0));
        }
        return;
    }
    run(
        path,
        Work {
            matrix: &live_matrix,
            inputs: &live_inputs,
            outputs: &mut live_outputs,
            columns,
            start,
        },
    );
}

fn run(path: Path, work: Work<'_, '_, '_>) {
    if work.columns.is_empty() || work.outputs.is_empty() {
        return;
    }
    match path.0 {
        #[cfg(target_arch = "x86_64")]
        Instructions::Gfni512 => x86::gfni512(work),
        #[cfg(target_arch = "x86_64")]
        Instructions::Gfni256 => x86::gfni256(work),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => x86::avx2(work),
        Instructions::Portable => portable::run(work),
    }
}

/// The strips of `columns` where so many inputs are read.
#[cfg(target_arch = "x86_64")]
fn strips(columns: Range<usize>, inputs: usize) -> impl Iterator<Item = Range<usize>> {
    let wanted = (STRIP_INPUTS_BYTES / inputs).clamp(STRIP_BYTES_MIN, STRIP_BYTES_MAX);
    // Whole cache lines, so that strips do not share any.
    let strip = wanted - wanted % 64;
    let end = columns.end;
    columns.step_by(strip).map(move |start| start..end.min(start + strip))
}
