//! The seed as 24 English BIP-39 words, for paper.

use bip39::{Language, Mnemonic};
use zeroize::Zeroizing;

use super::{Keyring, KeyringError, SEED_BYTES};

impl Keyring {
    /// The 24 words of this keyring. Whoever reads them has all its keys.
    pub fn to_words(&self) -> Zeroizing<String> {
        let words = Mnemonic::from_entropy_in(Language::English, &self.seed)
            .expect("32 bytes are 24 words");
        Zeroizing::new(words.to_string())
    }

    /// The keyring of 24 words, in any letter case, separated by any white space.
    ///
    /// # Errors
    /// [`KeyringError::Words`].
    pub fn from_words(words: &str) -> Result<Self, KeyringError> {
        let words = Zeroizing::new(words.to_lowercase());
        let words = Mnemonic::parse_in_normalized(Language::English, &words)
            .map_err(KeyringError::Words)?;
        let entropy = Zeroizing::new(words.to_entropy());
        let count = words.word_count();
        let seed: Zeroizing<[u8; SEED_BYTES]> = Zeroizing::new(
            entropy[..]
                .try_into()
                .map_err(|_| KeyringError::Words(bip39::Error::BadWordCount(count)))?,
        );
        Ok(Self::from_seed(&seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_bip_39() {
        let zero = Keyring::from_seed(&[0; 32]).to_words();
        assert_eq!(*zero, format!("{}art", "abandon ".repeat(23)));
    }

    #[test]
    fn words_round_trip_in_any_case_and_spacing() {
        let keyring = Keyring::from_seed(&[0x5a; 32]);
        let words = keyring.to_words();
        let shouted = format!("  {}\n", words.to_uppercase().replace(' ', " \t"));
        let again = Keyring::from_words(&shouted).expect("its own words");
        assert_eq!(again.client_key(), keyring.client_key());
    }

    #[test]
    fn other_words_are_refused() {
        let words = Keyring::from_seed(&[0x5a; 32]).to_words();
        let mut swapped: Vec<&str> = words.split(' ').collect();
        swapped.swap(0, 1);
        let twelve = format!("{}about", "abandon ".repeat(11));
        for bad in ["", "hello", &twelve, &swapped.join(" "), &words[..words.len() - 1]] {
            assert!(matches!(Keyring::from_words(bad), Err(KeyringError::Words(_))), "{bad}");
        }
    }
}
