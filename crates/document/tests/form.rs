//! Documents of hostile form: each row is refused by one check, and passes when it alone is mended.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::{Class, Classified, RecordId, SecretKey, Suite};
use document::entry::{LIST_KEYS_MAX, PAGE_KEYS_MAX};
use document::metadata::{METADATA_BYTES_MAX, METADATA_INLINE_BYTES_MAX};
use document::page::CIPHERTEXT_BYTES_MAX;
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
fn fields_out_of_order_are_not_canonical() {
    for (kind, base) in
        [(1, envelope_fields as fn() -> Fields), (2, entry_fields), (3, page_fields)]
    {
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
    for bad in [
        vec![],
        vec![0x1a],
        field(4, b"parity"),
        field(3, b""),
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
    for whole in [envelope, page] {
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
        let place = Record { place: other.into(), ..good.clone() };
        assert!(matches!(prove(suite, &place), Err(DocumentError::Place(_))));
        for other in Suite::ALL.into_iter().filter(|other| *other != suite) {
            assert!(matches!(prove(other, &good), Err(DocumentError::Id(_))));
        }
    }
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
