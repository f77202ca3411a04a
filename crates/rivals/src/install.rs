//! Programs installed from their registries, each version once, in the user's cache folder.
//!
//! ```text
//! $XDG_CACHE_HOME/holdfast/rivals/NAME-VERSION/bin/PROGRAM      and `installed`, written last
//! ```
//! Versions are pinned in [`PINS`], so that two runs compare with the same programs. Go programs are
//! built by `go install`, Python's come into an environment of their own. What was broken off has no
//! `installed` and is made anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::Bench;

use crate::error::RivalError;
use crate::process;

/// A program and where it comes from.
#[derive(Debug)]
pub(crate) struct Pin {
    /// Its name, also of its executable.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    from: Registry,
}

#[derive(Debug)]
enum Registry {
    /// A Go module: the program's package in it, and modules that it needs newer than it says.
    Go {
        module: &'static str,
        package: &'static str,
        with: &'static [(&'static str, &'static str)],
    },
    /// A package of Python's index.
    Python { package: &'static str },
}

/// What is compared with, and the clients it takes.
pub(crate) const PINS: &[Pin] = &[MINIO, MC, KUBO, TAHOE, RESTIC, ETCD, ETCDCTL];

pub(crate) const MINIO: Pin = Pin {
    name: "minio",
    version: "v0.0.0-20260212201848-7aac2a2c5b7c",
    from: Registry::Go {
        module: "github.com/minio/minio",
        package: "github.com/minio/minio",
        with: &[],
    },
};
/// MinIO's own client.
pub(crate) const MC: Pin = Pin {
    name: "mc",
    version: "v0.0.0-20250313080218-cf909e1063a9",
    from: Registry::Go { module: "github.com/minio/mc", package: "github.com/minio/mc", with: &[] },
};
pub(crate) const KUBO: Pin = Pin {
    name: "ipfs",
    version: "v0.42.0",
    from: Registry::Go {
        module: "github.com/ipfs/kubo",
        package: "github.com/ipfs/kubo/cmd/ipfs",
        // The one it names does not build with newer toolchains.
        with: &[("github.com/cockroachdb/swiss", "v0.0.0-20260820225851-333444432258")],
    },
};
pub(crate) const TAHOE: Pin =
    Pin { name: "tahoe", version: "1.20.0", from: Registry::Python { package: "tahoe-lafs" } };
pub(crate) const RESTIC: Pin = Pin {
    name: "restic",
    version: "v0.18.1",
    from: Registry::Go {
        module: "github.com/restic/restic",
        package: "github.com/restic/restic/cmd/restic",
        with: &[],
    },
};

pub(crate) const ETCD: Pin = Pin {
    name: "server",
    version: "v3.6.5",
    from: Registry::Go {
        module: "go.etcd.io/etcd/server/v3",
        package: "go.etcd.io/etcd/server/v3",
        with: &[],
    },
};
/// etcd's own client.
pub(crate) const ETCDCTL: Pin = Pin {
    name: "etcdctl",
    version: "v3.6.5",
    from: Registry::Go {
        module: "go.etcd.io/etcd/etcdctl/v3",
        package: "go.etcd.io/etcd/etcdctl/v3",
        with: &[],
    },
};

/// What the registries' tools are.
const GO_NEEDS: &str = "Go 1.25 or newer";
const PYTHON_NEEDS: &str = "Python 3 with venv (Debian's packages `python3` and `python3-venv`)";
/// The longest one installation may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);
/// Variables that tools which install may need beside those of every program.
const TOOL_VARIABLES: &[&str] =
    &["GOPROXY", "GOSUMDB", "GONOSUMDB", "GOFLAGS", "GOPATH", "GOMODCACHE", "GOCACHE", "GOROOT"];
/// What begins the names of further such variables.
const TOOL_PREFIXES: &[&str] = &["PIP_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_"];

/// Where programs are installed.
pub(crate) fn cache() -> Result<PathBuf, RivalError> {
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    Ok(caches.ok_or(RivalError::NoCache)?.join("holdfast/rivals"))
}

impl Pin {
    /// The installed program; installs it where it is not there.
    pub(crate) fn installed(&self, cache: &Path, bench: &Bench) -> Result<PathBuf, RivalError> {
        let folder = cache.join(format!("{}-{}", self.name, self.version));
        let (program, mark) = (folder.join("bin").join(self.name), folder.join("installed"));
        if mark.exists() && program.exists() {
            return Ok(program);
        }
        (bench.tell)(&format!("installing {} {}: minutes, once", self.name, self.version));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(RivalError::io("remove", &folder))?;
        }
        fs::create_dir_all(&folder).map_err(RivalError::io("make", &folder))?;
        let folder = fs::canonicalize(&folder).map_err(RivalError::io("find", &folder))?;
        bench.stop.check()?;
        for (number, command) in self.commands(&folder)?.into_iter().enumerate() {
            let log = folder.join(format!("step{number}.log"));
            process::run(command, &log, INSTALL_LIMIT, &bench.stop)
                .map_err(|error| self.failed(error))?;
        }
        if !program.exists() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(RivalError::io("find", &program)(source));
        }
        fs::write(&mark, self.version).map_err(RivalError::io("write", &mark))?;
        Ok(program)
    }

    /// A step that failed, with what it needs; one that was stopped stays so.
    fn failed(&self, error: RivalError) -> RivalError {
        let (package, needs) = match &self.from {
            Registry::Go { package, .. } => (*package, GO_NEEDS),
            Registry::Python { package } => (*package, PYTHON_NEEDS),
        };
        match error {
            RivalError::Bench(_) => error,
            error => RivalError::Install { package, needs, source: Box::new(error) },
        }
    }

    /// What installs it into a folder, one after the other.
    fn commands(&self, folder: &Path) -> Result<Vec<Command>, RivalError> {
        match &self.from {
            Registry::Go { module, package, with } => {
                // A module of nothing but requirements: of several that ask for one, the newest counts,
                // and nothing is asked of the registry but these versions.
                let file = folder.join("go.mod");
                let text = requirements(module, self.version, with);
                fs::write(&file, text).map_err(RivalError::io("write", &file))?;
                let mut go = tool("go", folder);
                go.env("GOBIN", folder.join("bin")).env("CGO_ENABLED", "0");
                go.args(["install", "-mod=mod", package]);
                Ok(vec![go])
            }
            Registry::Python { package } => {
                let mut make = tool("python3", folder);
                make.args(["-m", "venv"]).arg(folder);
                let mut pip = tool(folder.join("bin/pip"), folder);
                pip.args(["install", "--quiet", &format!("{package}=={}", self.version)]);
                Ok(vec![make, pip])
            }
        }
    }
}

/// A `go.mod` that asks for a module and for others beside it.
fn requirements(module: &str, version: &str, with: &[(&str, &str)]) -> String {
    let mut text = "module rivals\n\ngo 1.25\n\nrequire (\n".to_owned();
    for (module, version) in std::iter::once(&(module, version)).chain(with) {
        text += &format!("\t{module} {version}\n");
    }
    text + ")\n"
}

/// A tool that installs, with the user's own caches and registries.
fn tool(program: impl AsRef<Path>, folder: &Path) -> Command {
    let mut command = process::command(program.as_ref(), folder);
    let kept = |name: &str| {
        TOOL_VARIABLES.contains(&name)
            || TOOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(kept)));
    if let Some(home) = std::env::var_os("HOME") {
        command.env("HOME", home);
    }
    // Wheels are built in the system's folder for such: the other may be small.
    command.env_remove("TMPDIR");
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn bench() -> Bench {
        Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: bench::Stop::default(),
            tell: Box::new(|_| ()),
        }
    }

    #[test]
    fn every_pin_is_one_version_of_one_program() {
        let mut names: Vec<&str> = PINS.iter().map(|pin| pin.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PINS.len());
        for pin in PINS {
            assert!(!["latest", "master", ""].contains(&pin.version), "{pin:?}");
            let folder = tempfile::tempdir().unwrap();
            let commands = pin.commands(folder.path()).unwrap();
            let text = format!("{commands:?}")
                + &fs::read_to_string(folder.path().join("go.mod")).unwrap_or_default();
            assert!(text.contains(pin.version), "{text}");
        }
    }

    #[test]
    fn a_module_of_requirements_names_both() {
        let text = requirements("a.b/c", "v1.2.3", &[("d.e/f", "v0.0.1")]);
        assert_eq!(
            text,
            "module rivals\n\ngo 1.25\n\nrequire (\n\ta.b/c v1.2.3\n\td.e/f v0.0.1\n)\n"
        );
    }

    #[test]
    fn a_step_that_failed_says_what_it_takes_and_one_that_was_stopped_does_not() {
        let ended = || RivalError::Ended {
            program: "python3".to_owned(),
            code: Some(1),
            told: "ensurepip is not available".to_owned(),
        };
        let failed = TAHOE.failed(ended());
        let told = failed.to_string();
        assert!(told.contains("tahoe-lafs") && told.contains("`python3-venv`"), "{told}");
        let why = std::error::Error::source(&failed).unwrap().to_string();
        assert!(why.contains("ensurepip"), "{why}");
        assert!(MC.failed(ended()).to_string().contains("Go 1.25"));
        let stopped = TAHOE.failed(bench::BenchError::Interrupted.into());
        assert!(matches!(stopped, RivalError::Bench(bench::BenchError::Interrupted)));
    }

    #[test]
    fn what_is_installed_is_not_installed_again_and_what_was_broken_off_is() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join(format!("{}-{}", RESTIC.name, RESTIC.version));
        let program = folder.join("bin/restic");
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("installed"), RESTIC.version).unwrap();
        assert_eq!(RESTIC.installed(cache.path(), &bench()).unwrap(), program);
        fs::remove_file(folder.join("installed")).unwrap();
        let stopped = bench();
        stopped.stop.stop();
        assert!(RESTIC.installed(cache.path(), &stopped).is_err(), "it was stopped at once");
        assert!(!program.exists() && !folder.join("installed").exists());
    }
}
