//! Looks for planted markers in every file below a folder: the proof that nobody who stores a file
//! can read it.
//!
//! A marker is a random string that compresses to nothing shorter. It is looked for as it is, in
//! hex, and in base64 at each of the three alignments, in both alphabets: a name that leaked into
//! a log as hex is a leak too. One pass a file: a table of the first two bytes of all forms passes
//! over nearly everything, what is left is compared.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use env::Entropy;

use crate::error::HoldError;

/// Length of a random marker, in characters: about 190 bits.
const MARKER_CHARS: usize = 32;
/// Bytes read at a time.
const WINDOW: usize = 1 << 20;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A fresh marker: letters, digits, `-` and `_`.
pub(crate) fn fresh() -> String {
    let mut bytes = [0; MARKER_CHARS];
    env::SystemEntropy.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])).collect()
}

/// Where a marker was found, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leak {
    /// In which file.
    pub(crate) file: PathBuf,
    /// What was planted: "content", "name" and so on.
    pub(crate) what: &'static str,
    /// As it is, in hex, in base64.
    pub(crate) form: &'static str,
}

/// What was looked through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    /// Files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// What was found; at most one of a kind a file.
    pub(crate) leaks: Vec<Leak>,
}

impl Search {
    /// Adds what another search saw.
    pub(crate) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.leaks.extend(other.leaks);
    }
}

struct Form {
    what: &'static str,
    form: &'static str,
    bytes: Vec<u8>,
}

/// Markers in all their forms, ready to be looked for.
pub(crate) struct Markers {
    forms: Vec<Form>,
    /// Whether some form starts with these two bytes.
    starts: Box<[bool; 1 << 16]>,
    longest: usize,
}

impl Markers {
    /// For these markers, each with what it was planted as.
    pub(crate) fn new(planted: &[(&'static str, Vec<u8>)]) -> Self {
        let mut forms = Vec::new();
        for (what, marker) in planted {
            let mut add = |form, bytes| forms.push(Form { what, form, bytes });
            add("as it is", marker.clone());
            add("in hex", hex::encode(marker).into_bytes());
            add("in hex", hex::encode_upper(marker).into_bytes());
            for shift in 0..3 {
                add("in base64", base64_inside(&STANDARD_NO_PAD, marker, shift));
                add("in base64", base64_inside(&URL_SAFE_NO_PAD, marker, shift));
            }
        }
        let mut starts = Box::new([false; 1 << 16]);
        for form in &forms {
            starts[start(&form.bytes, 0)] = true;
        }
        let longest = forms.iter().map(|form| form.bytes.len()).max().unwrap_or(0);
        Self { forms, starts, longest }
    }

    /// Looks through every regular file below `folder`.
    ///
    /// # Errors
    /// Where one cannot be read: what was not looked at must not count as clean.
    pub(crate) fn search(&self, folder: &Path) -> Result<Search, HoldError> {
        let mut search = Search::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for item in fs::read_dir(&folder).map_err(HoldError::io("read", &folder))? {
                let item = item.map_err(HoldError::io("read", &folder))?;
                let kind = item.file_type().map_err(HoldError::io("read", item.path()))?;
                if kind.is_dir() {
                    folders.push(item.path());
                } else if kind.is_file() {
                    self.search_file(&item.path(), &mut search)?;
                }
            }
        }
        Ok(search)
    }

    /// Looks through one file, with the end of each window carried into the next.
    pub(crate) fn search_file(&self, path: &Path, search: &mut Search) -> Result<(), HoldError> {
        let mut file = File::open(path).map_err(HoldError::io("read", path))?;
        let mut window = vec![0; WINDOW + self.longest];
        let mut kept = 0;
        search.files += 1;
        loop {
            let read = file.read(&mut window[kept..]).map_err(HoldError::io("read", path))?;
            if read == 0 {
                return Ok(());
            }
            search.bytes += read as u64;
            let filled = kept + read;
            for (what, form) in self.inside(&window[..filled]) {
                let leak = Leak { file: path.to_owned(), what, form };
                if !search.leaks.contains(&leak) {
                    search.leaks.push(leak);
                }
            }
            kept = filled.min(self.longest);
            window.copy_within(filled - kept..filled, 0);
        }
    }

    fn inside(&self, bytes: &[u8]) -> Vec<(&'static str, &'static str)> {
        let mut found = Vec::new();
        for at in 0..bytes.len().saturating_sub(1) {
            if self.starts[start(bytes, at)] {
                let here = &bytes[at..];
                let hits = self.forms.iter().filter(|form| here.starts_with(&form.bytes));
                found.extend(hits.map(|form| (form.what, form.form)));
            }
        }
        found
    }
}

fn start(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1])
}

/// The characters of base64 that depend on the marker alone when it starts `shift` bytes into a
/// group of three.
fn base64_inside(engine: &impl Engine, marker: &[u8], shift: usize) -> Vec<u8> {
    let mut padded = vec![0; shift];
    padded.extend(marker);
    let text = engine.encode(&padded).into_bytes();
    let from = [0, 2, 3][shift];
    let until = padded.len() / 3 * 4;
    text[from..until].to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn forms_in(bytes: &[u8], marker: &str) -> Vec<&'static str> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/file"), bytes).unwrap();
        let markers = Markers::new(&[("content", marker.as_bytes().to_vec())]);
        let search = markers.search(folder.path()).unwrap();
        assert_eq!((search.files, search.bytes), (1, bytes.len() as u64));
        search.leaks.iter().map(|leak| leak.form).collect()
    }

    #[test]
    fn a_marker_is_found_in_each_form_and_at_each_place() {
        let marker = fresh();
        for before in [0, 1, 2, 3, WINDOW - 40, WINDOW - 10, WINDOW, 2 * WINDOW + 7] {
            let mut content = vec![b'.'; before];
            content.extend(marker.as_bytes());
            content.extend(b"..");
            assert_eq!(forms_in(&content, &marker), ["as it is"], "{before}");
            assert_eq!(forms_in(hex::encode(&content).as_bytes(), &marker), ["in hex"]);
            let text = STANDARD_NO_PAD.encode(&content);
            assert!(forms_in(text.as_bytes(), &marker).contains(&"in base64"), "{before}");
        }
    }

    #[test]
    fn another_marker_is_not_found() {
        assert!(forms_in(fresh().as_bytes(), &fresh()).is_empty());
        assert!(forms_in(b"", &fresh()).is_empty());
        assert!(forms_in(b"x", &fresh()).is_empty());
    }
}
