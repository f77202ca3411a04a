//! What a program that runs long shows to peers.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use crypto::{ClientKey, OrgId, Pass, Tier};
use testkit::network::{Community, DirectNetwork, community, key};

use super::*;

fn pass(community: &Community, client: ClientKey, env: &Env, minutes: u64) -> Bytes {
    let (now, organisation) = (env.clock.unix_s(), &community.organisations[0]);
    let (tier, quota, from) = (Tier::Own, 0, now - 60);
    let until = now + 60 * minutes;
    let organisation_id = OrgId::new(organisation.public());
    let pass = Pass { client, organisation: organisation_id, tier, quota, from, until };
    pass.sign(organisation, &community.genesis.network())
}

/// Whether this is what is shown soon: the file is read by a thread, which time that a test moves does not wait for.
async fn shows(shown: &Shown, pass: &Bytes) -> bool {
    for _ in 0..1_000 {
        if shown.get() == Credential::Client(pass.clone()) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_was_replaced_is_shown_and_one_that_is_gone_goes_on() {
    let (env, community, folder) = (Env::real(), community(1, 1), tempfile::tempdir().unwrap());
    let client = ClientKey::new(key("client", 0).public());
    let file = folder.path().join(client_home::PASS_FILE);
    let write = |pass: &Bytes| files::replace(&file, pass, files::Access::Secret).unwrap();
    let (first, second) = (pass(&community, client, &env, 30), pass(&community, client, &env, 300));
    write(&first);
    let config = Config {
        home: folder.path().to_owned(),
        via: Vec::new(),
        thin: false,
        network: folder.path().join("network"),
        org: None,
        passphrase_file: None,
        lease_s: 0,
    };
    let shown = Shown(Arc::new(Mutex::new(Credential::Client(first.clone()))));
    let directory = Directory::new(community.genesis.clone(), env.clone(), None);
    let calls = DirectNetwork::new(env.clone()).calls(*client.key());
    let walker = Walker::new(env.clone(), calls, directory, WalkOptions::default());
    let left = CancellationToken::new();
    let following = tokio::spawn(shown.follow(config, client, &walker, left.clone()));
    tokio::time::sleep(PASS_LOOKED_AT_EVERY * 2).await;
    assert!(shows(&shown, &first).await);
    write(&second);
    tokio::time::sleep(PASS_LOOKED_AT_EVERY).await;
    assert!(shows(&shown, &second).await);
    // It may be on its way to be replaced; what is shown ends by itself.
    std::fs::remove_file(&file).unwrap();
    tokio::time::sleep(PASS_LOOKED_AT_EVERY * 3).await;
    assert!(shows(&shown, &second).await && !left.is_cancelled());
    drop(walker);
    tokio::time::sleep(PASS_LOOKED_AT_EVERY * 2).await;
    assert!(following.is_finished(), "it ends with the walker");
}
