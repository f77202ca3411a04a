//! The experiments in their quick form: the shape of what they tell, the files, the exit codes. No
//! time is asserted: that is what running them in full is for.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::path::Path;
use std::time::Duration;

use harness::{Outcome, Running, hold, run};
use serde_json::Value;

/// The last line, checked for its fixed shape and against the exit code.
#[track_caller]
fn report(outcome: &Outcome, experiment: &str) -> Value {
    assert!(matches!(outcome.code, Some(0 | 3)), "{outcome:?}");
    let text = outcome.text();
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(report["experiment"], experiment);
    assert_eq!(report["quick"], true);
    assert_eq!(report["commit"], "c0ffee");
    assert!(report["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(!report["runs"].as_array().unwrap().is_empty());
    assert!(report["ratios"].as_object().unwrap().values().all(Value::is_number));
    let bars = report["bars"].as_array().unwrap();
    for bar in bars {
        assert!(bar["name"].is_string() && bar["bar"].is_string() && bar["ok"].is_boolean());
    }
    let met = bars.iter().all(|bar| bar["ok"] == true);
    assert_eq!(outcome.code, Some(if met { 0 } else { 3 }), "{bars:?}");
    report
}

/// Runs a quick experiment in a folder of its own, which must be empty afterwards.
#[track_caller]
fn quick(args: &[&str], experiment: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (dir, out) = (folder.path().join("networks"), folder.path().join("out"));
    let mut command = hold(["bench"]);
    command.args(args).args(["--quick", "--dir"]).arg(&dir).arg("--out").arg(&out);
    fs::create_dir(&dir).unwrap();
    let outcome = run(command.env("HOLD_COMMIT", "c0ffee"));
    let told = report(&outcome, experiment);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "it leaves nothing behind");
    let written = fs::read(out.join(format!("{experiment}.json"))).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), told);
    let picture = fs::read_to_string(out.join(format!("{experiment}.svg"))).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(outcome.text().lines().count() > 1, "tables come before");
    told
}

fn bar<'a>(report: &'a Value, part: &str) -> &'a Value {
    let bars = report["bars"].as_array().unwrap().iter();
    let mut found = bars.filter(|bar| bar["name"].as_str().unwrap().contains(part));
    found.next().unwrap_or_else(|| panic!("no bar {part}: {report}"))
}

#[test]
fn the_limit_is_a_rate_for_putting_and_one_for_getting() {
    let report = quick(&["limit", "--profile", "4/8"], "limit");
    let (put, get) = (&report["ratios"]["put_limit_mb_s"], &report["ratios"]["get_limit_mb_s"]);
    assert!(put.as_f64().unwrap() > 0.0 && get.as_f64().unwrap() > 0.0);
    assert_eq!(report["bars"].as_array().unwrap().len(), 0);
}

#[test]
fn a_transfer_is_told_beside_the_limit() {
    let args = ["transfer", "--size", "3MiB", "--profile", "copies:2", "--peers", "2"];
    let split = ["--chunks", "1MiB", "--transfers", "1,4"];
    let report = quick(&[args.as_slice(), split.as_slice()].concat(), "transfer");
    for work in ["put", "get"] {
        assert!(
            bar(&report, &format!("{work} 3 MiB of copies:2"))["value"].as_f64().unwrap() > 0.0
        );
        assert!(report["ratios"][format!("{work}_processor_to_limit")].as_f64().unwrap() >= 0.0);
    }
    assert!(report["ratios"]["put_in_chunks_to_whole"].as_f64().unwrap() > 0.0);
    let runs = report["runs"].as_array().unwrap();
    assert!(runs.iter().take(2).all(|run| run["bytes"] == 3 << 20), "{runs:?}");
}

#[test]
fn a_transfer_in_stripes_is_told_on_one_core_and_without_some_peers() {
    let args = ["transfer", "--size", "3MiB", "--profile", "2/3", "--peers", "3"];
    let more = ["--one-core", "1MB", "--lost", "1"];
    let report = quick(&[args.as_slice(), more.as_slice()].concat(), "transfer");
    assert_eq!(bar(&report, "put 3 MiB of 2/3, part of the limit")["bar"], ">= 0.6");
    for part in ["on one core, seconds", "MiB above idle", "with 1 peers killed, to before"] {
        assert!(bar(&report, part)["value"].as_f64().unwrap() > 0.0, "{part}: {report}");
    }
}

#[test]
fn memory_is_told_of_author_peers_and_network() {
    let report = quick(&["memory", "--size", "5MiB", "--peers", "3", "--network", "3"], "memory");
    for part in ["author putting", "author getting", "peer that stored", "idle peer of 3"] {
        assert!(bar(&report, part)["value"].as_f64().unwrap() > 1.0, "{part}");
    }
    assert!(bar(&report, "network of 3, proportional")["value"].as_f64().unwrap() > 1.0);
    assert!(bar(&report, "cores busy")["value"].as_f64().unwrap() >= 0.0);
}

#[test]
fn the_papers_experiment_is_told_by_cluster_and_rate() {
    let args = ["libri", "--peers", "2,3", "--rates", "1024K", "--seconds", "1", "--no-saturation"];
    let report = quick(&args, "libri");
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let calls = |of: &str| run[of]["calls"].as_u64().unwrap();
        assert!(calls("put") >= calls("get") && calls("get") > 0, "{run}");
        assert_eq!((run["failed"].as_u64(), run["shed"].as_u64()), (Some(0), Some(0)), "{run}");
    }
    for part in ["Get p50 ms, 3 peers", "Put p50 ms, 3 peers", "Put p50, 3 peers to 2"] {
        assert!(bar(&report, part)["value"].as_f64().unwrap() > 0.0, "{part}");
    }
}

#[test]
fn the_papers_load_of_whole_contents_is_told_in_stripes_too() {
    let args = ["libri", "--profile", "2/3", "--peers", "3", "--rates", "1024K", "--seconds", "1"];
    let report = quick(&args, "libri");
    let run = &report["runs"].as_array().unwrap()[0];
    let calls = |of: &str| run[of]["calls"].as_u64().unwrap();
    assert!(calls("put") > 0 && calls("get") <= 2 * calls("put"), "{run}");
    assert_eq!((run["profile"].as_str(), run["failed"].as_u64()), (Some("2/3"), Some(0)), "{run}");
    assert!(report["ratios"]["put_2/3_at_3_to_paper_put"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn the_papers_load_is_told_of_peers_that_only_pass_bytes_on() {
    let args = ["libri", "--bare", "--peers", "2,5", "--rates", "1024K", "--seconds", "1"];
    let report = quick(&args, "libri");
    let runs = report["runs"].as_array().unwrap();
    for run in runs.iter().filter(|run| run["put"].is_object()) {
        let calls = |of: &str| run[of]["calls"].as_u64().unwrap();
        assert!(calls("put") >= calls("get") && calls("get") > 0, "{run}");
        assert_eq!((run["bare"].as_bool(), run["failed"].as_u64()), (Some(true), Some(0)), "{run}");
    }
    // Each cluster, and its saturation.
    assert_eq!(runs.len(), 4, "{report}");
    for ratio in ["Put_growth", "Get_growth", "saturation_to_paper"] {
        assert!(report["ratios"][ratio].as_f64().unwrap() > 0.0, "{ratio}: {report}");
    }
    assert_eq!(report["bars"].as_array().unwrap().len(), 0, "nothing is promised of them");
}

#[test]
fn overload_loses_nothing_that_was_acknowledged() {
    let report = quick(&["overload", "--peers", "3", "--seconds", "1"], "overload");
    let missing = bar(&report, "missing");
    assert_eq!((missing["value"].as_f64(), missing["ok"].as_bool()), (Some(0.0), Some(true)));
    bar(&report, "seconds until p99");
    let phases: Vec<&Value> =
        report["runs"].as_array().unwrap().iter().filter(|run| run["phase"].is_string()).collect();
    assert_eq!(phases.len(), 3);
    assert!(phases.iter().all(|phase| phase["acknowledged"].as_u64().unwrap() > 0));
}

/// Ten rounds, with files, versions and readers; the next thousand are run by the shows.
#[test]
fn nothing_is_lost_or_read_wrong_while_peers_are_killed_and_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = hold(["bench", "rounds", "--rounds", "10", "--seed", "7", "--quick"]);
    command.arg("--dir").arg(folder.path()).env("HOLD_COMMIT", "c0ffee");
    // It waits until the network is whole, which takes what it takes.
    let report = report(&Running::start(&mut command).finish(harness::PATIENCE * 10), "rounds");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
    for part in [", lost", "wrong byte", "not answered", "lack a copy", "full redundancy"] {
        assert_eq!(bar(&report, part)["ok"], true, "{part}: {report}");
    }
    let (killed, after) = (&report["runs"][0], &report["runs"][1]);
    assert!(killed["kills"].as_u64() >= Some(10), "{report}");
    assert!(after["files"].as_u64() > Some(0) && after["versions"].as_u64() > Some(0), "{report}");
    assert!(after["reads"].as_u64() > Some(0), "{report}");
}

#[test]
fn members_killed_under_load_lose_no_update_and_apply_none_twice() {
    let report = quick(&["heads", "--members", "4", "--kills", "3"], "heads");
    let killed = &report["runs"][0];
    assert_eq!(killed["kills"], 3);
    assert!(killed["updates"].as_u64() >= Some(600), "{killed}");
}

/// Four member processes; what they certify is checked by the experiment's clients with the group key.
#[test]
fn heads_are_certified_by_member_processes() {
    let report = quick(&["heads", "--members", "4"], "heads");
    let runs = report["runs"].as_array().unwrap();
    let what: Vec<_> = runs.iter().map(|run| run["what"].as_str().unwrap()).collect();
    assert_eq!(what[..4], ["rest", "one by one", "one by one", "bundles"], "{report}");
    assert!(runs[1..4].iter().all(|run| run["updates"].as_u64() > Some(0)), "{report}");
    for part in ["own client", "signed bundles", "p50 ms", "% of a core", "MiB"] {
        assert!(bar(&report, part)["value"].as_f64().unwrap() > 0.0, "{part}: {report}");
    }
}

#[test]
fn gets_are_told_beside_those_with_a_slow_holder() {
    let args = ["slow", "--peers", "3", "--profile", "2/3", "--gets", "8"];
    let report = quick(&args, "slow");
    assert!(bar(&report, "p99 of gets of 2/3")["value"].as_f64().unwrap() > 0.0);
    let runs = report["runs"].as_array().unwrap();
    let phases: Vec<_> = runs.iter().map(|run| run["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["first", "well", "slow"]);
    assert!(runs.iter().all(|run| run["get"]["calls"].as_u64() >= Some(8)), "{runs:?}");
    assert!(runs[2]["delay_ms"].as_f64() > Some(0.0), "{runs:?}");
}

/// Whether there is a Redis to compare with.
fn redis() -> bool {
    let tried = std::process::Command::new("redis-server").arg("--version").output();
    let there = tried.is_ok_and(|tried| tried.status.success());
    if !there {
        testkit::missing("the experiments beside a Redis: redis-server is not on the PATH");
    }
    there
}

#[test]
fn redis_benchmark_is_told_of_the_door_and_of_a_redis() {
    if !redis() {
        return;
    }
    // So many that they take longer than the milliseconds that the tool counts in.
    let report = quick(&["kv", "redis", "--requests", "5000"], "kv-redis");
    for part in ["SET, one by one", "GET, one by one", "SET, 16 at once", "GET, 16 at once"] {
        assert!(bar(&report, part)["value"].as_f64().unwrap() > 0.0, "{part}: {report}");
    }
}

#[test]
fn ycsbs_reads_and_updates_are_told_by_side_and_number_of_clients() {
    if !redis() {
        return;
    }
    let args = ["kv", "ycsb", "--clients", "1,3", "--values", "100", "--seconds", "0.5"];
    let report = quick(&args, "kv-ycsb");
    let runs = report["runs"].as_array().unwrap().iter().filter(|run| run["side"].is_string());
    let runs: Vec<&Value> = runs.collect();
    assert_eq!(runs.len(), 2 * 2 * 3, "clients, pipelines, sides");
    for run in runs {
        let calls = |of: &str| run[of]["calls"].as_u64().unwrap();
        assert!(calls("read") > 0 && calls("update") > 0, "{run}");
    }
    let ratio = &report["ratios"]["door_to_redis_everysec_100_b_16_at_once_3_clients"];
    assert!(ratio.as_f64().unwrap() > 0.0);
}

#[test]
fn scans_of_predecessors_are_told_beside_gets_one_after_the_other() {
    if !redis() {
        return;
    }
    let report = quick(&["kv", "scan"], "kv-scan");
    assert!(bar(&report, "32 predecessors in one request")["value"].as_f64().unwrap() > 0.0);
    let runs = report["runs"].as_array().unwrap().iter().filter(|run| run["side"].is_string());
    assert_eq!(runs.count(), 7 * 2, "lengths, sides");
}

#[test]
fn versions_kept_small_are_told_beside_those_kept_whole() {
    let report = quick(&["kv", "delta"], "kv-delta");
    assert_eq!(report["runs"].as_array().unwrap().len(), 3 * 3, "workloads, ancestors");
    let bytes = bar(&report, "8000 versions of 1000 B, the same tenth changed: bytes");
    let bytes = bytes["value"].as_f64().unwrap();
    let ratio = |name: &str| report["ratios"][name].as_f64().unwrap();
    // Of few versions the files' own bytes are a part, so the promise is for many.
    assert!(bytes < 0.6, "{report}");
    assert!(ratio("same_tenth_random_ancestor_bytes_to_plain") > bytes);
    assert!(ratio("moving_tenth_nearest_ancestor_bytes_to_plain") > bytes);
    assert!(ratio("random_nearest_ancestor_bytes_to_plain") > 0.9, "nothing to find");
    assert!(bar(&report, "the same tenth changed: rate")["value"].as_f64().unwrap() > 0.0);
}

#[test]
fn without_a_redis_it_says_what_to_install() {
    for part in ["redis", "ycsb", "scan"] {
        let mut command = hold(["bench", "kv", part, "--quick"]);
        let refused = run(command.env("PATH", "/nowhere")).expect_error(10);
        assert!(refused.stderr.contains("Debian package `redis-server`"), "{}", refused.stderr);
    }
}

#[test]
fn as_json_the_object_is_all() {
    let outcome = run(hold(["bench", "limit", "--quick", "--json"]).env("HOLD_COMMIT", "c0ffee"));
    report(&outcome, "limit");
    assert_eq!(outcome.text().lines().count(), 1);
    // Whoever read of it may have read enough.
    let (reader, closed) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let outcome = run(hold(["bench", "limit", "--quick"]).stdout(closed));
    assert!(matches!(outcome.code, Some(0 | 3)), "{outcome:?}");
}

#[test]
fn where_results_cannot_be_written_nothing_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"mine").unwrap();
    for out in [&file, &file.join("below")] {
        let refused = run(hold(["bench", "limit", "--quick", "--out"]).arg(out)).expect_error(2);
        assert_eq!(refused.text(), "", "no table of a measurement");
        assert!(refused.stderr.contains("name another folder"), "{}", refused.stderr);
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_result_that_cannot_be_written_is_printed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // The folder is one that can be written, and the file is not.
    fs::create_dir(folder.path().join("limit.json")).unwrap();
    for form in [&["--json"][..], &[]] {
        let mut command = hold(["bench", "limit", "--quick", "--out"]);
        let outcome = run(command.arg(folder.path()).args(form));
        assert!(!matches!(outcome.code, Some(0 | 3)), "{outcome:?}");
        assert!(outcome.stderr.contains("limit.json"), "{}", outcome.stderr);
        let text = outcome.text();
        let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(report["experiment"], "limit");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "what was tried is gone");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for args in [
        ["kv", "redis", "--requests", "49"],
        ["kv", "redis", "--rounds", "0"],
        ["kv", "ycsb", "--clients", "0"],
        ["kv", "ycsb", "--values", "7"],
        ["kv", "ycsb", "--seconds", "0"],
        ["kv", "scan", "--keys", "0"],
        ["kv", "scan", "--value", "10"],
        ["kv", "delta", "--versions", "0"],
        ["kv", "delta", "--chain", "0"],
    ] {
        run(hold(["bench"]).args(args)).expect_error(2);
    }
    for args in [
        ["limit", "--profile", "copies:0"],
        ["transfer", "--size", "0"],
        ["transfer", "--size", "much"],
        ["transfer", "--peers", "65"],
        ["transfer", "--lost", "3"],
        ["transfer", "--one-core", "0"],
        ["libri", "--peers", "0"],
        ["libri", "--seconds", "0"],
        ["libri", "--profile", "storj"],
        ["overload", "--seconds", "0"],
        ["slow", "--gets", "0"],
        ["slow", "--rounds", "21"],
        ["rounds", "--rounds", "0"],
        ["rounds", "--organisations", "2"],
    ] {
        run(hold(["bench"]).args(args)).expect_error(2);
    }
}

#[test]
fn a_signal_ends_it_with_its_peers() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = hold(["bench", "memory", "--network", "2", "--size", "1GiB", "--dir"]);
    let running = Running::start(command.arg(folder.path()));
    // As soon as a peer runs there is something to end.
    let peers = || {
        let networks = fs::read_dir(folder.path()).unwrap().flatten();
        let found = networks.flat_map(|network| fs::read_dir(network.path()).into_iter().flatten());
        found.flatten().any(|file| file.path().extension().is_some_and(|end| end == "log"))
    };
    let started = std::time::Instant::now();
    while !peers() {
        assert!(started.elapsed() < harness::PATIENCE, "no peer ever started");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.signal("TERM");
    running.finish(harness::PATIENCE).expect(130);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut left = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&*folder.path().to_string_lossy())
    });
    assert!(left.next().is_none(), "a peer runs on: {}", Path::new("/proc").display());
}
