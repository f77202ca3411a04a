//! The bytes of what keeps the network whole, as in `golden`.

use bytes::Bytes;
use crypto::{Place, RecordId};
use document::{Kind, Record};
use env::calls::keep::*;

use super::golden::check;
use super::keeping::peer;
use crate::convert::keep::Asked;
use crate::proto;

const ID: RecordId = RecordId::new([0xaa; 32]);
const PLACE: Place = Place::new([0xbb; 32]);

fn aa() -> String {
    "aa".repeat(32)
}

fn bb() -> String {
    "bb".repeat(32)
}

fn words() -> Words {
    let mut absent = vec![peer(1), peer(3)];
    absent.sort_unstable();
    Words { absent, faulty: vec![peer(1)] }
}

fn wire_words() -> String {
    let all: String = words().absent.iter().map(ToString::to_string).collect();
    format!("0a42{all}1221{}", peer(1))
}

fn lists() -> (Vec<Listed>, String) {
    let range = Range { prefix: 0xaa, bits: 8 };
    let listed = Listed {
        range,
        copies: vec![(ID, Place::from(ID)), (RecordId::new([0xbb; 32]), Place::from(ID))],
        fragments: vec![HeldFragment { stripe: ID, index: 255 }],
        more: true,
    };
    let (aa, bb) = (aa(), bb());
    let inside =
        format!("0a0508aa011008 12220a20{aa} 12440a20{bb}1220{aa} 1a250a20{aa}10ff01 2001");
    (vec![listed], format!("0a9a01{inside}").replace(' ', ""))
}

#[test]
fn requests_have_their_bytes() {
    let (aa, bb) = (aa(), bb());
    let go = |request, expected: &str| {
        check(&proto::KeepRequest::from(request), &expected.replace(' ', ""));
    };
    let sums: Vec<Sum> = (0..SUMS as u128).collect();
    // Little-endian: the number of the part is the first of its 16 bytes.
    let wire_sums: String = (0..SUMS).map(|i| format!("{i:02x}{}", "00".repeat(15))).collect();
    let range = Range { prefix: 0xabcd, bits: 16 };
    let compare = Compare { range, sums, view: [0xcc; 16], words: words() };
    let cc = "cc".repeat(16);
    let (words, wire_words) = (wire_words().len() / 2, wire_words());
    assert_eq!(words, 0x67);
    let all = format!("0a0608cdd7021010 128020{wire_sums} 1a10{cc} 2267{wire_words}");
    go(KeepRequest::Compare(compare.clone()), &format!("0a8621{all}"));
    // Of all places, and nothing to say.
    let quiet = Compare { range: Range::ALL, words: Words::default(), ..compare };
    go(KeepRequest::Compare(quiet), &format!("0a9720 0a00 128020{wire_sums} 1a10{cc}"));
    let (lists, wire_lists) = lists();
    go(KeepRequest::Lists(lists), &format!("129d01{wire_lists}"));
    go(KeepRequest::Claim(vec![ID, RecordId::new([0xbb; 32])]), &format!("1a42 0a40{aa}{bb}"));
    let settled = SettledStripe { stripe: ID, moved: vec![(0, peer(1)), (200, peer(3))] };
    let (first, second) = (peer(1), peer(3));
    let moved = format!("1223 1221{first} 1226 08c801 1221{second}");
    go(KeepRequest::Settled(vec![settled]), &format!("2271 0a6f 0a20{aa} {moved}"));
    let fetch = vec![FetchAt { id: ID, place: Place::from(ID) }, FetchAt { id: ID, place: PLACE }];
    go(KeepRequest::Fetch(fetch), &format!("2a6a 0a220a20{aa} 0a440a20{aa}1220{bb}"));
    go(KeepRequest::Have(vec![ID]), &format!("3222 0a20{aa}"));
    let prove = vec![ProveAt { id: ID, chunk: 0 }, ProveAt { id: ID, chunk: 300 }];
    go(KeepRequest::Prove(prove), &format!("3a4b 0a220a20{aa} 0a250a20{aa}10ac02"));
    go(KeepRequest::Look(vec![PLACE]), &format!("4222 0a20{bb}"));
    go(KeepRequest::Look(vec![]), "4200");
}

#[test]
fn answers_have_their_bytes() {
    let (aa, bb) = (aa(), bb());
    let go = |asked: Asked, answer, expected: &str| {
        check(&asked.fit(answer).unwrap(), &expected.replace(' ', ""));
    };
    let view = [0xcc; 16];
    let compare = CompareAnswer { differ: vec![0, 0xab, 0xff], view, words: words() };
    let all = format!("0a0300abff 1210{} 1a67{}", "cc".repeat(16), wire_words());
    go(Asked::Compare(view), KeepAnswer::Compare(compare), &format!("0a8001{all}"));
    let (lists, wire_lists) = lists();
    let asked = Asked::Lists(lists.iter().map(|one| one.range).collect());
    go(asked, KeepAnswer::Lists(lists), &format!("129d01{wire_lists}"));
    let claims = vec![
        ClaimAnswer::default(),
        // The first fragment is not none.
        ClaimAnswer { held: vec![0], claimed_by: None },
        ClaimAnswer { held: vec![255], claimed_by: Some(peer(1)) },
    ];
    let by = peer(1);
    let wire = format!("1a2f 0a00 0a030a0100 0a26 0a01ff 1221{by}");
    go(Asked::Claim(3), KeepAnswer::Claim(claims), &wire);
    go(Asked::Settled, KeepAnswer::Settled, "2200");
    let record = |kind| Record { kind, id: ID, place: PLACE, bytes: Bytes::from_static(b"v") };
    let found = FetchAnswer::Found {
        record: record(Kind::Version),
        companions: vec![record(Kind::Object)],
    };
    let fetch = vec![found, FetchAnswer::Absent, FetchAnswer::Later];
    let asked = Asked::Fetch(vec![FetchAt { id: ID, place: PLACE }; 3]);
    let wire = |kind: u8| format!("08{kind:02x}1220{aa}1a20{bb}220176");
    let (version, object) = (wire(6), wire(7));
    let records = format!("0a9901 0a9601 0a49{version} 1249{object}");
    go(asked, KeepAnswer::Fetch(fetch), &format!("2aa401 {records} 0a021200 0a021a00"));
    go(Asked::Have(3), KeepAnswer::Have(vec![true, false, true]), "3205 0a03010001");
    let (chunk, path) = (Bytes::from_static(b"c"), vec![0xdd; 32].into());
    let (last, last_path) = (Bytes::from_static(b"l"), vec![0xee; 32].into());
    let proof = ChunkProof { length: 1025, chunk, path, last, last_path };
    let only = ChunkProof { last: Bytes::new(), last_path: Bytes::new(), ..proof.clone() };
    let (dd, ee) = ("dd".repeat(32), "ee".repeat(32));
    let wire = format!(
        "3a8101 0a4f 0a4d 088108 120163 1a20{dd} 22016c 2a20{ee} 0a2a 0a28 088108 120163 1a20{dd} 0a021200"
    );
    let proofs = vec![Some(proof), Some(only), None];
    go(Asked::Prove(3), KeepAnswer::Prove(proofs), &wire);
    go(Asked::Look(0), KeepAnswer::Look(300), "420308ac02");
}
