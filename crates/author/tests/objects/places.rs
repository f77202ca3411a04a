//! Regions that are full, and branches that go on elsewhere.

use author::objects::{Hint, ObjectsError, PolicyOptions, Value, WriteOptions};
use testkit::time::run;

use crate::stage::Stage;

fn open(region_bytes: u64) -> PolicyOptions {
    PolicyOptions { open: true, public: true, region_bytes, ..PolicyOptions::default() }
}

#[test]
fn a_branch_goes_on_where_the_holders_say_and_is_found_there() {
    run(1, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"long", open(1_500)).await.unwrap();
        let value = |number: usize| format!("{number}").repeat(300);
        let mut ids = Vec::new();
        for number in 0..9 {
            let written =
                object.put(ids.last(), &value(number)[..], WriteOptions::default()).await.unwrap();
            ids.push(written.id);
        }
        let hints: std::collections::BTreeSet<Hint> = ids.iter().map(|id| id.n).collect();
        assert_eq!(hints.len(), 3, "three places of three versions each");
        assert_eq!(ids[0].n, Hint::FIRST);
        // Whoever knows nothing yet finds all, also by an id whose hint is an older place's.
        let fresh = stage.user("ada").plain(ada.public_key(), b"long").unwrap();
        let tips = fresh.tips().await.unwrap();
        assert_eq!(tips.tips.iter().map(|tip| tip.id).collect::<Vec<_>>(), [ids[8]]);
        for (number, id) in ids.iter().enumerate() {
            let moved = author::objects::VersionId { n: Hint::FIRST, ..*id };
            assert_eq!(fresh.get(&moved).await.unwrap(), Value::from(&value(number)[..]));
        }
        let past = stage.user("ada").plain(ada.public_key(), b"long").unwrap();
        let past = past.previous(&ids[8], 100).await.unwrap();
        assert_eq!(past.iter().map(|past| past.id.h).collect::<Vec<_>>(), {
            let mut hs: Vec<_> = ids[..8].iter().map(|id| id.h).collect();
            hs.reverse();
            hs
        });
        // It was told once: the next write goes straight there.
        let calls = stage.network.total();
        object.put(Some(&ids[8]), "short", WriteOptions::default()).await.unwrap();
        assert!(stage.network.total() - calls <= 7);
    });
}

#[test]
fn all_regions_full_is_said_and_a_raised_policy_opens_them_again() {
    run(2, |env| async move {
        let stage = Stage::new(&env);
        let object = stage.user("ada").create(b"small", open(100)).await.unwrap();
        let value = "x".repeat(200);
        let error = object.put(None, &value[..], WriteOptions::default()).await.unwrap_err();
        let full = matches!(error, ObjectsError::Full(_) | ObjectsError::NotStored(_));
        assert!(full, "{error}");
        object.set_policy(open(10_000)).await.unwrap();
        let written = object.put(None, &value[..], WriteOptions::default()).await.unwrap();
        assert_eq!(written.id.n, Hint::FIRST);
    });
}
