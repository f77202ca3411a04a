//! Peers that answer what is not so: it is refused, they are named, and the honest ones are enough.

use std::sync::Arc;

use author::objects::{Object, ObjectsError, PolicyOptions, Value, VersionId, WriteOptions};
use bytes::Bytes;
use crypto::{Class, Classified, SecretKey, Suite};
use document::Record;
use env::calls::objects::{FoundVersion, ObjectsAnswer};
use testkit::time::run;
use version::attestation::attest;
use version::{Bases, Version};

use crate::keeper::Lie;
use crate::stage::{Stage, place};

const SUITE: Suite = Suite::Holdfast1;

fn open() -> PolicyOptions {
    PolicyOptions { open: true, public: true, ..PolicyOptions::default() }
}

/// An object with a history of three, and its ids.
async fn history(stage: &Stage) -> (Object, Vec<VersionId>) {
    let object = stage.user("ada").create(b"a", open()).await.unwrap();
    let mut ids = Vec::new();
    for value in ["one", "two", "three"] {
        ids.push(object.put(ids.last(), value, WriteOptions::default()).await.unwrap().id);
    }
    (object, ids)
}

/// The same object, by somebody who knows nothing of it yet.
fn fresh(stage: &Stage, object: &Object) -> Object {
    stage.user("bob").plain(object.owner(), b"a").unwrap()
}

fn altered(record: &Record, value: &'static [u8]) -> Record {
    let version = Version::decode(&record.bytes).unwrap();
    let version = Version { value: Bytes::from_static(value), ..version };
    Record { bytes: version.encode(), ..record.clone() }
}

#[test]
fn an_altered_value_is_refused_and_its_sender_named() {
    run(1, |env| async move {
        let stage = Stage::new(&env);
        let (object, ids) = history(&stage).await;
        let lie: Lie = Arc::new(|answer| match answer {
            ObjectsAnswer::Get(found) => ObjectsAnswer::Get(
                found
                    .into_iter()
                    .map(|one| {
                        one.map(|one| {
                            one.map(|one| FoundVersion {
                                record: altered(&one.record, b"lie"),
                                ..one
                            })
                        })
                    })
                    .collect(),
            ),
            other => other,
        });
        let rank = stage.rank(&stage.user("bob"), &place(&object));
        stage.keepers[rank[0]].lies(Some(lie.clone()));
        let got = fresh(&stage, &object).get_with(&ids[2]).await.unwrap();
        assert_eq!(got.value, Value::from("three"));
        assert_eq!(got.refused, [stage.keepers[rank[0]].id]);
        stage.keepers.iter().for_each(|keeper| keeper.lies(Some(lie.clone())));
        let error = fresh(&stage, &object).get(&ids[2]).await.unwrap_err();
        assert!(matches!(&error, ObjectsError::Corrupt { from, .. } if from.len() >= 3));
        assert_eq!(error.class(), Class::Corrupt);
        // Of another version, honestly hashed.
        let other = Version::decode(&stage_record(&stage, &ids[0]).bytes).unwrap();
        let (record, _) = other.record(SUITE, ids[0].n);
        let lie: Lie = Arc::new(move |answer| match answer {
            ObjectsAnswer::Get(_) => {
                let found = FoundVersion { record: record.clone(), attestation: None };
                ObjectsAnswer::Get(vec![Ok(Some(found))])
            }
            other => other,
        });
        stage.keepers.iter().for_each(|keeper| keeper.lies(Some(lie.clone())));
        let error = fresh(&stage, &object).get(&ids[2]).await.unwrap_err();
        assert_eq!(error.class(), Class::Corrupt, "{error}");
    });
}

fn stage_record(stage: &Stage, id: &VersionId) -> Record {
    let find = |keeper: &Arc<crate::keeper::Keeper>| {
        keeper.state.lock().unwrap().versions.get(&id.h).map(|(record, _)| record.clone())
    };
    stage.keepers.iter().find_map(find).unwrap()
}

#[test]
fn another_predecessor_and_made_up_depths_are_refused() {
    run(2, |env| async move {
        let stage = Stage::new(&env);
        let (object, ids) = history(&stage).await;
        let other = Version {
            object: object.key(),
            bases: Bases::NONE,
            l: 0,
            kind: version::ValueKind::Bytes,
            value: Bytes::from_static(b"made up"),
        };
        let (made_up, _) = other.record(SUITE, ids[0].n);
        let skipped: Lie = Arc::new(|answer| match answer {
            ObjectsAnswer::Previous(mut answer) if answer.records.len() > 1 => {
                answer.records.remove(1);
                ObjectsAnswer::Previous(answer)
            }
            other => other,
        });
        let inserted: Lie = Arc::new(move |answer| match answer {
            ObjectsAnswer::Previous(mut answer) if answer.records.len() > 1 => {
                answer.records[1] = made_up.clone();
                ObjectsAnswer::Previous(answer)
            }
            other => other,
        });
        for lie in [skipped, inserted] {
            stage.keepers.iter().for_each(|keeper| keeper.lies(Some(lie.clone())));
            let error = fresh(&stage, &object).previous(&ids[2], 2).await.unwrap_err();
            assert_eq!(error.class(), Class::Corrupt, "{error}");
        }
        let honest = stage.rank(&stage.user("bob"), &place(&object))[2];
        stage.keepers[honest].lies(None);
        let past = fresh(&stage, &object).previous(&ids[2], 2).await.unwrap();
        assert_eq!(past.iter().map(|past| past.id.h).collect::<Vec<_>>(), [ids[1].h, ids[0].h]);
    });
}

#[test]
fn made_up_tips_and_forged_attestations_do_not_count() {
    run(3, |env| async move {
        let stage = Stage::new(&env);
        let (object, ids) = history(&stage).await;
        let eve = SecretKey::from_bytes(&[7; 32]).unwrap();
        let network = stage.community.genesis.network();
        let own = Version {
            object: object.key(),
            bases: Bases::one(ids[2].h),
            l: 3,
            kind: version::ValueKind::Bytes,
            value: Bytes::from_static(b"eve's"),
        };
        let (record, _) = own.record(SUITE, ids[0].n);
        let eves = attest(SUITE, network, 1, &record.id, &eve).bytes;
        let mut forged = eves.to_vec();
        // The owner's key in its place, under eve's signature.
        let at = 18 + 32;
        forged[at..at + 33].copy_from_slice(object.owner().as_bytes());
        let tips_with = |attestation: Option<Bytes>| -> Lie {
            let record = record.clone();
            Arc::new(move |answer| match answer {
                ObjectsAnswer::Tips(mut all) => {
                    if let Ok(tips) = &mut all[0] {
                        let (record, attestation) = (record.clone(), attestation.clone());
                        tips.tips = vec![FoundVersion { record, attestation }];
                    }
                    ObjectsAnswer::Tips(all)
                }
                other => other,
            })
        };
        let liar = stage.rank(&stage.user("bob"), &place(&object))[0];
        for lie in [tips_with(None), tips_with(Some(forged.into()))] {
            stage.keepers[liar].lies(Some(lie));
            let tips = fresh(&stage, &object).tips().await.unwrap();
            assert_eq!(tips.tips.iter().map(|tip| tip.id).collect::<Vec<_>>(), [ids[2]]);
            assert_eq!(tips.refused, [stage.keepers[liar].id]);
        }
        // Eve's own word, which is true, and counts for nothing.
        stage.keepers[liar].lies(Some(tips_with(Some(eves))));
        let tips = fresh(&stage, &object).tips().await.unwrap();
        assert_eq!(tips.tips.iter().map(|tip| tip.id).collect::<Vec<_>>(), [ids[2]]);
        assert_eq!(tips.unlisted.len(), 1);
    });
}

#[test]
fn a_peer_that_rolls_the_policy_back_is_not_believed() {
    run(4, |env| async move {
        let stage = Stage::new(&env);
        let (object, ids) = history(&stage).await;
        let older = object.known_policy().unwrap();
        let record = {
            let answer = stage.user("bob").plain(object.owner(), b"a").unwrap();
            answer.tips().await.unwrap();
            let key = stage.author("ada").home().keyring().owner();
            older.sign(SUITE, &key).unwrap()
        };
        object.set_policy(PolicyOptions { region_bytes: 5_000, ..open() }).await.unwrap();
        let rollback: Lie = Arc::new(move |answer| match answer {
            ObjectsAnswer::Tips(mut all) => {
                if let Ok(tips) = &mut all[0] {
                    tips.policy = Some(record.clone());
                }
                ObjectsAnswer::Tips(all)
            }
            other => other,
        });
        let liar = stage.rank(&stage.user("bob"), &place(&object))[0];
        stage.keepers[liar].lies(Some(rollback));
        let bobs = fresh(&stage, &object);
        let policy = bobs.policy().await.unwrap().unwrap();
        assert_eq!((policy.version, policy.region_bytes), (2, 5_000));
        assert_eq!(bobs.tips().await.unwrap().tips[0].id, ids[2]);
    });
}
