//! The command line: the flags every verb takes, the verbs, and what a verb gets to work with.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Flags, Settings};
use crate::environment;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::logging;
use crate::out::Out;
use crate::verb;

/// Storage that many organisations run together and none of them owns
#[derive(Debug, Parser)]
#[command(name = "hold", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 invalid, 3 partly done, 10 not found, \
    11 busy or locked, 12 wrong key or passphrase, 13 denied, 14 conflict, 15 not enough peers, \
    16 corrupt, 130 interrupted.")]
pub(crate) struct Cli {
    /// Flags of every verb.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Cli {
    /// The command line of this process. A variable that is set to nothing counts as one that is not set.
    ///
    /// # Errors
    /// What the parser has to say, help too.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let parsed = |change: fn(Arg) -> Arg| Self::command().mut_args(change).try_get_matches();
        let mut matches = parsed(without_empty).map_err(|error| match error.kind() {
            ErrorKind::MissingRequiredArgument
            | ErrorKind::ArgumentConflict
            | ErrorKind::UnknownArgument => told_plainly(error, parsed(without_variable)),
            _ => error,
        })?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Self::command()))
    }
}

/// The argument, which takes nothing of a variable that is empty.
fn without_empty(argument: Arg) -> Arg {
    let is_empty = argument.get_env().is_some_and(environment::is_empty);
    if is_empty { argument.env(None::<&'static str>) } else { argument }
}

/// The error of the flags alone, where it is the same: how a verb is used is told with all flags that were found, and a variable is
/// found as if it were one of them.
fn told_plainly(error: clap::Error, plain: Result<ArgMatches, clap::Error>) -> clap::Error {
    match plain {
        Err(plain) if plain.kind() == error.kind() => plain,
        _ => error,
    }
}

/// The argument, which takes nothing of any variable.
fn without_variable(argument: Arg) -> Arg {
    argument.env(None::<&'static str>)
}

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of every verb")]
pub(crate) struct Global {
    /// Print results as JSON, one object or one a line; errors too, on stderr
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
    /// Print results and errors alone
    #[arg(long, short, global = true, action = ArgAction::SetTrue)]
    pub(crate) quiet: bool,
    /// Where this user's keys and settings are [default: ~/.holdfast]
    #[arg(long, global = true, value_name = "DIR", env = "HOLD_HOME", hide_env_values = true)]
    pub(crate) home: Option<PathBuf>,
    /// Librarians to ask
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        env = "HOLD_VIA",
        hide_env_values = true
    )]
    pub(crate) via: Vec<String>,
    /// Let one librarian of --via do the walking: put, get, share, inbox and info connect to no other peer
    #[arg(
        long,
        global = true,
        action = ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new(),
        env = "HOLD_THIN",
        hide_env_values = true
    )]
    pub(crate) thin: bool,
    /// File with the keyring's passphrase (else HOLD_PASSPHRASE, else a prompt)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "HOLD_PASSPHRASE_FILE",
        hide_env_values = true
    )]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Print logs (HOLD_LOG chooses which) as JSON lines
    #[arg(
        long,
        global = true,
        action = ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new(),
        env = "HOLD_LOG_JSON",
        hide_env_values = true
    )]
    pub(crate) log_json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show the whole story on an embedded network, every step checked
    Demo(verb::demo::Demo),
    /// Run an embedded network on this machine until Ctrl-C
    Up(verb::up::Up),
    /// Organisations: keys, peer certificates, client passes
    #[command(subcommand)]
    Org(verb::org::Org),
    /// Networks: the genesis file, and who takes part since
    #[command(subcommand)]
    Network(verb::network::Network),
    /// One librarian, as an operator runs it
    #[command(subcommand)]
    Peer(verb::peer::Peer),
    /// This user's keyring
    #[command(subcommand)]
    Keys(verb::keys::Keys),
    /// Put a file, a folder or a pipe into the network; prints its address
    Put(verb::put::Put),
    /// Get what is at an address
    Get(verb::get::Get),
    /// Show what is at an address and which peers hold it
    Info(verb::info::InfoVerb),
    /// Check that every record of a content can be had, and how many more losses it survives
    Check(verb::check::Check),
    /// Have the peers that should hold a content look now at what of it lacks, and mend it
    Repair(verb::repair::RepairVerb),
    /// Share what is at an address with another reader; prints the address that reader opens
    Share(verb::share::Share),
    /// Pay for a content for longer
    Renew(verb::renew::Renew),
    /// Pay for a content no more: its holders drop it, and the key that opened it is forgotten here
    Forget(verb::forget::ForgetVerb),
    /// List what others shared with this user
    Inbox(verb::inbox::Inbox),
    /// Versioned objects: values with a history, branches and merges
    #[command(subcommand)]
    Object(verb::object::ObjectVerb),
    /// Which version a branch of an object is at, as its owner's devices say
    #[command(subcommand)]
    Head(verb::head::HeadVerb),
    /// Committees: librarians of different organisations that certify which version a branch is at
    #[command(subcommand)]
    Committee(verb::committee::CommitteeVerb),
    /// Open a door for tools that speak another protocol
    #[command(subcommand)]
    Serve(verb::serve::Serve),
    /// Documents as files, without a network: seal, open, show
    #[command(subcommand)]
    Document(verb::document::DocumentVerb),
    /// Check the home, the keyring, the network file, the pass, the clock and the librarians
    Doctor,
    /// Measure this program on this machine: experiments with processes of its own
    Bench(verb::bench::Bench),
    /// Print a script that completes verbs and flags in a shell
    Completions(verb::completions::Completions),
    /// Print the manual page, or write one for every verb
    Man(verb::man::ManPages),
    /// Write the pages of the reference
    #[command(hide = true)]
    Reference(verb::reference::Reference),
}

/// What a verb works with.
pub(crate) struct Session {
    /// Where results go.
    pub(crate) out: Out,
    /// The settings.
    pub(crate) settings: Settings,
    /// Whether logs are JSON lines.
    pub(crate) log_json: bool,
    /// Cancelled by Ctrl-C and SIGTERM.
    pub(crate) stop: CancellationToken,
    /// Whether the work looks at `stop` itself.
    hears: AtomicBool,
}

impl Session {
    /// What a verb works with.
    pub(crate) const fn new(
        out: Out,
        settings: Settings,
        log_json: bool,
        stop: CancellationToken,
    ) -> Self {
        Self { out, settings, log_json, stop, hears: AtomicBool::new(false) }
    }

    /// The settings, of this user's home too.
    ///
    /// # Errors
    /// Where there is no home at all, or its configuration file cannot be read or is not valid.
    pub(crate) fn config(&self) -> Result<&Config, HoldError> {
        self.settings.get()
    }

    /// Runs `work` until it is done or a signal comes; then it is dropped, and its guards remove
    /// what is half done; but where it [hears](Session::hears) of the signal itself.
    pub(crate) async fn stoppable(
        &self,
        work: impl Future<Output = Result<Exit, HoldError>>,
    ) -> Result<Exit, HoldError> {
        logging::to_stderr(logging::VERB_LEVEL, self.log_json);
        let mut work = Box::pin(work);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            done = &mut work => return done,
        }
        if self.hears.load(Ordering::Relaxed) { work.await } else { Err(HoldError::Interrupted) }
    }

    /// From now on the work looks at `stop` itself, and ends soon behind it: it has something to tell then.
    pub(crate) fn hears(&self) {
        self.hears.store(true, Ordering::Relaxed);
    }
}

impl Global {
    /// The settings these flags lead to.
    ///
    /// # Errors
    /// As [`Settings::new`].
    pub(crate) fn settings(&mut self) -> Result<Settings, HoldError> {
        Settings::new(Flags {
            home: self.home.take(),
            via: std::mem::take(&mut self.via),
            thin: self.thin,
            passphrase_file: self.passphrase_file.take(),
        })
    }
}

impl Verb {
    /// Runs a verb that needs no settings, so that it works also where they are wrong; `None` for
    /// all others.
    pub(crate) fn run_bare(&self, out: &Out) -> Option<Result<Exit, HoldError>> {
        match self {
            Self::Completions(verb) => Some(verb.run(out)),
            Self::Man(verb) => Some(verb.run(out)),
            Self::Reference(verb) => Some(verb.run(out)),
            _ => None,
        }
    }

    /// Runs the verb to its end, or to the signal that stops it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Demo(verb) => Box::pin(verb.run(session)).await,
            Self::Up(verb) => Box::pin(verb.run(session)).await,
            Self::Org(verb) => verb.run(session),
            Self::Network(verb) => verb.run(session).await,
            Self::Peer(verb) => verb.run(session).await,
            Self::Put(verb) => session.stoppable(verb.run(session)).await,
            Self::Get(verb) => session.stoppable(verb.run(session)).await,
            Self::Info(verb) => session.stoppable(verb.run(session)).await,
            Self::Check(verb) => session.stoppable(verb.run(session)).await,
            Self::Share(verb) => session.stoppable(verb.run(session)).await,
            Self::Renew(verb) => session.stoppable(verb.run(session)).await,
            Self::Repair(verb) => session.stoppable(verb.run(session)).await,
            Self::Forget(verb) => session.stoppable(verb.run(session)).await,
            Self::Inbox(verb) => session.stoppable(verb.run(session)).await,
            Self::Object(verb) => session.stoppable(verb.run(session)).await,
            Self::Head(verb) => Box::pin(session.stoppable(verb.run(session))).await,
            Self::Committee(verb) => session.stoppable(verb.run(session)).await,
            Self::Serve(verb) => verb.run(session).await,
            Self::Document(verb) => session.stoppable(verb.run(session)).await,
            Self::Doctor => session.stoppable(verb::doctor::run(session)).await,
            Self::Keys(verb) => session.stoppable(verb.run(session)).await,
            Self::Bench(verb) => verb.run(session).await,
            Self::Completions(verb) => verb.run(&session.out),
            Self::Man(verb) => verb.run(&session.out),
            Self::Reference(verb) => verb.run(&session.out),
        }
    }
}
