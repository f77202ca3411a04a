//! Whatever happens to the bytes between two peers, an answer is right or an error.

use env::calls::*;
use futures::StreamExt;

use super::memory::{of, record};
use super::relay::{Fault, Relay, Way};
use super::*;

/// For calls whose connection is spoilt: the longest of them is a length that waits for more.
const SHORT: Duration = Duration::from_millis(700);
/// Exchanges at once.
const AT_ONCE: usize = 24;
/// How many of sixty flips may fall on what TLS ignores: the low byte of a TLS record's version (RFC
/// 8446, section 5.1), one byte in a TLS record of up to 16 KiB.
const IGNORED: u32 = 3;

/// One find through a relay with this fault, by a client of its own.
async fn exchange(peer: &Running, fault: Fault, asked: &document::Record) -> (bool, [u64; 2]) {
    let relay = Relay::start(peer.address, fault).await;
    let client = client();
    let found = client.find(&endpoint(relay.address), of(asked.id), SHORT).await;
    let right = match found {
        Ok(FindResponse::Found(found)) => {
            assert!(found == *asked, "{fault:?} gave other bytes");
            true
        }
        Ok(FindResponse::Closest(_)) => panic!("{fault:?} made the peer answer another question"),
        Err(_) => false,
    };
    client.close();
    (right, [relay.passed(Way::Out), relay.passed(Way::Back)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_flipped_byte_of_a_small_exchange_gives_a_wrong_answer() {
    let peer = Running::start(ServerLimits::default());
    let small = record("a small sealed record");
    peer.service.records.lock().unwrap().insert(small.id, small.clone());
    let (right, [out, back]) = exchange(&peer, Fault::None, &small).await;
    assert!(right && out > 1000 && back > 1000, "{right} {out} {back}");

    let ways = (0..out).map(|at| (Way::Out, at)).chain((0..back).map(|at| (Way::Back, at)));
    // A different bit each time, so that lengths grow and shrink.
    let faults = ways.map(|(way, at)| Fault::Flip(way, at, 1 << (at % 8)));
    let rights = futures::stream::iter(faults)
        .map(|fault| exchange(&peer, fault, &small))
        .buffer_unordered(AT_ONCE)
        .filter(|(right, _)| std::future::ready(*right))
        .count()
        .await as u64;
    // Nearly every byte counts: what comes after the answer (acknowledgements, the goodbye) may
    // be spoilt without harm.
    assert!(rights < (out + back) / 8, "{rights} of {} flips went unnoticed", out + back);
    let asked = peer.service.asked.lock().unwrap();
    assert!(asked.iter().all(|id| *id == small.id), "the peer was asked for something else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_arrive_whole_or_not_at_all() {
    let peer = Running::start(ServerLimits::default());
    let bytes: Vec<u8> =
        (0..2u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let large = record(bytes);
    let mut unnoticed = 0;
    // Spread over the message by a step that is no multiple of a frame.
    for step in 0..30u64 {
        let at = 2000 + step * 69_997;
        for fault in [
            Fault::Flip(Way::Out, at, 1),
            Fault::Flip(Way::Back, at, 0x80),
            Fault::Cut(Way::Out, at),
            Fault::Cut(Way::Back, at),
        ] {
            let stored = {
                let relay = Relay::start(peer.address, fault).await;
                client().store(&endpoint(relay.address), large.clone(), LIMIT).await
            };
            let way_out = matches!(fault, Fault::Flip(Way::Out, ..) | Fault::Cut(Way::Out, _));
            let flip = matches!(fault, Fault::Flip(..));
            assert!(!way_out || flip || stored.is_err(), "{fault:?}");
            unnoticed += u32::from(way_out && stored.is_ok());
            if let Some(kept) = peer.service.records.lock().unwrap().get(&large.id) {
                assert!(*kept == large, "{fault:?}");
            }
            peer.service.records.lock().unwrap().insert(large.id, large.clone());
            let relay = Relay::start(peer.address, fault).await;
            match client().find(&endpoint(relay.address), of(large.id), LIMIT).await {
                Ok(FindResponse::Found(found)) => {
                    assert!(found == large && (way_out || flip), "{fault:?}");
                    unnoticed += u32::from(!way_out);
                }
                Ok(other) => panic!("{fault:?} {other:?}"),
                Err(CallError::TimedOut { .. }) => panic!("{fault:?} was not noticed in time"),
                Err(_) => {}
            }
        }
    }
    assert!(unnoticed <= IGNORED, "{unnoticed} flips went unnoticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_stalls_in_a_message_ends_with_the_limit() {
    let peer = Running::start(ServerLimits::default());
    let large = record(vec![5; 2 << 20]);
    peer.service.records.lock().unwrap().insert(large.id, large.clone());
    for way in [Way::Out, Way::Back] {
        let relay = Relay::start(peer.address, Fault::Stall(way, 1 << 20)).await;
        let to = endpoint(relay.address);
        let late = match way {
            Way::Out => client().store(&to, large.clone(), SHORT).await.map(|_| ()),
            Way::Back => client().find(&to, of(large.id), SHORT).await.map(|_| ()),
        };
        assert_eq!(late, Err(CallError::TimedOut { address: to.address, limit: SHORT }));
    }
}
