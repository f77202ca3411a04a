//! `hold head device`.

use std::fmt;

use clap::Args;
use crypto::PublicKey;
use serde::Serialize;
use version::DeviceList;

use super::Of;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::object;

/// `hold head device`.
#[derive(Debug, Args)]
pub(crate) struct Device {
    #[command(flatten)]
    of: Of,
    /// Let this device say what this user's branches are at (hold keys show --owner, there)
    #[arg(long, value_name = "KEY", conflicts_with = "revoke", value_parser = object::key)]
    add: Option<PublicKey>,
    /// Its heads count no more; what is to stay of them must be taken over by a head of this user's before
    #[arg(long, value_name = "KEY", value_parser = object::key)]
    revoke: Option<PublicKey>,
}

/// `hold head device`: the owner's list.
#[derive(Serialize)]
struct Devices {
    /// Its number: peers take no lower one; 0 where there is none.
    sequence: u64,
    /// The devices, beside the owner's own key, hex.
    devices: Vec<String>,
    /// Peers that have it, where it was changed.
    acked: Option<u32>,
    /// Peers that were to have it.
    wanted: Option<u32>,
}

impl Devices {
    fn new(list: Option<&DeviceList>) -> Self {
        let devices = list.iter().flat_map(|list| &list.devices).map(ToString::to_string);
        let sequence = list.map_or(0, |list| list.sequence);
        Self { sequence, devices: devices.collect(), acked: None, wanted: None }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list     {}", self.sequence)?;
        self.devices.iter().try_for_each(|device| write!(f, "\ndevice   {device}"))
    }
}

impl Device {
    /// Runs it.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = object::objects(session).await?;
        let object = self.of.which.open(&objects).await?;
        let heads = objects.heads();
        let known = heads.devices(&object, &self.of.branch).await?;
        let changed = match (self.add, self.revoke) {
            (Some(device), _) => heads.delegate(known.as_ref(), device).await?,
            (None, Some(device)) => heads.revoke(known.as_ref(), device).await?,
            (None, None) => {
                session.out.result(&Devices::new(known.as_ref()))?;
                return Ok(Exit::Done);
            }
        };
        let (acked, wanted) = (Some(changed.acked), Some(changed.wanted));
        session.out.result(&Devices { acked, wanted, ..Devices::new(Some(&changed.list)) })?;
        if changed.acked < changed.wanted {
            session.out.warn("not all peers have the list yet: readers bring it to them");
            return Ok(Exit::Partly);
        }
        Ok(Exit::Done)
    }
}
