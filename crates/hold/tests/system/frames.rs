//! The frames of a peer's record log as they lie on its disk, read as `docs/formats/store.md` says it.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The kinds of what objects are made of.
pub const ENVELOPE: u8 = 1;
pub const ENTRY: u8 = 2;
pub const PAGE: u8 = 3;
pub const PARITY: u8 = 4;
pub const STRIPE: u8 = 5;
pub const VERSION: u8 = 6;
pub const OBJECT: u8 = 7;
pub const POLICY: u8 = 8;
pub const ATTESTATION: u8 = 9;
/// The kind of a frame that keeps leases, which are no copies of anything.
pub const LEASE: u8 = 12;

/// A frame of a log, where it lies.
#[derive(Clone, Debug)]
pub struct Frame {
    pub file: PathBuf,
    pub at: u64,
    pub kind: u8,
    /// The record.
    pub id: Vec<u8>,
    /// Bytes of its header, and of its payload behind it.
    pub header: u64,
    pub payload: u64,
}

/// The frames of the records of the peer in this directory, the last of each record.
pub fn live(dir: &Path) -> Vec<Frame> {
    let files = fs::read_dir(dir.join("store")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    files.sort();
    let mut live = BTreeMap::new();
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let marker = bytes[20..28].to_vec();
        let mut at = 64;
        while at + 52 < bytes.len() {
            if bytes[at..at + 8] != marker[..] {
                at += 1;
                continue;
            }
            let (kind, flags) = (bytes[at + 8], bytes[at + 9]);
            let payload = u32::from_be_bytes(bytes[at + 12..at + 16].try_into().unwrap());
            let id = bytes[at + 16..at + 48].to_vec();
            let header = if flags & 2 == 0 { 56 } else { 88 };
            let whole = at + header + payload as usize;
            if whole > bytes.len() {
                at += 1;
                continue;
            }
            let (file, header, payload) = (file.clone(), header as u64, u64::from(payload));
            match flags & 1 {
                0 => {
                    let frame =
                        Frame { file, at: at as u64, kind, id: id.clone(), header, payload };
                    live.insert(id, frame)
                }
                _ => live.remove(&id),
            };
            at = whole;
        }
    }
    live.into_values().collect()
}

impl Frame {
    /// Some of the payload, from its middle on: enough to find it again wherever it is.
    pub fn sample(&self) -> Vec<u8> {
        let bytes = fs::read(&self.file).unwrap();
        let from = (self.at + self.header) as usize;
        let payload = &bytes[from..from + self.payload as usize];
        let middle = payload.len() / 2;
        payload[middle..(middle + 48).min(payload.len())].to_vec()
    }
}

/// Whether any file below a directory has these bytes.
pub fn on_disk(dir: &Path, bytes: &[u8]) -> bool {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(held) = fs::read(&path)
                && held.windows(bytes.len()).any(|part| part == bytes)
            {
                return true;
            }
        }
    }
    false
}
