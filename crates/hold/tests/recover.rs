//! A machine is lost: the 24 words and a network bring everything back.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::{Home, Network, Outcome, PATIENCE, Running, assert_same, random_file, run};
use serde_json::Value;

/// Runs a command with these words on its standard input.
fn with_words(command: &mut Command, words: &str) -> Outcome {
    let mut running = Running::start(command.stdin(Stdio::piped()));
    running.stdin().write_all(words.as_bytes()).unwrap();
    running.finish(PATIENCE)
}

fn recover(network: &Network, home: &Home, via: &str) -> Command {
    let mut command = home.hold(["keys", "recover", "--json", "--via", via, "--network"]);
    command.arg(&network.file).arg("--org").arg(&network.orgs[0]);
    command
}

fn lines(outcome: &Outcome) -> Vec<Value> {
    outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn everything_comes_back_by_the_words_alone() {
    let mut network = Network::running(4, &[]);
    let via = network.via();
    let (ada, ben) = (network.home("ada", 0), network.home("ben", 1));
    let file = |name: &str, bytes, seed| {
        let path = network.folder.path().join(name);
        random_file(&path, bytes, seed);
        path
    };
    let files = [file("a.bin", 100, 1), file("b.bin", 3 << 20, 2), file("c.bin", 20_000, 3)];
    let put: Vec<Value> = files.iter().map(|path| ada.put(&via, path)).collect();
    // One goes to somebody else, by an envelope that she pays for.
    let first = put[0]["address"].as_str().unwrap();
    run(ada.hold(["share", first, "--via", &via, "--to"]).arg(ben.reader())).expect(0);
    let theirs = file("theirs.bin", 50_000, 4);
    let address = ben.put(&via, &theirs)["address"].as_str().unwrap().to_owned();
    run(ben.hold(["share", &address, "--via", &via, "--to"]).arg(ada.reader())).expect(0);
    let export = run(&mut ada.hold(["keys", "export", "--yes", "--json"])).expect(0).json();
    let words = export["words"].as_str().unwrap().to_owned();
    let readers = run(&mut ada.hold(["keys", "list", "--json"])).expect(0).json();
    fs::remove_dir_all(&ada.dir).unwrap();

    // Words that are none, and words of somebody else.
    let new = Home { dir: network.folder.path().join("new") };
    let wrong = format!("zzz {words}");
    for (words, says) in [("", "24 words"), ("one two three", "24 words"), (&wrong, "24 words")] {
        let refused = with_words(&mut recover(&network, &new, &via), words).expect_error(2);
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
        assert!(!new.dir.join("keyring").exists(), "nothing was made of them");
    }
    let other = network.home("other", 0);
    let others = run(&mut other.hold(["keys", "export", "--yes", "--json"])).expect(0).json();
    let empty = Home { dir: network.folder.path().join("empty") };
    let nothing =
        with_words(&mut recover(&network, &empty, &via), others["words"].as_str().unwrap())
            .expect_error(10);
    assert!(nothing.stderr.contains("nothing of this keyring was found"), "{}", nothing.stderr);
    assert_eq!(lines(&nothing).last().unwrap()["own"], 0);

    // The keyring is made though no librarian answers; the next run needs no words.
    let dead = "127.0.0.1:1";
    with_words(&mut recover(&network, &new, dead), &words).expect_error(15);
    let recovered = run(&mut recover(&network, &new, &via)).expect(0);
    check(&network, &new, &via, &recovered, &files, &theirs);
    // The new home knows what is paid for.
    let renewed = lines(&run(&mut new.hold(["renew", "--all", "--json", "--via", &via])).expect(0));
    assert_eq!(renewed.len(), 4, "{renewed:?}");
    assert!(put.iter().all(|put| renewed.iter().any(|one| one["address"] == put["address"])));
    let again = run(&mut new.hold(["keys", "list", "--json"])).expect(0).json();
    assert_eq!(again["reader_keys"], readers["reader_keys"]);

    // Through one librarian too, after another one is gone, and as text.
    network.peers[2].kill();
    let one = network.peers[0].address.clone();
    let thin = run(recover(&network, &new, &one).arg("--thin")).expect(0);
    check(&network, &new, &one, &thin, &files, &theirs);
    let text = run(&mut new.hold(["keys", "recover", "--via", &one])).expect(0).text();
    assert!(text.contains("own     a.bin (100 bytes)"), "{text}");
    let last = format!("3 own, 1 shared, 4 paid for; next counter {}", next(&thin));
    assert!(text.ends_with(&last), "{text}");

    // What it puts from now on is its own, and is found as well.
    let more = new.put(&via, &files[0]);
    let found = lines(&run(&mut recover(&network, &new, &one)).expect(0));
    assert!(found.iter().any(|line| line["address"] == more["address"]));
}

fn next(outcome: &Outcome) -> u64 {
    lines(outcome).last().unwrap()["next"].as_u64().unwrap()
}

fn check(
    network: &Network,
    home: &Home,
    via: &str,
    recovered: &Outcome,
    files: &[PathBuf],
    theirs: &PathBuf,
) {
    let found = lines(recovered);
    let sum = found.last().unwrap();
    assert_eq!(
        (&sum["own"], &sum["shared"], &sum["complete"]),
        (&3.into(), &1.into(), &true.into())
    );
    assert_eq!((&sum["paid"], &sum["unasked"]), (&4.into(), &0.into()), "{sum}");
    assert!(next(recovered) >= 1_024 + 3, "{sum}");
    assert_eq!(found.len(), 5);
    let back = network.folder.path().join("back.bin");
    for file in files.iter().chain([theirs]) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let line = found.iter().find(|line| line["name"] == name).unwrap();
        assert_eq!(line["own"], file != theirs);
        assert_eq!(line["size"], fs::metadata(file).unwrap().len());
        home.get(via, line["address"].as_str().unwrap(), &back).expect(0);
        assert_same(file, &back);
    }
}
