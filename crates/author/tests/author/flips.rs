//! No flipped bit of any record ever gives wrong bytes.

use std::sync::Arc;

use crypto::Suite;
use document::Record;
use testkit::time;

use crate::network::{Net, noise, put, try_get};

/// Every bit of every record of one small file, by all holders at once: an error, and not one byte of content.
#[test]
fn every_bit_of_a_small_file_flipped_is_an_error() {
    for suite in Suite::ALL {
        time::run(1, |env| async move {
            let net = Net::new(&env, 1, 1, suite);
            let author = net.user("ada");
            let content = noise(1, 40);
            let report = put(&author, &content).await.unwrap();
            for id in [report.address, report.entry] {
                let mut bit = 0;
                loop {
                    let flipped = flip(&net, id, bit);
                    let (bytes, got) = try_get(&author, report.address).await;
                    if !*flipped.lock().unwrap() {
                        break;
                    }
                    assert!(got.is_err(), "bit {bit} of {id} in {suite}");
                    assert!(bytes.is_empty(), "bit {bit} of {id} in {suite}");
                    bit += 1;
                }
                assert!(bit > 2_000, "{bit} bits of {id} were flipped");
            }
            net.shared.tamper(None);
            assert_eq!(try_get(&author, report.address).await.0, content);
        });
    }
}

/// Sampled bits of the pages of a larger file: what was written before the error is right.
#[test]
fn flipped_pages_never_give_wrong_bytes() {
    for suite in Suite::ALL {
        time::run(2, |env| async move {
            let net = Net::new(&env, 1, 1, suite);
            let author = net.user("ada");
            let content = noise(2, (4 << 20) + 9);
            let report = put(&author, &content).await.unwrap();
            let info = author.info(report.address).await.unwrap();
            let pages: Vec<_> = info.fragments.iter().filter(|one| one.index.is_some()).collect();
            assert_eq!(pages.len(), 3);
            for page in pages {
                let found = author.walker().find(None, page.id, page.id.into()).await.unwrap();
                let bits = 8 * found.record.bytes.len();
                for bit in
                    [0, 9, 8 * 20, 8 * 60, bits / 3, bits / 2, bits - 300, bits - 8, bits - 1]
                {
                    let flipped = flip(&net, page.id, bit);
                    let (bytes, got) = try_get(&author, report.address).await;
                    assert!(*flipped.lock().unwrap() && got.is_err());
                    assert!(content.starts_with(&bytes), "a prefix of the right bytes");
                    assert!(bytes.len() < content.len());
                }
            }
            assert_eq!(author.window_bytes().0, 0);
        });
    }
}

/// A holder that answers one record for another, both of them real.
#[test]
fn a_right_record_in_the_wrong_place_is_an_error() {
    time::run(3, |env| async move {
        let net = Net::new(&env, 1, 1, Suite::Holdfast1);
        let author = net.user("ada");
        let content = noise(3, 5 << 20);
        let report = put(&author, &content).await.unwrap();
        let info = author.info(report.address).await.unwrap();
        let ids: Vec<_> = info.fragments.iter().map(|fragment| fragment.id).collect();
        for claimed in [true, false] {
            for (asked, given) in ids.iter().flat_map(|a| ids.iter().map(move |b| (*a, *b))) {
                if asked == given {
                    continue;
                }
                let found = author.walker().find(None, given, given.into()).await.unwrap();
                let other = found.record;
                net.shared.tamper(Some(Arc::new(move |record: Record| match record.id == asked {
                    true if claimed => Record { id: asked, place: asked.into(), ..other.clone() },
                    true => other.clone(),
                    false => record,
                })));
                let (bytes, got) = try_get(&author, report.address).await;
                assert!(got.is_err() && content.starts_with(&bytes));
                net.shared.tamper(None);
            }
        }
    });
}

/// Flips one bit of one record in every answer; says whether there was such a bit.
fn flip(net: &Net, id: crypto::RecordId, bit: usize) -> Arc<std::sync::Mutex<bool>> {
    let flipped = Arc::new(std::sync::Mutex::new(false));
    let told = Arc::clone(&flipped);
    net.shared.tamper(Some(Arc::new(move |record: Record| {
        if record.id != id || bit / 8 >= record.bytes.len() {
            return record;
        }
        *told.lock().unwrap() = true;
        let mut bytes = record.bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        Record { bytes: bytes.into(), ..record }
    })));
    flipped
}
