//! Streams through a pipe in flat memory: the author's process, each peer at its peak, and at rest.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::process::Stdio;

use harness::{Network, Noise, assert_same, full, memory, random_file};

const MIB: u64 = 1 << 20;
const AUTHOR_PEAK_MAX: u64 = 256 * MIB;
const PEER_PEAK_MAX: u64 = 512 * MIB;
/// Of a peer's own, without the pages of the program's file: all peers share those, and how many there are is the
/// compiler's doing. What the released program takes of both at rest is `bench memory`'s to say.
const PEER_IDLE_MAX: u64 = 16 * MIB;
/// What stands in the pipe at a time.
const BLOCK: usize = 1 << 20;

#[test]
fn a_stream_of_any_size_needs_little_memory() {
    let network = Network::running(9, &[]);
    for peer in &network.peers {
        let idle = memory(peer.pid(), "RssAnon");
        assert!(idle < PEER_IDLE_MAX, "an idle peer takes {} MiB", idle / MIB);
    }
    let home = network.home("author", 0);
    let via = network.via();
    let blocks = if full() { 4096 } else { 128 };

    let mut put = home.hold(["put", "-", "--json", "--via", &via]);
    let mut put = put.stdin(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(put.id()).unwrap();
    let mut stdin = put.stdin.take().unwrap();
    let mut noise = Noise::new(7);
    let mut block = vec![0; BLOCK];
    for _ in 0..blocks {
        noise.fill(&mut block);
        stdin.write_all(&block).unwrap();
    }
    let peak = memory(pid, "VmHWM");
    drop(stdin);
    let put = put.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&put.stderr);
    assert!(matches!(put.status.code(), Some(0)), "{:?} {text}", put.status);
    assert!(peak < AUTHOR_PEAK_MAX, "the author took {} MiB to put", peak / MIB);
    let put: serde_json::Value = serde_json::from_slice(&put.stdout).unwrap();
    assert_eq!(put["bytes"], blocks * BLOCK as u64);

    let address = put["address"].as_str().unwrap();
    let mut get = home.hold(["get", address, "-o", "-", "--via", &via]);
    let mut get = get.stderr(Stdio::inherit()).spawn().unwrap();
    let pid = i32::try_from(get.id()).unwrap();
    let mut stdout = get.stdout.take().unwrap();
    let mut noise = Noise::new(7);
    let mut got = vec![0; BLOCK];
    let mut peak = 0;
    for number in 0..blocks {
        stdout.read_exact(&mut got).unwrap();
        noise.fill(&mut block);
        assert!(got == block, "block {number} differs");
        // The process ends soon after its last bytes: look before.
        if number + 8 > blocks || number % 64 == 0 {
            peak = peak.max(try_memory(pid).unwrap_or(peak));
        }
    }
    assert_eq!(stdout.read(&mut got).unwrap(), 0, "more came out than went in");
    assert_eq!(get.wait().unwrap().code(), Some(0));
    assert!(peak > 0 && peak < AUTHOR_PEAK_MAX, "the author took {} MiB to get", peak / MIB);
    for peer in &network.peers {
        let peak = memory(peer.pid(), "VmHWM");
        assert!(peak < PEER_PEAK_MAX, "a peer took {} MiB", peak / MIB);
        eprintln!("peer: peak {} MiB, now {} MiB", peak / MIB, memory(peer.pid(), "VmRSS") / MIB);
    }
}

/// The peak so far, where the process is still there.
fn try_memory(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// As a shell hands it over in `hold put <(command)`: it can be opened by its name, and leads nowhere by it.
#[test]
fn a_pipe_is_put_by_the_name_of_its_handle() {
    let network = Network::running(3, &[]);
    let (via, home) = (network.via(), network.home("author", 0));
    let (file, back) = (network.folder.path().join("file"), network.folder.path().join("back"));
    random_file(&file, 100_000, 1);
    for name in ["/dev/stdin", "/dev/fd/0"] {
        let mut put = home.hold(["put", name, "--json", "--via", &via]);
        let mut put = put.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = put.stdin.take().unwrap();
        stdin.write_all(&std::fs::read(&file).unwrap()).unwrap();
        drop(stdin);
        let put = put.wait_with_output().unwrap();
        assert!(put.status.success(), "{name}: {}", String::from_utf8_lossy(&put.stderr));
        let put: serde_json::Value = serde_json::from_slice(&put.stdout).unwrap();
        home.get(&via, put["address"].as_str().unwrap(), &back).expect(0);
        assert_same(&file, &back);
    }
}
