//! A look at the SETs that are next, in a pipeline or of several connections, so that their versions are made side by side.
//!
//! It decides nothing: each command is executed in its turn as ever, and what was made ahead is used where it is just what
//! is asked for then (`objects::Batch::prepare`). So a key that is set twice, or changed by what stands between,
//! costs only what was made in vain. It pays because a version of a kilobyte is hashed in a fifth of the time beside
//! fifteen others.

use version::ValueKind;

use crate::door::Door;
use crate::keyspace::Put;
use crate::options::Compress;

/// What a command of a name of three letters and two arguments begins with.
const HEAD: &[u8] = b"*3\r\n$3\r\n";
/// SETs that are looked at: as many as are hashed side by side.
const SETS_MAX: usize = 16;
/// Below so many it is not worth it.
const SETS_MIN: usize = 3;
/// The longest value: longer ones fill vectors by themselves.
const VALUE_BYTES_MAX: usize = 1 << 11;

/// A `SET key value` as libraries send it, and how long it is. Whatever else it may be, it is no error here.
fn plain_set(data: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let rest = data.strip_prefix(HEAD)?;
    let (name, rest) = rest.split_at_checked(3)?;
    if !name.eq_ignore_ascii_case(b"set") {
        return None;
    }
    let (key, rest) = bulk(rest.strip_prefix(b"\r\n")?)?;
    let (value, rest) = bulk(rest)?;
    Some((key, value, data.len() - rest.len()))
}

/// An argument with its length before it, and what is behind it.
fn bulk(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = data.strip_prefix(b"$")?;
    let mut len = 0;
    while let Some((digit @ b'0'..=b'9', behind)) = rest.split_first() {
        len = len * 10 + usize::from(digit - b'0');
        rest = behind;
        if len > VALUE_BYTES_MAX {
            return None;
        }
    }
    let (bytes, rest) = rest.strip_prefix(b"\r\n")?.split_at_checked(len)?;
    Some((bytes, rest.strip_prefix(b"\r\n")?))
}

/// A SET that was seen.
#[derive(Clone, Copy, Default)]
struct Set<'a> {
    key: &'a [u8],
    value: &'a [u8],
    hash: u64,
}

/// SETs that are next, of one connection or of several.
#[derive(Default)]
pub(crate) struct Sets<'a> {
    seen: [Set<'a>; SETS_MAX],
    count: usize,
}

impl Sets<'_> {
    /// Whether no more are looked at.
    fn is_full(&self) -> bool {
        self.count >= SETS_MAX
    }
}

impl Door {
    /// Adds the SETs that `data` begins with, as far as there is room for them; how many bytes were looked at.
    pub(crate) fn look<'a>(&self, data: &'a [u8], sets: &mut Sets<'a>) -> usize {
        if self.writes_ended || self.options.compress == Compress::All {
            return data.len();
        }
        let mut end = 0;
        while !sets.is_full()
            && let Some((key, value, len)) = plain_set(&data[end..])
        {
            sets.seen[sets.count] = Set { key, value, hash: self.slots.hash(key) };
            sets.count += 1;
            end += len;
        }
        end
    }

    /// Has their versions made ahead, where that pays.
    ///
    /// Nearly all that is read here of keys is in no cache of the processor. So each step is taken for all of them before the next is:
    /// they are waited for together.
    pub(crate) fn make_ahead(&mut self, sets: &Sets<'_>) {
        if sets.count < SETS_MIN {
            return;
        }
        let seen = &sets.seen[..sets.count];
        let mut likely = [None; SETS_MAX];
        for (likely, set) in likely.iter_mut().zip(seen) {
            *likely = self.slots.likely(set.hash);
        }
        // Slots, each once, and values.
        let (mut found, mut count) = ([(0, &[][..]); SETS_MAX], 0);
        for (set, slot) in seen.iter().zip(likely) {
            let Some(slot) = slot.filter(|slot| *self.slots.slot(*slot).key == *set.key) else {
                continue;
            };
            // A value that begins with 0 is written otherwise.
            if set.value.first() != Some(&0)
                && found[..count].iter().all(|(other, _)| *other != slot)
            {
                found[count] = (slot, set.value);
                count += 1;
            }
        }
        if count < SETS_MIN {
            return;
        }
        let mut puts = found[..count].iter().map(|(slot, value)| {
            let slot = self.slots.slot(*slot);
            let (object, bases) = (&slot.object, slot.state.tip.as_slice());
            Put { object, name: None, bases, kind: ValueKind::Bytes, value, compress: false }
        });
        self.keyspace.prepare(&mut puts);
    }

    /// As [`Door::look`] and [`Door::make_ahead`], of one connection.
    pub(crate) fn look_ahead(&mut self, data: &[u8]) -> usize {
        if !data.starts_with(HEAD) {
            return 0;
        }
        let mut sets = Sets::default();
        let end = self.look(data, &mut sets);
        self.make_ahead(&sets);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_its_bytes_and_nothing_else_is() {
        let set = b"*3\r\n$3\r\nSeT\r\n$3\r\nkey\r\n$0\r\n\r\n";
        let two = [&set[..], b"*3\r\n"].concat();
        assert_eq!(plain_set(&two), Some((&b"key"[..], &b""[..], set.len())));
        for cut in 0..set.len() {
            assert_eq!(plain_set(&set[..cut]), None, "{cut}");
        }
        for at in 0..set.len() {
            let mut other = set.to_vec();
            other[at] ^= 0x50;
            let found = plain_set(&other);
            assert!(found.is_none_or(|(key, ..)| key != b"key"), "{at}: {found:?}");
        }
        let long = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2049\r\n{}\r\n", "v".repeat(2049));
        assert_eq!(plain_set(long.as_bytes()), None);
        let claims = b"*3\r\n$3\r\nSET\r\n$99999999999999999999999\r\nk\r\n$1\r\nv\r\n";
        assert_eq!(plain_set(claims), None);
    }
}
