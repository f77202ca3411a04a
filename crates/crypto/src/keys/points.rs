//! Points that were looked for on the curve already.
//!
//! A key is written as 33 bytes, and the point that they stand for takes a square root: about as long as a third of a signature's
//! check. Whoever has much to do with a network meets the same keys again and again, so each thread remembers the last it met. What
//! is remembered changes no answer, only how long it takes.

use std::cell::RefCell;
use std::collections::HashMap;

/// How many keys a thread remembers: about 120 bytes each.
const SLOTS: u16 = 8_192;

type Slots = HashMap<u16, ([u8; 33], secp256k1::PublicKey)>;

thread_local! {
    static POINTS: RefCell<Slots> = RefCell::new(HashMap::new());
}

/// The point of a compressed key; `None` where there is none.
pub(super) fn point(key: &[u8; 33]) -> Option<secp256k1::PublicKey> {
    // Any two bytes of a point are as good as chance.
    let slot = u16::from_le_bytes([key[1], key[17]]) % SLOTS;
    POINTS.with_borrow_mut(|points| {
        if let Some((known, point)) = points.get(&slot)
            && known == key
        {
            return Some(*point);
        }
        let point = secp256k1::PublicKey::from_byte_array_compressed(*key).ok()?;
        points.insert(slot, (*key, point));
        Some(point)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_would_be_found() {
        let secret = |number: u16| {
            let mut bytes = [1; 32];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            secp256k1::SecretKey::from_byte_array(bytes).expect("a small scalar")
        };
        // Several times as many as there is room for: they push each other out, and come back.
        for _ in 0..2 {
            for number in (0..u16::MAX).step_by(4) {
                let expected = secret(number).public_key(secp256k1::SECP256K1);
                assert_eq!(point(&expected.serialize()), Some(expected));
            }
        }
        let mut none = secret(7).public_key(secp256k1::SECP256K1).serialize();
        assert!(point(&none).is_some());
        none[0] = 5;
        assert_eq!(point(&none), None, "a key beside the curve is no key, whatever stood there");
        assert!(POINTS.with_borrow(HashMap::len) <= usize::from(SLOTS));
    }
}
