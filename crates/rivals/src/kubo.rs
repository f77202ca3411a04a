//! Kubo (IPFS): a file added at one daemon, pinned by a second, read at the first and at a third.
//!
//! Three daemons that know each other alone: loopback addresses, nobody to meet at the start, no
//! routing, no discovery, over TCP, which is faster here than QUIC. Content is cut into blocks named
//! by their SHA-256 and kept as it is: what travels is encrypted, what is stored is not. Two daemons
//! hold it, so it is two times the bytes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, Beside, BoxError, Theirs};

use crate::error::RivalError;
use crate::install::KUBO;
use crate::measure::{self, Serving, Turn};
use crate::process::{self, Daemon};

const LIMIT: Duration = Duration::from_secs(1800);
/// What `ipfs daemon` says when it serves.
const SERVING: &str = "Daemon is ready";
/// Settings beside those of the profile `test`, which listens on loopback, meets nobody and discovers
/// nobody.
const SETTINGS: &[(&str, &str)] = &[
    ("Addresses.Swarm", "[\"/ip4/127.0.0.1/tcp/0\"]"),
    ("Routing.Type", "\"none\""),
    ("AutoConf.Enabled", "false"),
    ("AutoTLS.Enabled", "false"),
    ("Swarm.RelayClient.Enabled", "false"),
];
/// Blocks of 1 MiB with raw leaves: the quickest way it has.
const ADD: &[&str] =
    &["add", "--quieter", "--cid-version=1", "--raw-leaves", "--chunker=size-1048576"];

/// An installed Kubo.
pub(crate) struct Kubo {
    program: PathBuf,
}

/// One daemon's folder and what it is called with.
struct Site<'a> {
    program: &'a Path,
    repository: PathBuf,
    home: &'a Path,
}

impl Site<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = process::command(self.program, self.home);
        command.env("IPFS_PATH", &self.repository).env("IPFS_TELEMETRY", "off").args(args);
        command
    }

    /// Makes its repository and serves.
    fn serve(&self, turn: &Turn, bench: &Bench) -> Result<Daemon, RivalError> {
        turn.run(self.command(&["init", "--profile=test"]))?;
        for (name, value) in SETTINGS {
            turn.run(self.command(&["config", "--json", name, value]))?;
        }
        let log = self.repository.with_extension("log");
        let ready = |told: &str| Ok(told.contains(SERVING).then_some(()));
        Ok(Daemon::serving(self.command(&["daemon"]), &log, &bench.stop, ready)?.0)
    }

    /// Where others reach it.
    fn address(&self, turn: &Turn) -> Result<String, RivalError> {
        let told = turn.run(self.command(&["id", "--format=<addrs>"]))?.told;
        address(&told).ok_or(RivalError::Answer {
            program: "ipfs id",
            said: told,
            wanted: "address",
        })
    }
}

/// Three that serve: content is added at the first and pinned by the second.
struct Served<'a> {
    turn: Turn<'a>,
    first: &'a Site<'a>,
    second: &'a Site<'a>,
    third: &'a Site<'a>,
}

impl Serving for Served<'_> {
    fn put(&self, file: &Path) -> Result<(Duration, String), RivalError> {
        let mut add = self.first.command(ADD);
        add.arg(file);
        let added = self.turn.run(add)?;
        let name = named(&added.told)?;
        let pinned = self.turn.run(self.second.command(&["pin", "add", &name]))?;
        Ok((added.took + pinned.took, name))
    }

    /// At the first, which has it, or at the third, which has not.
    fn get(&self, way: usize, name: &str, out: &Path) -> Result<Duration, RivalError> {
        let site = if way == 0 { self.first } else { self.third };
        let mut get = site.command(&["get", "--progress=false", "--output"]);
        get.arg(out).arg(name);
        Ok(self.turn.run(get)?.took)
    }

    fn stores(&self) -> Vec<PathBuf> {
        vec![self.first.repository.clone(), self.second.repository.clone()]
    }
}

/// The first whole address that is told.
fn address(told: &str) -> Option<String> {
    let mut words = told.split_whitespace();
    words.find(|word| word.starts_with('/') && word.contains("/p2p/")).map(str::to_owned)
}

/// The content's name: the last word that is told.
fn named(told: &str) -> Result<String, RivalError> {
    let last = told.split_whitespace().next_back().unwrap_or_default();
    let is_one = last.len() > 40 && last.chars().all(|letter| letter.is_ascii_alphanumeric());
    let wrong = || RivalError::Answer {
        program: "ipfs add",
        said: told.to_owned(),
        wanted: "name of a content",
    };
    is_one.then(|| last.to_owned()).ok_or_else(wrong)
}

impl Kubo {
    pub(crate) fn new(cache: &Path, bench: &Bench) -> Result<Self, RivalError> {
        Ok(Self { program: KUBO.installed(cache, bench)? })
    }

    fn site<'a>(&'a self, folder: &'a Path, name: &str) -> Site<'a> {
        Site { program: &self.program, repository: folder.join(name), home: folder }
    }
}

impl Beside for Kubo {
    fn name(&self) -> &'static str {
        "kubo"
    }

    fn version(&self) -> &str {
        KUBO.version
    }

    fn does(&self) -> &'static str {
        "added at one daemon and pinned by a second, blocks of 1 MiB named by SHA-256, encrypted on the wire, stored in plain; its own client"
    }

    fn transfer(
        &mut self,
        bench: &Bench,
        file: &Path,
        folder: &Path,
    ) -> Result<Vec<Theirs>, BoxError> {
        let turn = Turn::new(bench, folder, LIMIT);
        let sites = ["first", "second", "third"].map(|name| self.site(folder, name));
        let served = sites.iter().map(|site| site.serve(&turn, bench));
        let _served = served.collect::<Result<Vec<_>, _>>()?;
        let [first, second, third] = &sites;
        for (from, to) in [(second, first), (third, first), (third, second)] {
            turn.run(from.command(&["swarm", "connect", &to.address(&turn)?]))?;
        }
        let served = Served { turn, first, second, third };
        measure::transfer(bench, file, folder, &["where it was added", "elsewhere"], &served)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_address_and_a_name_are_read() {
        let told = "/ip4/127.0.0.1/tcp/4001\n/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW\n";
        assert_eq!(address(told).unwrap(), "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW");
        assert_eq!(address("<addrs>\n"), None);
        let cid = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
        assert_eq!(named(&format!("a line\n{cid}\n")).unwrap(), cid);
        assert!(
            named("").is_err() && named("Error: it did not work, for a very long reason/").is_err()
        );
    }
}
