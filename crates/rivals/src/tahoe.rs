//! Tahoe-LAFS: ten storage processes, any 3 of 10, encrypted by the author's own process.
//!
//! An introducer, ten that store, and one gateway that seals and codes, each a process, as its
//! handbook says, over TLS on loopback. The redundancy is 10/3. An upload must reach all ten. The client is a program that hands
//! the file to the gateway; with it, of all that is measured here, only this program encrypts as ours does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, Beside, BoxError, Ports, Theirs};

use crate::error::RivalError;
use crate::install::TAHOE;
use crate::measure::{self, Serving, Turn};
use crate::process::{self, Daemon};

/// Fragments that are enough, and fragments in all, each with a process of its own.
const NEEDED: usize = 3;
const TOTAL: usize = 10;
const LIMIT: Duration = Duration::from_secs(1800);

/// An installed Tahoe-LAFS.
pub(crate) struct Tahoe {
    program: PathBuf,
}

/// Its processes.
struct Grid<'a> {
    program: &'a Path,
    folder: &'a Path,
    turn: Turn<'a>,
    ports: Ports,
    serving: Vec<Daemon>,
}

impl Grid<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = process::command(self.program, self.folder);
        command.args(args);
        command
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes one of the processes' folders, with a free port to listen at.
    fn make(&mut self, kind: &str, name: &str, more: &[&str]) -> Result<(), RivalError> {
        let port = self.ports.free()?;
        let listen = format!("--port=tcp:{port}:interface=127.0.0.1");
        let location = format!("--location=tcp:127.0.0.1:{port}");
        let mut command = self.command(&[kind, &listen, &location]);
        command.args(more).arg(self.at(name));
        self.turn.run(command).map(drop)
    }

    fn serve(&mut self, name: &str) -> Result<(), RivalError> {
        let mut command = self.command(&["run", "--allow-stdin-close"]);
        command.arg(self.at(name));
        let log = self.folder.join(format!("{name}.log"));
        self.serving.push(Daemon::start(command, &log)?);
        Ok(())
    }

    /// Starts all, and waits until the gateway stores.
    fn start(&mut self, bench: &Bench) -> Result<(), RivalError> {
        self.make("create-introducer", "introducer", &[])?;
        self.serve("introducer")?;
        let furl = self.at("introducer").join("private/introducer.furl");
        let furl = match self.serving.last_mut() {
            Some(first) => first.ready(&bench.stop, |_| {
                let text = std::fs::read_to_string(&furl).unwrap_or_default();
                Ok(text.contains("pb://").then(|| text.trim().to_owned()))
            })?,
            None => String::new(),
        };
        let introducer = format!("--introducer={furl}");
        for number in 0..TOTAL {
            let name = format!("storage{number}");
            self.make("create-node", &name, &["--webport=none", &introducer])?;
            self.serve(&name)?;
        }
        let webport = format!("--webport=tcp:{}:interface=127.0.0.1", self.ports.free()?);
        let [needed, total] = [NEEDED, TOTAL].map(|number| number.to_string());
        let gateway = self.at("gateway");
        let mut create = self.command(&["create-client", &webport, &introducer]);
        create.arg(format!("--shares-needed={needed}")).arg(format!("--shares-total={total}"));
        create.arg(format!("--shares-happy={total}")).arg(&gateway);
        self.turn.run(create)?;
        self.serve("gateway")?;
        // An upload fails until all ten are known. What is uploaded once is known by its bytes, so it is none that is timed.
        let first = self.at("first");
        std::fs::write(&first, [7; 1024]).map_err(RivalError::io("write", &first))?;
        let mut last = self.serving.pop();
        if let Some(gateway) = &mut last {
            gateway.ready(&bench.stop, |_| Ok(self.put(&first).ok()))?;
        }
        self.serving.extend(last);
        Ok(())
    }

    /// A run of the client, which asks the gateway.
    fn client(&self, work: &str) -> Command {
        let mut command = self.command(&["-d"]);
        command.arg(self.at("gateway")).arg(work);
        command
    }
}

impl Serving for Grid<'_> {
    fn put(&self, file: &Path) -> Result<(Duration, String), RivalError> {
        let mut put = self.client("put");
        put.arg(file);
        let ran = self.turn.run(put)?;
        Ok((ran.took, capability(&ran.told)?))
    }

    fn get(&self, _way: usize, name: &str, out: &Path) -> Result<Duration, RivalError> {
        let mut get = self.client("get");
        get.arg(name).arg(out);
        Ok(self.turn.run(get)?.took)
    }

    fn stores(&self) -> Vec<PathBuf> {
        (0..TOTAL).map(|number| self.at(&format!("storage{number}")).join("storage")).collect()
    }
}

/// The content's name among what was told.
fn capability(told: &str) -> Result<String, RivalError> {
    let found = told.split_whitespace().find(|word| word.starts_with("URI:"));
    let wrong = || RivalError::Answer {
        program: "tahoe put",
        said: told.to_owned(),
        wanted: "name of a content",
    };
    found.map(str::to_owned).ok_or_else(wrong)
}

impl Tahoe {
    pub(crate) fn new(cache: &Path, bench: &Bench) -> Result<Self, RivalError> {
        Ok(Self { program: TAHOE.installed(cache, bench)? })
    }
}

impl Beside for Tahoe {
    fn name(&self) -> &'static str {
        "tahoe-lafs"
    }

    fn version(&self) -> &str {
        TAHOE.version
    }

    fn does(&self) -> &'static str {
        "encrypted by a gateway process, any 3 of 10 fragments at 10 storage processes, TLS; its own client"
    }

    fn transfer(
        &mut self,
        bench: &Bench,
        file: &Path,
        folder: &Path,
    ) -> Result<Vec<Theirs>, BoxError> {
        let turn = Turn::new(bench, folder, LIMIT);
        let (ports, serving) = (Ports::new(), Vec::new());
        let mut grid = Grid { program: &self.program, folder, turn, ports, serving };
        grid.start(bench)?;
        measure::transfer(bench, file, folder, &[""], &grid)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_capability_is_read_among_what_is_told() {
        let told = "201 Created\nURI:CHK:aaaa:bbbb:3:10:1024\n";
        assert_eq!(capability(told).unwrap(), "URI:CHK:aaaa:bbbb:3:10:1024");
        assert!(capability("Error: 500 Internal Server Error").is_err());
    }
}
