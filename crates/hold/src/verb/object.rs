//! `hold object`: versioned objects from the command line.

mod access;
mod create;
mod history;
mod lines;
mod merge;
mod policy;
mod read;
mod tips;
mod watch;
mod write;

use std::ops::Deref;
use std::path::PathBuf;

use author::objects::{
    Access, Object, Objects, ObjectsError, ObjectsOptions, PolicyOptions, VersionId,
};
use clap::{Args, Subcommand};
use crypto::{ClientKey, PublicKey};
use version::{Merge, Merges};

use crate::cli::Session;
use crate::connect::{self, User};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::files;

/// What to do with objects.
#[derive(Debug, Subcommand)]
pub(crate) enum ObjectVerb {
    /// Make an object, and say who may read and write it
    Create(create::Create),
    /// Put a version on what the object is at, or on another version; prints the new one. A name that is new is made first,
    /// sealed and for its owner alone
    Put(write::Put),
    /// Get the value of a version
    Get(read::Get),
    /// List the versions that a version was made of, nearest first
    Prev(history::Prev),
    /// List versions from the tips, or from one version, backwards and through merges
    Log(history::Log),
    /// Merge two versions: with a value of yours, or by a function
    Merge(merge::Merge),
    /// List the versions that have no successor
    Tips(tips::TipsVerb),
    /// Tell what there is, and then each new version, until Ctrl-C
    Watch(watch::WatchVerb),
    /// Show who may read and write an object, or say it anew
    Policy(policy::PolicyVerb),
    /// Print what others need to open a sealed object, beside a line in its policy: a secret
    Access(access::AccessVerb),
}

impl ObjectVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Create(verb) => verb.run(session).await,
            Self::Put(verb) => verb.run(session).await,
            Self::Get(verb) => verb.run(session).await,
            Self::Prev(verb) => verb.run(session).await,
            Self::Log(verb) => verb.run(session).await,
            Self::Merge(verb) => verb.run(session).await,
            Self::Tips(verb) => verb.run(session).await,
            Self::Watch(verb) => verb.run(session).await,
            Self::Policy(verb) => verb.run(session).await,
            Self::Access(verb) => verb.run(session).await,
        }
    }
}

/// Which object.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// NAME, as this user called it; OWNER:NAME, somebody's open object (OWNER a key of 66 hex digits); or @FILE, with what
    /// `hold object access` printed
    #[arg(value_name = "OBJECT")]
    object: String,
}

/// What is in an @FILE.
const ACCESS_TEXT: &str = "what `hold object access` printed";

impl Which {
    /// The object that an @FILE opens, where one was named.
    fn shown(&self, objects: &Objects) -> Result<Option<Object>, HoldError> {
        let Some(path) = self.object.strip_prefix('@') else { return Ok(None) };
        let path = PathBuf::from(path);
        let text = files::read_small(&path)?;
        let not = || HoldError::NotA { what: ACCESS_TEXT, path: path.clone() };
        let bytes = hex::decode(text.trim_ascii()).map_err(|_| not())?;
        let access = Access::decode(&bytes).map_err(|_| not())?;
        Ok(Some(objects.with_access(&access)?))
    }

    /// The objects that it may be, without asking anybody: this user's own may be sealed or open.
    pub(crate) fn candidates(&self, objects: &Objects) -> Result<Vec<Object>, HoldError> {
        if let Some(object) = self.shown(objects)? {
            return Ok(vec![object]);
        }
        let (owner, name) = named(objects, &self.object)?;
        let open = objects.plain(owner, name.as_bytes())?;
        match owner == objects.public_key() {
            true => Ok(vec![objects.sealed(name.as_bytes())?, open]),
            false => Ok(vec![open]),
        }
    }

    /// The object, which exists, where its owner or a peer says so.
    pub(crate) async fn open(&self, objects: &Objects) -> Result<Object, HoldError> {
        if let Some(object) = self.shown(objects)? {
            return Ok(object);
        }
        let (owner, name) = named(objects, &self.object)?;
        Ok(objects.open(owner, name.as_bytes()).await?)
    }
}

impl Which {
    /// The same; one that this user has not is made, sealed and for its owner alone.
    pub(crate) async fn open_or_create(
        &self,
        session: &Session,
        objects: &Objects,
    ) -> Result<Object, HoldError> {
        match self.open(objects).await {
            Err(HoldError::ObjectsOf(ObjectsError::NoObject(key))) => {
                let (owner, name) = named(objects, &self.object)?;
                if owner != objects.public_key() {
                    return Err(ObjectsError::NoObject(key).into());
                }
                session
                    .out
                    .note(format_args!("{name} is new: a sealed object, for its owner alone"));
                Ok(objects.create(name.as_bytes(), PolicyOptions::default()).await?)
            }
            other => other,
        }
    }
}

/// Owner and name of what a user wrote.
fn named<'a>(objects: &Objects, text: &'a str) -> Result<(PublicKey, &'a str), HoldError> {
    if let Some((owner, name)) = text.split_once(':')
        && owner.len() == 66
        && owner.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        let key = |text: &str| text.parse().map(|key: ClientKey| *key.key());
        let owner = key(owner).map_err(HoldError::parse("the key of an owner", owner))?;
        return Ok((owner, name));
    }
    Ok((objects.public_key(), text))
}

/// This user's objects; while it lives, the user stays current: its pass, and whom it knows.
pub(crate) struct Own {
    objects: Objects,
    user: User,
}

impl Own {
    /// As [`User::left`].
    pub(crate) async fn left(&self) -> HoldError {
        self.user.left().await
    }
}

impl Deref for Own {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

/// This user's objects.
pub(crate) async fn objects(session: &Session) -> Result<Own, HoldError> {
    let user = connect::author(session).await?;
    Ok(Own { objects: Objects::new(&user, ObjectsOptions::default()), user })
}

/// A version as it is written everywhere: `h:l:n`.
pub(crate) fn version(text: &str) -> Result<VersionId, String> {
    let wrong = |error| format!("{text:?} is no version (h:l:n, as put and log print it): {error}");
    text.parse::<VersionId>().map_err(wrong)
}

/// A key that a policy names.
pub(crate) fn key(text: &str) -> Result<PublicKey, String> {
    let parsed = text.parse().map(|key: ClientKey| *key.key());
    parsed.map_err(|_| format!("{text:?} is no key (66 hex digits)"))
}

/// The merge function of this name.
///
/// # Errors
/// [`HoldError::Argument`] where there is none, with the names of all.
pub(crate) fn merge_function<'a>(
    merges: &'a Merges,
    name: &str,
) -> Result<&'a dyn Merge, HoldError> {
    let unknown = || {
        let names: Vec<&str> = merges.names().collect();
        let reason = format!("{name:?} is none; there are {}", names.join(", "));
        HoldError::argument("--function", reason)
    };
    merges.get(name).ok_or_else(unknown)
}
