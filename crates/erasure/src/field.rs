//! GF(2^8) with the polynomial 0x11D, one byte at a time, by logarithms.
//!
//! This is for the few hundred coefficients of a code. The bytes of fragments are multiplied by the
//! tables of [`crate::combine`], which are made from this at compile time.
//!
//! Logarithms are to the base 2, which generates all 255 elements that are not 0 in this field.

/// x^8 + x^4 + x^3 + x^2 + 1.
const POLYNOMIAL: u16 = 0x11d;
/// The order of the multiplicative group.
pub(crate) const ORDER: u32 = 255;

/// 2^i for i below 255.
const EXP: [u8; ORDER as usize] = exp_table();
/// The logarithm of each element; of 0, which has none, it is 0 and not to be asked for.
const LOG: [u8; 256] = log_table();

const fn exp_table() -> [u8; ORDER as usize] {
    let mut table = [0; ORDER as usize];
    let mut power: u16 = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = power as u8;
        power <<= 1;
        if power & 0x100 != 0 {
            power ^= POLYNOMIAL;
        }
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < EXP.len() {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// The logarithm of `a`, from 0 to 254.
///
/// # Panics
/// Where `a` is 0.
pub(crate) const fn log(a: u8) -> u32 {
    assert!(a != 0, "zero has no logarithm");
    LOG[a as usize] as u32
}

/// 2 to the power of `log`, which may be any number.
pub(crate) const fn exp(log: u32) -> u8 {
    EXP[(log % ORDER) as usize]
}

/// The product.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { exp(log(a) + log(b)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long multiplication and reduction by the polynomial: the definition.
    fn by_definition(a: u8, b: u8) -> u8 {
        let mut product = 0_u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn all_products_are_those_of_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), by_definition(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn two_generates_every_element_but_zero() {
        let mut seen = [false; 256];
        for i in 0..ORDER {
            seen[exp(i) as usize] = true;
            assert_eq!(log(exp(i)), i);
        }
        assert!(!seen[0] && seen[1..].iter().all(|seen| *seen));
    }
}
