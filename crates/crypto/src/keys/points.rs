//! Points that were looked for on the curve already.
//!
//! A key is written as 33 bytes, and the point that they stand for takes a square root: about as long as a third of a signature's
//! check. Whoever has much to do with a network meets the same keys again and again, so the process remembers those that it met
//! last: two at each place, of which the one that was met last stays. What is remembered changes no answer, only how long it takes.

use std::sync::{Mutex, PoisonError};

/// How many places there are, and behind how many locks. With two keys at each they take at most 3.1 MiB, 98 bytes a key; a peer that
/// met 70 keys has made 70 rows, 0.2 MiB.
const PLACES: usize = 16_384;
const ROWS: usize = 1024;
const PLACES_OF_ROW: usize = PLACES / ROWS;

type Known = ([u8; 33], secp256k1::PublicKey);

/// The keys at one place, the one that was met last first.
#[derive(Clone, Copy)]
struct Place([Option<Known>; 2]);

/// The places behind one lock; none before the first key is met there.
type Row = Mutex<Vec<Place>>;

/// The keys that were met.
struct Points([Row; ROWS]);

static POINTS: Points = Points::new();

impl Place {
    /// The point of a key that was met.
    fn met(&mut self, key: &[u8; 33]) -> Option<secp256k1::PublicKey> {
        let [first, second] = &mut self.0;
        if second.is_some_and(|(known, _)| known == *key) {
            std::mem::swap(first, second);
        }
        first.filter(|(known, _)| known == key).map(|(_, point)| point)
    }
}

impl Points {
    const fn new() -> Self {
        Self([const { Mutex::new(Vec::new()) }; ROWS])
    }

    /// Where a key is remembered: any two bytes of a point are as good as chance.
    fn place(&self, key: &[u8; 33]) -> (&Row, usize) {
        let number = usize::from(u16::from_le_bytes([key[1], key[17]])) % PLACES;
        (&self.0[number % ROWS], number / ROWS)
    }

    fn point(&self, key: &[u8; 33]) -> Option<secp256k1::PublicKey> {
        let (row, at) = self.place(key);
        let places = || row.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(point) = places().get_mut(at).and_then(|place| place.met(key)) {
            return Some(point);
        }
        let point = secp256k1::PublicKey::from_byte_array_compressed(*key).ok()?;
        let mut places = places();
        if places.is_empty() {
            places.resize(PLACES_OF_ROW, Place([None; 2]));
        }
        if let Some(Place([first, second])) = places.get_mut(at) {
            (*second, *first) = (*first, Some((*key, point)));
        }
        drop(places);
        Some(point)
    }
}

/// The point of a compressed key; `None` where there is none.
pub(super) fn point(key: &[u8; 33]) -> Option<secp256k1::PublicKey> {
    POINTS.point(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u16) -> secp256k1::PublicKey {
        let mut bytes = [1; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        let secret = secp256k1::SecretKey::from_byte_array(bytes).expect("a small scalar");
        secret.public_key(secp256k1::SECP256K1)
    }

    #[test]
    fn the_two_keys_that_were_met_last_stay() {
        let keys = [1, 2, 3].map(|number| of(number).serialize());
        // A point that is not the key's tells that it was remembered.
        let mut place = Place([Some((keys[0], of(9))), Some((keys[1], of(8)))]);
        assert_eq!(place.met(&keys[2]), None);
        assert_eq!((place.met(&keys[1]), place.met(&keys[0])), (Some(of(8)), Some(of(9))));
        assert_eq!(place.0[0], Some((keys[0], of(9))), "the one that was met last is first");
    }

    #[test]
    fn a_key_is_looked_for_on_the_curve_once() {
        let (points, key) = (Points::new(), of(4).serialize());
        let (row, at) = points.place(&key);
        let first = || row.lock().expect("nobody fell").get(at).and_then(|place| place.0[0]);
        assert!(first().is_none());
        assert_eq!(points.point(&key), Some(of(4)));
        assert_eq!(first(), Some((key, of(4))));
        // What stands at its place is what is told: the curve is not asked a second time.
        row.lock().expect("nobody fell")[at].0[0] = Some((key, of(5)));
        assert_eq!(points.point(&key), Some(of(5)));
    }

    #[test]
    fn a_full_memory_takes_98_bytes_a_key() {
        assert_eq!(size_of::<Place>(), 2 * 98);
    }

    #[test]
    fn what_is_remembered_is_what_would_be_found() {
        // Several times as many as there is room for: they push each other out, and come back.
        for _ in 0..2 {
            for number in 0..u16::MAX {
                let expected = of(number);
                assert_eq!(point(&expected.serialize()), Some(expected));
            }
        }
        let mut none = of(7).serialize();
        assert!(point(&none).is_some());
        none[0] = 5;
        assert_eq!(point(&none), None, "a key beside the curve is no key, whatever stood there");
    }
}
