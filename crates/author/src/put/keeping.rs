//! How the content of a put is kept: in stripes or in copies, and in how many of which record.
//!
//! What the put asks for counts, else what the network's genesis says, else the table of `placement` by the number of peers
//! that are *known*, and by whose they are. Known and not reachable: a peer that is away for an hour comes back, and a profile that went by
//! who answers just now would give the files of a bad hour less protection than those of a good one. Fragments of
//! peers that do not answer go to spares, and where too few answer the put says so.
//!
//! A put of which nothing was read yet fails where its profile needs more peers than are known. A program that has just
//! joined, or whose network has just started, may not have heard of all yet: so it asks again for [`PEERS_WAIT`] before.

use std::time::Duration;

use crypto::Suite;
use document::metadata::METADATA_INLINE_BYTES_MAX;
use document::{CompressionCodec, EntryMetadata, INLINE_BYTES_MAX, Kind, WholeMacs};
use placement::{Profile, Redundancy, redundancy};

use super::code::Shape;
use super::info;
use crate::author::Author;
use crate::error::AuthorError;
use crate::media;
use crate::types::PutOptions;

/// How long a put waits for as many peers to be known as its profile needs.
pub const PEERS_WAIT: Duration = Duration::from_secs(10);
/// How often it asks a peer meanwhile whom that one knows.
const PEERS_ASKED_EVERY: Duration = Duration::from_millis(500);
/// What a page's ciphertext has beyond its chunk: the codec's byte and the tag.
const CIPHERTEXT_EXTRA: u64 = 1 + document::page::CIPHERTEXT_BYTES_MIN as u64;

impl Author {
    /// The options of a put with all that they leave open: its media type by its name, its profile by the network.
    /// Waits at most [`PEERS_WAIT`] where too few peers are known. What earlier puts left behind is removed first.
    pub(crate) async fn resolved(
        &self,
        mut options: PutOptions,
    ) -> Result<PutOptions, AuthorError> {
        self.remove_leftovers().await;
        let by_name = || media::by_name(options.name.as_deref().unwrap_or_default()).to_owned();
        options.media_type = Some(options.media_type.take().unwrap_or_else(by_name));
        options.profile = Some(self.profile_in_time(options.profile).await?);
        // What is resumed is paid for as long as was set when it began, also where that was set for all puts.
        let set = self.payer().map(|payer| payer.seconds);
        options.lease_seconds = options.lease_seconds.or(set);
        Ok(options)
    }

    /// How a put keeps its content, as soon as enough peers are known.
    async fn profile_in_time(&self, asked: Option<Profile>) -> Result<Profile, AuthorError> {
        let until = self.env().clock.elapsed() + PEERS_WAIT;
        loop {
            let found = self.profile(asked);
            let left = until.saturating_sub(self.env().clock.elapsed());
            match found {
                Err(AuthorError::TooFewPeers { profile, known }) if !left.is_zero() => {
                    tracing::debug!(%profile, known, "more peers must be known: one is asked");
                }
                found => return found,
            }
            // Whatever the answer is, what counts is how many are known then. It is waited for no longer than the rest.
            let asking = async {
                let _ = self.walker().refresh().await;
                self.env().clock.sleep(PEERS_ASKED_EVERY.min(left)).await;
            };
            let _ = self.env().within(left, asking).await;
        }
    }

    /// How a put keeps its content.
    fn profile(&self, asked: Option<Profile>) -> Result<Profile, AuthorError> {
        if self.walker().is_thin() {
            // The librarian that walks for this program keeps what it takes as copies, as many as it finds right.
            return match asked {
                None => Ok(Profile::Copies(self.copies_of_network())),
                Some(profile) => Err(AuthorError::ThinCopies { profile }),
            };
        }
        let view = self.walker().directory().view();
        let known = view.len();
        let profile = asked
            .unwrap_or_else(|| Profile::of_network(self.walker().directory().genesis(), &view));
        if self.suite() == Suite::Libri1 && matches!(profile, Profile::Stripe { .. }) {
            return Err(AuthorError::LibriCopies { profile });
        }
        // The network's copies are as many as there are peers, those that were asked for as many as were asked for; of no peer at
        // all, sending says what is wrong.
        let needed = match asked {
            Some(Profile::Copies(copies)) => copies as usize,
            _ => profile.peers_min(),
        };
        if known < needed && known > 0 {
            return Err(AuthorError::TooFewPeers { profile, known });
        }
        Ok(profile)
    }

    fn copies_of_network(&self) -> u32 {
        self.walker().directory().genesis().copies.unwrap_or(placement::PAGE_COPIES)
    }

    /// The copies of a record of this kind, where the content of its put is kept so.
    pub(super) fn redundancy(&self, profile: Profile, kind: Kind) -> Redundancy {
        let walker = self.walker();
        match profile {
            Profile::Copies(copies) if !walker.is_thin() && copies != self.copies_of_network() => {
                redundancy(kind, walker.directory().view().len(), self.suite(), Some(copies))
            }
            Profile::Copies(_) | Profile::Stripe { .. } => walker.redundancy(kind),
        }
    }

    /// The stripes of a content that is kept so; `None` for copies.
    ///
    /// # Errors
    /// [`AuthorError::Unsealable`] for metadata that is too long for any entry.
    pub(super) fn shape(&self, options: &PutOptions) -> Result<Option<Shape>, AuthorError> {
        let Some(Profile::Stripe { k, n }) = options.profile else { return Ok(None) };
        // Whether a small content goes into its entry must be known before it is sealed, since sealed it is k pages or one.
        // The longest metadata it can have: numbers of all lengths up to these.
        let metadata = EntryMetadata {
            info: info(options),
            codec: CompressionCodec::ZstdChunks,
            ciphertext_size: INLINE_BYTES_MAX + CIPHERTEXT_EXTRA,
            ciphertext_mac: [u8::MAX; 32],
            uncompressed_size: INLINE_BYTES_MAX,
            uncompressed_mac: [u8::MAX; 32],
            whole_macs: WholeMacs::Tags,
        };
        let encoded = metadata.encode().map_err(|source| AuthorError::Unsealable(source.into()))?;
        let fits = encoded.len() <= METADATA_INLINE_BYTES_MAX;
        let inline_bytes_max = if fits { Some(INLINE_BYTES_MAX as usize) } else { None };
        Ok(Some(Shape { k, n, inline_bytes_max }))
    }
}
