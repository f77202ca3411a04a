//! One object, as its owner, a writer or a reader addresses it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use crypto::{ContentKey, PublicKey};
use document::Record;
use placement::Redundancy;
use version::{
    Hint, OVERFLOWS_MAX, ObjectKey, ObjectRecord, Policy, VersionError, VersionId, place,
};

use super::{Access, Objects, ObjectsError};
use document::Kind;

/// An object. Cheap to clone.
#[derive(Clone)]
pub struct Object {
    pub(crate) objects: Objects,
    pub(crate) record: Arc<ObjectRecord>,
    pub(crate) key: ObjectKey,
    /// What seals its values; `None` of an open one.
    pub(crate) content: Option<ContentKey>,
}

impl Objects {
    /// This user's sealed object of this name, whether or not it exists. Nobody is asked.
    ///
    /// # Errors
    /// [`ObjectsError::Version`] where no object can be called so.
    pub fn sealed(&self, name: &[u8]) -> Result<Object, ObjectsError> {
        version_name(name)?;
        let name = Bytes::copy_from_slice(&self.names().name(self.suite(), name));
        let record = ObjectRecord { network: self.network(), owner: self.public_key(), name };
        let key = record.key(self.suite())?;
        let content = Some(self.names().content(key.as_bytes()));
        Ok(Object { objects: self.clone(), record: Arc::new(record), key, content })
    }

    /// Somebody's open object of this name, whether or not it exists. Nobody is asked: that its owner says it is open is looked
    /// at before anything is written to it.
    ///
    /// # Errors
    /// [`ObjectsError::Version`] where no object can be called so.
    pub fn plain(&self, owner: PublicKey, name: &[u8]) -> Result<Object, ObjectsError> {
        let name = Bytes::copy_from_slice(name);
        let record = ObjectRecord { network: self.network(), owner, name };
        let key = record.key(self.suite())?;
        Ok(Object { objects: self.clone(), record: Arc::new(record), key, content: None })
    }

    /// The sealed object that its owner gave access to. Nobody is asked.
    ///
    /// # Errors
    /// [`ObjectsError::Access`] where it is another network's.
    pub fn with_access(&self, access: &Access) -> Result<Object, ObjectsError> {
        if access.record.network != self.network() {
            return Err(ObjectsError::Access);
        }
        let key = access.record.key(self.suite())?;
        let (record, content) = (Arc::new(access.record.clone()), Some(access.content.clone()));
        Ok(Object { objects: self.clone(), record, key, content })
    }

    /// The object with this record, whose id its key is: sealed where this user is the owner and can open it.
    pub(crate) fn with_record(&self, record: ObjectRecord, key: ObjectKey) -> Object {
        let own = record.owner == self.public_key();
        let content = own.then(|| self.names().content(key.as_bytes()));
        Object { objects: self.clone(), record: Arc::new(record), key, content }
    }
}

/// Whether an object can be called so, before the name is hidden behind a MAC.
fn version_name(name: &[u8]) -> Result<(), VersionError> {
    let max = version::NAME_BYTES_MAX;
    match name.len() {
        0 => Err(VersionError::Field("name of the object, which is empty,")),
        found if found > max => {
            Err(VersionError::TooLarge { what: "name of an object", found, max })
        }
        _ => Ok(()),
    }
}

impl Object {
    /// The same, as open where its policy says that it is.
    pub(crate) fn into_policy_kind(self) -> Self {
        match self.counting_policy().open {
            true => Self { content: None, ..self },
            false => self,
        }
    }

    /// Its key: what peers know it by.
    pub const fn key(&self) -> ObjectKey {
        self.key
    }

    /// The user who addresses it.
    pub const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Whose it is.
    pub fn owner(&self) -> PublicKey {
        self.record.owner
    }

    /// The name in its record: of a sealed object the MAC of the one that its owner gave.
    pub fn record_name(&self) -> &Bytes {
        &self.record.name
    }

    /// Whether its values are sealed.
    pub const fn is_sealed(&self) -> bool {
        self.content.is_some()
    }

    /// Whether it is this user's own.
    pub fn is_own(&self) -> bool {
        self.record.owner == self.objects.public_key()
    }

    /// What lets others open it: a secret. List them in the policy as well.
    ///
    /// # Errors
    /// [`ObjectsError::NotSealed`] of an open object, which needs none.
    pub fn access(&self) -> Result<Access, ObjectsError> {
        let content = self.content.clone().ok_or(ObjectsError::NotSealed(self.key))?;
        Ok(Access { record: ObjectRecord::clone(&self.record), content })
    }

    /// The policy that counts as far as is known here, without asking; `None` where nothing was asked, or its owner said
    /// nothing.
    pub fn known_policy(&self) -> Option<Policy> {
        self.objects.known().policy(&self.record).cloned()
    }

    /// The policy that counts as far as is known here; the implied one where nobody said anything.
    pub(crate) fn counting_policy(&self) -> Policy {
        let implied = || Policy::implied(self.record.network, self.record.owner);
        self.known_policy().unwrap_or_else(implied)
    }

    /// How many copies its versions have, and how many are waited for.
    pub(crate) fn redundancy(&self) -> Redundancy {
        match self.known_policy().and_then(|policy| policy.copies) {
            Some(copies) => Redundancy { copies: copies.copies, acknowledged: copies.acknowledged },
            None => self.objects.walker().redundancy(Kind::Version),
        }
    }

    /// How many holders of a place have to answer, so that one of them knows what was acknowledged.
    pub(crate) fn enough(&self) -> u32 {
        let Redundancy { copies, acknowledged } = self.redundancy();
        copies.saturating_sub(acknowledged) + 1
    }

    /// The hint with this number, of which there are 17.
    pub(crate) fn hint(&self, number: u64) -> Hint {
        let number = number.min(OVERFLOWS_MAX);
        Hint::overflow(self.objects.suite(), &self.key, number).unwrap_or_default()
    }

    /// Which of the object's places a hint names; the first for one that is none of them.
    pub(crate) fn number(&self, hint: &Hint) -> u64 {
        hint.number(self.objects.suite(), &self.key).unwrap_or_default()
    }

    pub(crate) fn place(&self, hint: &Hint) -> crypto::Place {
        place(self.objects.suite(), &self.key, hint)
    }

    /// The hints under which a version may be that is said to be at this one: that one, then all that are in use.
    pub(crate) fn hints(&self, first: &Hint) -> Vec<Hint> {
        let known = self.objects.known().of(&self.key);
        let last = known.overflow.max(known.seen).max(self.number(first));
        let others = (0..=last).map(|number| self.hint(number)).filter(|hint| hint != first);
        std::iter::once(*first).chain(others).collect()
    }

    /// What a holder is told that does not know the object: its record, and the policy that counts.
    pub(crate) fn introduction(&self) -> Result<Vec<Record>, ObjectsError> {
        let record = self.record.record(self.objects.suite())?;
        let policy = self.objects.known().record(&self.record).cloned();
        Ok(std::iter::once(record).chain(policy).collect())
    }

    /// Where a version is that is made on this one, or the first of a branch.
    pub(crate) fn next_hint(&self, bases: &[VersionId]) -> Hint {
        let base = bases.iter().map(|base| self.number(&base.n)).max().unwrap_or_default();
        self.hint(base.max(self.objects.known().of(&self.key).overflow))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.key)
    }
}
