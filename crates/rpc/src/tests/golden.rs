//! The bytes of one request of each kind. They change on purpose only, with a line in
//! `docs/formats/wire.md` and the changelog.

use bytes::Bytes;
use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record};
use env::calls::committee::*;
use env::calls::objects::*;
use env::calls::*;
use prost::Message;
use version::claim::{READER_BYTES, REDIRECT_BYTES};
use version::{Durability, Hint, ObjectKey};

use super::secret;
use crate::convert::Open as _;
use crate::convert::objects::Asked;
use crate::proto;

pub(super) fn check(message: &(impl Message + std::fmt::Debug), expected: &str) {
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
    let put =
        proto::PutRequest { record: Some(home.clone().into()), wait_ms: 0, leases: Vec::new() };
    check(&put, &format!("0a2c{wire_home}"));
    let waiting = proto::PutRequest { wait_ms: 5000, ..put };
    check(&waiting, &format!("0a2c{wire_home}108827"));
    let batch =
        proto::StoreBatchRequest { records: vec![home.into(), record.into()], leases: Vec::new() };
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

#[test]
fn requests_about_objects_have_their_bytes() {
    let owner = secret(3).public();
    let object = ObjectKey::new([0xaa; 32]);
    let (aa, bb, cc) = ("aa".repeat(32), "bb".repeat(32), "cc".repeat(16));
    let claim = Bytes::from(vec![0xee; READER_BYTES]);
    // 155 is 9b 01 as a varint.
    let reader = format!("9b01{}", "ee".repeat(READER_BYTES));
    let go = |request, expected: &str| check(&proto::ObjectsRequest::from(request), expected);
    let record = Record {
        kind: Kind::Version,
        id: RecordId::new([0xbb; 32]),
        place: Place::new([0xaa; 32]),
        bytes: Bytes::from_static(b"v"),
    };
    let one = format!("0a490806 1220{bb} 1a20{aa} 220176").replace(' ', "");
    let put = PutObjects { records: vec![record], ..PutObjects::default() };
    go(ObjectsRequest::Put(put.clone()), &format!("0a4b{one}"));
    // The durability of memory is not that of the peer's setting.
    let durability = Some(Durability::Memory);
    let put = PutObjects { compress: true, durability, receipt: true, ..put };
    go(ObjectsRequest::Put(put), &format!("0a51{one}100118002001"));

    let version = VersionAt { object, h: RecordId::new([0xbb; 32]), n: Hint::FIRST };
    let on = VersionAt { n: Hint::new([0xcc; 16]), ..version };
    let first = format!("0a20{aa}1220{bb}");
    let get = GetVersions { versions: vec![version, on], attested: true, reader: None };
    let get_bytes = format!("0a44{first}0a56{first}1a10{cc}1001");
    go(ObjectsRequest::Get(get), &format!("12a001{get_bytes}"));
    let previous = GetPrevious { version, most: 1, reader: Some(claim.clone()) };
    go(ObjectsRequest::Previous(previous), &format!("1ae6010a44{first}10011a{reader}"));
    let tips = GetTips { objects: vec![object], reader: None };
    go(ObjectsRequest::Tips(tips), &format!("22220a20{aa}"));
    let branch = Bytes::from_static(b"main");
    let heads = GetHeads { owner, object, branch: branch.clone(), reader: None };
    let heads_bytes = format!("0a21{owner}1220{aa}1a046d61696e");
    go(ObjectsRequest::Heads(heads), &format!("2a4b{heads_bytes}"));
    let (prefix, after) = (Bytes::from_static(b"p"), Bytes::from_static(b"pa"));
    let list = ListObjects { owner, prefix: prefix.clone(), after, most: 300, reader: None };
    go(ObjectsRequest::List(list), &format!("322d0a21{owner}1201701a02706120ac02"));

    let peer = PeerId::new(secret(1).public());
    let from = Some(WatchCursor { peer, run: 1, next: 2 });
    let go = |what, from, expected: &str| {
        let request = WatchRequest { what, from, reader: None };
        check(&proto::WatchRequest::from(request), expected);
    };
    let cursor = format!("0a21{peer}10011802");
    go(Watched::Objects(vec![object]), from, &format!("0a220a20{aa}2227{cursor}"));
    go(Watched::Family(owner, prefix), None, &format!("12260a21{owner}120170"));
    go(Watched::Branch(owner, object, branch), None, &format!("1a4b{heads_bytes}"));
}

#[test]
fn answers_about_objects_have_their_bytes() {
    let (aa, bb) = ("aa".repeat(32), "bb".repeat(32));
    let record = |kind| Record {
        kind,
        id: RecordId::new([0xbb; 32]),
        place: Place::new([0xaa; 32]),
        bytes: Bytes::from_static(b"v"),
    };
    let wire = |kind: u8| format!("08{kind:02x}1220{bb}1a20{aa}220176");
    let go = |answer, asked: Asked, expected: &str| {
        check(&asked.fit(answer).unwrap(), expected);
    };
    let redirect = Bytes::from(vec![0xdd; REDIRECT_BYTES]);
    let redirected = format!("dd01{}", "dd".repeat(REDIRECT_BYTES));
    let outcomes = vec![
        Ok(PutOutcome::Stored),
        Ok(PutOutcome::Present),
        Ok(PutOutcome::NoObject),
        Ok(PutOutcome::Redirect(redirect.clone())),
        Err(CallError::Full),
    ];
    let answer = PutObjectsAnswer { outcomes, receipt: Some(Bytes::from_static(b"r")) };
    let put = format!("0a0208010a0208020a0208030ae00112{redirected}0a041a020807120172");
    go(ObjectsAnswer::Put(answer), Asked::Put(5), &format!("0af801{put}"));

    let attestation = Some(Bytes::from_static(b"a"));
    let found = FoundVersion { record: record(Kind::Version), attestation };
    let version = format!("0a49{}120161", wire(6));
    let get = vec![Ok(Some(found.clone())), Ok(None), Err(CallError::NotFound)];
    let answers = format!("0a500a4e{version}0a0212000a041a020809");
    go(ObjectsAnswer::Get(get), Asked::Get(3), &format!("125c{answers}"));
    let missing = Some(RecordId::new([0xbb; 32]));
    let previous = PreviousAnswer { records: vec![record(Kind::Version)], missing };
    let history = format!("0a49{}1220{bb}", wire(6));
    go(ObjectsAnswer::Previous(previous), Asked::Previous(1), &format!("1a6d{history}"));
    let tips = ObjectTips {
        object: Some(record(Kind::Object)),
        policy: Some(record(Kind::Policy)),
        tips: vec![found.clone()],
        more: true,
        redirects: vec![redirect],
    };
    let one = format!("0a49{}1249{}1a4e{version}20012a{redirected}", wire(7), wire(8));
    let tips = ObjectsAnswer::Tips(vec![Ok(tips)]);
    go(tips, Asked::Tips(1), &format!("22ce030acb030ac803{one}"));
    let devices = Some(record(Kind::Devices));
    let heads = HeadsAnswer { heads: vec![record(Kind::Head)], devices };
    let branch = format!("0a49{}1249{}", wire(10), wire(11));
    go(ObjectsAnswer::Heads(heads), Asked::Heads, &format!("2a9601{branch}"));
    let list = ObjectsAnswer::List(vec![record(Kind::Object)]);
    go(list, Asked::List(1), &format!("324b0a49{}", wire(7)));

    let peer = PeerId::new(secret(1).public());
    let at = WatchCursor { peer, run: 1, next: 2 };
    let cursor = format!("0a21{peer}10011802");
    let go = |event, expected: &str| check(&proto::WatchEvent::from(event), expected);
    let told = format!("0a790a4e{version}1227{cursor}");
    go(WatchEvent::Record { found: found.clone(), cursor: Some(at) }, &told);
    go(WatchEvent::Record { found, cursor: None }, &format!("0a500a4e{version}"));
    go(WatchEvent::Gap, "1200");
    go(WatchEvent::CaughtUp(at), &format!("1a27{cursor}"));
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

#[test]
fn requests_about_committees_have_their_bytes() {
    let (aa, bb) = ("aa".repeat(32), "bb".repeat(32));
    let go = |group: Option<[u8; 32]>, ask, expected: &str| {
        let request = CommitteeRequest { group, ask };
        check(&proto::CommitteeRequest::from(request.clone()), expected);
        let opened: CommitteeRequest =
            proto::CommitteeRequest::from(request.clone()).open().unwrap();
        assert_eq!(opened, request);
    };
    let group = Some([0xaa; 32]);
    go(group, CommitteeAsk::Update(Bytes::from_static(b"u")), &format!("0a20{aa}12030a0175"));
    let (object, branch) = (ObjectKey::new([0xbb; 32]), Bytes::from_static(b"main"));
    let read = CommitteeAsk::Read { object, branch: branch.clone(), at: None };
    go(group, read, &format!("0a20{aa}1a280a20{bb}12046d61696e"));
    let read = CommitteeAsk::Read { object, branch, at: Some((0, 300)) };
    go(None, read, &format!("1a2b0a20{bb}12046d61696e20ac02"));
    go(None, CommitteeAsk::HowFar([0xbb; 32]), &format!("22220a20{bb}"));
    go(None, CommitteeAsk::Status, "2a00");
    go(group, CommitteeAsk::Charter, &format!("0a20{aa}3200"));
}

#[test]
fn answers_about_committees_have_their_bytes() {
    let go = |answer: CommitteeAnswer, expected: &str| {
        check(&proto::CommitteeResponse::from(answer.clone()), expected);
        let opened: CommitteeAnswer =
            proto::CommitteeResponse::from(answer.clone()).open().unwrap();
        assert_eq!(opened, answer);
    };
    let [one, two] = [&b"1"[..], b"2"].map(Bytes::from_static);
    go(CommitteeAnswer::Update(vec![one.clone(), two]), "0a060a01310a0132");
    go(CommitteeAnswer::Read(one.clone()), "120131");
    go(CommitteeAnswer::HowFar(one.clone()), "1a0131");
    go(CommitteeAnswer::Charter(one.clone()), "2a0131");
    let status = CommitteeStatus {
        group: Bytes::from(vec![0xcc; 96]),
        height: 1,
        time_ms: 2,
        epoch: 3,
        view: 4,
        needed: 5,
        heard: 6,
        votes: true,
        waiting: 7,
        entries: 8,
        state_bytes: 9,
        member: [0xaa; 32],
        members: vec![[0xaa; 32], [0xbb; 32]],
        cards: vec![one],
    };
    let (aa, bb, cc) = ("aa".repeat(32), "bb".repeat(32), "cc".repeat(96));
    let numbers = "10011802200328043005380640014807500858 09".replace(' ', "");
    let keys = format!("6220{aa}6a20{aa}6a20{bb}720131");
    // 223 is df 01 as a varint.
    let inside = format!("0a60{cc}{numbers}{keys}");
    assert_eq!(inside.len() / 2, 223);
    go(CommitteeAnswer::Status(Box::new(status)), &format!("22df01{inside}"));
}
