//! More stripes than an entry names: their ids are in list pages, and a read fetches the lists that it needs.
//!
//! A content of 65,537 stripes is a quarter of a tebibyte. So its entry and lists are written by hand, and of its stripes the
//! last two are real: the one at the end of the first list, and the one that is alone in the second.

use std::sync::Arc;

use author::{Author, AuthorError, NoProgress, Part, STRIPES_TOLD_MAX};
use crypto::{Eek, RecordId, SecretKey, Suite};
use document::entry::{LIST_INDEX_BASE, LIST_PAGE_KEYS_MAX};
use document::{
    CompressionCodec, ContentInfo, Document, Entry, EntryContent, EntryMetadata, Layout, Page,
    ParityBuffer, Record, Stripe, WholeMacs,
};
use erasure::Code;
use testkit::time;
use walk::StripeRecords;

use crate::network::{Net, noise};

const SUITE: Suite = Suite::Holdfast1;
/// Pages a stripe, and fragments.
const K: u32 = 2;
const N: u32 = 3;
/// What the last stripe has.
const LAST: u64 = 5;

/// Writes such a content, and keeps where it is.
struct Huge {
    eek: Eek,
    author: SecretKey,
    size: u64,
    lists: Vec<RecordId>,
    address: RecordId,
}

impl Huge {
    /// `first` is what the entry names in the stead of all stripes that are not written.
    async fn stored(author: &Author, first: impl FnOnce(RecordId) -> RecordId) -> Self {
        let layout = Layout::new(K);
        let size = LIST_PAGE_KEYS_MAX as u64 * layout.segment_bytes() + LAST;
        let mut huge = Self {
            eek: Eek::from_bytes(&[6; 108]),
            author: SecretKey::from_bytes(&[5; 32]).unwrap(),
            size,
            lists: Vec::new(),
            address: RecordId::new([1; 32]),
        };
        let last = LIST_PAGE_KEYS_MAX as u64;
        let real = huge.stripe(author, last - 1).await;
        let mut ids = vec![first(real); LIST_PAGE_KEYS_MAX - 1];
        ids.push(real);
        ids.push(huge.stripe(author, last).await);
        for (ids, list) in ids.chunks(LIST_PAGE_KEYS_MAX).zip(0..) {
            let keys: Vec<u8> = ids.iter().flat_map(|id| *id.as_bytes()).collect();
            let list = huge.page(LIST_INDEX_BASE + list, &keys);
            huge.lists.push(list.id);
            stored(author, list).await;
        }
        let entry = huge.entry();
        let network = author.walker().directory().genesis().network();
        let reader = author.home().keyring().readers()[0];
        let envelope =
            document::envelope::seal(SUITE, network, entry.id, &huge.author, &reader, &huge.eek);
        let envelope = Record::of(SUITE, &Document::Envelope(envelope));
        huge.address = envelope.id;
        stored(author, entry).await;
        stored(author, envelope).await;
        huge
    }

    fn page(&self, index: u32, plain: &[u8]) -> Record {
        let ciphertext = self.eek.seal_page(SUITE, index, plain.to_vec()).unwrap();
        let mac = self.eek.whole_keys().page_mac(&ciphertext).unwrap();
        let author = self.author.public().into();
        Record::of(
            SUITE,
            &Document::Page(Page { author, index, ciphertext: ciphertext.into(), mac }),
        )
    }

    fn entry(&self) -> Record {
        let metadata = EntryMetadata {
            info: ContentInfo::default(),
            codec: CompressionCodec::ZstdChunks,
            ciphertext_size: self.size,
            ciphertext_mac: [1; 32],
            uncompressed_size: self.size,
            uncompressed_mac: [1; 32],
            whole_macs: WholeMacs::Tags,
        };
        let sealed = self.eek.seal_metadata(SUITE, metadata.encode().unwrap()).unwrap();
        Record::of(
            SUITE,
            &Document::Entry(Entry {
                author: self.author.public().into(),
                content: EntryContent::ListedStripes { k: K, lists: self.lists.clone() },
                created_time: 1,
                metadata_ciphertext: sealed.0.into(),
                metadata_ciphertext_mac: sealed.1,
            }),
        )
    }

    /// Stores one stripe of the content, whose chunks are of [`chunk`].
    async fn stripe(&self, author: &Author, number: u64) -> RecordId {
        let pages: Vec<Record> = (0..u64::from(K))
            .map(|page| number * u64::from(K) + page)
            .map(|index| self.page(index as u32, &[&[0], &chunk(index, self.size)[..]].concat()))
            .collect();
        let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap();
        let mut parity = ParityBuffer::new(K, longest).unwrap();
        let data: Vec<&[u8]> = pages.iter().map(|page| &page.bytes[..]).collect();
        Code::new(K as usize, N as usize)
            .unwrap()
            .encode(&data, &mut [parity.bytes_mut()])
            .unwrap();
        let striped = Stripe::of(SUITE, pages, vec![parity.record(SUITE)]).unwrap();
        let id = striped.header.id;
        let (header, fragments) = (striped.header, striped.fragments);
        let stripe = StripeRecords { header, fragments, threshold: N };
        assert_eq!(author.walker().store_stripe(stripe).await.unwrap().acked, N);
        id
    }

    async fn range(&self, author: &Author, from_end: u64) -> Result<Vec<u8>, AuthorError> {
        let mut bytes = Vec::new();
        let range = Some(self.size - from_end..self.size);
        author.get(self.address, &mut bytes, range, Arc::new(NoProgress)).await?;
        Ok(bytes)
    }
}

/// The bytes of a page's chunk.
fn chunk(index: u64, size: u64) -> Vec<u8> {
    let range = Layout::new(K).chunk_range(index, size);
    noise(index, (range.end - range.start) as usize)
}

async fn stored(author: &Author, record: Record) {
    let copies = author.walker().redundancy(record.kind);
    author.walker().store(record, copies).await.unwrap();
}

/// One stripe, named 65,536 times: who asks about it is told no more than it can hold.
#[test]
fn what_is_told_of_a_long_content_is_bounded() {
    time::run(2, |env| async move {
        let net = Net::new(&env, 3, 9, SUITE);
        let author = net.user("ada");
        let huge = Huge::stored(&author, |real| real).await;
        let info = author.info(huge.address).await.unwrap();
        let stripes = LIST_PAGE_KEYS_MAX as u64 + 1;
        assert_eq!((info.stripes, info.pages), (stripes, stripes * u64::from(K)));
        assert_eq!(info.untold, stripes - STRIPES_TOLD_MAX as u64);
        // The envelope, the entry and two lists come first.
        assert_eq!(info.fragments.len(), 4 + STRIPES_TOLD_MAX * N as usize);
        assert!(info.fragments.iter().all(|one| one.holders.iter().any(|at| at.held)));
    });
}

#[test]
fn a_range_is_read_over_the_end_of_a_list_and_needs_no_other_list() {
    time::run(1, |env| async move {
        let net = Net::new(&env, 3, 9, SUITE);
        let author = net.user("ada");
        let huge = Huge::stored(&author, |_| RecordId::new([9; 32])).await;
        let first = LIST_PAGE_KEYS_MAX as u64 * u64::from(K) - 1;
        let bytes: Vec<u8> = (first..first + 3).flat_map(|index| chunk(index, huge.size)).collect();
        // Three bytes of the last chunk that the first list names, and all that the second names.
        let found = huge.range(&author, LAST + 3).await.unwrap();
        assert_eq!(found, bytes[bytes.len() - 8..]);
        assert_eq!(huge.range(&author, LAST).await.unwrap(), bytes[bytes.len() - 5..]);
        assert_eq!(huge.range(&author, 1).await.unwrap(), bytes[bytes.len() - 1..]);

        // The first list is gone: what only the second names can be had all the same.
        let lost = net.peers.iter().filter(|peer| peer.memory.lose(&huge.lists[0]));
        assert!(lost.count() >= 3);
        assert_eq!(huge.range(&author, LAST).await.unwrap(), bytes[bytes.len() - 5..]);
        let error = huge.range(&author, LAST + 3).await.unwrap_err();
        assert!(matches!(error, AuthorError::Fetch { part: Part::List(0), .. }), "{error:?}");
        let error = author.check(huge.address, 0).await.unwrap_err();
        assert!(matches!(error, AuthorError::Fetch { part: Part::List(0), .. }), "{error:?}");
        assert_eq!(author.window_bytes().0, 0);
    });
}
