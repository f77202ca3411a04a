//! `cargo xtask bench transfer`: our transfer beside MinIO, Kubo and Tahoe-LAFS, in turns; `cargo xtask bench heads`: certified heads and an
//! etcd in one run.
//!
//! It installs what it compares with ([`install`]), hands each program as [`bench::Beside`] to the
//! experiment of `hold bench transfer`, which decides what is compared, and writes one report. For
//! development alone: the product knows no other program.

mod absent;
mod error;
mod install;
mod kubo;
mod measure;
mod minio;
mod process;
mod restic;
mod tahoe;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::{Bench, Beside, Etcd, Heads, Profile, Report, Stop, Transfer};
use clap::{Parser, Subcommand, ValueEnum};

use crate::absent::Absent;
use crate::error::RivalError;
use crate::kubo::Kubo;
use crate::minio::{Minio, Wire};
use crate::restic::Restic;
use crate::tahoe::Tahoe;

/// Every bar is met.
const MET: u8 = 0;
/// It could not be measured.
const FAILED: u8 = 1;
/// A bar is missed.
const MISSED: u8 = 3;

/// Our experiments beside other programs, installed from their registries
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    experiment: Experiment,
}

/// Which experiment.
#[derive(Debug, Subcommand)]
enum Experiment {
    /// A large file in and out through peer processes, in turn with MinIO, Kubo and Tahoe-LAFS
    Transfer(TransferArgs),
    /// Heads certified by committees of member processes, and three etcd
    Heads(HeadsArgs),
    /// Install the programs and measure nothing
    Install,
}

#[derive(Debug, clap::Args)]
struct HeadsArgs {
    /// Members of each committee
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,7,10")]
    members: Vec<usize>,
    /// For how long each load lasts
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// In seconds, with numbers that mean little
    #[arg(long)]
    quick: bool,
    /// Where NAME.json and NAME.svg go
    #[arg(long, value_name = "DIR", default_value = "bench/out")]
    out: PathBuf,
    /// Where all programs keep their data [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl HeadsArgs {
    fn run(&self, bench: &Bench) -> Result<Report, RivalError> {
        let cache = install::cache()?;
        let server = install::ETCD.installed(&cache, bench)?;
        let client = install::ETCDCTL.installed(&cache, bench)?;
        let (members, etcd) = (self.members.clone(), Some(Etcd { server, client }));
        Ok(Heads { members, seconds: self.seconds, etcd, kills: 0 }.run(bench)?)
    }
}

#[derive(Debug, clap::Args)]
struct TransferArgs {
    /// How large the file is
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bench::parse_size)]
    size: u64,
    /// Our peer processes
    #[arg(long, value_name = "N", default_value_t = 9)]
    peers: usize,
    /// What our files are kept as: lean, archive, storj, K/N, or copies:N [default: by the number of peers]
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Also a folder of so many files of 4 KiB, in turn with restic
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    files: usize,
    /// How often; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    tries: usize,
    /// Beside these alone
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["minio", "minio-tls", "kubo", "tahoe", "restic"])]
    beside: Vec<Rival>,
    /// Ours in chunks of so many bytes too, cut by hand and put through pipes
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_size)]
    chunks: Option<u64>,
    /// How many runs at once put the chunks, one measurement each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32")]
    transfers: Vec<usize>,
    /// In seconds, with numbers that mean little
    #[arg(long)]
    quick: bool,
    /// Where NAME.json and NAME.svg go
    #[arg(long, value_name = "DIR", default_value = "bench/out")]
    out: PathBuf,
    /// Where all programs keep their data [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A program beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rival {
    Minio,
    MinioTls,
    Kubo,
    Tahoe,
    Restic,
}

impl Rival {
    fn installed(self, cache: &Path, bench: &Bench) -> Result<Box<dyn Beside>, RivalError> {
        Ok(match self {
            Self::Minio => Box::new(Minio::new(cache, bench, Wire::Plain)?),
            Self::MinioTls => Box::new(Minio::new(cache, bench, Wire::Tls)?),
            Self::Kubo => Box::new(Kubo::new(cache, bench)?),
            Self::Tahoe => Box::new(Tahoe::new(cache, bench)?),
            Self::Restic => Box::new(Restic::new(cache, bench)?),
        })
    }

    /// What is measured: the program, or that it could not be installed, so that the others are measured all the same.
    ///
    /// # Errors
    /// [`RivalError::Bench`] where it was stopped.
    fn measured(
        self,
        installed: Result<Box<dyn Beside>, RivalError>,
    ) -> Result<Box<dyn Beside>, RivalError> {
        match installed {
            Ok(_) | Err(RivalError::Bench(_)) => installed,
            Err(error) => Ok(Box::new(Absent::new(self.name(), self == Self::Restic, error))),
        }
    }

    /// What the report calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Minio => "minio",
            Self::MinioTls => "minio-tls",
            Self::Kubo => "kubo",
            Self::Tahoe => "tahoe-lafs",
            Self::Restic => "restic",
        }
    }
}

impl TransferArgs {
    fn run(&self, bench: &Bench) -> Result<Report, RivalError> {
        let cache = install::cache()?;
        let beside = self.beside.iter();
        let beside = beside.map(|rival| rival.measured(rival.installed(&cache, bench)));
        let mut beside = beside.collect::<Result<Vec<_>, _>>()?;
        let transfer = Transfer {
            size: self.size,
            profile: self.profile.unwrap_or_else(|| Profile::by_peers(self.peers)),
            peers: self.peers,
            chunks: self.chunks,
            transfers: self.transfers.clone(),
            files: self.files,
            one_core: None,
            lost: 0,
            tries: self.tries,
        };
        Ok(transfer.run_beside(bench, &mut beside)?)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(met) => ExitCode::from(if met { MET } else { MISSED }),
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                eprintln!("  because {cause}");
                source = cause.source();
            }
            ExitCode::from(FAILED)
        }
    }
}

/// Whether every bar is met.
fn run(cli: &Cli) -> Result<bool, RivalError> {
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let own = std::env::current_exe().map_err(RivalError::io("find", "this program"))?;
    let mut bench = Bench {
        // Both are built into one folder.
        program: own.with_file_name("hold"),
        dir: None,
        quick: false,
        stop,
        tell: Box::new(|text| println!("{text}")),
    };
    let report = match &cli.experiment {
        Experiment::Install => {
            for pin in install::PINS {
                let program = pin.installed(&install::cache()?, &bench)?;
                println!("{} {}: {}", pin.name, pin.version, program.display());
            }
            return Ok(true);
        }
        Experiment::Transfer(args) => {
            (bench.dir, bench.quick) = (args.dir.clone(), args.quick);
            let report = args.run(&bench)?;
            report.write(&args.out)?;
            report
        }
        Experiment::Heads(args) => {
            (bench.dir, bench.quick) = (args.dir.clone(), args.quick);
            let report = args.run(&bench)?;
            report.write(&args.out)?;
            report
        }
    };
    print!("{}", report.bars_told());
    println!("{}", report.line()?);
    Ok(report.is_met())
}

/// Ends the experiment, and all it started, at the first signal that asks for it: the end of its terminal too, unless it is to outlive
/// that (`nohup`).
fn stop_on_signals(stop: &Stop) -> Result<(), RivalError> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(RivalError::io("wait for", "signals"))?;
    let _inside = runtime.enter();
    let listen = |kind| signal(kind).map_err(RivalError::io("wait for", "signals"));
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut hangup = match is_hangup_ignored(&status) {
        true => None,
        false => Some(listen(SignalKind::hangup())?),
    };
    let stop = stop.clone();
    drop(_inside);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
                Some(_) = async { hangup.as_mut()?.recv().await } => (),
            }
        });
        stop.stop();
    });
    Ok(())
}

/// Whether a process with this `/proc/PID/status` ignores the end of its terminal: the lowest bit of `SigIgn`.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["bench", "transfer", "--beside", "kubo,minio"]);
        let Ok(Cli { experiment: Experiment::Transfer(args) }) = cli else { panic!("{cli:?}") };
        assert_eq!(args.beside, [Rival::Kubo, Rival::Minio]);
        assert_eq!((args.peers, args.tries), (9, 3));
    }

    #[test]
    fn one_that_could_not_be_installed_fails_alone_and_a_stopped_run_ends() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: Stop::default(),
            tell: Box::new(|_| ()),
        };
        let at = Path::new("nowhere");
        for (rival, its_file) in [(Rival::Tahoe, true), (Rival::Restic, false)] {
            let absent = rival.measured(Err(RivalError::NoCache));
            let Ok(mut absent) = absent else { panic!("{rival:?} ends all") };
            assert_eq!(absent.name(), rival.name());
            let (file, tree) = (absent.transfer(&bench, at, at), absent.tree(&bench, at, at));
            assert_eq!((file.is_err(), tree.is_err()), (its_file, !its_file), "{rival:?}");
            let Err(why) = (if its_file { file } else { tree }) else { continue };
            assert!(why.to_string().contains("XDG_CACHE_HOME"), "{why}");
        }
        let stopped = Rival::Kubo.measured(Err(bench::BenchError::Interrupted.into()));
        assert!(matches!(stopped, Err(RivalError::Bench(_))));
    }

    #[test]
    fn the_end_of_a_terminal_is_ignored_where_it_was() {
        assert!(is_hangup_ignored("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!is_hangup_ignored("SigIgn:\t0000000000001000\n"));
        assert!(!is_hangup_ignored("SigBlk:\t0000000000000001\n") && !is_hangup_ignored(""));
    }
}
