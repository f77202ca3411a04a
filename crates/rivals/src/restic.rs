//! restic: a folder of small files backed up into a repository on the same disk, and restored.
//!
//! It encrypts, cuts and names by SHA-256 as ours does, packs small files together, and keeps one copy
//! in a folder, with no process at the other side. What it takes to open the repository, which is
//! mostly its key's derivation, is timed with a folder of one file and left out, as ours is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, Beside, BoxError, Theirs, Work};

use crate::error::RivalError;
use crate::install::RESTIC;
use crate::measure::{self, Turn};
use crate::process;

const LIMIT: Duration = Duration::from_secs(1800);

/// An installed restic.
pub(crate) struct Restic {
    program: PathBuf,
}

impl Restic {
    pub(crate) fn new(cache: &Path, bench: &Bench) -> Result<Self, RivalError> {
        Ok(Self { program: RESTIC.installed(cache, bench)? })
    }

    fn command(&self, folder: &Path, args: &[&str]) -> Command {
        let mut command = process::command(&self.program, folder);
        command.env("RESTIC_PASSWORD", "only for measuring");
        command.env("RESTIC_REPOSITORY", folder.join("repository"));
        command.env("RESTIC_CACHE_DIR", folder.join("cache")).args(args);
        command
    }
}

impl Beside for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn version(&self) -> &str {
        RESTIC.version
    }

    fn does(&self) -> &'static str {
        "one copy in a repository on the same disk, encrypted by the client, small files packed together"
    }

    fn tree(&mut self, bench: &Bench, tree: &Path, folder: &Path) -> Result<Vec<Theirs>, BoxError> {
        let turn = Turn::new(bench, folder, LIMIT);
        turn.run(self.command(folder, &["init", "--quiet"]))?;
        let one = folder.join("one");
        std::fs::create_dir(&one).map_err(RivalError::io("make", &one))?;
        measure::tiny(&one)?;
        let backup = |tree: &Path| {
            let mut backup = self.command(folder, &["backup", "--quiet"]);
            backup.arg(tree);
            Ok::<_, RivalError>(turn.run(backup)?.took)
        };
        let restore = |tree: &Path, out: &str| {
            // The folder of the newest that holds it, without the way to it.
            let (from, out) = (format!("latest:{}", tree.display()), folder.join(out));
            let mut restore = self.command(folder, &["restore", "--quiet", &from, "--target"]);
            restore.arg(&out);
            let took = turn.run(restore)?.took;
            bench::same_tree(tree, &out, bench)?;
            Ok::<_, RivalError>(took)
        };
        let put_start = backup(&one)?;
        let get_start = restore(&one, "one-out")?;
        let repository = [folder.join("repository")];
        let before = process::bytes_below(&repository)?;
        bench.rest()?;
        let put = backup(tree)?;
        let stored_bytes = process::bytes_below(&repository)?.saturating_sub(before);
        bench.rest()?;
        let get = restore(tree, "out")?;
        let one = |work, took, start| Theirs { work, way: "", took, start, stored_bytes };
        Ok(vec![one(Work::Put, put, put_start), one(Work::Get, get, get_start)])
    }
}
