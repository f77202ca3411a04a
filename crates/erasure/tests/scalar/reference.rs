//! The code by its definition: products bit by bit, the Cauchy matrix as it is written, inverted by elimination.
#![allow(dead_code, reason = "each test takes what it needs")]

/// Long multiplication, reduced by 0x11D at every step.
pub(crate) fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0x1d };
        b >>= 1;
    }
    product
}

/// The inverse, found by trying: a^254.
pub(crate) fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0);
    (0..253).fold(a, |power, _| multiply(power, a))
}

/// All products, since tests multiply by the million.
pub(crate) struct Products(Vec<[u8; 256]>);

impl Products {
    pub(crate) fn new() -> Self {
        let row = |a: usize| std::array::from_fn(|b| multiply(a as u8, b as u8));
        Self((0..256).map(row).collect())
    }

    pub(crate) fn of(&self, a: u8, b: u8) -> u8 {
        self.0[usize::from(a)][usize::from(b)]
    }
}

/// The generator: k columns, a row for each fragment.
pub(crate) fn generator(k: usize, n: usize) -> Vec<Vec<u8>> {
    let row = |row: usize| -> Vec<u8> {
        let coefficient = |column: usize| match (row < k, k) {
            (true, _) => u8::from(row == column),
            (false, 1) => 1,
            (false, _) => inverse((row ^ column) as u8),
        };
        (0..k).map(coefficient).collect()
    };
    (0..n).map(row).collect()
}

/// Matrix times fragments, each as long as the longest.
pub(crate) fn combine(products: &Products, matrix: &[Vec<u8>], inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    let length = inputs.iter().map(|input| input.len()).max().unwrap_or(0);
    let sum = |row: &Vec<u8>| {
        let mut sum = vec![0; length];
        for (coefficient, input) in row.iter().zip(inputs) {
            for (sum, byte) in sum.iter_mut().zip(*input) {
                *sum ^= products.of(*coefficient, *byte);
            }
        }
        sum
    };
    matrix.iter().map(sum).collect()
}

/// The inverse of a square matrix by elimination, or nothing where it has none.
pub(crate) fn invert(products: &Products, matrix: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    let mut rows: Vec<Vec<u8>> = matrix.to_vec();
    for (i, row) in rows.iter_mut().enumerate() {
        row.extend((0..size).map(|j| u8::from(i == j)));
    }
    for i in 0..size {
        let pivot = (i..size).find(|&row| rows[row][i] != 0)?;
        rows.swap(i, pivot);
        let scale = inverse(rows[i][i]);
        rows[i].iter_mut().for_each(|value| *value = products.of(*value, scale));
        let unit = rows[i].clone();
        for (other, row) in rows.iter_mut().enumerate() {
            let factor = row[i];
            if other != i && factor != 0 {
                let scaled = unit.iter().map(|value| products.of(*value, factor));
                row.iter_mut().zip(scaled).for_each(|(value, scaled)| *value ^= scaled);
            }
        }
    }
    Some(rows.into_iter().map(|row| row[size..].to_vec()).collect())
}

/// Bytes that look random and are the same every time.
pub(crate) fn bytes(seed: usize, length: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}
