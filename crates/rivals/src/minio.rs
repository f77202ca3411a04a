//! MinIO: one process with four drives, over HTTP, by its own client.
//!
//! With four drives it codes 2 of 4: two times the bytes, as our 4/8. It keeps a checksum of every
//! block, encrypts nothing, and here speaks no TLS. The drives are folders of one disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, Beside, BoxError, Ports, Theirs, Work};

use crate::error::RivalError;
use crate::install::{MC, MINIO};
use crate::measure::{self, Turn};
use crate::process::{self, Daemon};

const DRIVES: usize = 4;
const USER: &str = "measured";
const PASSWORD: &str = "only-for-measuring";
const LIMIT: Duration = Duration::from_secs(1800);

/// An installed MinIO.
pub(crate) struct Minio {
    program: PathBuf,
    client: PathBuf,
}

impl Minio {
    pub(crate) fn new(cache: &Path, bench: &Bench) -> Result<Self, RivalError> {
        let (program, client) = (MINIO.installed(cache, bench)?, MC.installed(cache, bench)?);
        Ok(Self { program, client })
    }

    fn serve(&self, folder: &Path, address: &str, console: &str) -> Command {
        let mut command = process::command(&self.program, folder);
        command.env("MINIO_ROOT_USER", USER).env("MINIO_ROOT_PASSWORD", PASSWORD);
        // Several drives of one disk are refused but in such runs.
        command.env("MINIO_CI_CD", "1").env("MINIO_BROWSER", "off").env("MINIO_UPDATE", "off");
        command.args(["server", "--quiet", "--address", address, "--console-address", console]);
        command.args(drives(folder));
        command
    }

    fn client(&self, folder: &Path, address: &str, args: &[&str]) -> Command {
        let mut command = process::command(&self.client, folder);
        command.env("MC_HOST_here", format!("http://{USER}:{PASSWORD}@{address}"));
        command.args(["--quiet", "--config-dir"]).arg(folder.join("client")).args(args);
        command
    }
}

fn drives(folder: &Path) -> Vec<PathBuf> {
    (1..=DRIVES).map(|number| folder.join(format!("drive{number}"))).collect()
}

impl Beside for Minio {
    fn name(&self) -> &'static str {
        "minio"
    }

    fn version(&self) -> &str {
        MINIO.version
    }

    fn does(&self) -> &'static str {
        "4 drives of one process coded 2 of 4, a checksum a block, HTTP without TLS, no encryption; its own client"
    }

    fn transfer(
        &mut self,
        bench: &Bench,
        file: &Path,
        folder: &Path,
    ) -> Result<Vec<Theirs>, BoxError> {
        let mut ports = Ports::new();
        let mut address = || ports.free().map(|port| format!("127.0.0.1:{port}"));
        let (address, console) = (address()?, address()?);
        for drive in drives(folder) {
            std::fs::create_dir(&drive).map_err(RivalError::io("make", &drive))?;
        }
        let turn = Turn::new(bench, folder, LIMIT);
        let serve = self.serve(folder, &address, &console);
        let mut serving = Daemon::start(serve, &folder.join("serving.log"))?;
        let make = || self.client(folder, &address, &["mb", "--ignore-existing", "here/files"]);
        // It listens before it has its drives together.
        serving.ready(&bench.stop, |_| Ok(turn.run(make()).ok()))?;
        let put = |from: &Path, name: &str| {
            let (from, to) = (from.display().to_string(), format!("here/files/{name}"));
            turn.run(self.client(folder, &address, &["cp", &from, &to]))
        };
        let get = |name: &str, to: &Path| {
            let (from, to) = (format!("here/files/{name}"), to.display().to_string());
            turn.run(self.client(folder, &address, &["cp", &from, &to]))
        };
        let (tiny, out) = (measure::tiny(folder)?, folder.join("out"));
        let put_start = put(&tiny, "tiny")?.took;
        let get_start = get("tiny", &out)?.took;
        let before = process::bytes_below(&drives(folder))?;
        let put_took = put(file, "content")?.took;
        let stored_bytes = process::bytes_below(&drives(folder))?.saturating_sub(before);
        let get_took = get("content", &out)?.took;
        bench::same(file, &out, &bench.stop)?;
        let one = |work, took, start| Theirs { work, way: "", took, start, stored_bytes };
        Ok(vec![one(Work::Put, put_took, put_start), one(Work::Get, get_took, get_start)])
    }
}
