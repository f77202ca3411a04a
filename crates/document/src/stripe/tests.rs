use crypto::{AuthorKey, SecretKey};

use super::*;
use crate::ParityBuffer;
use crate::page::Page;

const SUITE: Suite = Suite::Holdfast1;

fn page(index: u32, bytes: usize) -> Record {
    let author = AuthorKey::new(SecretKey::from_bytes(&[1; 32]).expect("small").public());
    let ciphertext = vec![7; bytes].into();
    Record::of(SUITE, &Document::Page(Page { author, index, ciphertext, mac: [9; 32] }))
}

fn parity(index: u32, bytes: usize) -> Record {
    let mut buffer = ParityBuffer::new(index, bytes).expect("within bounds");
    buffer.bytes_mut().fill(index as u8);
    buffer.record(SUITE)
}

/// Two pages, the second one shorter, and three parity fragments.
fn striped() -> Striped {
    let pages = vec![page(0, 100), page(1, 50)];
    let longest = pages[0].bytes.len();
    Stripe::of(SUITE, pages, (2..5).map(|index| parity(index, longest)).collect()).expect("good")
}

fn proves(striped: &Striped, record: &Record) -> Result<u32, DocumentError> {
    let document = crate::prove(SUITE, record)?;
    striped.stripe.prove(&striped.header.id, record, &document)
}

#[test]
fn all_records_of_a_stripe_live_at_its_header_and_prove_themselves() {
    let made = striped();
    let Ok(Document::Stripe(stripe)) = crate::prove(SUITE, &made.header) else {
        panic!("a header")
    };
    assert_eq!(stripe, made.stripe);
    assert_eq!((stripe.k(), stripe.n(), stripe.lengths().len()), (2, 5, 2));
    assert_eq!(stripe.fragment_bytes(), made.fragments[0].bytes.len());
    for (index, record) in made.fragments.iter().enumerate() {
        assert_eq!(record.place, made.header.place);
        assert_eq!(proves(&made, record).expect("listed"), index as u32);
        assert_eq!(stripe.kind_of(index as u32), Some(record.kind));
        assert_eq!(stripe.fragments()[index], record.id);
    }
    assert_eq!(stripe.kind_of(5), None);
}

#[test]
fn what_a_stripe_does_not_list_or_says_otherwise_of_is_refused() {
    let made = striped();
    let there = |record: Record| Record { place: made.header.place, ..record };
    let stranger = proves(&made, &there(page(2, 100)));
    assert!(matches!(stranger, Err(DocumentError::Place(_))));
    let elsewhere = Record { place: Place::new([8; 32]), ..made.fragments[3].clone() };
    assert!(matches!(proves(&made, &elsewhere), Err(DocumentError::Place(_))));
    assert!(matches!(proves(&made, &made.header), Err(DocumentError::Place(_))));

    // Headers that list a record at the wrong number, as another kind, or with another length.
    let ids = |made: &Striped| made.stripe.fragments().to_vec();
    let lengths = made.stripe.lengths().to_vec();
    let refused = |lengths: Vec<u32>, ids: Vec<RecordId>, of: usize| {
        let stripe = Stripe::new(lengths, ids).expect("a header of good form");
        let header = Record::of(SUITE, &Document::Stripe(stripe.clone()));
        let record = Record { place: header.place, ..made.fragments[of].clone() };
        let document = crate::prove(SUITE, &record).expect("of good form");
        let proven = stripe.prove(&header.id, &record, &document);
        assert!(matches!(proven, Err(DocumentError::Fragment { .. })), "{of}: {proven:?}");
    };
    let mut swapped = ids(&made);
    swapped.swap(1, 2);
    refused(lengths.clone(), swapped.clone(), 1);
    refused(lengths.clone(), swapped, 2);
    let mut swapped = ids(&made);
    swapped.swap(2, 3);
    refused(lengths.clone(), swapped, 2);
    refused(vec![lengths[0], lengths[1] + 1], ids(&made), 1);
    refused(vec![lengths[0] - 1, lengths[1]], ids(&made), 4);
}

#[test]
fn no_stripe_is_made_of_what_does_not_fit() {
    let pages = || vec![page(0, 100), page(1, 50)];
    let longest = pages()[0].bytes.len();
    let of = |pages, parity| Stripe::of(SUITE, pages, parity);
    assert!(of(pages(), vec![parity(2, longest)]).is_ok());
    assert!(of(pages(), vec![]).is_err(), "no parity");
    assert!(of(vec![], vec![parity(2, longest)]).is_err(), "no page");
    assert!(
        of(vec![page(0, 100), page(0, 100)], vec![parity(2, longest)]).is_err(),
        "one id twice"
    );
    assert!(of(pages(), vec![parity(3, longest)]).is_err(), "another index");
    assert!(of(pages(), vec![parity(2, longest - 1)]).is_err(), "another length");
    assert!(of(pages(), vec![page(2, 100)]).is_err(), "a page for parity");
    assert!(
        of(vec![page(0, 100), parity(1, 50)], vec![parity(2, longest)]).is_err(),
        "the reverse"
    );
    let many: Vec<Record> = (2..=256).map(|index| page(index, 20)).collect();
    assert!(of(pages(), many).is_err(), "257 fragments");
    let libri = Stripe::of(Suite::Libri1, pages(), vec![parity(2, longest)]);
    assert!(matches!(libri, Err(DocumentError::Suite(_))));
}

#[test]
fn the_largest_header_has_the_bytes_that_are_said() {
    let ids = |n: usize| (1..=n).map(|i| RecordId::new(SUITE.hash(&i.to_be_bytes()))).collect();
    let longest = page_bytes_max(255) as u32;
    assert_eq!(longest, (16_u32 << 20).div_ceil(255) + 102);
    assert!(Stripe::new(vec![longest + 1; 255], ids(256)).is_err());
    let stripe = Stripe::new(vec![longest; 255], ids(256)).expect("the largest");
    let bytes = Document::Stripe(stripe.clone()).encode();
    assert_eq!(bytes.len(), STRIPE_BYTES_MAX);
    assert_eq!(Document::decode(&bytes).expect("its own"), Document::Stripe(stripe));
    assert!(Stripe::new(vec![9; 256], ids(257)).is_err());
    // Up to 8 pages are of 2 MiB, and their lengths of four bytes; then there are fewer of them.
    for k in 1..=255 {
        let longest = page_bytes_max(k);
        assert!(k > 8 || longest == ENCODED_BYTES_MAX, "{k}");
        assert!(k as usize * longest <= (16 << 20) + k as usize * 103, "{k}");
        let stripe = Stripe::new(vec![longest as u32; k as usize], ids(256)).expect("as long");
        assert!(Document::Stripe(stripe).encode().len() <= STRIPE_BYTES_MAX, "{k}");
    }
}

#[test]
fn what_the_code_made_again_is_cut_and_proven() {
    let made = striped();
    let (stripe, header) = (&made.stripe, &made.header.id);
    let coded_of = |index: usize| {
        let record = &made.fragments[index];
        coded(record, &Document::decode(&record.bytes).expect("its own")).expect("a fragment")
    };
    // A page comes with zeros behind it.
    let mut with_zeros = coded_of(1).to_vec();
    with_zeros.resize(stripe.fragment_bytes(), 0);
    let again = stripe.page(SUITE, header, 1, &with_zeros.clone().into()).expect("the page");
    assert_eq!(again, made.fragments[1]);
    let mut buffer = ParityBuffer::new(4, stripe.fragment_bytes()).expect("within bounds");
    buffer.bytes_mut().copy_from_slice(&coded_of(4));
    let again = stripe.parity(SUITE, header, 4, buffer).expect("the parity");
    assert_eq!(again, made.fragments[4]);

    with_zeros[60] ^= 1;
    let changed = stripe.page(SUITE, header, 1, &with_zeros.into());
    assert!(matches!(changed, Err(DocumentError::Id(id)) if id == made.fragments[1].id));
    let empty = ParityBuffer::new(4, stripe.fragment_bytes()).expect("within bounds");
    assert!(matches!(stripe.parity(SUITE, header, 4, empty), Err(DocumentError::Id(_))));
    let short = stripe.page(SUITE, header, 1, &coded_of(1).slice(1..));
    assert!(matches!(short, Err(DocumentError::Fragment { .. })));
    for index in [2, 5, u32::MAX] {
        assert!(stripe.page(SUITE, header, index, &coded_of(0)).is_err());
    }
    for index in [1, 5] {
        let buffer = ParityBuffer::new(index, stripe.fragment_bytes()).expect("within bounds");
        assert!(stripe.parity(SUITE, header, index, buffer).is_err());
    }
    assert!(coded(&made.header, &Document::Stripe(stripe.clone())).is_none());
}

/// An author may list the id of bytes that are no page: made again, they are told as its fault and no fragment.
#[test]
fn a_page_that_is_none_is_not_made_again() {
    let garbage = Bytes::from(vec![7; 100]);
    let ids = vec![SUITE.id(&garbage), RecordId::new([8; 32])];
    let stripe = Stripe::new(vec![100], ids).expect("a header of good form");
    let header = Record::of(SUITE, &Document::Stripe(stripe.clone()));
    let made = stripe.page(SUITE, &header.id, 0, &garbage);
    assert!(matches!(made, Err(DocumentError::Fragment { index: 0 })), "{made:?}");
    let real = striped();
    let page = real.fragments[0].bytes.clone();
    assert!(real.stripe.page(SUITE, &real.header.id, 0, &page).is_ok());
}
