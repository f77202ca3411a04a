//! A user's folder (`$HOLD_HOME`): the sealed keyring, and which of its one-time keys were issued.
//!
//! ```text
//! keyring    the seed under the passphrase (`crypto::keyring::file`), written once, never overwritten
//! issued     rows of issued counters (`issued`), appended and synced before a counter is used
//! paid       which contents are paid for, and until when (`paid`)
//! forgotten  rows of counters whose keys open nothing any more (`paid`)
//! forgetting which contents are being forgotten, and by which counters' keys they open (`forgetting`)
//! lock       locked by whoever appends to `issued`
//! ```
//! All are readable by their owner alone; a folder that is created is too. Every function blocks (files, scrypt, key
//! derivation) and belongs on a thread that may.
//!
//! A folder that cannot be written is read all the same ([`Home::is_read_only`]): what is in it opens whatever it did, and no
//! counter is issued.
//!
//! Invariants: a counter is issued at most once in the life of the folder, by however many programs and through crashes;
//! a keyring file is complete or not there.
//!
//! Limits: two folders made of the same words issue the same counters. What that costs, and the rule for imports, is in
//! `docs/concepts/sharing.md`.

mod files;
pub(crate) use files::{create_dir as private_dir, lock, replace};
mod forgetting;
mod issued;
mod paid;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use crypto::keyring::file;
use crypto::keyring::paid::PAID_SALT_BYTES;
use crypto::{Keyring, KeyringError, KeyringFile, ReaderKey, RecordId, SecretKey};
use env::Entropy;
use zeroize::Zeroizing;

use crate::error::AuthorError;
use issued::Issued;
pub use issued::{COUNTERS_MAX, GAP, ISSUE_MAX, SCAN_MAX};

const KEYRING: &str = "keyring";

/// A user's opened folder. It does not print its keys.
pub struct Home {
    dir: PathBuf,
    keyring: Keyring,
    readers: Vec<ReaderKey>,
    issued: Mutex<Issued>,
    read_only: bool,
}

impl Home {
    /// Whether there is a keyring in the folder.
    pub fn exists(dir: &Path) -> bool {
        dir.join(KEYRING).exists()
    }

    /// Makes a keyring of a new random seed, and the folder where it is missing. Takes half a second and 128 MiB (scrypt).
    ///
    /// # Errors
    /// [`AuthorError::KeyringExists`], [`AuthorError::Io`].
    pub fn create(
        dir: &Path,
        passphrase: &[u8],
        entropy: &dyn Entropy,
    ) -> Result<Self, AuthorError> {
        Self::create_with(dir, passphrase, entropy, file::LOG_N)
    }

    /// As [`Home::create`] with another scrypt N (its base-2 logarithm, 10 to 20), for tests: below the default's 17 a
    /// passphrase is guessed faster.
    ///
    /// # Errors
    /// As [`Home::create`].
    pub fn create_with(
        dir: &Path,
        passphrase: &[u8],
        entropy: &dyn Entropy,
        log_n: u8,
    ) -> Result<Self, AuthorError> {
        let mut seed = Zeroizing::new([0; crypto::keyring::SEED_BYTES]);
        entropy.fill(&mut seed[..]);
        Self::write(dir, Keyring::from_seed(&seed), passphrase, entropy, log_n, 0)
    }

    /// Makes the keyring of 24 words. `next` is the next counter that `hold keys export` told beside them; without it the
    /// keyring goes on after [`GAP`]. An `issued` file that is in the folder already is gone on from, whichever is later.
    ///
    /// # Errors
    /// [`AuthorError::Keyring`] for words that are none, [`AuthorError::Exhausted`] for a counter that there is not, and as
    /// [`Home::create`].
    pub fn import(
        dir: &Path,
        words: &str,
        next: Option<u64>,
        passphrase: &[u8],
        entropy: &dyn Entropy,
    ) -> Result<Self, AuthorError> {
        let keyring = Keyring::from_words(words).map_err(AuthorError::Keyring)?;
        Self::write(dir, keyring, passphrase, entropy, file::LOG_N, next.unwrap_or(GAP))
    }

    /// Opens the keyring with its passphrase. Takes half a second and 128 MiB (scrypt).
    ///
    /// # Errors
    /// [`AuthorError::NoKeyring`], [`AuthorError::WrongPassphrase`], [`AuthorError::DamagedKeyring`],
    /// [`AuthorError::Keyring`] for a file of a newer version, [`AuthorError::Io`].
    pub fn open(dir: &Path, passphrase: &[u8]) -> Result<Self, AuthorError> {
        let path = dir.join(KEYRING);
        let sealed = match files::read(&path, file::FILE_BYTES_MAX) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(AuthorError::NoKeyring(dir.to_owned()));
            }
            other => other.map_err(files::failed("read", &path))?,
        };
        let keyring = KeyringFile::open(&sealed, passphrase).map_err(|error| match error {
            KeyringError::WrongPassphrase => AuthorError::WrongPassphrase,
            newer @ KeyringError::Version(_) => AuthorError::Keyring(newer),
            source => AuthorError::DamagedKeyring { path, source },
        })?;
        let mut home = Self::with(dir, keyring);
        let were_lost = home.looked(|issued, _| Ok(!issued.exists()))?;
        let begun = home.locked(|issued, home| {
            // Rows that were lost mean what an import means: older counters may have been used.
            if were_lost { issued.start_at(GAP, &home.keyring) } else { Ok(()) }
        });
        match begun {
            Err(AuthorError::Io { source, .. }) if files::is_unwritable(&source) => {
                home.read_only = true;
                if were_lost {
                    // It counts in this program, should the folder be writable later.
                    home.looked(|issued, _| {
                        issued.skip_to(GAP);
                        Ok(())
                    })?;
                }
            }
            begun => begun?,
        }
        Ok(home)
    }

    /// Whether the folder could not be written when it was opened: what is in it is used, and whatever must be noted there fails.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The seed as 24 words: whoever reads them has every key of this user. Write [`Home::next_counter`] beside them.
    pub fn words(&self) -> Zeroizing<String> {
        self.keyring.to_words()
    }

    /// The keys that all others follow from.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The 64 published reader keys, in order.
    pub fn readers(&self) -> &[ReaderKey] {
        &self.readers
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The counter that would be issued next.
    ///
    /// # Errors
    /// [`AuthorError::Io`], [`AuthorError::Locked`].
    pub fn next_counter(&self) -> Result<u64, AuthorError> {
        self.looked(|issued, home| issued.next(&home.keyring))
    }

    /// Issues so many counters, each for one document: their rows are durable when this returns. A counter that is never
    /// used costs nothing.
    ///
    /// # Errors
    /// [`AuthorError::Exhausted`], [`AuthorError::Locked`], [`AuthorError::Io`].
    ///
    /// # Panics
    /// For 0 and for more than [`ISSUE_MAX`].
    pub fn issue(&self, count: u64) -> Result<Range<u64>, AuthorError> {
        assert!((1..=ISSUE_MAX).contains(&count), "1 to {ISSUE_MAX} counters are issued at once");
        self.locked(|issued, home| issued.issue(count, &home.keyring))
    }

    /// The key that opens envelopes to `reader`, where it is one of this user's: a published one, one in the rows, or one
    /// found by scanning ahead (then its row is written, where it can be). The scan derives up to [`SCAN_MAX`] keys of counters without a
    /// row, 20 us each.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn reader_secret(&self, reader: &ReaderKey) -> Result<Option<SecretKey>, AuthorError> {
        if let Some(index) = self.readers.iter().position(|own| own == reader) {
            let index = u32::try_from(index).expect("there are 64");
            return Ok(self.keyring.reader(index).ok());
        }
        Ok(self.find_counter(reader)?.map(|counter| self.keyring.own_reader(counter)))
    }

    /// The counter of a self-addressed reader key, as [`Home::reader_secret`] finds it.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn find_counter(&self, reader: &ReaderKey) -> Result<Option<u64>, AuthorError> {
        let (found, candidates) = self.looked(|issued, home| {
            if paid::is_forgotten(&home.dir, &home.keyring, reader)? {
                return Ok((None, Default::default()));
            }
            issued.find(reader, &home.keyring)
        })?;
        if found.is_some() {
            return Ok(found);
        }
        // Deriving is slow, so it is done without the lock; the row of a hit is then one more than is needed at worst.
        let mut candidates = candidates.into_iter().flatten().take(SCAN_MAX);
        let hit =
            candidates.find(|&counter| self.keyring.own_reader(counter).public() == *reader.key());
        if let Some(counter) = hit {
            match self.locked(|issued, home| issued.remember(counter, &home.keyring)) {
                // It is sought anew the next time.
                Err(AuthorError::Io { source, .. })
                    if files::is_unwritable(&source) || files::is_full(&source) => {}
                remembered => remembered?,
            }
        }
        Ok(hit)
    }

    /// Writes the rows of counters that were found to be used, and issues none below `next` from now on.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`], [`AuthorError::Exhausted`].
    pub fn recovered(&self, counters: &BTreeSet<u64>, next: u64) -> Result<(), AuthorError> {
        self.locked(|issued, home| {
            let forgotten = paid::forgotten(&home.dir, &home.keyring)?;
            let counters = counters.difference(&forgotten).copied().collect();
            issued.remember_all(&counters, &home.keyring)?;
            issued.start_at(next, &home.keyring)
        })
    }

    /// Forgets the counter of a self-addressed reader key: from now on nothing sealed to it is opened here, and its row is
    /// gone from the disk. Whoever has the seed can derive the key all the same. Whether it was this user's.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn forget_counter(&self, reader: &ReaderKey) -> Result<bool, AuthorError> {
        let Some(counter) = self.find_counter(reader)? else { return Ok(false) };
        self.forget_known(counter)?;
        Ok(true)
    }

    /// Prepares that a content is forgotten which opens with the key of this reader: durably, with room for what is written at the
    /// end of it ([`Home::end_forgetting`]). Nothing of it is to be ended before that: its key could not be forgotten otherwise.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`]: also for a folder that cannot be written, or is full.
    pub fn begin_forgetting(
        &self,
        address: &RecordId,
        reader: &ReaderKey,
    ) -> Result<(), AuthorError> {
        let counter = self.find_counter(reader)?;
        self.locked(|_, home| forgetting::begin(&home.dir, &home.keyring, address, counter))
    }

    /// As [`Home::forget_counter`], of a content that was begun to be forgotten and of which nothing is left that says which key
    /// opened it. `None` where it was not begun.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn forget_begun(&self, address: &RecordId) -> Result<Option<bool>, AuthorError> {
        let begun = self.looked(|_, home| forgetting::find(&home.dir, &home.keyring, address))?;
        if let Some(Some(counter)) = begun {
            self.forget_known(counter)?;
        }
        Ok(begun.map(|counter| counter.is_some()))
    }

    /// Notes that a content is forgotten.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn end_forgetting(&self, address: &RecordId) -> Result<(), AuthorError> {
        self.locked(|_, home| forgetting::end(&home.dir, &home.keyring, address))
    }

    fn forget_known(&self, counter: u64) -> Result<(), AuthorError> {
        self.locked(|issued, home| {
            paid::forget(&home.dir, &home.keyring, counter)?;
            issued.erase(counter, &home.keyring)
        })
    }

    /// Counters that were forgotten.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn forgotten(&self) -> Result<BTreeSet<u64>, AuthorError> {
        self.looked(|_, home| paid::forgotten(&home.dir, &home.keyring))
    }

    /// Notes until when a content is paid for, Unix seconds; 0 where it is not any more.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn note_paid(
        &self,
        salt: &[u8; PAID_SALT_BYTES],
        address: &RecordId,
        until: u64,
    ) -> Result<(), AuthorError> {
        self.locked(|_, home| paid::note(&home.dir, &home.keyring, salt, address, until))
    }

    /// Every content that this home paid for, and until when, Unix seconds.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn paid(&self) -> Result<BTreeMap<RecordId, u64>, AuthorError> {
        self.paid_notes().map(|(paid, _)| paid)
    }

    /// As [`Home::paid`]; and how many notes are damaged, each of which may have been of one more.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub fn paid_notes(&self) -> Result<(BTreeMap<RecordId, u64>, u64), AuthorError> {
        self.looked(|_, home| paid::all(&home.dir, &home.keyring))
    }

    /// Drops the notes that are damaged, once what they may have been of is noted anew.
    ///
    /// # Errors
    /// [`AuthorError::Locked`], [`AuthorError::Io`].
    pub(crate) fn drop_damaged_notes(&self) -> Result<(), AuthorError> {
        self.looked(|_, home| paid::drop_damaged(&home.dir, &home.keyring))
    }

    /// Removes drafts of this folder's files from before then, which killed programs left.
    pub(crate) fn remove_drafts(&self, before: SystemTime) {
        files::remove_drafts(&self.dir, before);
    }

    fn with(dir: &Path, keyring: Keyring) -> Self {
        let readers = keyring.readers();
        let issued = Mutex::new(Issued::new(dir));
        Self { dir: dir.to_owned(), keyring, readers, issued, read_only: false }
    }

    /// Writes a new keyring file, after the rows that say where its counters start.
    fn write(
        dir: &Path,
        keyring: Keyring,
        passphrase: &[u8],
        entropy: &dyn Entropy,
        log_n: u8,
        next: u64,
    ) -> Result<Self, AuthorError> {
        if next >= COUNTERS_MAX {
            // Nothing is made for it.
            return Err(AuthorError::Exhausted);
        }
        files::create_dir(dir).map_err(files::failed("create", dir))?;
        let home = Self::with(dir, keyring);
        let (mut salt, mut nonce) = ([0; file::SALT_BYTES], [0; 12]);
        entropy.fill(&mut salt);
        entropy.fill(&mut nonce);
        let path = dir.join(KEYRING);
        home.locked(|issued, home| {
            if path.exists() {
                return Err(AuthorError::KeyringExists(dir.to_owned()));
            }
            issued.start_at(next, &home.keyring)?;
            let sealed = KeyringFile::seal_with(&home.keyring, passphrase, salt, nonce, log_n);
            match files::write_new(&path, &sealed) {
                Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                    Err(AuthorError::KeyringExists(dir.to_owned()))
                }
                other => other.map_err(files::failed("write", &path)),
            }
        })?;
        Ok(home)
    }

    /// Runs `work` as the only one who touches `issued`, in this process and among all others.
    fn locked<T>(
        &self,
        work: impl FnOnce(&mut Issued, &Self) -> Result<T, AuthorError>,
    ) -> Result<T, AuthorError> {
        let mut issued = self.issued.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _lock = files::lock(&self.dir)?;
        work(&mut issued, self)
    }

    /// As [`Home::locked`], for work that writes nothing that must be written: also where nothing can be.
    fn looked<T>(
        &self,
        work: impl FnOnce(&mut Issued, &Self) -> Result<T, AuthorError>,
    ) -> Result<T, AuthorError> {
        let mut issued = self.issued.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _lock = files::lock_to_read(&self.dir)?;
        work(&mut issued, self)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
