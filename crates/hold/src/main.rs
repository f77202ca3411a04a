//! `hold`: the one binary of Holdfast. Flags and glue; everything it does is done by the crates
//! below it.
//!
//! A run reads flags and settings, starts a runtime, runs one verb (a file each under `verb/`) and
//! turns its outcome into an exit code. Whatever happens, what a user sees is printed by `out`.

mod address;
mod cli;
mod client;
mod config;
mod connect;
mod descriptors;
mod draft;
mod embedded;
mod environment;
mod error;
mod exit;
mod files;
mod hosting;
mod interrupt;
mod late;
mod leaving;
mod leftovers;
mod limits;
mod logging;
mod markers;
mod network_file;
mod organisation;
mod out;
mod page;
mod passphrase;
mod paying;
mod peerdir;
mod pipes;
mod platform;
mod progress;
mod proposal;
mod quotas;
mod redis_door;
mod repair;
mod running;
mod several;
mod span;
mod upkeep;
mod verb;
mod watch;
mod words;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;

use crate::cli::{Cli, Session};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::Out;

/// I/O threads at most: calls wait, they do not compute. One processor is left to those that do, and to the thread that a verb
/// runs on: with two I/O threads on two processors a put of 1 GiB took a fifteenth longer, as they wake one another.
const IO_THREADS_MAX: usize = 4;
/// Threads for CPU-heavy work and for the disk at most.
const BLOCKING_THREADS_MAX: usize = 32;
/// An idle thread of those ends after this.
const BLOCKING_IDLE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    platform::long_files_are_errors();
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let _logged = logging::Flush;
    let out = Out::new(cli.global.json, cli.global.quiet);
    match start(cli, out) {
        Ok(exit) => exit.into(),
        Err(failed) => {
            let (out, error) = *failed;
            // So there is room for it.
            logging::flush();
            // Who reads lines of JSON reads this one too.
            let out = if logging::is_json() { Out::new(true, false) } else { out };
            out.error(&error);
            error.exit().into()
        }
    }
}

/// What the parser has to say: help and version are results, the rest are errors.
fn usage(error: &clap::Error) -> Exit {
    let json = std::env::args_os().any(|argument| argument == "--json");
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
                let error = HoldError::Output(source);
                Out::new(json, false).error(&error);
                error.exit()
            }
            _ => Exit::Done,
        };
    }
    if json {
        Out::new(true, false).usage_error(&usage_line(error));
    } else {
        let _ = error.print();
    }
    Exit::Invalid
}

/// An error of the parser on one line.
fn usage_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim);
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // All of it is the help.
        let usage = lines.find_map(|line| line.strip_prefix("Usage: "));
        return format!("a subcommand or an argument is missing: {}", usage.unwrap_or("hold help"));
    }
    // Up to how it is used: which argument is told in lines of their own.
    let line = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

fn start(mut cli: Cli, out: Out) -> Result<Exit, Box<(Out, HoldError)>> {
    if let Some(ended) = cli.verb.run_bare(&out) {
        return ended.map_err(|error| Box::new((out, error)));
    }
    if let Err(error) = logging::check() {
        return Err(Box::new((out, error)));
    }
    let settings = match cli.global.settings() {
        Ok(settings) => settings,
        Err(error) => return Err(Box::new((out, error))),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.saturating_sub(1).clamp(1, IO_THREADS_MAX))
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_IDLE)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Err(Box::new((out, HoldError::io("start", "the runtime")(error)))),
    };
    platform::huge_pages(matches!(cli.verb, cli::Verb::Get(_)));
    // Ends with the runtime.
    runtime.spawn(platform::give_back_at_rest());
    let done = runtime.block_on(async move {
        let stop = match interrupt::token() {
            Ok(stop) => stop,
            Err(error) => return Err(Box::new((out, error))),
        };
        if !crypto::seal::SEALED {
            out.warn(
                "this is a control build that seals nothing: what it puts, every peer can read",
            );
        }
        let session = Session::new(out, settings, cli.global.log_json, stop);
        let ended = Box::pin(cli.verb.run(&session)).await;
        ended.map_err(|error| {
            let config = session.config().ok().filter(|_| error.exit() == Exit::Denied);
            if let Some(organisation) = config.and_then(client::unlisted) {
                session.out.warn(format_args!(
                    "organisation {organisation} is not in the network's roster: it left, or changed its key, and passes \
                     of it do not count; another one can sign one (hold org pass), and hold network show NET lists them"
                ));
            }
            Box::new((session.out, error))
        })
    });
    // A thread that waits for the system (a prompt, a pipe) must not keep the process.
    runtime.shutdown_background();
    if done.as_ref().is_err_and(|failed| failed.1.exit() == Exit::Interrupted) {
        leftovers::remove_all();
    }
    done
}
