//! Creating objects, and what their owners say of them.
//!
//! A policy is whole and has a number; peers take no lower one. So an owner first asks what counts, then signs what is to count
//! with the next number, and sends it to the holders of every place that is in use, a family's to all peers.

use bytes::Bytes;
use crypto::PublicKey;
use document::Record;
use placement::Redundancy;
use version::policy::{Copies, For};
use version::{NAME_BYTES_MAX, Policy};
use walk::objects::{Delivered, HOLDERS_ASKED_MAX, Parcel, PutTerms};

use super::tips::Tips;
use super::{Object, Objects, ObjectsError};

/// Objects that are asked for a family's policy, which one's own policy hides.
const FAMILY_ASKED_MAX: usize = 16;

/// What an owner says of an object, or of a family of them. The default is sealed, for the owner alone, with as many copies
/// as the network keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyOptions {
    /// Peers see names and values, and may merge and compress them.
    pub open: bool,
    /// Anybody may read.
    pub public: bool,
    /// Who may read, beside owner and writers, by the key that [`Objects::public_key`] tells them.
    pub readers: Vec<PublicKey>,
    /// Who may write, beside the owner.
    pub writers: Vec<PublicKey>,
    /// Copies of its versions; as many as the network keeps where absent.
    pub copies: Option<Copies>,
    /// Bytes that a holder keeps at one place before it redirects; 0 for the peer's own number.
    pub region_bytes: u64,
    /// Who pays, where that is not the owner.
    pub payer: Option<PublicKey>,
}

impl From<&Policy> for PolicyOptions {
    fn from(policy: &Policy) -> Self {
        let Policy { open, public, copies, region_bytes, payer, .. } = *policy;
        let (readers, writers) = (policy.readers.clone(), policy.writers.clone());
        Self { open, public, readers, writers, copies, region_bytes, payer }
    }
}

impl PolicyOptions {
    fn policy(&self, objects: &Objects, for_what: For, version: u64) -> Policy {
        let sorted = |keys: &[PublicKey]| {
            let mut keys = keys.to_vec();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        Policy {
            network: objects.network(),
            owner: objects.public_key(),
            for_what,
            version,
            open: self.open,
            public: self.public,
            readers: sorted(&self.readers),
            writers: sorted(&self.writers),
            copies: self.copies,
            region_bytes: self.region_bytes,
            payer: self.payer,
        }
    }
}

impl Objects {
    /// Makes an object of this user's, by this name. Creating it again with the same policy changes nothing.
    ///
    /// Cancel safe in that dropping it stops it; some peers may know the object then.
    ///
    /// # Errors
    /// [`ObjectsError::Exists`] where it has another policy, [`ObjectsError::ExistsOtherwise`], [`ObjectsError::Unavailable`] where too few holders could be asked,
    /// [`ObjectsError::NotStored`], [`ObjectsError::Version`] for a name or a policy that cannot be.
    pub async fn create(
        &self,
        name: &[u8],
        options: PolicyOptions,
    ) -> Result<Object, ObjectsError> {
        let (open, sealed) = (self.plain(self.public_key(), name)?, self.sealed(name)?);
        let (object, other) = if options.open { (open, sealed) } else { (sealed, open) };
        // Its owner names both the same: what is written to the one would be looked for in the other, or lie in the clear.
        let tips = other.tips().await?;
        if tips.exists {
            return Err(ObjectsError::ExistsOtherwise { key: other.key, open: !options.open });
        }
        if let Some(unsure) = tips.unsure(other.key) {
            return Err(unsure);
        }
        let unsure = object.ask_policy().await?;
        let for_what = For::Object(object.record.name.clone());
        if let Some(known) = object.known_policy().filter(|known| known.for_what == for_what) {
            if options.policy(self, for_what, known.version) != known {
                return Err(ObjectsError::Exists(object.key));
            }
        } else if let Some(unsure) = unsure {
            // Those that know it may be away, and a second policy of that number would never agree with theirs.
            return Err(unsure);
        } else {
            object.sign_policy(&options, 1).await?;
        }
        object.send_policy(0).await?;
        Ok(object)
    }

    /// Finds an object by its owner and the name that the owner gave: this user's own, sealed or open, or somebody's open one. Others'
    /// sealed ones are found by an [`super::Access`] ([`Objects::with_access`]).
    ///
    /// # Errors
    /// [`ObjectsError::NoObject`], [`ObjectsError::Denied`], [`ObjectsError::Unavailable`] where too few holders could be asked.
    pub async fn open(&self, owner: PublicKey, name: &[u8]) -> Result<Object, ObjectsError> {
        let mut unsure = None;
        if owner == self.public_key() {
            let sealed = self.sealed(name)?;
            let tips = sealed.tips().await?;
            if tips.exists {
                return Ok(sealed);
            }
            unsure = tips.unsure(sealed.key);
        }
        let open = self.plain(owner, name)?;
        let tips = open.tips().await?;
        if tips.exists {
            return Ok(open);
        }
        Err(unsure.or_else(|| tips.unsure(open.key)).unwrap_or(ObjectsError::NoObject(open.key)))
    }

    /// Says something of all of this user's objects whose names begin so (those of sealed ones are MACs: of them, of all or
    /// none). It goes to all peers, and is done when more than half of those known have it. Objects' own policies count before it.
    ///
    /// # Errors
    /// [`ObjectsError::NotStored`], [`ObjectsError::Version`] for a policy that cannot be.
    pub async fn set_family_policy(
        &self,
        prefix: &[u8],
        options: PolicyOptions,
    ) -> Result<Policy, ObjectsError> {
        let for_what = For::Family(Bytes::copy_from_slice(prefix));
        let version = self.family_version(&for_what).await? + 1;
        let policy = options.policy(self, for_what, version);
        let record = self.signed(policy.clone()).await?;
        let peers = self.walker().directory().view().len().min(HOLDERS_ASKED_MAX);
        let copies = u32::try_from(peers).unwrap_or(u32::MAX).max(1);
        let redundancy = Redundancy { copies, acknowledged: copies / 2 + 1 };
        self.send_records(record.place, redundancy, vec![record]).await?;
        Ok(policy)
    }

    /// The number of a family's policy, 0 for none. Peers tell what counts for an object, so some of the family are asked for; where
    /// each has its own, or there is none, the record of one without is left with them.
    async fn family_version(&self, family: &For) -> Result<u64, ObjectsError> {
        let (For::Family(prefix) | For::Object(prefix)) = family;
        for member in self.list(self.public_key(), prefix, FAMILY_ASKED_MAX).await? {
            let object = self.plain(self.public_key(), &member.name)?;
            if let Some(version) = told_version(&object, family).await? {
                return Ok(version);
            }
        }
        let probe = [&prefix[..], b"\0"].concat();
        let probe = self.plain(self.public_key(), &probe[..probe.len().min(NAME_BYTES_MAX)])?;
        probe.introduce().await?;
        Ok(told_version(&probe, family).await?.unwrap_or(0))
    }

    /// Signs a policy of this user's and remembers it.
    async fn signed(&self, policy: Policy) -> Result<Record, ObjectsError> {
        let (suite, key) = (self.suite(), self.key().clone());
        let (policy, record) =
            self.cpu(move || policy.sign(suite, &key).map(|record| (policy, record))).await??;
        self.known().take(policy, record.clone())?;
        Ok(record)
    }

    /// Sends records to the holders of a place.
    pub(crate) async fn send_records(
        &self,
        place: crypto::Place,
        redundancy: Redundancy,
        records: Vec<Record>,
    ) -> Result<Delivered, ObjectsError> {
        self.send_with(place, redundancy, Vec::new(), records).await
    }

    /// Sends records to the holders of a place, with others in front that need not be taken.
    pub(crate) async fn send_with(
        &self,
        place: crypto::Place,
        redundancy: Redundancy,
        with: Vec<Record>,
        records: Vec<Record>,
    ) -> Result<Delivered, ObjectsError> {
        let object = Vec::new();
        let parcel = Parcel { place, redundancy, records, with, object };
        let sent = self.walker().put_objects(vec![parcel], PutTerms::default()).await;
        let sent = sent.into_iter().next().ok_or(walk::WalkError::NoPeers { tried: Vec::new() });
        sent.and_then(|sent| sent).map_err(ObjectsError::NotStored)
    }
}

impl Object {
    /// What its owner says of it, as the holders know it; `None` where the owner said nothing, or there is no such object.
    ///
    /// # Errors
    /// As [`Object::tips`].
    pub async fn policy(&self) -> Result<Option<Policy>, ObjectsError> {
        self.tips().await?;
        Ok(self.known_policy())
    }

    /// Says something else of it from now on. It goes to the holders of every place in use; each is done when W of them have it.
    /// A raised `region_bytes` opens regions again that were full.
    ///
    /// # Errors
    /// [`ObjectsError::NotOwner`], [`ObjectsError::NotStored`], [`ObjectsError::NotOpen`] and [`ObjectsError::NotSealed`] where it would make
    /// a sealed object open or the other way round, [`ObjectsError::Unavailable`] where too few holders could be asked.
    pub async fn set_policy(&self, options: PolicyOptions) -> Result<Policy, ObjectsError> {
        if !self.is_own() {
            return Err(ObjectsError::NotOwner(self.key));
        }
        match (options.open, self.is_sealed()) {
            (true, true) => return Err(ObjectsError::NotOpen(self.key)),
            (false, false) => return Err(ObjectsError::NotSealed(self.key)),
            _ => {}
        }
        // Holders that are away may know a later policy, and this one would be a second of its number.
        if let Some(unsure) = self.tips().await?.unsure(self.key) {
            return Err(unsure);
        }
        let for_what = For::Object(self.record.name.clone());
        let known = self.known_policy().filter(|known| known.for_what == for_what);
        let version = known.map_or(0, |known| known.version) + 1;
        let policy = self.sign_policy(&options, version).await?;
        let last = {
            let mut known = self.objects.known();
            let known = known.at(self.key);
            let last = known.overflow.max(known.seen);
            // Whether the regions are still full, the holders will say.
            known.overflow = 0;
            last
        };
        for number in 0..=last {
            self.send_policy(number).await?;
        }
        Ok(policy)
    }

    async fn sign_policy(
        &self,
        options: &PolicyOptions,
        version: u64,
    ) -> Result<Policy, ObjectsError> {
        let for_what = For::Object(self.record.name.clone());
        let policy = options.policy(&self.objects, for_what, version);
        self.objects.signed(policy.clone()).await?;
        Ok(policy)
    }

    /// Sends record and policy to the holders of the place with this number.
    async fn send_policy(&self, number: u64) -> Result<(), ObjectsError> {
        let place = self.place(&self.hint(number));
        let records = self.introduction()?;
        self.objects.send_records(place, self.redundancy(), records).await.map(drop)
    }

    /// Asks for the policy that counts, where that was not done before; what is to be said where too few holders could be
    /// asked to know it.
    pub(crate) async fn ask_policy(&self) -> Result<Option<ObjectsError>, ObjectsError> {
        if self.objects.known().of(&self.key).asked {
            return Ok(None);
        }
        let tips = match self.tips().await {
            Ok(tips) => tips,
            Err(ObjectsError::Denied { .. }) if !self.is_sealed() => Tips::default(),
            Err(error) => return Err(error),
        };
        if tips.exists || self.is_sealed() {
            return Ok(tips.unsure(self.key));
        }
        // Peers say nothing of objects that they do not know, also not which family's policy would count.
        self.introduce().await?;
        Ok(self.tips().await?.unsure(self.key))
    }

    /// Tells the holders of the object's first place whose it is, and what it is called.
    async fn introduce(&self) -> Result<(), ObjectsError> {
        let place = self.place(&self.hint(0));
        let records = vec![self.record.record(self.objects.suite())?];
        self.objects.send_records(place, self.redundancy(), records).await.map(drop)
    }
}

/// The number of a family's policy where it is what counts for this object.
///
/// # Errors
/// As [`Object::tips`]; [`ObjectsError::Unavailable`] where too few holders answered to say: a second policy of one number would
/// never agree with the first.
async fn told_version(object: &Object, family: &For) -> Result<Option<u64>, ObjectsError> {
    let tips = object.tips().await?;
    if let Some(unsure) = tips.unsure(object.key()) {
        return Err(unsure);
    }
    let known = object.known_policy().filter(|known| known.for_what == *family);
    Ok(known.map(|known| known.version))
}
