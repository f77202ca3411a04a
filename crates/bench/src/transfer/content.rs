//! The content of a transfer: bytes that do not compress, written once and compared afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use crate::error::BenchError;
use crate::seeded::Seeded;
use crate::stop::Stop;

const BLOCK: usize = 1 << 20;

/// Writes a file of so many random bytes and syncs it, so that its writing is over.
pub(crate) fn write(path: &Path, bytes: u64, stop: &Stop) -> Result<(), BenchError> {
    let failed = || BenchError::io("write", path);
    let mut file = File::create(path).map_err(failed())?;
    let (mut seeded, mut block) = (Seeded::new(bytes), vec![0; BLOCK]);
    let mut left = bytes;
    while left > 0 {
        stop.check()?;
        seeded.fill(&mut block);
        let part = left.min(BLOCK as u64);
        file.write_all(&block[..part as usize]).map_err(failed())?;
        left -= part;
    }
    file.sync_all().map_err(failed())
}

/// Checks that two files hold the same.
///
/// # Errors
/// [`BenchError::Wrong`] where they do not.
pub fn same(left: &Path, right: &Path, stop: &Stop) -> Result<(), BenchError> {
    let open = |path: &Path| File::open(path).map_err(BenchError::io("read", path));
    let (mut a, mut b) = (open(left)?, open(right)?);
    let (mut one, mut other) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        stop.check()?;
        let read = fill(&mut a, &mut one).map_err(BenchError::io("read", left))?;
        let beside = fill(&mut b, &mut other).map_err(BenchError::io("read", right))?;
        if one[..read] != other[..beside] {
            return Err(BenchError::Wrong("the bytes differ"));
        }
        if read == 0 {
            return Ok(());
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match file.read(&mut buffer[at..])? {
            0 => break,
            read => at += read,
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_flipped_byte_or_one_too_many_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let (stop, bytes) = (Stop::default(), (BLOCK * 2 + 77) as u64);
        write(&a, bytes, &stop).unwrap();
        let mut content = std::fs::read(&a).unwrap();
        assert_eq!(content.len() as u64, bytes);
        std::fs::write(&b, &content).unwrap();
        same(&a, &b, &stop).unwrap();
        content.push(0);
        std::fs::write(&b, &content).unwrap();
        assert!(matches!(same(&a, &b, &stop), Err(BenchError::Wrong(_))));
        content.pop();
        content[BLOCK + 5] ^= 1;
        std::fs::write(&b, &content).unwrap();
        assert!(matches!(same(&a, &b, &stop), Err(BenchError::Wrong(_))));
    }
}
