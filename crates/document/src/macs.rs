//! The two MACs over the whole content, fed in order while pages are sealed or opened in any order.
//!
//! ```text
//!  WholeMacs::Bytes   MAC(plaintext 0 | plaintext 1 | ..)            MAC(ciphertext 0 | ciphertext 1 | ..)
//!  WholeMacs::Tags    MAC(tag of chunk 0 | tag of chunk 1 | ..)      MAC(page 0's MAC | page 1's MAC | ..)
//! ```
//! Of bytes they are the only sequential work of a content, two more passes over it. Of tags the chunk's bytes are gone through once,
//! where it is sealed or opened anyway, and the page's not at all: its cipher made its tag. What is fed here is some bytes a part:
//! whoever changes, leaves out, adds or moves a part changes what is fed, as the lengths follow from the size and the layout.

use crypto::{ChunkTag, Mac, MacState, Suite};

use crate::metadata::WholeMacs;
use crate::page::Page;
use crate::seal::{PageKeys, SealedPage};

/// The state of both MACs and the sizes they cover.
#[derive(Clone, Debug)]
pub struct ContentMacs {
    form: WholeMacs,
    plaintext: MacState,
    ciphertext: MacState,
    plaintext_bytes: u64,
    ciphertext_bytes: u64,
    pages: u64,
}

impl ContentMacs {
    /// Nothing fed yet.
    pub(crate) fn new(keys: &PageKeys) -> Self {
        let form = keys.form;
        let (plaintext, ciphertext) = match form {
            WholeMacs::Bytes => {
                let state = keys.suite.mac_state(&keys.mac_key);
                (state.clone(), state)
            }
            WholeMacs::Tags => {
                let (chunks, pages) = (&keys.whole.chunks, &keys.whole.pages);
                (keys.suite.mac_state(chunks), keys.suite.mac_state(pages))
            }
        };
        Self { form, plaintext, ciphertext, plaintext_bytes: 0, ciphertext_bytes: 0, pages: 0 }
    }

    /// What they cover.
    pub const fn form(&self) -> WholeMacs {
        self.form
    }

    /// Takes the next sealed page: its ciphertext, and the chunk that was sealed, where the MACs are of tags. List pages are
    /// not fed.
    pub fn add(&mut self, sealed: &SealedPage) {
        self.add_page(&sealed.page);
        if self.form == WholeMacs::Tags {
            self.add_chunk(&sealed.chunk_tag, sealed.chunk_bytes as u64);
        }
    }

    /// Takes the next bytes of the content, where the MACs are of bytes.
    ///
    /// # Panics
    /// Where they are of tags: that is the caller's defect.
    pub fn add_plaintext(&mut self, bytes: &[u8]) {
        assert_eq!(self.form, WholeMacs::Bytes, "the MACs are of bytes");
        self.plaintext.update(bytes);
        self.plaintext_bytes += bytes.len() as u64;
    }

    /// Takes the next chunk of so many bytes by its tag, where the MACs are of tags.
    pub(crate) fn add_chunk(&mut self, tag: &ChunkTag, bytes: u64) {
        assert_eq!(self.form, WholeMacs::Tags, "the MACs are of tags");
        self.plaintext.update(tag);
        self.plaintext_bytes += bytes;
    }

    /// Takes the next page, whose MAC was checked or made; list pages are not fed.
    pub(crate) fn add_page(&mut self, page: &Page) {
        match self.form {
            WholeMacs::Bytes => self.ciphertext.update(&page.ciphertext),
            WholeMacs::Tags => self.ciphertext.update(&page.mac),
        }
        self.ciphertext_bytes += page.ciphertext.len() as u64;
        self.pages += 1;
    }

    /// The plaintext of `plaintext` and the ciphertext of this one: for two stages that each feed one of them.
    #[must_use]
    pub fn with_plaintext_of(self, plaintext: Self) -> Self {
        let Self { plaintext, plaintext_bytes, .. } = plaintext;
        Self { plaintext, plaintext_bytes, ..self }
    }

    /// Plaintext bytes taken.
    pub const fn plaintext_bytes(&self) -> u64 {
        self.plaintext_bytes
    }

    /// Ciphertext bytes taken.
    pub const fn ciphertext_bytes(&self) -> u64 {
        self.ciphertext_bytes
    }

    /// Pages taken.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The MACs of plaintext and ciphertext.
    pub(crate) fn finish(self) -> (Mac, Mac) {
        (self.plaintext.finish(), self.ciphertext.finish())
    }

    /// Whether the plaintext's MAC is this one; then whether the ciphertext's is.
    pub(crate) fn verify(self, plaintext: &Mac, ciphertext: &Mac) -> (bool, bool) {
        (self.plaintext.verify(plaintext), self.ciphertext.verify(ciphertext))
    }
}

impl WholeMacs {
    /// What entries of a suite are sealed with.
    pub(crate) const fn of(suite: Suite) -> Self {
        match suite {
            Suite::Holdfast1 => Self::Tags,
            Suite::Libri1 => Self::Bytes,
        }
    }
}
