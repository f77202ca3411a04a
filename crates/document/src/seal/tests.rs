//! List pages, with thresholds low enough for a test: 3 ids in an entry, 4 in a list.

use crypto::SecretKey;

use super::*;
use crate::open::EntryOpener;

const LOW: Thresholds = Thresholds { entry_keys: 3, list_keys: 4 };

fn author() -> AuthorKey {
    AuthorKey::new(SecretKey::from_bytes(&[1; 32]).expect("small").public())
}

fn eek() -> Eek {
    Eek::from_bytes(&[5; 108])
}

/// An entry of `pages` pages, its list pages, and the pages' ids.
fn sealed(suite: Suite, pages: usize) -> (Entry, Vec<Page>, Vec<RecordId>) {
    let mut sealer = EntrySealer::new(suite, eek(), author());
    sealer.thresholds = LOW;
    let mut macs = sealer.macs();
    let chunk = vec![0; CHUNK_BYTES_MAX];
    let mut ids = Vec::new();
    for _ in 0..pages {
        let page = sealer.ticket().expect("few").seal(&chunk).expect("a chunk");
        if suite == Suite::Libri1 {
            macs.add_plaintext(&chunk);
        }
        macs.add(&page);
        ids.push(page.record.id);
    }
    let content = SealedContent::Pages(ids.clone());
    let finished = sealer.finish(macs, content, ContentInfo::default(), 1).expect("a content");
    let Ok(Document::Entry(entry)) = crate::prove(suite, &finished.entry) else {
        panic!("an entry")
    };
    let lists = finished.lists.iter().map(|list| match crate::prove(suite, list) {
        Ok(Document::Page(page)) => page,
        _ => panic!("a page"),
    });
    (entry, lists.collect(), ids)
}

fn opener(suite: Suite, entry: &Entry) -> Result<EntryOpener, DocumentError> {
    EntryOpener::with_thresholds(suite, entry, eek(), LOW)
}

#[test]
fn few_pages_are_named_in_the_entry_and_many_in_lists() {
    for suite in Suite::ALL {
        let (entry, lists, ids) = sealed(suite, 3);
        assert_eq!((entry.content, lists.len()), (EntryContent::Pages(ids), 0));
        for (pages, sizes) in [(4, vec![4]), (5, vec![4, 1]), (9, vec![4, 4, 1])] {
            let (entry, lists, ids) = sealed(suite, pages);
            assert!(
                matches!(&entry.content, EntryContent::Lists(keys) if keys.len() == sizes.len())
            );
            let opener = opener(suite, &entry).expect("our own");
            let opened: Vec<Vec<RecordId>> = lists
                .iter()
                .zip(0..)
                .map(|(page, list)| opener.open_list(list, page).expect("our own"))
                .collect();
            assert_eq!(opened.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            assert_eq!(opened.concat(), ids);
        }
    }
}

#[test]
fn a_list_in_the_place_of_another_is_refused() {
    let (entry, lists, _) = sealed(Suite::Holdfast1, 9);
    let opener = opener(Suite::Holdfast1, &entry).expect("our own");
    assert!(matches!(opener.open_list(0, &lists[1]), Err(DocumentError::PageIndex { .. })));
    assert!(matches!(opener.open_list(1 << 31, &lists[0]), Err(DocumentError::TooMuchContent)));
    // Nor is a list opened as a page, or a page as a list.
    assert!(opener.open_page(LIST_INDEX_BASE, &lists[0]).is_err());
    let moved = Page { index: LIST_INDEX_BASE + 1, ..lists[0].clone() };
    assert!(matches!(opener.open_list(1, &moved), Err(DocumentError::Seal(_))));
}

#[test]
fn too_few_or_too_many_lists_or_ids_are_refused() {
    let (mut entry, _, _) = sealed(Suite::Holdfast1, 9);
    let EntryContent::Lists(ids) = entry.content.clone() else { panic!("lists") };
    for wrong in [ids[..2].to_vec(), [&ids[..], &ids[..1]].concat()] {
        entry.content = EntryContent::Lists(wrong);
        let refused = opener(Suite::Holdfast1, &entry);
        assert!(matches!(refused, Err(DocumentError::PageCount { wanted: 3, .. })));
    }
    let (entry, _, _) = sealed(Suite::Holdfast1, 5);
    let opener = opener(Suite::Holdfast1, &entry).expect("our own");
    let list = |keys: &[u8], index| {
        let eek = eek();
        let suite = Suite::Holdfast1;
        let ciphertext = eek.seal_page(suite, index, keys.to_vec()).expect("short");
        let mac = eek.whole_keys().page_mac(&ciphertext).expect("it has a tag");
        Page { author: author(), index, ciphertext: ciphertext.into(), mac }
    };
    // The second list of five pages holds one id.
    let second = |keys: &[u8]| opener.open_list(1, &list(keys, LIST_INDEX_BASE + 1));
    assert!(second(&[7; 32]).is_ok());
    for bad in [&[7; 64][..], &[7; 31], &[7; 33], &[], &[0; 32], &[7; 160]] {
        assert!(second(bad).is_err(), "{} bytes", bad.len());
    }
}

/// A page whose id was not proven: its MAC says whether its tag is of this entry's keys, its tag whether its bytes are.
#[test]
fn a_page_with_another_mac_or_other_bytes_is_refused() {
    let suite = Suite::Holdfast1;
    let mut sealer = EntrySealer::new(suite, eek(), author());
    let mut macs = sealer.macs();
    let sealed = sealer.ticket().expect("few").seal(b"a chunk").expect("short");
    macs.add(&sealed);
    let content = SealedContent::Pages(vec![sealed.record.id]);
    let finished = sealer.finish(macs, content, ContentInfo::default(), 1).expect("a content");
    let Ok(Document::Entry(entry)) = crate::prove(suite, &finished.entry) else {
        panic!("an entry")
    };
    let opener = EntryOpener::new(suite, &entry, eek()).expect("our own");
    assert_eq!(opener.open_page(0, &sealed.page).expect("our own"), b"a chunk"[..]);
    let refused = |page: &Page| match opener.open_page(0, page) {
        Err(DocumentError::Seal(error)) => error,
        other => panic!("{other:?}"),
    };
    for bit in 0..256 {
        let mut other = sealed.page.clone();
        other.mac[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(refused(&other), SealError::Mac);
    }
    let bytes = sealed.page.ciphertext.len();
    for at in 0..bytes {
        let mut flipped = sealed.page.ciphertext.to_vec();
        flipped[at] ^= 1;
        let other = Page { ciphertext: flipped.into(), ..sealed.page.clone() };
        let (tag, found) = (at >= bytes - 16, refused(&other));
        assert_eq!(found, if tag { SealError::Mac } else { SealError::Tag });
    }
}

/// An author's mistake: each page and each id is right, and the MACs over the whole are not. (`tests/libri.rs` has
/// the other suite's.)
#[test]
fn a_wrong_mac_over_the_whole_is_refused() {
    let suite = Suite::Holdfast1;
    for part in ["ciphertext", "plaintext"] {
        let mut sealer = EntrySealer::new(suite, eek(), author());
        let mut macs = sealer.macs();
        let sealed = sealer.ticket().expect("few").seal(b"a chunk").expect("short");
        let mut wrong = sealed.clone();
        match part {
            "ciphertext" => wrong.page.mac[0] ^= 1,
            _ => wrong.chunk_tag[0] ^= 1,
        }
        macs.add(&wrong);
        let content = SealedContent::Pages(vec![sealed.record.id]);
        let finished = sealer.finish(macs, content, ContentInfo::default(), 1).expect("a content");
        let Ok(Document::Entry(entry)) = crate::prove(suite, &finished.entry) else {
            panic!("an entry")
        };
        let opener = EntryOpener::new(suite, &entry, eek()).expect("our own");
        let opened = opener.open_chunk(0, &sealed.page, |len| vec![0; len]);
        let opened = opened.expect("a right page");
        let mut assembler = opener.assembler();
        assembler.push(&sealed.page, &opened, &mut |_| Ok(())).expect("of the right size");
        let refused = assembler.finish();
        let named = matches!(refused, Err(DocumentError::WholeMac(wrong)) if wrong == part);
        assert!(named, "{part}: {refused:?}");
    }
}

/// The page's MAC and its tag hold where another chunk was sealed at its index under the same key, as a writer's defect could; the
/// whole's does not. Nor does it where the same parts come in another order.
#[test]
fn the_macs_of_the_parts_stand_for_their_bytes_and_their_order() {
    let suite = Suite::Holdfast1;
    let sealed = |chunk: &[u8]| {
        EntrySealer::new(suite, eek(), author()).ticket().expect("the first").seal(chunk)
    };
    let [one, other] = [b"one", b"two"].map(|chunk| sealed(chunk).expect("short"));
    let summed = |pages: &[&SealedPage]| {
        let mut macs = EntrySealer::new(suite, eek(), author()).macs();
        pages.iter().for_each(|page| macs.add(page));
        macs.finish()
    };
    let (both, turned) = (summed(&[&one, &other]), summed(&[&other, &one]));
    assert!(both.0 != turned.0 && both.1 != turned.1);
    assert!(summed(&[&one]).0 != summed(&[&other]).0);
    assert!(summed(&[&one]).1 != summed(&[&other]).1);
    assert!(summed(&[]).0 != summed(&[]).1, "keys of their own");
}

#[test]
fn tickets_count_up_and_end_before_the_lists_indices() {
    let mut sealer = EntrySealer::new(Suite::Holdfast1, eek(), author());
    let indices: Vec<u32> = (0..5).map(|_| sealer.ticket().expect("few").index()).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4]);
    sealer.next = LIST_INDEX_BASE - 1;
    assert_eq!(sealer.ticket().expect("the last").index(), LIST_INDEX_BASE - 1);
    assert!(matches!(sealer.ticket(), Err(DocumentError::TooMuchContent)));
}

/// The defaults name every index below 2^31, and a full list page is a full chunk.
#[test]
fn the_thresholds_fit_each_other() {
    assert_eq!(LIST_KEYS_MAX * LIST_PAGE_KEYS_MAX, LIST_INDEX_BASE as usize);
    assert_eq!(LIST_PAGE_KEYS_MAX * 32, CHUNK_BYTES_MAX);
}

/// An entry of `k` pages a stripe over a content of `length` zeros, its list pages, the stripes' headers,
/// and the pages.
fn striped(k: u32, length: u64) -> (Entry, Vec<Page>, Vec<crate::Stripe>, Vec<Page>) {
    let suite = Suite::Holdfast1;
    let mut sealer = EntrySealer::new(suite, eek(), author());
    sealer.thresholds = LOW;
    let mut macs = sealer.macs();
    let layout = Layout::new(k);
    let mut sealed: Vec<SealedPage> = Vec::new();
    for index in 0..layout.chunk_count(length) {
        let range = layout.chunk_range(index, length);
        let chunk = vec![0; (range.end - range.start) as usize];
        sealed.push(sealer.ticket().expect("few").seal(&chunk).expect("a chunk"));
        macs.add(&sealed[index as usize]);
    }
    let stripes: Vec<crate::Striped> = sealed
        .chunks(k as usize)
        .map(|pages| {
            let pages: Vec<Record> = pages.iter().map(|page| page.record.clone()).collect();
            let longest = pages.iter().map(|page| page.bytes.len()).max().expect("some");
            let parity = crate::ParityBuffer::new(k, longest).expect("within bounds");
            crate::Stripe::of(suite, pages, vec![parity.record(suite)]).expect("a stripe")
        })
        .collect();
    let ids = stripes.iter().map(|stripe| stripe.header.id).collect();
    let content = SealedContent::Stripes { k, ids };
    let finished = sealer.finish(macs, content, ContentInfo::default(), 1).expect("a content");
    let Ok(Document::Entry(entry)) = crate::prove(suite, &finished.entry) else {
        panic!("an entry")
    };
    let lists = finished.lists.iter().map(|list| match crate::prove(suite, list) {
        Ok(Document::Page(page)) => page,
        _ => panic!("a page"),
    });
    let stripes = stripes.into_iter().map(|stripe| stripe.stripe).collect();
    (entry, lists.collect(), stripes, sealed.into_iter().map(|sealed| sealed.page).collect())
}

#[test]
fn an_entry_of_stripes_opens_with_the_stripes_its_size_calls_for() {
    let suite = Suite::Holdfast1;
    for length in [0, 1, 100, 3 << 20] {
        let (mut entry, lists, stripes, pages) = striped(3, length);
        assert!(lists.is_empty() && stripes.len() == 1);
        let opener = opener(suite, &entry).expect("our own");
        assert_eq!((opener.stripe_pages(), opener.page_count()), (Some(3), Some(3)));
        assert_eq!(opener.layout(), Some(Layout::new(3)));
        for (page, index) in pages.iter().zip(0..) {
            let range = Layout::new(3).chunk_range(u64::from(index), length);
            let chunk = opener.open_page(index, page).expect("our own");
            assert!(chunk.len() as u64 == range.end - range.start && chunk.iter().all(|b| *b == 0));
        }
        assert!(opener.check_stripe(RecordId::new([1; 32]), &stripes[0]).is_ok());
        let (_, _, others, _) = striped(2, 9);
        let other = opener.check_stripe(RecordId::new([1; 32]), &others[0]);
        assert!(matches!(other, Err(DocumentError::StripePages { wanted: 3, found: 2, .. })));

        let EntryContent::Stripes { ids, .. } = entry.content.clone() else { panic!("stripes") };
        entry.content = EntryContent::Stripes { k: 3, ids: ids.repeat(2) };
        let refused = self::opener(suite, &entry);
        assert!(matches!(refused, Err(DocumentError::PageCount { wanted: 1, found: 2 })));
        let refused = self::opener(Suite::Libri1, &entry);
        assert!(refused.is_err());
    }
}

#[test]
fn many_stripes_are_named_in_lists() {
    // One page a stripe: the content is of five of them, so its lists are of four and one.
    let (entry, lists, stripes, _) = striped(1, 5 * CHUNK_BYTES_MAX as u64);
    assert!(
        matches!(&entry.content, EntryContent::ListedStripes { k: 1, lists } if lists.len() == 2)
    );
    let opener = opener(Suite::Holdfast1, &entry).expect("our own");
    let listed: Vec<Vec<RecordId>> = lists
        .iter()
        .zip(0..)
        .map(|(page, list)| opener.open_list(list, page).expect("our own"))
        .collect();
    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [4, 1]);
    let ids: Vec<RecordId> = stripes
        .into_iter()
        .map(|stripe| Record::of(Suite::Holdfast1, &Document::Stripe(stripe)).id)
        .collect();
    assert_eq!(listed.concat(), ids);
}

/// 32,768 lists of 65,536 stripes of 255 pages would be more pages than there are indexes.
#[test]
fn an_entry_of_more_pages_than_indexes_is_refused_before_any_is_fetched() {
    let suite = Suite::Holdfast1;
    let (entry, ..) = striped(1, 9);
    let with = |k: u32, stripes: u64| {
        let metadata = EntryMetadata {
            info: ContentInfo::default(),
            codec: CompressionCodec::ZstdChunks,
            ciphertext_size: 1,
            ciphertext_mac: [1; 32],
            uncompressed_size: stripes * Layout::new(k).segment_bytes(),
            uncompressed_mac: [1; 32],
            whole_macs: WholeMacs::Tags,
        };
        let sealed = eek().seal_metadata(suite, metadata.encode().expect("short"));
        let (metadata_ciphertext, metadata_ciphertext_mac) = sealed.expect("short");
        let metadata_ciphertext = metadata_ciphertext.into();
        let lists = stripes.div_ceil(LIST_PAGE_KEYS_MAX as u64) as usize;
        let content = EntryContent::ListedStripes { k, lists: vec![RecordId::new([7; 32]); lists] };
        let entry =
            Entry { content, metadata_ciphertext, metadata_ciphertext_mac, ..entry.clone() };
        EntryOpener::new(suite, &entry, eek())
    };
    let most = u64::from(LIST_INDEX_BASE / 255);
    assert!(with(255, most).is_ok() && with(1, u64::from(LIST_INDEX_BASE)).is_ok());
    for (k, stripes) in [(255, most + 1), (255, 1 << 31), (2, (1 << 30) + 1)] {
        let refused = with(k, stripes);
        assert!(matches!(refused, Err(DocumentError::TooMuchContent)), "{k} {stripes}");
    }
}

#[test]
fn stripes_cannot_be_sealed_in_libri_1() {
    let sealer = EntrySealer::new(Suite::Libri1, eek(), author());
    let macs = sealer.macs();
    let content = SealedContent::Stripes { k: 1, ids: vec![RecordId::new([1; 32])] };
    let refused = sealer.finish(macs, content, ContentInfo::default(), 1);
    assert!(matches!(refused, Err(DocumentError::Suite(_))));
}

/// Short and long, such that shrink and such that do not, with room behind and without: the same page either way.
#[test]
fn a_chunk_sealed_where_it_lies_makes_the_same_page() {
    let ticket = |suite| EntrySealer::new(suite, eek(), author()).ticket().expect("the first");
    let hashes = (0..20_000u64).flat_map(|i| Suite::Holdfast1.hash(&i.to_le_bytes()));
    let noise: Vec<u8> = hashes.collect();
    let text = b"the same again and again. ".repeat(20_000);
    for suite in Suite::ALL {
        for chunk in [&b"x"[..], &noise[..17], &noise[..5000], &noise, &text[..400], &text, b""] {
            for room in [0, CHUNK_SUFFIX_BYTES, 1 << 10] {
                let copied = ticket(suite).seal(chunk).expect("a chunk");
                let mut memory = Vec::with_capacity(CHUNK_PREFIX_BYTES + chunk.len() + room);
                memory.resize(CHUNK_PREFIX_BYTES, 0xee);
                memory.extend_from_slice(chunk);
                let lies = memory.as_ptr().addr();
                let sealed = ticket(suite).seal_in_place(memory).expect("a chunk");
                assert_eq!(sealed.page.mac, copied.page.mac);
                assert!(sealed.record == copied.record, "{} bytes", chunk.len());
                assert_eq!(sealed.chunk_bytes, chunk.len());
                let there = sealed.record.bytes.as_ptr().addr().wrapping_sub(lies) < HEAD_BYTES_MAX;
                let stays = suite == Suite::Holdfast1 && chunk == noise && room > 0;
                assert!(there || !stays, "it was moved");
            }
        }
    }
    let long = vec![0; CHUNK_PREFIX_BYTES + CHUNK_BYTES_MAX + 1];
    let refused = ticket(Suite::Holdfast1).seal_in_place(long);
    assert!(matches!(refused, Err(DocumentError::Chunk { .. })));
}
