//! What the door needs of the engine under it.
//!
//! It is a trait so that the door says in one place what it builds on, and so that its tests can
//! make commits fail. One thread calls it, the door's own, and each call may take that thread's
//! time: writes are gathered and reach the log together in [`Keyspace::commit`], or beside the door's work between
//! [`Keyspace::begin`] and [`Keyspace::land`]; reads come from the engine's cache or one read of its log.

use bytes::Bytes;
use crypto::RecordId;

use crate::error::Refusal;
use version::{Bases, ObjectKey, ValueKind, VersionId};

/// Bytes of values of one commit, unless the engine says otherwise; the store takes 64 MiB.
pub(crate) const BATCH_BYTES: usize = 8 << 20;

/// An object's tip that counts: the greatest l, of those the greatest h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Its id.
    pub id: VersionId,
    /// What its value is, where that is known without reading it.
    pub kind: Option<ValueKind>,
}

/// A version to be made.
#[derive(Debug)]
pub struct Put<'a> {
    /// Its object.
    pub object: &'a ObjectKey,
    /// The object's name, where it may have no version yet: its record is written beside it.
    pub name: Option<&'a [u8]>,
    /// Its bases: none, one, or two of a merge.
    pub bases: &'a [VersionId],
    /// What its value is.
    pub kind: ValueKind,
    /// The value, at most 2 MiB.
    pub value: &'a [u8],
    /// Whether to keep it as a difference to an ancestor.
    pub compress: bool,
}

/// A version that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its id.
    pub id: VersionId,
    /// Its value, where the engine keeps it.
    pub value: Bytes,
}

/// A version as it is read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its id.
    pub id: VersionId,
    /// The hashes of its bases.
    pub bases: Bases,
    /// What its value is.
    pub kind: ValueKind,
    /// The value.
    pub value: Bytes,
}

/// The versions of one owner's objects under the door's family.
pub trait Keyspace: Send {
    /// Calls `each` with the name, the object and the tip that counts of all objects of the
    /// family.
    ///
    /// # Errors
    /// Where the log cannot be read.
    fn load(&mut self, each: &mut dyn FnMut(&[u8], ObjectKey, Tip)) -> Result<(), Refusal>;

    /// The object of a name, and its tip that counts where it has versions.
    ///
    /// # Errors
    /// Where the index cannot be read.
    fn open(&mut self, name: &[u8]) -> Result<(ObjectKey, Option<Tip>), Refusal>;

    /// Makes a version: its id at once, so that the next may build on it, and its value. Nothing is kept before
    /// [`Keyspace::commit`].
    ///
    /// # Errors
    /// Where the version would be none (its base is not there, its value is too large), or the
    /// batch would be too large. Nothing of it is then pending.
    fn put(&mut self, put: Put<'_>) -> Result<Made, Refusal>;

    /// Tells of puts that are likely next, in this order, which are cheaper to make together. None of them is done by it, and
    /// none need follow.
    fn prepare(&mut self, puts: &mut dyn Iterator<Item = Put<'_>>) {
        let _ = puts;
    }

    /// Puts since the last commit.
    fn pending(&self) -> usize;

    /// Bytes of values after which a turn's writes are committed on the way. Who waits for a disk wants few commits, who does
    /// not wants what it writes to be in the processor's cache still, and its callers to have answers meanwhile.
    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    /// Forgets the newest puts until `to` are pending.
    fn abandon(&mut self, to: usize);

    /// Writes all that is pending with one write, and waits as long as the durability asks for.
    ///
    /// # Errors
    /// Where it could not: then nothing is kept of any of it, and nothing is pending.
    fn commit(&mut self) -> Result<(), Refusal>;

    /// Begins to write all that is pending, while the next versions are made, which may stand on these; whether it is still
    /// to be waited for. Until [`Keyspace::land`] was called nothing else is begun or committed, and what is on its way
    /// is not read.
    ///
    /// # Errors
    /// As [`Keyspace::commit`].
    fn begin(&mut self) -> Result<bool, Refusal> {
        self.commit().map(|()| false)
    }

    /// Waits for what was begun.
    ///
    /// # Errors
    /// Where it could not be written: then nothing is kept of it, nor of what was put since, which may stand on it.
    fn land(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Nothing is put any more: what is still to be done for the versions that were committed is begun.
    fn end_writes(&mut self) {}

    /// A committed version, or none where it is not here.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn get(&mut self, object: &ObjectKey, h: &RecordId) -> Result<Option<Stored>, Refusal>;

    /// Calls `each` with up to `m` predecessors of a version, nearest first; ends behind a root, behind the two
    /// bases of a merge, and where `each` says `false`.
    ///
    /// # Errors
    /// Where the version or one of them cannot be read.
    fn previous(
        &mut self,
        object: &ObjectKey,
        h: &RecordId,
        m: usize,
        each: &mut dyn FnMut(Stored) -> bool,
    ) -> Result<(), Refusal>;

    /// The versions without a successor here, the one that counts first.
    ///
    /// # Errors
    /// Where the index cannot be read.
    fn tips(&mut self, object: &ObjectKey) -> Result<Vec<VersionId>, Refusal>;

    /// What the merge function `function` makes of two versions and their closest common
    /// ancestor. The version itself is then put with both as bases.
    ///
    /// # Errors
    /// Of class `NotFound` where there is no such function, `Conflict` where the two cannot be
    /// merged.
    fn merge(
        &mut self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &[u8],
    ) -> Result<Bytes, Refusal>;

    /// Calls `each` for the objects whose tip that counts was changed by others than this
    /// keyspace's puts since the last call, and for others where it does not know which were. It is called at each turn and must then cost nothing
    /// where there is none; [`crate::Handle::wake`] has it called soon.
    ///
    /// # Errors
    /// Where the index cannot be read.
    fn changed(&mut self, each: &mut dyn FnMut(&[u8], ObjectKey, Tip)) -> Result<(), Refusal> {
        let _ = each;
        Ok(())
    }
}
