//! The bytes of one request of each kind. They change on purpose only, with a line in
//! `docs/formats/wire.md` and the changelog.

use bytes::Bytes;
use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record};
use env::calls::*;
use prost::Message;

use super::secret;
use crate::proto;

fn check(message: &(impl Message + std::fmt::Debug), expected: &str) {
    assert_eq!(hex::encode(message.encode_to_vec()), expected, "{message:?}");
}

#[test]
fn requests_have_their_bytes() {
    let (id, place) = (RecordId::new([0xaa; 32]), Place::new([0xbb; 32]));
    let (aa, bb) = ("aa".repeat(32), "bb".repeat(32));
    let bytes = Bytes::from_static(b"sealed");
    let record = Record { kind: Kind::Page, id, place, bytes };
    let home = Record { place: Place::from(id), ..record.clone() };
    let wire = format!("08031220{aa}1a20{bb}22067365616c6564");
    let wire_home = format!("08031220{aa}22067365616c6564");

    let find = FindRequest { id, place };
    check(&proto::FindRequest::from(find), &format!("0a20{aa}1220{bb}"));
    let at_home = FindRequest { id, place: Place::from(id) };
    check(&proto::GetRequest::from(at_home), &format!("0a20{aa}"));
    let verify = VerifyRequest { id, place, mac_key: [0xcc; 32] };
    let cc = "cc".repeat(32);
    check(&proto::VerifyRequest::from(verify), &format!("0a20{aa}1220{bb}1a20{cc}"));
    let store = proto::StoreRequest { record: Some(record.clone().into()) };
    check(&store, &format!("0a4e{wire}"));
    let put = proto::PutRequest { record: Some(home.clone().into()), wait_ms: 0 };
    check(&put, &format!("0a2c{wire_home}"));
    let waiting = proto::PutRequest { wait_ms: 5000, ..put };
    check(&waiting, &format!("0a2c{wire_home}108827"));
    let batch = proto::StoreBatchRequest { records: vec![home.into(), record.into()] };
    check(&batch, &format!("0a2c{wire_home}0a4e{wire}"));
    let batch = proto::FindBatchRequest { requests: vec![at_home.into()] };
    check(&batch, &format!("0a220a20{aa}"));
    let batch = proto::VerifyBatchRequest { requests: vec![verify.into()] };
    check(&batch, &format!("0a660a20{aa}1220{bb}1a20{cc}"));
}

#[test]
fn introductions_and_subscriptions_have_their_bytes() {
    let credential = Credential::Peer(Bytes::from_static(b"a"));
    let introduce = IntroduceRequest::new(credential, 300);
    check(&proto::IntroduceRequest::from(introduce), "0a016118ac02");
    let credential = Credential::Client(Bytes::from_static(b"p"));
    let introduce = IntroduceRequest::new(credential, 0);
    check(&proto::IntroduceRequest::from(introduce), "120170");
    let introduce = IntroduceRequest {
        known: Some(Known { roster: 3, roster_hash: [0xaa; 32], revoked: [0xbb; 32] }),
        offer: Some(Bytes::from_static(b"r")),
        ..IntroduceRequest::default()
    };
    let (aa, bb) = ("aa".repeat(32), "bb".repeat(32));
    check(&proto::IntroduceRequest::from(introduce), &format!("20032a20{aa}3220{bb}3a0172"));

    let peer = PeerId::new(secret(1).public());
    let from = Cursor { peer: Some(peer), offset: 1, unix_ms: 2 };
    let authors = Some(Bytes::from_static(b"f"));
    let subscribe = SubscribeRequest { authors, from, follow: true, ..SubscribeRequest::default() };
    let cursor = format!("0a21{peer}10011802");
    check(&proto::SubscribeRequest::from(subscribe.clone()), &format!("0a01661a27{cursor}2001"));
    let known = SubscribeRequest { known: Some(Bytes::from_static(b"k")), ..subscribe };
    check(&proto::SubscribeRequest::from(known), &format!("0a01661a27{cursor}20012a016b"));
    check(&proto::SubscribeRequest::from(SubscribeRequest::default()), "1a00");
}

/// The token was made by another implementation (Python's `cryptography`, deterministic ECDSA).
#[test]
fn a_signed_request_has_its_bytes() {
    use crypto::jwt::claims::{Claims, message_hash, sign_claims};
    let id = RecordId::new([0xaa; 32]);
    let find = FindRequest { id, place: Place::from(id) };
    let claims = Claims {
        hash: message_hash(&proto::FindRequest::from(find).encode_to_vec()),
        method: "/holdfast.v1.Librarian/Find".into(),
        audience: PeerId::new(secret(1).public()),
        network: super::network(1),
        issued: 1_800_000_000,
        expires: 1_800_000_030,
        id: [0xcc; 32],
    };
    assert_eq!(
        sign_claims(&secret(5), &claims),
        concat!(
            "eyJhbGciOiJFUzI1NksiLCJ0eXAiOiJKV1QifQ.eyJoYXNoIjoiRmNreW42RXVtb0QxRWhiU1I3bWw4NmN3U",
            "3h3NnJiWmZpZmhGNTlwQVphVT0iLCJtZXRob2QiOiIvaG9sZGZhc3QudjEuTGlicmFyaWFuL0ZpbmQiLCJhd",
            "WQiOiIwMzFiODRjNTU2N2IxMjY0NDA5OTVkM2VkNWFhYmEwNTY1ZDcxZTE4MzQ2MDQ4MTlmZjljMTdmNWU5Z",
            "DVkZDA3OGYiLCJuZXQiOiIwMTAxMDEwMTAxMDEwMTAxMDEwMTAxMDEwMTAxMDEwMTAxMDEwMTAxMDEwMTAxM",
            "DEwMTAxMDEwMTAxMDEwMTAxIiwiaWF0IjoxODAwMDAwMDAwLCJleHAiOjE4MDAwMDAwMzAsImp0aSI6ImNjY",
            "2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Mif",
            "Q.YFExJEfeh4f6LcsRD6qiy_wkDcIrR2axHfN1kfCcFM86kfgUe6f3XaH-pWWjN8JZt9ShvCUJTH5RaHX7R1",
            "NKng",
        )
    );
}
