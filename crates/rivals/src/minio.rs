//! MinIO: one process with four drives, by its own client, over HTTP and over HTTPS.
//!
//! With four drives it codes 2 of 4: two times the bytes, as our 4/8. It keeps a checksum of every
//! block and encrypts nothing that it keeps. Over HTTPS, which is how it is set up between
//! organisations, it does on the wire what ours always does. The drives are folders of one disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, BenchError, Beside, BoxError, Ports, Theirs};

use crate::error::RivalError;
use crate::install::{MC, MINIO};
use crate::measure::{self, Serving, Turn};
use crate::process::{self, Daemon, Ran};

const DRIVES: usize = 4;
const USER: &str = "measured";
const PASSWORD: &str = "only-for-measuring";
const HOST: &str = "127.0.0.1";
const LIMIT: Duration = Duration::from_secs(1800);

/// How its client and it speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// HTTP.
    Plain,
    /// HTTPS, with a certificate made for the turn.
    Tls,
}

/// An installed MinIO.
pub(crate) struct Minio {
    program: PathBuf,
    client: PathBuf,
    wire: Wire,
}

impl Minio {
    pub(crate) fn new(cache: &Path, bench: &Bench, wire: Wire) -> Result<Self, RivalError> {
        let (program, client) = (MINIO.installed(cache, bench)?, MC.installed(cache, bench)?);
        Ok(Self { program, client, wire })
    }

    /// Certificate and key of the turn, where both programs look for them.
    fn certify(&self, folder: &Path) -> Result<(), RivalError> {
        let (own, trusted) = (certificates(folder), folder.join("client/certs/CAs"));
        for made in [&own, &trusted] {
            std::fs::create_dir_all(made).map_err(RivalError::io("make", made))?;
        }
        if self.wire == Wire::Plain {
            return Ok(());
        }
        let made =
            rcgen::generate_simple_self_signed([HOST.to_owned()]).map_err(BenchError::from)?;
        for (path, text) in [
            (own.join("public.crt"), made.cert.pem()),
            (own.join("private.key"), made.key_pair.serialize_pem()),
            (trusted.join("public.crt"), made.cert.pem()),
        ] {
            std::fs::write(&path, text).map_err(RivalError::io("write", &path))?;
        }
        Ok(())
    }

    fn serve(&self, folder: &Path, address: &str, console: &str) -> Command {
        let mut command = process::command(&self.program, folder);
        command.env("MINIO_ROOT_USER", USER).env("MINIO_ROOT_PASSWORD", PASSWORD);
        // Several drives of one disk are refused but in such runs.
        command.env("MINIO_CI_CD", "1").env("MINIO_BROWSER", "off").env("MINIO_UPDATE", "off");
        command.args(["server", "--quiet", "--address", address, "--console-address", console]);
        // Without a certificate there it speaks HTTP.
        command.arg("--certs-dir").arg(certificates(folder)).args(drives(folder));
        command
    }

    fn client(&self, folder: &Path, address: &str, args: &[&str]) -> Command {
        let mut command = process::command(&self.client, folder);
        let scheme = if self.wire == Wire::Tls { "https" } else { "http" };
        command.env("MC_HOST_here", format!("{scheme}://{USER}:{PASSWORD}@{address}"));
        command.args(["--quiet", "--config-dir"]).arg(folder.join("client")).args(args);
        command
    }
}

/// It serves, and this is its client.
struct Served<'a> {
    minio: &'a Minio,
    folder: &'a Path,
    address: String,
    turn: Turn<'a>,
}

impl Served<'_> {
    fn client(&self, args: &[&str]) -> Result<Ran, RivalError> {
        self.turn.run(self.minio.client(self.folder, &self.address, args))
    }
}

impl Serving for Served<'_> {
    fn put(&self, file: &Path) -> Result<(Duration, String), RivalError> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (from, to) = (file.display().to_string(), format!("here/files/{name}"));
        Ok((self.client(&["cp", &from, &to])?.took, name))
    }

    fn get(&self, _way: usize, name: &str, out: &Path) -> Result<Duration, RivalError> {
        let (from, to) = (format!("here/files/{name}"), out.display().to_string());
        Ok(self.client(&["cp", &from, &to])?.took)
    }

    fn stores(&self) -> Vec<PathBuf> {
        drives(self.folder)
    }
}

fn certificates(folder: &Path) -> PathBuf {
    folder.join("certificates")
}

fn drives(folder: &Path) -> Vec<PathBuf> {
    (1..=DRIVES).map(|number| folder.join(format!("drive{number}"))).collect()
}

impl Beside for Minio {
    fn name(&self) -> &'static str {
        match self.wire {
            Wire::Plain => "minio",
            Wire::Tls => "minio-tls",
        }
    }

    fn version(&self) -> &str {
        MINIO.version
    }

    fn does(&self) -> &'static str {
        match self.wire {
            Wire::Plain => {
                "4 drives of one process coded 2 of 4, a checksum a block, HTTP without TLS, no encryption; its own client"
            }
            Wire::Tls => {
                "4 drives of one process coded 2 of 4, a checksum a block, HTTPS, nothing encrypted at rest; its own client"
            }
        }
    }

    fn transfer(
        &mut self,
        bench: &Bench,
        file: &Path,
        folder: &Path,
    ) -> Result<Vec<Theirs>, BoxError> {
        let mut ports = Ports::new();
        let mut address = || ports.free().map(|port| format!("{HOST}:{port}"));
        self.certify(folder)?;
        let (address, console) = (address()?, address()?);
        for drive in drives(folder) {
            std::fs::create_dir(&drive).map_err(RivalError::io("make", &drive))?;
        }
        let turn = Turn::new(bench, folder, LIMIT);
        let served = Served { minio: self, folder, address, turn };
        let make = || served.client(&["mb", "--ignore-existing", "here/files"]);
        // It listens before it has its drives together.
        let serve = self.serve(folder, &served.address, &console);
        let ready = |_: &str| Ok(make().ok());
        let _serving = Daemon::serving(serve, &folder.join("serving.log"), &bench.stop, ready)?;
        measure::transfer(bench, file, folder, &[""], &served)
    }
}
