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
    let put = proto::PutRequest { record: Some(home.clone().into()) };
    check(&put, &format!("0a2c{wire_home}"));
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
    let introduce = IntroduceRequest { credential, peers_max: 300 };
    check(&proto::IntroduceRequest::from(introduce), "0a016118ac02");
    let credential = Credential::Client(Bytes::from_static(b"p"));
    let introduce = IntroduceRequest { credential, peers_max: 0 };
    check(&proto::IntroduceRequest::from(introduce), "120170");

    let peer = PeerId::new(secret(1).public());
    let from = Cursor { peer: Some(peer), offset: 1, unix_ms: 2 };
    let authors = Some(Bytes::from_static(b"f"));
    let subscribe = SubscribeRequest { authors, readers: None, from, follow: true };
    let cursor = format!("0a21{peer}10011802");
    check(&proto::SubscribeRequest::from(subscribe), &format!("0a01661a27{cursor}2001"));
    check(&proto::SubscribeRequest::from(SubscribeRequest::default()), "1a00");
}
