//! Versions made here, and signed for at once: one attestation under all of a batch, and of as many objects as there are.

use bytes::Bytes;
use crypto::{PeerId, RecordId};
use document::Record;
use version::attestation::AnyAttestation;
use version::policy::For;
use version::{Attestation, Bases, BatchAttester, Durability, Hint, Version, VersionId, depth};
use walk::objects::{Delivered, PARCEL_BYTES_MAX, PARCEL_RECORDS_MAX, Parcel, PutTerms};

use super::sending::{self, Written};
use super::{Object, Objects, ObjectsError, Value};

/// Versions of one batch at most.
pub const BATCH_VERSIONS_MAX: usize = 4_096;
/// From so many bytes on a value is sealed away from the I/O threads.
const CPU_FROM_BYTES: usize = 16 << 10;

/// How versions are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Peers may keep versions of open objects as deltas.
    pub compress: bool,
    /// What must have happened at a peer before it counts; the peer's own setting where absent.
    pub durability: Option<Durability>,
    /// Whether the peers' signed receipts are wanted.
    pub receipt: bool,
}

impl From<WriteOptions> for PutTerms {
    fn from(options: WriteOptions) -> Self {
        let WriteOptions { compress, durability, receipt } = options;
        Self { compress, durability, receipt }
    }
}

/// A version that is to be sent.
pub(crate) struct Made {
    pub(crate) object: Object,
    pub(crate) version: Version,
    pub(crate) bytes: Bytes,
    pub(crate) h: RecordId,
    /// Where it goes; another one after a redirect.
    pub(crate) hint: Hint,
}

impl Made {
    pub(crate) fn id(&self) -> VersionId {
        VersionId { h: self.h, l: self.version.l, n: self.hint }
    }

    fn record(&self) -> Record {
        let (kind, place) = (document::Kind::Version, self.object.place(&self.hint));
        Record { kind, id: self.h, place, bytes: self.bytes.clone() }
    }
}

/// Versions to be written together. Their ids are known at once, so later ones may be made on earlier ones.
///
/// Nothing is sent before [`Batch::send`]; dropping it forgets them.
pub struct Batch {
    objects: Objects,
    options: WriteOptions,
    made: Vec<Made>,
}

impl Objects {
    /// An empty batch.
    pub fn batch(&self, options: WriteOptions) -> Batch {
        Batch { objects: self.clone(), options, made: Vec::new() }
    }
}

impl Batch {
    /// How many versions it has.
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Adds a version on this base; on none, the first of a branch of its own. The same value on the same base is the same
    /// version, however often it is put.
    ///
    /// The hint in the id is where the version goes unless its region is full: [`Written::id`] tells where it is.
    ///
    /// # Errors
    /// [`ObjectsError::Unsealable`] and [`ObjectsError::Version`] for a value that is too long,
    /// [`ObjectsError::BatchFull`].
    pub async fn put(
        &mut self,
        object: &Object,
        base: Option<&VersionId>,
        value: impl Into<Value>,
    ) -> Result<VersionId, ObjectsError> {
        self.add(object, base.as_slice(), value.into()).await
    }

    /// Adds the merge of two versions, whose order counts.
    ///
    /// # Errors
    /// As [`Batch::put`]; [`ObjectsError::Version`] where both are the same.
    pub async fn merge(
        &mut self,
        object: &Object,
        first: &VersionId,
        second: &VersionId,
        value: impl Into<Value>,
    ) -> Result<VersionId, ObjectsError> {
        self.add(object, &[first, second], value.into()).await
    }

    async fn add(
        &mut self,
        object: &Object,
        bases: &[&VersionId],
        value: Value,
    ) -> Result<VersionId, ObjectsError> {
        if self.made.len() == BATCH_VERSIONS_MAX {
            return Err(ObjectsError::BatchFull { max: BATCH_VERSIONS_MAX });
        }
        let made = object.make(bases, value).await?;
        let id = made.id();
        // The same twice is one.
        if !self.made.iter().any(|known| known.h == id.h) {
            self.made.push(made);
        }
        Ok(id)
    }

    /// Signs for all of it and sends it: what each version came to, in their order (one that was added twice is there once). A version that was not
    /// stored can be put again, and is the same.
    ///
    /// Cancel safe in that dropping it stops what is on its way; what was stored stays.
    ///
    /// # Errors
    /// Before anything is sent: [`ObjectsError::NotOpen`] and [`ObjectsError::NotSealed`] where a policy says otherwise than the object
    /// was addressed, [`ObjectsError::Unavailable`] where the policy of one could not be asked for. Of each version:
    /// [`ObjectsError::NotStored`], [`ObjectsError::Denied`], [`ObjectsError::Full`].
    pub async fn send(self) -> Result<Vec<Result<Written, ObjectsError>>, ObjectsError> {
        let Self { objects, options, made } = self;
        if made.is_empty() {
            return Ok(Vec::new());
        }
        let mut least = u64::MAX;
        for one in distinct(&made) {
            one.object.ask_policy().await?;
            let policy = one.object.counting_policy();
            match (policy.open, one.object.is_sealed()) {
                (true, true) => return Err(ObjectsError::NotSealed(one.object.key())),
                (false, false) => return Err(ObjectsError::NotOpen(one.object.key())),
                _ => {}
            }
            least = least.min(policy.version);
        }
        let attestation = objects.attest(&made, least).await?;
        sending::send(&objects, made, &attestation, options).await
    }
}

/// One version of each object.
fn distinct(made: &[Made]) -> impl Iterator<Item = &Made> {
    let mut seen = std::collections::BTreeSet::new();
    made.iter().filter(move |one| seen.insert(one.object.key()))
}

/// What is signed under all versions of a batch.
pub(crate) struct Signed {
    whole: Record,
    decoded: Option<(Attestation, version::merkle::Tree)>,
}

impl Signed {
    /// What goes with these of its versions, by their numbers: the whole, or what is shorter.
    fn with(&self, numbers: &[usize], suite: crypto::Suite) -> Vec<Record> {
        let Some((batch, tree)) = &self.decoded else { return vec![self.whole.clone()] };
        let path = 32 * batch.attester.count.ilog2() as usize + 200;
        if numbers.len() * path >= self.whole.bytes.len() {
            return vec![self.whole.clone()];
        }
        let ones = numbers.iter().filter_map(|number| batch.of_one(tree, *number));
        ones.map(|one| one.record(suite)).collect()
    }
}

impl Objects {
    /// Signs for versions, written under the policy with this number.
    async fn attest(&self, made: &[Made], policy: u64) -> Result<Signed, ObjectsError> {
        let (suite, network, key) = (self.suite(), self.network(), self.key().clone());
        let hs: Vec<RecordId> = made.iter().map(|one| one.h).collect();
        let signed = self.cpu(move || {
            let mut batch = BatchAttester::new(suite, network, policy);
            for h in &hs {
                batch.add(h)?;
            }
            let Some(whole) = batch.finish(suite, &key) else {
                return Err(ObjectsError::BatchFull { max: 0 });
            };
            let decoded = match AnyAttestation::decode(&whole.bytes)? {
                AnyAttestation::Batch(batch) if batch.attester.count > 1 => {
                    batch.paths(suite).map(|tree| (batch, tree))
                }
                _ => None,
            };
            Ok(Signed { whole, decoded })
        });
        signed.await?
    }
}

impl Object {
    /// Makes a version: seals its value, and hashes it.
    pub(crate) async fn make(
        &self,
        bases: &[&VersionId],
        value: Value,
    ) -> Result<Made, ObjectsError> {
        let ids: Vec<RecordId> = bases.iter().map(|base| base.h).collect();
        let bases_of = Bases::from_slice(&ids)?;
        let l = depth(bases.iter().map(|base| base.l))?;
        let ids: Vec<VersionId> = bases.iter().map(|base| **base).collect();
        let hint = self.next_hint(&ids);
        let (suite, content, object) = (self.objects.suite(), self.content.clone(), self.clone());
        let heavy = value.bytes().is_some_and(|bytes| bytes.len() >= CPU_FROM_BYTES);
        let make = move || {
            let kind = value.kind();
            let value = value.seal(suite, content.as_ref())?;
            let version = Version { object: object.key(), bases: bases_of, l, kind, value };
            version.view().check()?;
            let bytes = version.encode();
            let h = suite.id(&bytes);
            Ok::<_, ObjectsError>(Made { object, version, bytes, h, hint })
        };
        if heavy { self.objects.cpu(make).await? } else { make() }
    }

    /// Writes one version on this base; on none, the first of a branch of its own. As [`Batch::put`] and [`Batch::send`].
    ///
    /// # Errors
    /// As those.
    pub async fn put(
        &self,
        base: Option<&VersionId>,
        value: impl Into<Value>,
        options: WriteOptions,
    ) -> Result<Written, ObjectsError> {
        let mut batch = self.objects.batch(options);
        batch.put(self, base, value).await?;
        only(batch.send().await?)
    }

    /// Writes the merge of two versions, whose order counts.
    ///
    /// # Errors
    /// As [`Batch::merge`] and [`Batch::send`].
    pub async fn merge(
        &self,
        first: &VersionId,
        second: &VersionId,
        value: impl Into<Value>,
        options: WriteOptions,
    ) -> Result<Written, ObjectsError> {
        let mut batch = self.objects.batch(options);
        batch.merge(self, first, second, value).await?;
        only(batch.send().await?)
    }
}

impl Object {
    /// The words of holders that keep a version, each with who gave it, as a committee takes them: gathered by putting the
    /// version again, which changes nothing where it is.
    ///
    /// # Errors
    /// As [`Object::get`]; [`ObjectsError::NotStored`] where fewer than W of them keep it.
    pub async fn receipts(&self, id: &VersionId) -> Result<Vec<(PeerId, Bytes)>, ObjectsError> {
        self.ask_policy().await?;
        let found = self.find(&id.h, &id.n, Some(*id)).await?;
        let bytes = found.version.encode();
        let (object, version, hint) = (self.clone(), found.version, found.hint);
        let made = Made { object, version, bytes, h: id.h, hint };
        let parcel = Parcel {
            place: self.place(&hint),
            redundancy: self.redundancy(),
            records: vec![made.record()],
            // Who wrote it is known where it is.
            with: Vec::new(),
            object: self.introduction()?,
        };
        let terms = PutTerms { receipt: true, ..PutTerms::default() };
        let delivered = self.objects.walker().put_objects(vec![parcel], terms).await;
        let suite = self.objects.suite();
        match delivered.into_iter().next() {
            Some(Ok(Delivered::Stored(at))) => Ok(sending::words(suite, &id.h, &at.receipts)),
            Some(Err(error)) => Err(ObjectsError::NotStored(error)),
            Some(Ok(Delivered::Redirected(_))) | None => Err(ObjectsError::Full(self.key())),
        }
    }

    /// What the receipts of a version that was just written say of it, each encoded so that it counts by itself: what
    /// [`crate::certified::KeptReceipts`] keeps.
    pub fn words(&self, written: &Written) -> Vec<(PeerId, Bytes)> {
        sending::words(self.objects.suite(), &written.id.h, &written.receipts)
    }

    /// What a committee is told of the object: its record, and the signed policy that counts, empty for the implied one.
    pub(crate) async fn made_known(&self) -> Result<(Bytes, Bytes), ObjectsError> {
        self.ask_policy().await?;
        let mut records = self.introduction()?.into_iter().map(|record| record.bytes);
        let record = records.next().unwrap_or_default();
        // A family's is none of the object's there.
        let own = For::Object(self.record_name().clone());
        let is_own = self.known_policy().is_some_and(|policy| policy.for_what == own);
        let policy = records.next().filter(|_| is_own).unwrap_or_default();
        Ok((record, policy))
    }
}

fn only(written: Vec<Result<Written, ObjectsError>>) -> Result<Written, ObjectsError> {
    let none = || Err(ObjectsError::BatchFull { max: 0 });
    written.into_iter().next().unwrap_or_else(none)
}

/// What belongs together at one place, with the numbers of its versions.
pub(crate) fn parcels(
    objects: &Objects,
    made: &[Made],
    numbers: &[usize],
    signed: &Signed,
) -> Result<Vec<(Parcel, Vec<usize>)>, ObjectsError> {
    let mut groups: Vec<(Vec<usize>, usize)> = Vec::new();
    let mut open = std::collections::BTreeMap::new();
    for number in numbers {
        let one = &made[*number];
        let at = (one.object.key(), one.hint);
        let group: Option<usize> = open.get(&at).copied();
        let fits = |(members, bytes): &(Vec<usize>, usize)| {
            members.len() < PARCEL_RECORDS_MAX && bytes + one.bytes.len() <= PARCEL_BYTES_MAX
        };
        match group.filter(|group| fits(&groups[*group])) {
            Some(group) => {
                groups[group].0.push(*number);
                groups[group].1 += one.bytes.len();
            }
            None => {
                open.insert(at, groups.len());
                groups.push((vec![*number], one.bytes.len()));
            }
        }
    }
    let parcels = groups.into_iter().map(|(members, _)| {
        let first = &made[members[0]];
        let parcel = Parcel {
            place: first.object.place(&first.hint),
            redundancy: first.object.redundancy(),
            records: members.iter().map(|number| made[*number].record()).collect(),
            with: signed.with(&members, objects.suite()),
            object: first.object.introduction()?,
        };
        Ok((parcel, members))
    });
    parcels.collect()
}
