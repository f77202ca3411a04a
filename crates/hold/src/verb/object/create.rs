//! `hold object create`.

use std::fmt;

use author::objects::{Object, Policy};
use clap::Args;
use serde::Serialize;

use super::policy::{PolicyArgs, PolicyText};
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// `hold object create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name: of a sealed object nobody else sees it
    name: String,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// `hold object create`: the object.
#[derive(Serialize)]
struct Created {
    /// What peers know it by, hex.
    object: String,
    /// The key that owns it, hex.
    owner: String,
    /// Whether its values are sealed.
    sealed: bool,
    /// What its owner says of it.
    policy: Option<PolicyText>,
}

impl Created {
    fn new(object: &Object, policy: Option<&Policy>) -> Self {
        Self {
            object: object.key().to_string(),
            owner: object.owner().to_string(),
            sealed: object.is_sealed(),
            policy: policy.map(PolicyText::from),
        }
    }
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)
    }
}

impl Create {
    /// Runs it.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let objects = super::objects(session).await?;
        let options = self.policy.options();
        if options.open {
            session.out.note("open: the peers that keep it can read its name and values");
        }
        let object = objects.create(self.name.as_bytes(), options).await?;
        session.out.result(&Created::new(&object, object.known_policy().as_ref()))?;
        Ok(Exit::Done)
    }
}
