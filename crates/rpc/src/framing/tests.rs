#![allow(clippy::unwrap_used, reason = "tests")]

use http_body::Body as _;
use proptest::prelude::*;

use super::*;

/// A body of these frames.
struct Frames(VecDeque<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn read_frames<M: Incoming>(frames: Vec<Bytes>, max: usize) -> Result<Option<M>, Status> {
    let mut body = Frames(frames.into_iter().map(Frame::data).collect());
    futures::executor::block_on(read(&mut body, max)).map(|(message, _)| message)
}

fn sent(mut body: Framed) -> (Vec<Bytes>, Option<HeaderMap>) {
    let (mut data, mut trailers) = (Vec::new(), None);
    let mut next = || {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        futures::executor::block_on(frame).map(|frame| frame.unwrap())
    };
    while let Some(frame) = next() {
        match frame.into_data() {
            Ok(bytes) => data.push(bytes),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert!(body.is_end_stream());
    (data, trailers)
}

fn record(len: usize) -> proto::Record {
    let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let (id, place) = (vec![9; 32].into(), vec![8; 32].into());
    proto::Record { kind: 3, id, place, bytes: bytes.into() }
}

/// What the library that other languages' clients are made like would send.
fn plain(message: &impl Message) -> Vec<u8> {
    let mut all = vec![0];
    all.extend_from_slice(&u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
    message.encode(&mut all).unwrap();
    all
}

fn same_as_plain(message: impl Outgoing + Clone) {
    let (data, trailers) = sent(Framed::request(message.clone()));
    assert_eq!(data.concat(), plain(&message));
    assert!(trailers.is_none());
    let (data, trailers) = sent(Framed::answer(message.clone()));
    assert_eq!(data.concat(), plain(&message));
    assert_eq!(trailers.unwrap().get("grpc-status").unwrap(), "0");
}

#[test]
fn what_goes_out_is_grpc_whatever_its_size() {
    for len in [0, 1, 200, APART_BYTES - 1, APART_BYTES, 100_000, 2 << 20] {
        let record = record(len);
        same_as_plain(proto::StoreRequest { record: Some(record.clone()) });
        for wait_ms in [0, 5000] {
            same_as_plain(proto::PutRequest {
                record: Some(record.clone()),
                wait_ms,
                leases: Vec::new(),
            });
        }
        same_as_plain(proto::GetResponse { record: Some(record.clone()) });
        let result = Some(proto::find_response::Result::Record(record));
        same_as_plain(proto::FindResponse { result });
    }
    same_as_plain(proto::StoreRequest { record: None });
    same_as_plain(proto::GetResponse { record: None });
    same_as_plain(proto::FindResponse { result: None });
    let closest = proto::Closest { announcements: vec![vec![7; 300].into(); 100] };
    let result = Some(proto::find_response::Result::Closest(closest));
    same_as_plain(proto::FindResponse { result });
    same_as_plain(proto::StoreBatchRequest { records: vec![record(5000); 9], leases: Vec::new() });
    same_as_plain(proto::StoreBatchRequest { records: Vec::new(), leases: Vec::new() });
    for (header, fragment) in [(0, 0), (1_700, 1 << 20), (100_000, 20_000), (APART_BYTES, 5)] {
        let records = vec![record(header), record(fragment)];
        same_as_plain(proto::StoreBatchRequest { records, leases: Vec::new() });
    }
    same_as_plain(proto::StoreResponse { outcome: 2 });
}

#[test]
fn a_large_record_is_copied_neither_out_nor_in() {
    let record = record(2 << 20);
    let original = record.bytes.as_ptr();
    let (data, _) = sent(Framed::request(proto::StoreRequest { record: Some(record.clone()) }));
    let read: proto::StoreRequest = read_frames(data, 3 << 20).unwrap().unwrap();
    let read = read.record.unwrap();
    assert_eq!(read, record);
    assert_eq!(read.bytes.as_ptr(), original);
    // Nor where a foreign client sent all of it as one.
    let whole = Bytes::from(plain(&proto::StoreRequest { record: Some(record.clone()) }));
    let inside = whole.as_ptr() as usize..whole.as_ptr() as usize + whole.len();
    let read: proto::StoreRequest = read_frames(vec![whole], 3 << 20).unwrap().unwrap();
    assert!(inside.contains(&(read.record.unwrap().bytes.as_ptr() as usize)));
}

#[test]
fn a_fragment_behind_its_header_is_copied_neither_out_nor_in() {
    let records = vec![record(1_700), record(1 << 20)];
    let message = proto::StoreBatchRequest { records: records.clone(), leases: Vec::new() };
    let (data, _) = sent(Framed::request(message));
    let read: proto::StoreBatchRequest = read_frames(data, 3 << 20).unwrap().unwrap();
    assert_eq!(read.records, records);
    assert_eq!(read.records[1].bytes.as_ptr(), records[1].bytes.as_ptr());
}

#[test]
fn a_small_record_keeps_no_frame() {
    let small = proto::StoreRequest { record: Some(record(300)) };
    let mut frame = BytesMut::from(&plain(&small)[..]);
    frame.reserve(1 << 20);
    let frame = frame.freeze();
    let inside = frame.as_ptr() as usize..frame.as_ptr() as usize + frame.len();
    let read: proto::StoreRequest = read_frames(vec![frame.clone()], 1 << 20).unwrap().unwrap();
    assert_eq!(read, small);
    assert!(!inside.contains(&(read.record.unwrap().bytes.as_ptr() as usize)));
}

#[test]
fn a_long_record_that_is_kept_keeps_no_frame_of_more_than_twice_its_length() {
    let records = vec![record(COPIED_BYTES), record(1 << 20)];
    let put = proto::PutObjects { records: records.clone(), ..proto::PutObjects::default() };
    let request = Some(proto::objects_request::Request::Put(put));
    let frame = Bytes::from(plain(&proto::ObjectsRequest { request }));
    let inside = |record: &proto::Record| frame.as_ptr_range().contains(&record.bytes.as_ptr());
    let read: proto::ObjectsRequest = read_frames(vec![frame.clone()], 9 << 20).unwrap().unwrap();
    let Some(proto::objects_request::Request::Put(put)) = read.request else { panic!("a put") };
    assert_eq!(put.records, records);
    assert!(!inside(&put.records[0]) && inside(&put.records[1]));
    // What is written and not kept is not copied for that.
    let batch = proto::StoreBatchRequest { records: records.clone(), leases: Vec::new() };
    let frame = Bytes::from(plain(&batch));
    let inside = |record: &proto::Record| frame.as_ptr_range().contains(&record.bytes.as_ptr());
    let read: proto::StoreBatchRequest =
        read_frames(vec![frame.clone()], 9 << 20).unwrap().unwrap();
    assert_eq!(read.records, records);
    assert!(read.records.iter().all(inside));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_message_is_read_whatever_frames_it_came_in(
        len in prop_oneof![0..2000usize, 60_000..150_000usize],
        cuts in prop::collection::vec(0..160_000usize, 0..20),
    ) {
        let message = proto::StoreRequest { record: Some(record(len)) };
        let mut rest = Bytes::from(plain(&message));
        let mut frames = Vec::new();
        for cut in cuts {
            frames.push(rest.split_to(cut % (rest.len() + 1)));
        }
        frames.push(rest);
        let read: Option<proto::StoreRequest> = read_frames(frames, 1 << 20).unwrap();
        prop_assert_eq!(read, Some(message));
    }

    #[test]
    fn anything_is_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_frames::<proto::StoreRequest>(vec![bytes.clone().into()], 1 << 20);
        let mut framed = vec![0, 0, 0, 0, 0];
        framed[3..5].copy_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
        framed.extend_from_slice(&bytes);
        let _ = read_frames::<proto::FindResponse>(vec![framed.into()], 1 << 20);
    }
}

fn refused(frames: Vec<Bytes>) -> String {
    let status = read_frames::<proto::StoreRequest>(frames, 1000).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    status.message().to_owned()
}

#[test]
fn what_is_not_one_message_is_refused() {
    let good = plain(&proto::StoreRequest { record: Some(record(10)) });
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        vec![Bytes::from(bytes)]
    };
    assert!(refused(with(0, 1)).contains("compressed"));
    assert!(refused(with(1, 1)).contains("at most 1000"));
    assert!(refused(with(4, 200)).contains("ended in a message"));
    assert!(refused(vec![Bytes::from_static(&[0, 0])]).contains("ended in a message"));
    let twice = Bytes::from(good.repeat(2));
    assert!(refused(vec![twice]).contains("more than one"));
    assert!(refused(vec![good.clone().into(), Bytes::from_static(&[0])]).contains("more than one"));
    let read: Option<proto::StoreRequest> = read_frames(Vec::new(), 1000).unwrap();
    assert_eq!(read, None);
}

#[test]
fn parts_are_read_over_their_borders() {
    let parts = ["ab", "cdef", "g"].map(|part| Part::new(Bytes::from_static(part.as_bytes())));
    let mut parts = Parts { parts: parts.into(), len: 7, ..Parts::default() };
    assert_eq!(parts.remaining(), 7);
    assert_eq!(parts.copy_to_bytes(1), "a");
    assert_eq!(parts.copy_to_bytes(3), "bcd");
    parts.advance(1);
    assert_eq!(parts.chunk(), b"f");
    assert_eq!(parts.copy_to_bytes(1), "f");
    assert_eq!(parts.copy_to_bytes(1), "g");
    assert_eq!(parts.copy_to_bytes(0), "");
    assert!(!parts.has_remaining());
}

#[test]
fn small_parts_are_kept_together_and_large_ones_as_they_came() {
    let bytes: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
    let (small, large) = bytes.split_at(200_000);
    let mut parts = Parts::default();
    small.iter().for_each(|byte| parts.push(Bytes::copy_from_slice(&[*byte])));
    assert!(parts.parts.len() < 10, "{}", parts.parts.len());
    let shared = Bytes::copy_from_slice(large);
    parts.push(shared.slice(..50_000));
    parts.push(shared.slice(50_000..));
    let last = parts.whole().parts.back().unwrap();
    assert_eq!(last.left.as_ptr(), shared[50_000..].as_ptr());
    assert_eq!(parts.copy_to_bytes(300_000), bytes);
}

/// A field of this tag around these bytes.
fn field(tag: u8, inside: &[u8]) -> Vec<u8> {
    let mut all = vec![tag << 3 | 2];
    prost::encoding::encode_varint(inside.len() as u64, &mut all);
    all.extend_from_slice(inside);
    all
}

/// Whether such a message is refused before it is decoded.
fn is_counted_out<M: Incoming>(message: &[u8]) -> bool {
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(message);
    // In frames, as it comes: a field may lie over their border.
    let frames = framed.chunks(1000).map(Bytes::copy_from_slice).collect();
    match read_frames::<M>(frames, 9 << 20) {
        Ok(_) => false,
        Err(status) => {
            assert_eq!(status.code(), Code::InvalidArgument);
            status.message().contains("parts")
        }
    }
}

#[test]
fn a_message_of_too_many_parts_is_not_decoded() {
    let many = |tag: u8, count: usize| [tag << 3 | 2, 0].repeat(count);
    let over = PARTS_MAX + 1;
    assert!(!is_counted_out::<proto::StoreBatchRequest>(&many(1, PARTS_MAX)));
    assert!(is_counted_out::<proto::StoreBatchRequest>(&many(1, over)));
    assert!(is_counted_out::<proto::FindBatchRequest>(&many(1, over)));
    assert!(is_counted_out::<proto::VerifyBatchRequest>(&many(1, over)));
    assert!(is_counted_out::<proto::TellRequest>(&many(1, over)));
    assert!(is_counted_out::<proto::IntroduceResponse>(&many(2, over)));
    // Lists that are in other parts, and those of parts that come twice, which are one.
    for (part, list) in [(1, 1), (2, 1), (4, 1)] {
        let inside = many(list, over);
        assert!(is_counted_out::<proto::ObjectsRequest>(&field(part, &inside)), "{part}");
        let half = field(part, &many(list, over / 2));
        assert!(!is_counted_out::<proto::ObjectsRequest>(&half), "{part}");
        let twice = [half.clone(), half].concat();
        assert!(is_counted_out::<proto::ObjectsRequest>(&twice), "{part}");
    }
    for part in 1..=6 {
        let answer = field(part, &many(1, over));
        assert!(is_counted_out::<proto::ObjectsResponse>(&answer), "{part}");
    }
    for list in [3, 5] {
        let tips = field(4, &field(1, &field(1, &many(list, over))));
        assert!(is_counted_out::<proto::ObjectsResponse>(&tips), "{list}");
    }
    for part in [1, 4] {
        let answer = field(part, &many(1, over));
        assert!(is_counted_out::<proto::CommitteeResponse>(&answer), "{part}");
    }
    // Lists and settled stripes, and what is in them; records to fetch, chunks to prove.
    for part in [2, 4, 5, 7] {
        let inside = field(part, &many(1, over));
        assert!(is_counted_out::<proto::KeepRequest>(&inside), "{part}");
    }
    for (part, list) in [(2, 2), (2, 3), (4, 2)] {
        let inside = field(part, &field(1, &many(list, over)));
        assert!(is_counted_out::<proto::KeepRequest>(&inside), "{part} {list}");
    }
    for part in [2, 3, 5, 7] {
        let answer = field(part, &many(1, over));
        assert!(is_counted_out::<proto::KeepResponse>(&answer), "{part}");
    }
    let found = field(5, &field(1, &field(1, &many(2, over))));
    assert!(is_counted_out::<proto::KeepResponse>(&found));
    for list in [2, 3] {
        let lists = field(2, &field(1, &many(list, over)));
        assert!(is_counted_out::<proto::KeepResponse>(&lists), "{list}");
    }
    let closest = field(2, &many(1, over));
    assert!(is_counted_out::<proto::FindResponse>(&closest));
    assert!(is_counted_out::<proto::VerifyResponse>(&closest));
    let batch = field(1, &field(1, &closest));
    assert!(is_counted_out::<proto::FindBatchResponse>(&batch));
    assert!(is_counted_out::<proto::VerifyBatchResponse>(&batch));
}

#[test]
fn bytes_in_a_message_are_not_taken_for_its_parts() {
    // A version's value may be anything, a message of many parts too.
    let bytes = Bytes::from([8, 0].repeat(1 << 20));
    let record = proto::Record { bytes, ..record(1) };
    let put = proto::PutObjects { records: vec![record], ..proto::PutObjects::default() };
    let request = Some(proto::objects_request::Request::Put(put));
    let sent = proto::ObjectsRequest { request };
    let read: proto::ObjectsRequest =
        read_frames(vec![plain(&sent).into()], 9 << 20).unwrap().unwrap();
    assert_eq!(read, sent);
}

#[test]
fn what_hides_behind_a_group_or_no_protobuf_is_not_decoded() {
    let many = [0x0a, 0].repeat(PARTS_MAX + 1);
    // A group, its end, and a varint that never ends, which the decoder refuses itself.
    for first in [&[0x7b_u8, 0x7c][..], &[0x7c]] {
        assert!(is_counted_out::<proto::StoreBatchRequest>(&[first, &many].concat()));
    }
    let garbage = [&[0xff; 12][..], &many].concat();
    assert!(!is_counted_out::<proto::StoreBatchRequest>(&garbage));
    let framed = [&[0, 0, 2, 0, 14][..], &garbage].concat();
    assert!(read_frames::<proto::StoreBatchRequest>(vec![framed.into()], 9 << 20).is_err());
    // A part that says that it is longer than what it is in.
    let long = field(1, &[0x0a, 100]);
    assert!(!is_counted_out::<proto::ObjectsRequest>(&long));
}
