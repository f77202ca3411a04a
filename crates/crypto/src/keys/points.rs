//! Points that were looked for on the curve already.
//!
//! A key is written as 33 bytes, and the point that they stand for takes a square root: about as long as a third of a signature's
//! check. Whoever has much to do with a network meets the same keys again and again, so each thread remembers the last it met. What
//! is remembered changes no answer, only how long it takes.

use std::cell::RefCell;
use std::collections::HashMap;

/// How many keys a thread remembers. They take 1.6 MiB, about 200 bytes each, half of it room that the map has to spare.
const SLOTS: u16 = 8_192;

/// Which slot a key has: any two bytes of a point are as good as chance.
fn slot(key: &[u8; 33]) -> u16 {
    u16::from_le_bytes([key[1], key[17]]) % SLOTS
}

type Slots = HashMap<u16, ([u8; 33], secp256k1::PublicKey)>;

thread_local! {
    static POINTS: RefCell<Slots> = RefCell::new(HashMap::new());
}

/// The point of a compressed key; `None` where there is none.
pub(super) fn point(key: &[u8; 33]) -> Option<secp256k1::PublicKey> {
    let slot = slot(key);
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
    fn a_key_is_looked_for_once_and_found_in_its_slot_then() {
        let of = |byte| {
            let secret = secp256k1::SecretKey::from_byte_array([byte; 32]).expect("small");
            secret.public_key(secp256k1::SECP256K1)
        };
        let (met, other) = (of(3), of(4));
        let key = met.serialize();
        let count = || POINTS.with_borrow(HashMap::len);
        let before = count();
        assert_eq!((point(&key), count()), (Some(met), before + 1));
        assert_eq!((point(&key), count()), (Some(met), before + 1));
        // What stands in its slot is what is told: the curve is not asked a second time.
        POINTS.with_borrow_mut(|points| points.insert(slot(&key), (key, other)));
        assert_eq!((point(&key), count()), (Some(other), before + 1));
    }

    #[test]
    fn a_full_memory_takes_200_bytes_a_key() {
        let mut points = Slots::new();
        let point = secp256k1::SecretKey::from_byte_array([3; 32]).expect("small");
        let point = point.public_key(secp256k1::SECP256K1);
        points.extend((0..SLOTS).map(|slot| (slot, ([2; 33], point))));
        // A map has a power of two of buckets, of which it fills seven eighths, and a byte beside each.
        let buckets = (points.capacity() * 8 / 7).next_power_of_two();
        let bytes = buckets * (1 + size_of::<(u16, ([u8; 33], secp256k1::PublicKey))>());
        assert!((180..=210).contains(&(bytes / usize::from(SLOTS))), "{bytes} bytes");
    }

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
