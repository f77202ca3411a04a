//! The two MACs over the whole content, fed in order while pages are sealed or opened in any order.
//!
//! Pages are made in parallel; these two are the only sequential work (10 GB/s each in `holdfast-1`). The
//! plaintext and the ciphertext are fed apart, as they come at different times.

use crypto::{Eek, Mac, MacState, Suite};

/// The state of both MACs and the sizes they cover.
#[derive(Clone, Debug)]
pub struct ContentMacs {
    plaintext: MacState,
    ciphertext: MacState,
    plaintext_bytes: u64,
    ciphertext_bytes: u64,
    pages: u64,
}

impl ContentMacs {
    /// Nothing fed yet.
    pub fn new(suite: Suite, eek: &Eek) -> Self {
        let state = suite.mac_state(&eek.mac_key(suite));
        Self {
            plaintext: state.clone(),
            ciphertext: state,
            plaintext_bytes: 0,
            ciphertext_bytes: 0,
            pages: 0,
        }
    }

    /// Takes the next bytes of the content.
    pub fn add_plaintext(&mut self, bytes: &[u8]) {
        self.plaintext.update(bytes);
        self.plaintext_bytes += bytes.len() as u64;
    }

    /// Takes the ciphertext, tag included, of the next page; list pages are not fed.
    pub fn add_page(&mut self, ciphertext: &[u8]) {
        self.ciphertext.update(ciphertext);
        self.ciphertext_bytes += ciphertext.len() as u64;
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

    /// Whether the ciphertext's MAC is this one; then whether the plaintext's is.
    pub(crate) fn verify(self, plaintext: &Mac, ciphertext: &Mac) -> (bool, bool) {
        (self.plaintext.verify(plaintext), self.ciphertext.verify(ciphertext))
    }
}
