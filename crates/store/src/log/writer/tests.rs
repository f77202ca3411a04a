#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;

use super::*;

fn frame(payload: Bytes) -> (Header, Bytes) {
    let id = RecordId::new([7; 32]);
    let length = payload.len() as u32;
    let content =
        Content::Record { kind: Kind::Page, place: id.into(), length, payload_crc: 0, form: false };
    (Header { id, content }, payload)
}

#[test]
fn large_payloads_leave_the_same_rest_in_the_file_as_in_memory() {
    let memory = Bytes::from(vec![1; 3 * BULK_BYTES_MIN]);
    for alignment in [1, 4, 512, 4096] {
        for start in [64, 4096, 4095, 70_001] {
            let mut plan = Plan::default();
            // Small ones before and between them, and one that is a byte too short.
            for (from, len) in [
                (13, 40),
                (0, BULK_BYTES_MIN),
                (9, 100),
                (77, BULK_BYTES_MIN + 13),
                (511, 0),
                (5000, BULK_BYTES_MIN - 1),
                (4097, 2 * BULK_BYTES_MIN),
            ] {
                let (header, payload) = frame(memory.slice(from..from + len));
                plan.push(header, payload);
            }
            let before = plan.bytes;
            assert!(plan.has_large());
            plan.fit(start, alignment);
            let mut at = start;
            let mut larges = 0;
            let mut first = None;
            for frame in &plan.frames {
                if !matches!(frame.header.content, Content::Filler { .. }) {
                    first.get_or_insert(at % WRITE_ALIGNMENT as u64);
                }
                let payload_at = at + frame.header.len() as u64;
                if frame.is_large() {
                    larges += 1;
                    let lies = frame.payload.as_ptr().addr() as u64;
                    assert_eq!(payload_at % alignment as u64, lies % alignment as u64);
                }
                assert_eq!(frame.payload.len(), frame.header.payload_bytes() as usize);
                at += frame.header.frame_len();
            }
            assert_eq!((larges, at % WRITE_ALIGNMENT as u64), (3, 0));
            assert_eq!(first, Some(0), "all frames are within one direct write");
            assert_eq!(at - start, plan.bytes);
            let added = plan.bytes - before;
            assert!(added <= (3 * (alignment + HEADER_BYTES) + 2 * (4096 + HEADER_BYTES)) as u64);
        }
    }
}

#[test]
fn small_records_need_no_filler() {
    let mut plan = Plan::default();
    let (header, payload) = frame(Bytes::from(vec![1; BULK_BYTES_MIN - 1]));
    plan.push(header, payload);
    assert!(!plan.has_large());
}
