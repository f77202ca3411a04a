//! `hold org`: organisation keys, peer certificates, client passes.

mod revoke;
mod sign_roster;

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use crypto::{ClientKey, Pass, Tier};
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::network_file::{NetworkFile, check_listed};
use crate::organisation::OwnOrganisation;
use crate::out::PathText;
use crate::peerdir::{self, PeerRequest};

/// What to do with an organisation's key.
#[derive(Debug, Subcommand)]
pub(crate) enum Org {
    /// Make a new organisation's key pair
    Init(Init),
    /// Sign the certificate a peer asked for (D/peer.request of `hold peer init` without --org)
    SignPeer(SignPeer),
    /// Sign a pass for a client, valid for at most a day
    Pass(PassArgs),
    /// Sign the next roster: who takes part from then on
    SignRoster(sign_roster::SignRoster),
    /// Take back the organisation's word for peers or clients: signs its whole list
    Revoke(revoke::Revoke),
}

/// `hold org init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Directory for org.key (secret) and org.pub (public)
    #[arg(long, value_name = "ORG")]
    dir: PathBuf,
    /// What people call the organisation [default: the directory's name]
    #[arg(long)]
    name: Option<String>,
}

/// `hold org sign-peer`.
#[derive(Debug, Args)]
pub(crate) struct SignPeer {
    /// The organisation's directory
    #[arg(long, value_name = "ORG")]
    dir: PathBuf,
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// The peer's request
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// Where the certificate goes (the peer's D/peer.cert)
    #[arg(short, long, value_name = "CERT")]
    output: PathBuf,
    /// How long it is valid
    #[arg(
        long,
        default_value_t = peerdir::CERTIFICATE_DAYS,
        value_parser = clap::value_parser!(u64).range(1..=36_500)
    )]
    days: u64,
}

/// `hold org pass`.
#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    /// The organisation's directory
    #[arg(long, value_name = "ORG")]
    dir: PathBuf,
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// The client's public key (`hold keys show --client`)
    #[arg(long, value_name = "KEY")]
    client: String,
    /// Where the pass goes
    #[arg(short, long, value_name = "PASS")]
    output: PathBuf,
    /// How far the client is trusted
    #[arg(long, value_enum, default_value_t = TierName::Own)]
    tier: TierName,
    /// Bytes it may have stored at each peer; 0 sets no bound
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    quota: u64,
    /// How long it is valid
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=24))]
    hours: u64,
}

/// Tiers a pass can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierName {
    /// A client of the roster
    Known,
    /// A client of the organisation's own peers
    Own,
}

impl Org {
    /// Runs it.
    pub(crate) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Init(args) => args.run(session),
            Self::SignPeer(args) => args.run(session),
            Self::Pass(args) => args.run(session),
            Self::SignRoster(args) => args.run(session),
            Self::Revoke(args) => args.run(session),
        }
    }
}

/// `hold org init`: the organisation that was made.
#[derive(Serialize)]
struct OrgResult {
    /// Its public key.
    organisation: String,
    /// What people call it.
    name: String,
    /// Where its key is.
    dir: PathText,
}

impl fmt::Display for OrgResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.organisation)
    }
}

/// `hold org pass`, `hold org sign-peer`: what was signed.
#[derive(Serialize)]
struct SignedResult {
    /// The key of the client or peer it is for.
    subject: String,
    /// The key of the organisation that signed.
    organisation: String,
    /// When it ends, Unix seconds.
    until: u64,
    /// Where it is.
    file: PathText,
}

impl fmt::Display for SignedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)
    }
}

impl Init {
    fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let named = self.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = self.name.or(named).unwrap_or_else(|| "organisation".to_owned());
        let made = OwnOrganisation::create(&self.dir, &name)?;
        session.out.note(format_args!(
            "organisation {name}: {} is its secret, keep it safe",
            self.dir.join(crate::organisation::KEY_FILE).display()
        ));
        let organisation = made.public.key.to_string();
        session.out.result(&OrgResult { organisation, name, dir: self.dir.into() })?;
        Ok(Exit::Done)
    }
}

impl SignPeer {
    fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let org = OwnOrganisation::open(&self.dir)?;
        let network = NetworkFile::read(&self.network)?;
        let roster = network.roster();
        check_listed(roster, org.public.key)?;
        let request = PeerRequest::read(&self.request)?;
        let bytes = request.certify(&org, roster, self.days)?;
        let made = crypto::PeerCertificate::verify(&bytes, roster, peerdir::now_s())?;
        files::write_new(&self.output, &bytes, Access::Public)?;
        session.out.result(&SignedResult {
            subject: made.peer.to_string(),
            organisation: org.public.key.to_string(),
            until: made.until,
            file: self.output.into(),
        })?;
        Ok(Exit::Done)
    }
}

impl PassArgs {
    fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let org = OwnOrganisation::open(&self.dir)?;
        let network = NetworkFile::read(&self.network)?;
        let roster = network.roster();
        check_listed(roster, org.public.key)?;
        let client: ClientKey =
            self.client.parse().map_err(HoldError::parse("a client's key", &self.client))?;
        let from = peerdir::now_s();
        let until = from + self.hours * 3600;
        let tier = match self.tier {
            TierName::Known => Tier::Known,
            TierName::Own => Tier::Own,
        };
        let quota = self.quota;
        let pass = Pass { client, organisation: org.public.key, tier, quota, from, until };
        let bytes = pass.sign(&org.key, &roster.network());
        files::write_new(&self.output, &bytes, Access::Public)?;
        session.out.result(&SignedResult {
            subject: client.to_string(),
            organisation: org.public.key.to_string(),
            until,
            file: self.output.into(),
        })?;
        Ok(Exit::Done)
    }
}
