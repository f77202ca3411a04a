//! `hold org revoke`: an organisation takes back its word for peers or clients.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use crypto::{PublicKey, Revocation};
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::network_file::{NetworkFile, check_listed};
use crate::organisation::OwnOrganisation;
use crate::out::PathText;
use crate::peerdir;

/// `hold org revoke`.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The organisation's directory
    #[arg(long, value_name = "ORG")]
    dir: PathBuf,
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// Public keys of peers (`hold peer status`) or clients (`hold keys list`) to revoke
    #[arg(long, value_name = "KEY,...", required = true, value_delimiter = ',')]
    key: Vec<String>,
    /// Take these keys off the list again instead
    #[arg(long)]
    undo: bool,
    /// Where the whole list goes too, for `hold peer set --revocations`
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// `hold org revoke`: the organisation's whole list.
#[derive(Serialize)]
struct RevokeResult {
    /// The key of the organisation that signed.
    organisation: String,
    /// The list's number; the higher counts.
    sequence: u64,
    /// Every key on it.
    revoked: Vec<String>,
    /// Where it is.
    file: PathText,
}

impl fmt::Display for RevokeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)
    }
}

impl Revoke {
    /// Signs the organisation's list of this network anew, with these keys on it or off it.
    pub(super) fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let org = OwnOrganisation::open(&self.dir)?;
        let network = NetworkFile::read(&self.network)?;
        let roster = network.roster();
        check_listed(roster, org.public.key)?;
        let network = roster.network();
        let now = peerdir::now_s();
        // The list is whole each time, so the organisation keeps its last one beside its key.
        let kept = self.dir.join(format!("revoked-{network}"));
        let last = match files::read_small(&kept) {
            Ok(bytes) => Revocation::verify(&Bytes::copy_from_slice(&bytes), roster, now)?,
            Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Revocation { organisation: org.public.key, sequence: 0, keys: Vec::new() }
            }
            Err(error) => return Err(error),
        };
        let named = self.key.iter().map(|text| {
            let key: crypto::ClientKey = text.parse().map_err(HoldError::parse("a key", text))?;
            Ok(*key.key())
        });
        let named = named.collect::<Result<Vec<PublicKey>, HoldError>>()?;
        let mut keys = last.keys;
        keys.retain(|key| !named.contains(key));
        if !self.undo {
            keys.extend(named);
        }
        let sequence = (now * 1000).max(last.sequence + 1);
        let list = Revocation { organisation: org.public.key, sequence, keys };
        let bytes = list.sign(&org.key, &network);
        let list = Revocation::verify(&bytes, roster, now)?;
        files::replace(&kept, &bytes, Access::Public)?;
        files::replace(&self.output, &bytes, Access::Public)?;
        session.out.note(format_args!(
            "hint: hold peer set --dir D --revocations {} at one of the organisation's peers; it \
             tells the others",
            self.output.display()
        ));
        session.out.result(&RevokeResult {
            organisation: org.public.key.to_string(),
            sequence: list.sequence,
            revoked: list.keys.iter().map(ToString::to_string).collect(),
            file: self.output.into(),
        })?;
        Ok(Exit::Done)
    }
}
