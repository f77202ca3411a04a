//! Documents of hostile form: each row is refused by one check, and passes when it alone is mended.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::canonical::CanonicalError;
use crypto::{Class, Classified, RecordId, SecretKey, Suite};
use document::entry::{LIST_KEYS_MAX, PAGE_KEYS_MAX, STRIPE_KEYS_MAX};
use document::metadata::{METADATA_BYTES_MAX, METADATA_INLINE_BYTES_MAX};
use document::page::{CIPHERTEXT_BYTES_MAX, ENCODED_BYTES_MAX};
use document::stripe::STRIPE_BYTES_MAX;
use document::{DOCUMENT_BYTES_MAX, Document, DocumentError, Kind, Publication, Record, prove};

/// A length-delimited field.
fn field(tag: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(u64::from(tag << 3 | 2), &mut out);
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

/// A varint field.
fn number(tag: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(u64::from(tag << 3), &mut out);
    prost::encoding::encode_varint(value, &mut out);
    out
}

fn key(byte: u8) -> Vec<u8> {
    SecretKey::from_bytes(&[byte; 32]).unwrap().public().as_bytes().to_vec()
}

type Fields = Vec<Vec<u8>>;

fn page_fields() -> Fields {
    vec![field(1, &key(1)), number(2, 5), field(3, &[7; 40]), field(4, &[8; 32])]
}

fn inline_page() -> Vec<u8> {
    [field(1, &key(1)), field(3, &[7; 40]), field(4, &[8; 32])].concat()
}

fn entry_fields() -> Fields {
    vec![
        field(1, &key(1)),
        field(2, &inline_page()),
        number(4, 9),
        field(5, &[6; 50]),
        field(6, &[5; 32]),
    ]
}

fn envelope_fields() -> Fields {
    vec![
        field(1, &[4; 32]),
        field(2, &key(1)),
        field(3, &key(2)),
        field(4, &[3; 124]),
        field(5, &[2; 32]),
    ]
}

fn parity_fields() -> Fields {
    vec![number(1, 4), field(2, &[7; 40])]
}

fn ids(of: std::ops::Range<u8>) -> Vec<u8> {
    of.flat_map(|byte| [byte; 32]).collect()
}

/// Two pages, of 89 and 300 bytes, and three fragments of parity.
fn stripe_fields() -> Fields {
    vec![number(1, 2), field(2, &[89, 0xac, 0x02]), field(3, &ids(1..6))]
}

/// An entry of two stripes of four pages.
fn striped_fields() -> Fields {
    vec![
        field(1, &key(1)),
        number(4, 9),
        field(5, &[6; 50]),
        field(6, &[5; 32]),
        [field(7, &[1; 32]), field(7, &[2; 32])].concat(),
        vec![],
        number(9, 4),
    ]
}

fn decode(kind: u32, fields: &Fields) -> Result<Document, DocumentError> {
    Document::decode(&field(kind, &fields.concat()).into())
}

/// Checks that the base decodes and each change of one field (or a field put in) does not.
fn refused(kind: u32, base: fn() -> Fields, changes: &[(&str, usize, Vec<u8>)]) {
    let document = decode(kind, &base()).unwrap();
    assert_eq!(document.encode()[..], field(kind, &base().concat())[..]);
    for (what, at, bytes) in changes {
        let mut fields = base();
        fields[*at].clone_from(bytes);
        let error = decode(kind, &fields).expect_err(what);
        assert_eq!(error.class(), Class::Invalid, "{what}: {error}");
    }
}

fn not_on_the_curve() -> Vec<u8> {
    [&[2][..], &[0xff; 32]].concat()
}

#[test]
fn fields_of_a_page() {
    let author = |bytes: &[u8]| field(1, bytes);
    refused(
        3,
        page_fields,
        &[
            ("no author", 0, vec![]),
            ("short author", 0, author(&key(1)[..32])),
            ("author not on the curve", 0, author(&not_on_the_curve())),
            ("zero author", 0, author(&[0; 33])),
            ("uncompressed author", 0, author(&[4; 65])),
            ("index 0 written", 1, number(2, 0)),
            ("index above 32 bits", 1, number(2, 1 << 32)),
            ("index as bytes", 1, field(2, &[1])),
            ("padded varint", 1, vec![0x10, 0x85, 0x00]),
            ("no ciphertext", 2, vec![]),
            ("empty ciphertext", 2, field(3, b"")),
            ("shorter than a tag", 2, field(3, &[7; 15])),
            ("no MAC", 3, vec![]),
            ("short MAC", 3, field(4, &[8; 31])),
            ("long MAC", 3, field(4, &[8; 33])),
            ("zero MAC", 3, field(4, &[0; 32])),
            ("unknown field", 3, [field(4, &[8; 32]), number(5, 1)].concat()),
            ("MAC twice", 3, field(4, &[8; 32]).repeat(2)),
        ],
    );
}

#[test]
fn a_page_is_bounded() {
    let with = |length| {
        let mut fields = page_fields();
        fields[2] = field(3, &vec![7; length]);
        decode(3, &fields)
    };
    assert!(with(16).is_ok() && with(CIPHERTEXT_BYTES_MAX).is_ok());
    assert!(matches!(with(CIPHERTEXT_BYTES_MAX + 1), Err(DocumentError::Field(_))));
    let large = Document::decode(&vec![0; DOCUMENT_BYTES_MAX + 1].into());
    assert!(matches!(large, Err(DocumentError::TooLarge { .. })));
}

#[test]
fn fields_of_an_entry() {
    let of = |fields: &[Vec<u8>]| field(2, &fields.concat());
    let author = || field(1, &key(1));
    let rest = || [field(3, &[7; 40]), field(4, &[8; 32])].concat();
    let both = [field(2, &inline_page()), field(3, &[1; 32])].concat();
    refused(
        2,
        entry_fields,
        &[
            ("no author", 0, vec![]),
            ("another author than its page's", 0, field(1, &key(2))),
            ("no content", 1, vec![]),
            ("page and keys", 1, both),
            ("keys and lists are one too many", 1, field(3, &[1; 31])),
            ("zero page key", 1, field(3, &[0; 32])),
            ("one good and one zero key", 1, [field(3, &[1; 32]), field(3, &[0; 32])].concat()),
            ("inline page with an index", 1, of(&[author(), number(2, 1), rest()])),
            ("inline page of another author", 1, of(&[field(1, &key(2)), rest()])),
            ("no created time", 2, vec![]),
            ("created time 0", 2, number(4, 0)),
            ("created time above 32 bits", 2, number(4, 1 << 32)),
            ("no metadata", 3, vec![]),
            ("metadata shorter than a tag", 3, field(5, &[6; 15])),
            ("metadata too long", 3, field(5, &[6; METADATA_INLINE_BYTES_MAX + 17])),
            ("zero metadata MAC", 4, field(6, &[0; 32])),
            ("no metadata MAC", 4, vec![]),
            ("field of a later release", 4, [field(6, &[5; 32]), field(7, &[1; 32])].concat()),
            ("lists beside a page", 4, [field(6, &[5; 32]), field(8, &[1; 32])].concat()),
        ],
    );
}

#[test]
fn fields_of_an_entry_of_stripes() {
    let stripes = || field(7, &[1; 32]);
    let page = [field(1, &key(1)), field(2, &inline_page())].concat();
    refused(
        2,
        striped_fields,
        &[
            ("a page beside stripes", 0, page),
            ("page keys beside stripes", 0, [field(1, &key(1)), field(3, &[1; 32])].concat()),
            ("lists beside stripes", 5, field(8, &[1; 32])),
            ("no stripe and no list", 4, vec![]),
            ("zero id", 4, field(7, &[0; 32])),
            ("short id", 4, field(7, &[1; 31])),
            ("ids in one field", 4, field(7, &[1; 64])),
            ("no k", 6, vec![]),
            ("k of 0 written", 6, number(9, 0)),
            ("k above 255", 6, number(9, 256)),
            ("k above 32 bits", 6, number(9, 1 << 32)),
            ("k twice", 6, number(9, 4).repeat(2)),
            ("unknown field", 6, [number(9, 4), number(10, 1)].concat()),
            ("k before the stripes", 4, [number(9, 4), stripes()].concat()),
            ("metadata too long", 2, field(5, &vec![6; METADATA_BYTES_MAX + 17])),
        ],
    );
    let with = |stripes: usize, lists: usize, k: u64| {
        let mut fields = striped_fields();
        fields[4] = field(7, &[1; 32]).repeat(stripes);
        fields[5] = field(8, &[1; 32]).repeat(lists);
        fields[6] = number(9, k);
        decode(2, &fields)
    };
    for k in [1, 255] {
        assert!(with(STRIPE_KEYS_MAX, 0, k).is_ok() && with(0, LIST_KEYS_MAX, k).is_ok());
    }
    assert!(with(STRIPE_KEYS_MAX + 1, 0, 4).is_err() && with(0, LIST_KEYS_MAX + 1, 4).is_err());
    // A k without stripes: beside a page, and beside page keys.
    let mut fields = entry_fields();
    fields.push(number(9, 4));
    assert!(decode(2, &fields).is_err());
    fields[1] = field(3, &[1; 32]);
    assert!(decode(2, &fields).is_err());
    fields.pop();
    assert!(decode(2, &fields).is_ok());
}

#[test]
fn fields_of_parity() {
    refused(
        4,
        parity_fields,
        &[
            ("no index", 0, vec![]),
            ("index 0 written", 0, number(1, 0)),
            ("index of no stripe", 0, number(1, 256)),
            ("index above 32 bits", 0, number(1, (1 << 32) + 4)),
            ("padded varint", 0, vec![0x08, 0x84, 0x00]),
            ("index twice", 0, number(1, 4).repeat(2)),
            ("no bytes", 1, vec![]),
            ("empty bytes", 1, field(2, b"")),
            ("unknown field", 1, [field(2, &[7; 40]), number(3, 1)].concat()),
            ("bytes twice", 1, field(2, &[7; 40]).repeat(2)),
        ],
    );
    let with = |length| decode(4, &vec![number(1, 255), field(2, &vec![7; length])]);
    assert!(with(1).is_ok() && with(ENCODED_BYTES_MAX).is_ok());
    assert!(matches!(with(ENCODED_BYTES_MAX + 1), Err(DocumentError::Field(_))));
}

#[test]
fn fields_of_a_stripe() {
    let zero = [ids(1..5), vec![0; 32]].concat();
    let doubled = [ids(1..5), ids(2..3)].concat();
    let too_long = [&[89][..], &[0xe7, 0x80, 0x80, 0x01]].concat();
    refused(
        5,
        stripe_fields,
        &[
            ("no k", 0, vec![]),
            ("k of 0 written", 0, number(1, 0)),
            ("k of another number of lengths", 0, number(1, 3)),
            ("k above 32 bits", 0, number(1, (1 << 32) + 2)),
            ("no lengths", 1, vec![]),
            ("one length too few", 1, field(2, &[89])),
            ("a length of 0", 1, field(2, &[0, 0xac, 0x02])),
            ("a length above a page's", 1, field(2, &too_long)),
            ("a length above 32 bits", 1, field(2, &[89, 0x81, 0x80, 0x80, 0x80, 0x10])),
            ("a padded length", 1, field(2, &[0xd9, 0x00, 0xac, 0x02])),
            ("lengths not packed", 1, [number(2, 89), number(2, 300)].concat()),
            ("lengths in two fields", 1, [field(2, &[89]), field(2, &[0xac, 0x02])].concat()),
            ("no fragments", 2, vec![]),
            ("n below k", 2, field(3, &ids(1..2))),
            ("n of k: no parity", 2, field(3, &ids(1..3))),
            ("a part of an id", 2, field(3, &ids(1..6)[..159])),
            ("an id twice", 2, field(3, &doubled)),
            ("a zero id", 2, field(3, &zero)),
            ("ids in two fields", 2, [field(3, &ids(1..4)), field(3, &ids(4..6))].concat()),
            ("unknown field", 2, [field(3, &ids(1..6)), number(4, 1)].concat()),
        ],
    );
    let with = |n: u8| decode(5, &vec![number(1, 1), field(2, &[89]), field(3, &ids(1..n))]);
    assert!(with(3).is_ok() && with(255).is_ok());
    let mut most: Vec<u8> = ids(1..255);
    most.extend([[1, 2].repeat(16), [2, 1].repeat(16)].concat());
    let of = |ids: &[u8]| decode(5, &vec![number(1, 1), field(2, &[89]), field(3, ids)]);
    assert!(of(&most).is_ok(), "256");
    most.extend([3, 4].repeat(16));
    assert!(of(&most).is_err(), "257");
}

/// What is longer than any header is refused before it is taken apart.
#[test]
fn a_stripe_is_bounded() {
    let with =
        |lengths| decode(5, &vec![number(1, 1), field(2, &vec![1; lengths]), field(3, &ids(1..3))]);
    assert!(matches!(with(STRIPE_BYTES_MAX), Err(DocumentError::TooLarge { .. })));
    assert!(matches!(with(2), Err(DocumentError::Field(_))));
    assert!(with(1).is_ok());
}

#[test]
fn an_entry_is_bounded() {
    let with = |keys: usize, metadata: usize| {
        let mut fields = entry_fields();
        fields[1] = field(3, &[1; 32]).repeat(keys);
        fields[3] = field(5, &vec![6; metadata]);
        decode(2, &fields)
    };
    assert!(with(1, METADATA_BYTES_MAX + 16).is_ok());
    assert!(with(1, METADATA_BYTES_MAX + 17).is_err());
    assert!(with(PAGE_KEYS_MAX, METADATA_BYTES_MAX + 16).is_ok());
    assert!(with(PAGE_KEYS_MAX + 1, 50).is_err());
    let lists = |keys: usize, key: &[u8]| {
        let mut fields = entry_fields();
        fields[1] = vec![];
        fields.push(field(8, key).repeat(keys));
        decode(2, &fields)
    };
    assert!(lists(LIST_KEYS_MAX, &[1; 32]).is_ok());
    assert!(lists(LIST_KEYS_MAX + 1, &[1; 32]).is_err());
    assert!(lists(1, &[0; 32]).is_err() && lists(1, &[1; 33]).is_err());
}

#[test]
fn fields_of_an_envelope() {
    refused(
        1,
        envelope_fields,
        &[
            ("no entry", 0, vec![]),
            ("zero entry", 0, field(1, &[0; 32])),
            ("long entry", 0, field(1, &[4; 33])),
            ("author not on the curve", 1, field(2, &not_on_the_curve())),
            ("no reader", 2, vec![]),
            ("reader not on the curve", 2, field(3, &not_on_the_curve())),
            ("short EEK", 3, field(4, &[3; 123])),
            ("zero EEK", 3, field(4, &[0; 124])),
            ("zero MAC", 4, field(5, &[0; 32])),
            ("unknown field", 4, [field(5, &[2; 32]), number(6, 1)].concat()),
        ],
    );
}

#[test]
fn fields_of_a_publication() {
    let fields =
        || vec![field(1, &[4; 32]), field(2, &[5; 32]), field(3, &key(1)), field(4, &key(2))];
    assert!(Publication::decode(&fields().concat().into()).is_ok());
    for (at, bad) in [
        (0, field(1, &[0; 32])),
        (0, vec![]),
        (1, field(2, &[5; 31])),
        (2, field(3, &not_on_the_curve())),
        (3, field(4, &[0; 33])),
        (3, [field(4, &key(2)), number(5, 1)].concat()),
    ] {
        let mut fields = fields();
        fields[at] = bad;
        assert!(Publication::decode(&fields.concat().into()).is_err());
    }
    let mut swapped = fields();
    swapped.swap(0, 1);
    assert!(Publication::decode(&swapped.concat().into()).is_err());
}

#[test]
fn a_publication_told_by_an_envelope_is_its_own_whatever_its_keys_are() {
    let told = |fields: &Fields| {
        let bytes = Bytes::from(field(1, &fields.concat()));
        Publication::told_by(Suite::Libri1, &bytes)
    };
    let (id, publication) = told(&envelope_fields()).expect("an envelope");
    let bytes = Bytes::from(field(1, &envelope_fields().concat()));
    let Ok(Document::Envelope(envelope)) = Document::decode(&bytes) else { panic!("an envelope") };
    assert_eq!(id, Suite::Libri1.id(&bytes));
    assert_eq!(publication, Publication::from_envelope(id, &envelope).encode());
    assert_eq!(Publication::envelope_of(&publication).expect("a publication"), id);
    let (author, reader) = Publication::keys(&publication).expect("a publication");
    assert_eq!(author[..], envelope.author.as_bytes()[..]);
    assert_eq!(reader[..], envelope.reader.as_bytes()[..]);

    let mut crooked = envelope_fields();
    crooked[2] = field(3, &not_on_the_curve());
    let (_, publication) = told(&crooked).expect("its form is good");
    assert!(Publication::decode(&publication).is_err(), "who uses it finds out");
    let mut uncompressed = not_on_the_curve();
    uncompressed[0] = 4;
    for (at, bad) in [
        (0, field(1, &[0; 32])),
        (0, vec![]),
        (1, field(2, &uncompressed)),
        (2, field(3, &key(1)[..32])),
        (3, field(4, &[3; 123])),
        (4, field(5, &[0; 32])),
        (4, [field(5, &[2; 32]), number(6, 1)].concat()),
    ] {
        let mut fields = envelope_fields();
        fields[at] = bad;
        assert!(told(&fields).is_err(), "field {at}");
    }
    let page = Bytes::from(field(3, &page_fields().concat()));
    let refused = Publication::told_by(Suite::Libri1, &page);
    assert!(matches!(refused, Err(DocumentError::OtherKind { .. })), "{refused:?}");
}

#[test]
fn fields_out_of_order_are_not_canonical() {
    for (kind, base) in [
        (1, envelope_fields as fn() -> Fields),
        (2, entry_fields),
        (3, page_fields),
        (4, parity_fields),
        (5, stripe_fields),
    ] {
        for at in 1..base().len() {
            let mut fields = base();
            fields.swap(at - 1, at);
            let refused = decode(kind, &fields);
            assert!(matches!(refused, Err(DocumentError::Encoding(_))), "{kind} {at}");
        }
    }
}

#[test]
fn the_wrapper_holds_one_document_of_a_known_kind_and_nothing_after() {
    let envelope = field(1, &envelope_fields().concat());
    let page = field(3, &page_fields().concat());
    let parity = field(4, &parity_fields().concat());
    let stripe = field(5, &stripe_fields().concat());
    for bad in [
        vec![],
        vec![0x1a],
        field(4, b"parity"),
        field(3, b""),
        field(4, b""),
        field(5, b""),
        field(6, b"version"),
        [&parity[..], &parity].concat(),
        [&parity[..], &stripe].concat(),
        [&stripe[..], &parity].concat(),
        [&parity[..], &page].concat(),
        [&parity[..], &number(11, 1)].concat(),
        [&stripe[..], &number(11, 1)].concat(),
        [&page[..], &page].concat(),
        [&envelope[..], &page].concat(),
        [&page[..], &envelope].concat(),
        [&page[..], &number(11, 1)].concat(),
        [&page[..], &[0]].concat(),
        // The same page with its length in a longer varint.
        [&[0x1a, page[1] | 0x80, page[2], 0][..], &page[3..]].concat(),
    ] {
        assert!(Document::decode(&Bytes::from(bad.clone())).is_err(), "{bad:02x?}");
    }
    for whole in [envelope, page, parity, stripe] {
        for length in 0..whole.len() {
            assert!(Document::decode(&whole[..length].to_vec().into()).is_err());
        }
    }
}

#[test]
fn a_record_is_proven_by_id_kind_and_place() {
    for suite in Suite::ALL {
        let bytes = Bytes::from(field(3, &page_fields().concat()));
        let (good, document) = Record::from_bytes(suite, bytes).unwrap();
        assert_eq!(prove(suite, &good).unwrap(), document);
        let other = RecordId::new([1; 32]);
        let id = Record { id: other, place: other.into(), ..good.clone() };
        assert!(matches!(prove(suite, &id), Err(DocumentError::Id(id)) if id == other));
        let kind = Record { kind: Kind::Entry, ..good.clone() };
        assert!(matches!(prove(suite, &kind), Err(DocumentError::OtherKind { .. })));
        // A page may live at a stripe, where there are stripes.
        let place = Record { place: other.into(), ..good.clone() };
        match suite {
            Suite::Holdfast1 => assert_eq!(prove(suite, &place).unwrap(), document),
            Suite::Libri1 => assert!(matches!(prove(suite, &place), Err(DocumentError::Place(_)))),
        }
        for other in Suite::ALL.into_iter().filter(|other| *other != suite) {
            assert!(matches!(prove(other, &good), Err(DocumentError::Id(_))));
        }
    }
}

/// A record that is called a version (or an object, a policy, an attestation, a lease) is refused here whatever its bytes are.
#[test]
fn what_versioned_objects_and_leases_are_made_of_is_no_document() {
    for suite in Suite::ALL {
        let bytes = Bytes::from(field(3, &page_fields().concat()));
        let (page, _) = Record::from_bytes(suite, bytes).unwrap();
        let others: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kind.is_document()).collect();
        assert_eq!(
            others.iter().map(|kind| kind.number()).collect::<Vec<_>>(),
            [6, 7, 8, 9, 10, 11, 12]
        );
        for kind in others {
            let refused = prove(suite, &Record { kind, ..page.clone() });
            assert!(matches!(refused, Err(DocumentError::NoDocument { .. })), "{kind:?}");
        }
    }
}

/// Parity lives at its stripe alone, the header where its id is, and `libri-1` has neither.
#[test]
fn the_records_of_stripes_are_proven_where_they_may_live() {
    let elsewhere = RecordId::new([1; 32]);
    for (kind, fields) in [(4, parity_fields()), (5, stripe_fields()), (2, striped_fields())] {
        let bytes = Bytes::from(field(kind, &fields.concat()));
        let (at_id, document) = Record::from_bytes(Suite::Holdfast1, bytes.clone()).unwrap();
        assert_eq!(u32::from(at_id.kind.number()), kind);
        let away = Record { place: elsewhere.into(), ..at_id.clone() };
        let (right, wrong) = if kind == 4 { (away, at_id) } else { (at_id, away) };
        assert_eq!(prove(Suite::Holdfast1, &right).unwrap(), document);
        assert!(matches!(prove(Suite::Holdfast1, &wrong), Err(DocumentError::Place(_))));

        let libri = Suite::Libri1;
        assert!(matches!(Record::from_bytes(libri, bytes.clone()), Err(DocumentError::Suite(_))));
        let id = libri.id(&bytes);
        for place in [id, elsewhere] {
            let record = Record { id, place: place.into(), ..right.clone() };
            assert!(matches!(prove(libri, &record), Err(DocumentError::Suite(_))));
        }
    }
}

#[test]
fn decoding_parity_copies_nothing() {
    let bytes = Bytes::from(field(4, &[number(1, 4), field(2, &vec![7; 1 << 20])].concat()));
    let Document::Parity(parity) = Document::decode(&bytes).unwrap() else { panic!("parity") };
    assert!(bytes.as_ptr_range().contains(&parity.bytes.as_ptr()));
}

/// What the decoder hands out shares the record's bytes: no second copy of 2 MiB.
#[test]
fn decoding_a_page_copies_nothing() {
    let mut fields = page_fields();
    fields[2] = field(3, &vec![7; 1 << 20]);
    let bytes = Bytes::from(field(3, &fields.concat()));
    let Document::Page(page) = Document::decode(&bytes).unwrap() else { panic!("a page") };
    assert!(bytes.as_ptr_range().contains(&page.ciphertext.as_ptr()));
}

/// Two MiB of empty keys are refused before they are taken apart, and so is what hides a second document behind a first.
#[test]
fn many_fields_and_many_documents_are_refused_by_their_form() {
    let empty = vec![[0x1a, 0x00]; 900_000].concat();
    let refused = Document::decode(&field(2, &empty).into()).unwrap_err();
    assert!(matches!(refused, DocumentError::Field("count of fields")), "{refused:?}");
    let lengths = vec![[0x10, 0x01]; 900_000].concat();
    let hidden = [field(2, &[]), field(5, &lengths)].concat();
    let refused = Document::decode(&hidden.into()).unwrap_err();
    assert!(matches!(refused, DocumentError::Encoding(_)), "{refused:?}");
    // Nor behind what is no field of a document, a page or a parity first, or a tag of more bytes than it needs.
    let fixed = [0x7d, 0, 0, 0, 0];
    let overlong = [&[0xaa, 0x00], &field(5, &lengths)[1..]].concat();
    for hidden in [
        field(2, &[&fixed[..], &empty].concat()),
        [&fixed[..], &field(2, &empty)].concat(),
        [&fixed[..], &field(5, &lengths)].concat(),
        [field(3, &[]), field(2, &empty)].concat(),
        [field(4, &[]), field(2, &empty)].concat(),
        overlong,
    ] {
        let refused = Document::decode(&hidden.into()).unwrap_err();
        // By its form, not for what it is when it is taken apart.
        let by_form = matches!(
            refused,
            DocumentError::Encoding(CanonicalError::NotCanonical)
                | DocumentError::Field("count of fields")
        );
        assert!(by_form, "{refused:?}");
    }
    // The most keys that an entry has are none too many.
    let keys = vec![field(3, &[7; 32]); PAGE_KEYS_MAX].concat();
    let rest = [number(4, 9), field(5, &[6; 50]), field(6, &[5; 32])].concat();
    let whole = [field(1, &key(1)), keys, rest].concat();
    assert!(matches!(Document::decode(&field(2, &whole).into()), Ok(Document::Entry(_))));
}
