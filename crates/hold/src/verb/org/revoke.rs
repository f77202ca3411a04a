//! `hold org revoke`: an organisation takes back its word for peers or clients.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use crypto::certificate::CLOCK_SKEW_S;
use crypto::{PublicKey, Revocation};
use env::{Clock, SystemClock};
use serde::Serialize;

use crate::cli::Session;
use crate::draft;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files::{self, Access};
use crate::network_file::{NetworkFile, check_listed};
use crate::organisation::OwnOrganisation;
use crate::out::PathText;

/// `hold org revoke`.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The organisation's directory
    #[arg(long, value_name = "ORG")]
    dir: PathBuf,
    /// The network file
    #[arg(long, value_name = "NET")]
    network: PathBuf,
    /// Public keys of peers (`hold peer status`) or clients (`hold keys show --client`) to revoke
    #[arg(long, value_name = "KEY,...", required = true, value_delimiter = ',')]
    key: Vec<String>,
    /// Take these keys off the list again instead
    #[arg(long)]
    undo: bool,
    /// The organisation's last list, where its directory does not keep it: a peer has it as D/revoked/ORG
    #[arg(long, value_name = "LIST")]
    from: Option<PathBuf>,
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
        // The list's number is to the millisecond: of two that are made within a second, with two copies of the directory, the later counts.
        let now_ms = SystemClock::new().unix_ms();
        let now = now_ms / 1000;
        // The list is whole each time, so the organisation keeps its last one beside its key. Of two that are made at once the second
        // begins with the first: else what that revoked would count again.
        let kept = self.dir.join(format!("revoked-{network}"));
        let _alone = files::lock(&self.dir.join("revoked.lock"))?;
        let read = |path: &Path| {
            let bytes = Bytes::copy_from_slice(&files::read_small(path)?);
            let list = Revocation::verify_kept(&bytes, roster, now)?;
            Ok::<_, HoldError>((list, bytes))
        };
        let kept_list = match read(&kept) {
            Err(HoldError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                None
            }
            other => Some(other?),
        };
        let given = self.from.as_deref().map(read).transpose()?;
        let is_anothers = |(list, _): &&(Revocation, Bytes)| list.organisation != org.public.key;
        if let Some((given, _)) = given.as_ref().filter(is_anothers) {
            let reason = format!("it is the list of another organisation, {}", given.organisation);
            return Err(HoldError::argument("--from", reason));
        }
        let lists = kept_list.into_iter().chain(given);
        // Of one number that with the greater bytes counts, here as at peers.
        let last = lists.max_by(|(one, a), (other, b)| (one.sequence, a).cmp(&(other.sequence, b)));
        let last = match last {
            Some((last, _)) => last,
            None if self.undo => {
                let reason = "no earlier list is kept in the directory: give it by --from";
                return Err(HoldError::argument("--undo", reason));
            }
            None => {
                session.out.warn(
                    "no earlier list of this network is kept in the directory: were keys revoked before (with another copy of it, or \
                     before the organisation's key changed), this list takes that back; give the earlier one by --from",
                );
                Revocation { organisation: org.public.key, sequence: 0, keys: Vec::new() }
            }
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
        let sequence = match last.sequence > (now + CLOCK_SKEW_S) * 1000 {
            false => now_ms.max(last.sequence + 1),
            // No peer with a right clock took that one: its keys go on, and its date does not.
            true => {
                session.out.warn(format_args!(
                    "the earlier list is dated {} s ahead: the clock was, when it was signed, and peers whose clocks were right refused \
                     it; hand this one to a peer",
                    last.sequence / 1000 - now
                ));
                now_ms
            }
        };
        let list = Revocation { organisation: org.public.key, sequence, keys };
        let bytes = list.sign(&org.key, &network);
        let list = Revocation::verify(&bytes, roster, now)?;
        files::replace(&kept, &bytes, Access::Public)?;
        draft::write(&self.output, &bytes)?;
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
