//! `hold object policy`, and the flags that say what a policy says.

use std::fmt;

use author::objects::{Copies, Policy, PolicyOptions};
use clap::{ArgAction, Args};
use crypto::PublicKey;
use serde::Serialize;

use super::Which;
use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;

/// What an owner says of an object.
#[derive(Debug, Default, Args)]
pub(super) struct PolicyArgs {
    /// Peers see name and values, and may compress them; without it both are sealed on this machine
    #[arg(long, action = ArgAction::SetTrue)]
    open: bool,
    /// Anybody who reaches a peer may read
    #[arg(long, action = ArgAction::SetTrue)]
    public: bool,
    /// Who else may read (what hold keys show --owner prints at theirs)
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = super::key)]
    reader: Vec<PublicKey>,
    /// Who else may write
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = super::key)]
    writer: Vec<PublicKey>,
    /// Copies of each version, and how many of them a put waits for [default: the network's]
    #[arg(long, value_name = "N/W", value_parser = copies)]
    copies: Option<Copies>,
    /// Bytes that a peer keeps of it at one place before it goes on at the next [default: the peer's]
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    region: u64,
    /// Who pays, where that is not the owner
    #[arg(long, value_name = "KEY", value_parser = super::key)]
    payer: Option<PublicKey>,
}

/// `N/W`.
fn copies(text: &str) -> Result<Copies, String> {
    let wrong = || format!("{text:?} is not N/W, with W from 1 to N");
    let (copies, acknowledged) = text.split_once('/').ok_or_else(wrong)?;
    let copies = copies.parse().map_err(|_| wrong())?;
    let acknowledged = acknowledged.parse().map_err(|_| wrong())?;
    if acknowledged == 0 || acknowledged > copies {
        return Err(wrong());
    }
    Ok(Copies { copies, acknowledged })
}

impl PolicyArgs {
    /// As the author's side takes it.
    pub(super) fn options(&self) -> PolicyOptions {
        PolicyOptions {
            open: self.open,
            public: self.public,
            readers: self.reader.clone(),
            writers: self.writer.clone(),
            copies: self.copies,
            region_bytes: self.region,
            payer: self.payer,
        }
    }
}

/// `hold object policy`: what the owner says.
#[derive(Default, Serialize)]
pub(super) struct PolicyText {
    /// Its number: peers take no lower one; 0 where its owner said nothing, so that it is sealed and for the owner alone.
    version: u64,
    /// Whether peers see values.
    open: bool,
    /// Whether anybody may read.
    public: bool,
    /// Who may read beside owner and writers, hex.
    readers: Vec<String>,
    /// Who may write beside the owner, hex.
    writers: Vec<String>,
    /// Copies of each version; none where the network's number counts.
    copies: Option<u32>,
    /// How many of them a put waits for.
    acknowledged: Option<u32>,
    /// Bytes of a region; 0 for the peer's own number.
    region: u64,
    /// Who pays, hex; none for the owner.
    payer: Option<String>,
}

impl From<&Policy> for PolicyText {
    fn from(policy: &Policy) -> Self {
        let hex = |keys: &[PublicKey]| keys.iter().map(ToString::to_string).collect();
        Self {
            version: policy.version,
            open: policy.open,
            public: policy.public,
            readers: hex(&policy.readers),
            writers: hex(&policy.writers),
            copies: policy.copies.map(|copies| copies.copies),
            acknowledged: policy.copies.map(|copies| copies.acknowledged),
            region: policy.region_bytes,
            payer: policy.payer.map(|payer| payer.to_string()),
        }
    }
}

impl fmt::Display for PolicyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.open { "open: peers see its values" } else { "sealed" };
        match self.version {
            0 => write!(f, "policy   none: its owner said nothing\nkind     {kind}")?,
            version => write!(f, "policy   {version}\nkind     {kind}")?,
        }
        if self.public {
            write!(f, "\nreader   anybody")?;
        }
        self.readers.iter().try_for_each(|key| write!(f, "\nreader   {key}"))?;
        self.writers.iter().try_for_each(|key| write!(f, "\nwriter   {key}"))?;
        if let (Some(copies), Some(acknowledged)) = (self.copies, self.acknowledged) {
            write!(f, "\ncopies   {copies}, a put waits for {acknowledged}")?;
        }
        if self.region > 0 {
            write!(f, "\nregion   {} bytes", self.region)?;
        }
        self.payer.iter().try_for_each(|key| write!(f, "\npayer    {key}"))
    }
}

/// `hold object policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyVerb {
    #[command(flatten)]
    which: Which,
    /// Say anew, whole, what the flags below say; without it the policy is shown
    #[arg(long, action = ArgAction::SetTrue)]
    set: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

impl PolicyVerb {
    /// Runs it.
    pub(super) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let options = self.policy.options();
        if !self.set && options != PolicyOptions::default() {
            return Err(HoldError::argument("--set", "missing: without it a policy is only shown"));
        }
        let objects = super::objects(session).await?;
        let object = self.which.open(&objects).await?;
        if self.set {
            let policy = object.set_policy(options).await?;
            session.out.result(&PolicyText::from(&policy))?;
            return Ok(Exit::Done);
        }
        let policy = object.policy().await?;
        session.out.result(&policy.as_ref().map(PolicyText::from).unwrap_or_default())?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_whose_owner_said_nothing_has_an_answer_too() {
        let none = PolicyText::default();
        assert_eq!(none.to_string(), "policy   none: its owner said nothing\nkind     sealed");
        let json = serde_json::to_string(&none).unwrap_or_default();
        assert!(json.starts_with(r#"{"version":0,"open":false,"public":false,"#), "{json}");
    }

    #[test]
    fn copies_are_two_numbers_that_fit() {
        assert_eq!(copies("3/2"), Ok(Copies { copies: 3, acknowledged: 2 }));
        for bad in ["3", "3/", "/2", "2/3", "3/0", "0/0", "a/b", "3/2/1"] {
            assert!(copies(bad).is_err(), "{bad}");
        }
    }
}
