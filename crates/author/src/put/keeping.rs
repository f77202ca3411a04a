//! How the content of a put is kept: in stripes or in copies, and in how many of which record.
//!
//! What the put asks for counts, else what the network's genesis says, else the table of `placement` by the number of peers
//! that are *known*, and by whose they are. Known and not reachable: a peer that is away for an hour comes back, and a profile that went by
//! who answers just now would give the files of a bad hour less protection than those of a good one. Fragments of
//! peers that do not answer go to spares, and where too few answer the put says so.
//!
//! But who is known need never have run: one organisation's certificates would end all puts, if fewer peers answer than the table's
//! row waits for. So where that is so, the put goes by those alone that answer: by their row, and of copies by their W. N stays the
//! network's, and repair makes what is missing of it when there are peers for it. What a put or a genesis asks for by name stays what
//! it is.
//!
//! Where nobody said how, a put that was interrupted goes on with the row that it began with, though another peer answers by now or one
//! does no more: as long as enough answer for that row. All would be sent anew else.
//!
//! A put of which nothing was read yet fails where its profile needs more peers than are known. A program that has just
//! joined, or whose network has just started, may not have heard of all yet: so it asks again for [`PEERS_WAIT`] before.

use std::time::Duration;

use crypto::{PeerId, Suite};
use document::metadata::METADATA_INLINE_BYTES_MAX;
use document::{CompressionCodec, EntryMetadata, INLINE_BYTES_MAX, Kind, WholeMacs};
use env::calls::CallError;
use futures::StreamExt;
use placement::{Profile, Redundancy, View};

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
/// How long a put waits for peers that it does not know to be there, where they decide: as long as one call takes.
const UNHEARD_WAIT: Duration = walk::CALL_LIMIT.saturating_add(Duration::from_secs(1));
/// How many of them are asked at once.
const UNHEARD_AT_ONCE: usize = 16;
/// What a page's ciphertext has beyond its chunk: the codec's byte and the tag.
const CIPHERTEXT_EXTRA: u64 = 1 + document::page::CIPHERTEXT_BYTES_MIN as u64;

impl Author {
    /// The options of a put with all that they leave open: its media type by its name, its profile by the network.
    /// Waits at most [`PEERS_WAIT`] where too few peers are known. What earlier puts left behind is removed first. `bytes` are how long
    /// the content will be, where that is known.
    pub(crate) async fn resolved(
        &self,
        mut options: PutOptions,
        bytes: Option<u64>,
    ) -> Result<PutOptions, AuthorError> {
        self.remove_leftovers().await;
        let by_name = || media::by_name(options.name.as_deref().unwrap_or_default()).to_owned();
        options.media_type = Some(options.media_type.take().unwrap_or_else(by_name));
        let inline = bytes.is_some_and(|bytes| bytes <= INLINE_BYTES_MAX) && goes_inline(&options)?;
        options.profile = Some(self.profile_in_time(options.profile, inline).await?);
        // What is resumed is paid for as long as was set when it began, also where that was set for all puts.
        let set = self.payer().map(|payer| payer.seconds);
        options.lease_seconds = options.lease_seconds.or(set);
        Ok(options)
    }

    /// How a put keeps its content, as soon as enough peers are known; where it is not said, and fewer answer than are waited for, as
    /// a network of those would. What goes into its entry is no stripe, and waits for the copies of that alone.
    async fn profile_in_time(
        &self,
        asked: Option<Profile>,
        inline: bool,
    ) -> Result<Profile, AuthorError> {
        let profile = self.known_in_time(asked).await?;
        if self.walker().is_thin() {
            return Ok(profile);
        }
        let by_table = asked.is_none() && self.walker().directory().genesis().profile.is_none();
        let stripe = by_table && !inline && matches!(profile, Profile::Stripe { .. });
        let fragments = if stripe { profile.threshold() } else { 0 };
        // No other record waits for more copies.
        let entries = self.walker().redundancy(Kind::Entry).acknowledged;
        self.ask_unheard(fragments.max(entries) as usize).await;
        if !stripe {
            return Ok(profile);
        }
        let directory = self.walker().directory();
        let Some(heard) = directory.heard(&directory.view(), fragments as usize) else {
            return Ok(profile);
        };
        let narrow = Profile::of_network(directory.genesis(), &heard);
        tracing::warn!(
            %profile, %narrow, answer = heard.len(),
            "fewer peers answer than the network's profile waits for: the put goes by those alone"
        );
        Ok(narrow)
    }

    /// As [`Author::ask_unheard`], of so many as acknowledge a record of this kind.
    pub(crate) async fn ask_unheard_for(&self, kind: Kind) {
        let needed = self.walker().redundancy(kind).acknowledged;
        self.ask_unheard(needed as usize).await;
    }

    /// Introduces this program to peers that it never heard, where those that it did are fewer than `needed`: until they are as many,
    /// all were asked, or [`UNHEARD_WAIT`] has passed. Where that was long and in vain nobody asks again for a while: certificates
    /// cost nothing, and each put would wait for some more of them.
    async fn ask_unheard(&self, needed: usize) {
        let directory = self.walker().directory();
        let view = directory.view();
        let unheard = directory.unheard(&view, needed);
        if unheard.is_empty() {
            return;
        }
        tracing::debug!(
            needed,
            asked = unheard.len(),
            "too few peers were heard: others are asked"
        );
        let since = self.env().clock.elapsed();
        let calls = unheard.into_iter().map(|peer| self.hears(peer, since + UNHEARD_WAIT));
        let calls: Vec<_> = calls.collect();
        let mut calls = futures::stream::iter(calls).buffer_unordered(UNHEARD_AT_ONCE);
        while let Some(answered) = calls.next().await {
            if answered && directory.unheard(&view, needed).is_empty() {
                return;
            }
        }
        if self.env().clock.elapsed().saturating_sub(since) >= walk::CALL_LIMIT {
            directory.asked_in_vain();
        }
    }

    /// Introduces this program to a peer; whether that one answered before `until`. Who did not failed, also where others took most
    /// of the time.
    async fn hears(&self, peer: PeerId, until: Duration) -> bool {
        let directory = self.walker().directory();
        let limit = until.saturating_sub(self.env().clock.elapsed());
        let to = directory.endpoint(&peer).filter(|_| !limit.is_zero());
        let Some(to) = to else { return false };
        let answer = self.env().within(limit, self.walker().introduce(&to)).await;
        if answer.is_err() {
            directory.failed(&peer, &CallError::TimedOut { address: to.address, limit });
        }
        matches!(answer, Ok(Ok(_)))
    }

    /// How a put keeps its content, as soon as enough peers are known.
    async fn known_in_time(&self, asked: Option<Profile>) -> Result<Profile, AuthorError> {
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

    /// How a put that was interrupted may have begun to keep its content, for one that would begin so `now` to go on with it: the
    /// same, and where nobody said how, any row of the table for which enough peers answer.
    pub(crate) fn may_have_begun(&self, asked: Option<Profile>, now: Profile) -> Vec<Profile> {
        let directory = self.walker().directory();
        let genesis = directory.genesis();
        let is_said = asked.is_some() || genesis.profile.is_some() || genesis.copies.is_some();
        if is_said || self.walker().is_thin() || self.suite() == Suite::Libri1 {
            return vec![now];
        }
        let view = directory.view();
        let mut rows: Vec<Profile> = (1..=view.len()).map(Profile::by_peers).collect();
        rows.dedup();
        let is_kept = |row: &Profile| {
            let needed = row.threshold() as usize;
            *row != now && fits(&view, row) && directory.heard(&view, needed).is_none()
        };
        std::iter::once(now).chain(rows.into_iter().filter(is_kept)).collect()
    }

    fn copies_of_network(&self) -> u32 {
        self.walker().directory().genesis().copies.unwrap_or(placement::PAGE_COPIES)
    }

    /// The copies of a record of this kind, where the content of its put is kept so.
    pub(super) fn redundancy(&self, profile: Profile, kind: Kind) -> Redundancy {
        let asked = match profile {
            Profile::Copies(copies) if copies != self.copies_of_network() => Some(copies),
            Profile::Copies(_) | Profile::Stripe { .. } => None,
        };
        self.walker().redundancy_to_put(kind, asked)
    }

    /// The stripes of a content that is kept so; `None` for copies.
    ///
    /// # Errors
    /// [`AuthorError::Unsealable`] for metadata that is too long for the entry of a content of any size.
    pub(super) fn shape(&self, options: &PutOptions) -> Result<Option<Shape>, AuthorError> {
        longest_metadata(options, u64::MAX)?;
        let Some(Profile::Stripe { k, n }) = options.profile else { return Ok(None) };
        // Whether a small content goes into its entry must be known before it is sealed, since sealed it is k pages or one.
        let inline_bytes_max = goes_inline(options)?.then_some(INLINE_BYTES_MAX as usize);
        Ok(Some(Shape { k, n, inline_bytes_max }))
    }
}

/// Whether a content of up to [`INLINE_BYTES_MAX`] goes into its entry, beside the metadata that these options make.
fn goes_inline(options: &PutOptions) -> Result<bool, AuthorError> {
    Ok(longest_metadata(options, INLINE_BYTES_MAX)?.len() <= METADATA_INLINE_BYTES_MAX)
}

/// The longest metadata that contents of up to so many bytes can have: numbers of all lengths up to these.
fn longest_metadata(options: &PutOptions, bytes: u64) -> Result<Vec<u8>, AuthorError> {
    let metadata = EntryMetadata {
        info: info(options),
        codec: CompressionCodec::ZstdChunks,
        ciphertext_size: bytes.saturating_add(CIPHERTEXT_EXTRA),
        ciphertext_mac: [u8::MAX; 32],
        uncompressed_size: bytes,
        uncompressed_mac: [u8::MAX; 32],
        whole_macs: WholeMacs::Tags,
    };
    metadata.encode().map_err(|source| AuthorError::Unsealable(source.into()))
}

/// Whether no organisation would have more fragments of a stripe than may be lost, as the table demands where there are several.
fn fits(view: &View, profile: &Profile) -> bool {
    match *profile {
        Profile::Stripe { k, n } if view.organisations() > 1 => {
            view.most_of_one(n as usize) <= n.saturating_sub(k) as usize
        }
        Profile::Stripe { .. } | Profile::Copies(_) => true,
    }
}
