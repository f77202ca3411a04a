//! `hold peer restore`: a peer's directory of a snapshot, or a snapshot checked.

use std::path::PathBuf;

use clap::Args;
use crypto::PeerId;
use env::Env;
use store::snapshot::{self, RestoreOptions};
use zeroize::Zeroizing;

use super::snapshot::{Shown, Watch};
use crate::cli::Session;
use crate::client;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files;
use crate::peerdir::LAYOUT;

/// `hold peer restore`.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    from: PathBuf,
    /// The new directory of the peer
    #[arg(long, value_name = "D", required_unless_present = "check")]
    dir: Option<PathBuf>,
    /// The peer's private key, where the snapshot has none
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Check the snapshot, every byte of it, and restore nothing
    #[arg(long, conflicts_with_all = ["dir", "key"])]
    check: bool,
}

impl Restore {
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let of = {
            let from = self.from.clone();
            client::blocking(move || Ok(snapshot::inspect(&from, &LAYOUT)?)).await?
        };
        let key = self.key.as_ref().map(|path| key_text(path, of.peer)).transpose()?;
        let mut watch = Watch::new(session, "restore", None);
        let env = Env::real();
        let dir = self.dir.clone();
        let shown = client::blocking(move || {
            let mut watcher = |done, total| watch.goes_on(done, total);
            let summary = match &self.dir {
                Some(dir) => {
                    let key = key.as_ref().map(|text| text.as_bytes());
                    let options = RestoreOptions { layout: LAYOUT, key };
                    snapshot::restore(&self.from, dir, &env, &options, &mut watcher)?
                }
                None => snapshot::verify(&self.from, &LAYOUT, &mut watcher)?,
            };
            Ok((Shown::new(&self.from, summary), self.key.is_some() || of.with_key))
        });
        let (shown, with_key) = shown.await?;
        session.out.result(&shown)?;
        match dir {
            Some(dir) if !with_key => {
                let key = dir.join(LAYOUT.key);
                session.out.warn(format_args!(
                    "the snapshot has no key: put the peer's at {}, mode 0600, before it runs",
                    key.display()
                ));
                Ok(Exit::Partly)
            }
            _ => Ok(Exit::Done),
        }
    }
}

/// A key's file, where it is this peer's.
fn key_text(path: &std::path::Path, peer: PeerId) -> Result<Zeroizing<String>, HoldError> {
    let hint = "a copy of the peer.key that the peer had, kept apart from its snapshots";
    let key = files::read_secret_key(path, hint)?;
    if PeerId::new(key.public()) != peer {
        let what = "the key of the peer that the snapshot is of";
        return Err(HoldError::NotA { what, path: path.to_owned() });
    }
    let mut text = Zeroizing::new(hex::encode(*key.to_bytes()));
    text.push('\n');
    Ok(text)
}
