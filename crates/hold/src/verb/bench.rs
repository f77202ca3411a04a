//! `hold bench`: the experiments, on this machine, with processes of this very program.
//!
//! Tables for people first; the last line of the output is one JSON object, whatever the flags. The
//! exit code is 0 where every bar is met and 3 where one is missed.

mod kv;

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use bench::{
    Assumed, BenchError, Durability, Etcd, Heads, Libri, Limit, Memory, Overload, PEERS_MAX,
    Profile, Repair, Report, Rounds, SCALE_PEERS_MAX, Scale, Slow, Stop, Transfer,
};
use clap::{Args, Subcommand};
use kv::KvArgs;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::{files, logging};

/// `hold bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
    /// In seconds, with numbers that mean little
    #[arg(long, global = true)]
    quick: bool,
    /// Write NAME.json and NAME.svg into this folder
    #[arg(long, global = true, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where networks are made [default: the system's folder for temporary files]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Which experiment.
#[derive(Clone, Debug, Subcommand)]
enum Experiment {
    /// What this machine can do at all: each unavoidable stage alone, and the limit they make
    Limit(LimitArgs),
    /// A large file in and out through peer processes, beside the limit
    Transfer(TransferArgs),
    /// A long stream in little memory, and a network of peer processes at rest
    Memory(MemoryArgs),
    /// The experiment of Libri's paper: uploads on clusters of 8 to 64 peer processes
    Libri(LibriArgs),
    /// Three times the load that the peers can do, and how they recover
    Overload(OverloadArgs),
    /// One holder a hundred times slower than the others, and what readers see of it
    Slow(SlowArgs),
    /// Whole organisations die, and what the others do to mend it
    Repair(RepairArgs),
    /// Peers killed and started again, over and over, while files and versions are put and read
    Rounds(RoundsArgs),
    /// Versions beside a Redis from the PATH, and what they take on the disk
    Kv(KvArgs),
    /// What moves and what mending costs in networks of up to 100,000 peers, by the planner alone
    Scale(ScaleArgs),
    /// Heads certified by a committee of member processes: one by one, in bundles, alone, at rest
    Heads(HeadsArgs),
    /// How often data is lost: computed for each profile, and simulated where it can be seen
    Durability(DurabilityArgs),
}

#[derive(Clone, Debug, Args)]
struct LimitArgs {
    /// What files are kept as: lean, archive, storj, K/N, or copies:N
    #[arg(long, value_name = "NAME", default_value = "copies:3")]
    profile: Profile,
}

#[derive(Clone, Debug, Args)]
struct TransferArgs {
    /// How large the file is
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bench::parse_size)]
    size: u64,
    /// What files are kept as: lean, archive, storj, K/N, or copies:N [default: by the number of peers]
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Peer processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = peers)]
    peers: usize,
    /// Put it in chunks of so many bytes too, cut by hand and through pipes
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_size)]
    chunks: Option<u64>,
    /// How many runs at once put the chunks, one measurement each
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32",
        requires = "chunks"
    )]
    transfers: Vec<usize>,
    /// Also a folder of so many files of 4 KiB
    #[arg(long, value_name = "N", default_value_t = 0)]
    files: usize,
    /// Also put so many bytes by an author that has one core alone: its time, and its memory above idle
    #[arg(long, value_name = "BYTES", value_parser = bench::parse_size)]
    one_core: Option<u64>,
    /// Also get the file after so many of the peers were killed, at most as many as the profile may lose
    #[arg(long, value_name = "N", default_value_t = 0)]
    lost: usize,
    /// How often; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    tries: usize,
}

#[derive(Clone, Debug, Args)]
struct HeadsArgs {
    /// Members of each committee; the bars are of four
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,7,10")]
    members: Vec<usize>,
    /// For how long each load lasts
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// Kill all members of the first committee with -9 so often while clients work, and nothing else
    #[arg(long, value_name = "N", default_value_t = 0)]
    kills: u32,
    /// Be one of the members
    #[arg(long, hide = true, value_name = "FILE")]
    as_member: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
struct MemoryArgs {
    /// How long the stream is
    #[arg(long, value_name = "BYTES", default_value = "10GiB", value_parser = bench::parse_size)]
    size: u64,
    /// Peer processes that the stream goes through
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = peers)]
    peers: usize,
    /// Peer processes of the network at rest
    #[arg(long, value_name = "N", default_value_t = PEERS_MAX, value_parser = peers)]
    network: usize,
}

#[derive(Clone, Debug, Args)]
struct LibriArgs {
    /// Sizes of the clusters
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "8,16,32,64", value_parser = peers)]
    peers: Vec<usize>,
    /// Uploads a day; K is 1024
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64K,256K,1024K", value_parser = bench::parse_size)]
    rates: Vec<u64>,
    /// Seconds a point
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    seconds: f64,
    /// Of arrivals, sizes and entry peers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not look for the saturation
    #[arg(long)]
    no_saturation: bool,
    /// Whole contents kept so (4/8, copies:3, ...), put and got by authors, in the stead of the original's records; without the
    /// saturation
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// With peers that only pass bytes on, without encryption or protocol: what this machine leaves for the experiment; promises
    /// nothing
    #[arg(long, conflicts_with = "profile")]
    bare: bool,
    /// Be one of those
    #[arg(long, hide = true, value_name = "FILE")]
    as_bare: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
struct OverloadArgs {
    /// Peer processes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = peers)]
    peers: usize,
    /// Seconds of overload
    #[arg(long, value_name = "S", default_value_t = 120.0)]
    seconds: f64,
    /// Of arrivals, sizes and entry peers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Debug, Args)]
struct SlowArgs {
    /// Peer processes, the slow one among them
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = peers)]
    peers: usize,
    /// What files are kept as: lean, archive, storj, K/N, or copies:N [default: by the number of peers]
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Gets while the holder is slow, and as many while it is not
    #[arg(long, value_name = "N", default_value_t = 2000)]
    gets: usize,
    /// How often both; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
}

#[derive(Clone, Debug, Args)]
struct RepairArgs {
    /// Peer processes
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = peers)]
    peers: usize,
    /// Organisations that they belong to
    #[arg(long, value_name = "N", default_value_t = 6)]
    organisations: usize,
    /// Of those, killed
    #[arg(long, value_name = "N", default_value_t = 2)]
    lost: usize,
    /// Seconds without an answer after which the network does without a peer
    #[arg(long, value_name = "S", default_value_t = 60)]
    absent_after: u64,
}

#[derive(Clone, Debug, Args)]
struct RoundsArgs {
    /// Peer processes
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = peers)]
    peers: usize,
    /// Organisations that they belong to
    #[arg(long, value_name = "N", default_value_t = 3)]
    organisations: usize,
    /// How often one or two of them are killed
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rounds: usize,
    /// Of who is killed and when, and of what is put
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Debug, Args)]
struct ScaleArgs {
    /// Peers of the largest network
    #[arg(long, value_name = "N", default_value_t = SCALE_PEERS_MAX)]
    peers: usize,
}

#[derive(Clone, Debug, Args)]
struct DurabilityArgs {
    /// How often a peer is lost in a year, with all that it holds and for good
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    failures: f64,
    /// How much each peer holds
    #[arg(long, value_name = "BYTES", default_value = "1TiB", value_parser = bench::parse_size)]
    held: u64,
}

fn peers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PEERS_MAX).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a number from 1 to {PEERS_MAX}"))
}

/// Runs a process of an experiment by its file.
type Serve = fn(&Path) -> Result<(), BenchError>;

impl Experiment {
    /// Where this is one of an experiment's own processes: which, and its file.
    fn process(&self) -> Option<(Serve, PathBuf)> {
        match self {
            Self::Heads(HeadsArgs { as_member: Some(file), .. }) => {
                Some((Heads::serve, file.clone()))
            }
            Self::Libri(LibriArgs { as_bare: Some(file), .. }) => {
                Some((Libri::serve, file.clone()))
            }
            _ => None,
        }
    }

    fn run(&self, bench: &bench::Bench) -> Result<Report, BenchError> {
        match self.clone() {
            Self::Limit(LimitArgs { profile }) => Limit { profile }.run(bench),
            Self::Transfer(TransferArgs {
                size,
                profile,
                peers,
                chunks,
                transfers,
                files,
                one_core,
                lost,
                tries,
            }) => {
                let profile = profile.unwrap_or_else(|| Profile::by_peers(peers));
                let transfer = Transfer {
                    size,
                    profile,
                    peers,
                    chunks,
                    transfers,
                    files,
                    one_core,
                    lost,
                    tries,
                };
                transfer.run(bench)
            }
            Self::Memory(MemoryArgs { size, peers, network }) => {
                Memory { size, peers, network }.run(bench)
            }
            Self::Libri(LibriArgs {
                peers,
                rates,
                seconds,
                seed,
                no_saturation,
                profile,
                bare,
                ..
            }) => {
                let saturate = !no_saturation;
                Libri { peers, rates, seconds, seed, saturate, profile, bare }.run(bench)
            }
            Self::Overload(OverloadArgs { peers, seconds, seed }) => {
                Overload { peers, seconds, seed }.run(bench)
            }
            Self::Kv(args) => args.run(bench),
            Self::Repair(RepairArgs { peers, organisations, lost, absent_after }) => {
                Repair { peers, organisations, lost, absent_after_s: absent_after }.run(bench)
            }
            Self::Rounds(RoundsArgs { peers, organisations, rounds, seed }) => {
                Rounds { peers, organisations, rounds, seed }.run(bench)
            }
            Self::Scale(ScaleArgs { peers }) => Scale { peers }.run(bench),
            Self::Heads(HeadsArgs { members, seconds, kills, .. }) => {
                Heads { members, seconds, etcd: Etcd::on_path(), kills }.run(bench)
            }
            Self::Durability(DurabilityArgs { failures, held }) => {
                Durability { assumed: Assumed { failures, held } }.run(bench)
            }
            Self::Slow(SlowArgs { peers, profile, gets, rounds }) => {
                let profile = profile.unwrap_or_else(|| Profile::by_peers(peers));
                Slow { peers, profile, gets, rounds }.run(bench)
            }
        }
    }
}

impl Bench {
    /// Runs it on a thread of its own; a signal ends it within some milliseconds, its processes and
    /// files with it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        logging::to_stderr(logging::VERB_LEVEL, session.log_json);
        if let Some((serve, file)) = self.experiment.process() {
            return match tokio::task::spawn_blocking(move || serve(&file)).await {
                Ok(end) => end.map(|()| Exit::Done).map_err(HoldError::from),
                Err(_) => Err(BenchError::Interrupted.into()),
            };
        }
        let program = std::env::current_exe().map_err(HoldError::io("find", "this program"))?;
        let (stop, json) = (Stop::default(), session.out.json());
        let Self { experiment, quick, out, dir } = self;
        out.as_deref().map_or(Ok(()), try_out)?;
        let (send, done) = tokio::sync::oneshot::channel();
        let tables = move |text: &str| {
            if !json {
                let _ = writeln!(std::io::stdout().lock(), "{text}");
            }
        };
        let bench =
            bench::Bench { program, dir, quick, stop: stop.clone(), tell: Box::new(tables) };
        let running = std::thread::spawn(move || {
            let _ = send.send(experiment.run(&bench));
        });
        let mut done = done;
        let report = tokio::select! {
            report = &mut done => report,
            () = session.stop.cancelled() => {
                stop.stop();
                done.await
            }
        };
        let Ok(report) = report else {
            // It ended without an answer: it panicked, and so do we.
            return match running.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => Err(HoldError::Interrupted),
            };
        };
        told(session, &report?, out)
    }
}

/// Makes the folder of the results and a file in it, which it removes: an experiment takes minutes, and is not to learn behind them
/// that nothing can be written.
fn try_out(folder: &Path) -> Result<(), HoldError> {
    let tried = fs::create_dir_all(folder).and_then(|()| {
        let (draft, _) = files::make_beside(&folder.join("try"), |draft| File::create_new(draft))?;
        fs::remove_file(draft)
    });
    tried.map_err(|error| {
        let folder = folder.display();
        let reason = format!(
            "cannot write in {folder} ({error}): name another folder, or leave it out, as the last line of \
             the output is all of the result"
        );
        HoldError::argument("--out", reason)
    })
}

/// Writes the files, the bars, and the last line; the lines also where the files cannot be written.
fn told(session: &Session, report: &Report, out: Option<PathBuf>) -> Result<Exit, HoldError> {
    let written = out.map_or(Ok(()), |folder| report.write(&folder));
    if !session.out.json() {
        let mut stdout = std::io::stdout().lock();
        let _ = write!(stdout, "{}", report.bars_told());
        if stdout.is_terminal() {
            let _ = writeln!(stdout);
        }
    }
    let line = report.line()?;
    match writeln!(std::io::stdout().lock(), "{line}") {
        // Whoever reads has what it wanted.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        printed => printed.map_err(HoldError::Output)?,
    }
    written?;
    Ok(if report.is_met() { Exit::Done } else { Exit::Partly })
}
