//! An owner, its object, and the records that writers make of it; and calls with their answers.

use std::sync::Arc;

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, RecordId, SecretKey, Suite};
use document::Record;
use env::calls::objects::{
    FoundVersion, GetPrevious, GetTips, GetVersions, ObjectTips, ObjectsAnswer, ObjectsRequest,
    PreviousAnswer, PutObjects, PutObjectsAnswer, PutOutcome, VersionAt,
};
use env::calls::{CallError, Calls, Endpoint};
use testkit::network::key;
use version::attestation::attest;
use version::policy::{For, Policy};
use version::{Bases, Hint, ObjectKey, ObjectRecord, ValueKind, Version};

use crate::town::{LIMIT, Town};

pub(crate) const SUITE: Suite = Suite::Holdfast1;

/// An owner's pen for one object.
pub(crate) struct Pen {
    pub(crate) owner: SecretKey,
    pub(crate) network: NetworkId,
    pub(crate) name: Bytes,
}

/// A version with its record.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) record: Record,
    pub(crate) version: Version,
}

impl Made {
    pub(crate) fn h(&self) -> RecordId {
        self.record.id
    }
}

impl Pen {
    /// Of the object that owner number `owner` calls `name`.
    pub(crate) fn new(town: &Town, owner: usize, name: &str) -> Self {
        Self {
            owner: key("owner", owner),
            network: town.community.genesis.network(),
            name: Bytes::copy_from_slice(name.as_bytes()),
        }
    }

    fn named(&self) -> ObjectRecord {
        let (network, owner) = (self.network, self.owner.public());
        ObjectRecord { network, owner, name: self.name.clone() }
    }

    pub(crate) fn object(&self) -> ObjectKey {
        self.named().key(SUITE).unwrap()
    }

    /// The object's record.
    pub(crate) fn record(&self) -> Record {
        self.named().record(SUITE).unwrap()
    }

    /// What the owner says where it says nothing else.
    pub(crate) fn policy(&self, version: u64) -> Policy {
        Policy {
            for_what: For::Object(self.name.clone()),
            version,
            ..Policy::implied(self.network, self.owner.public())
        }
    }

    /// Signed by the owner.
    pub(crate) fn sign(&self, policy: &Policy) -> Record {
        policy.sign(SUITE, &self.owner).unwrap()
    }

    /// A version on these.
    pub(crate) fn write(&self, bases: &[&Made], value: &str) -> Made {
        self.write_at(Hint::FIRST, bases, value)
    }

    /// At the place that this hint names.
    pub(crate) fn write_at(&self, n: Hint, bases: &[&Made], value: &str) -> Made {
        let hs: Vec<RecordId> = bases.iter().map(|base| base.h()).collect();
        let version = Version {
            object: self.object(),
            bases: Bases::from_slice(&hs).unwrap(),
            l: version::depth(bases.iter().map(|base| base.version.l)).unwrap(),
            kind: ValueKind::Bytes,
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let record = version.record(SUITE, n).0;
        Made { record, version }
    }

    /// The owner's attestation, under this policy.
    pub(crate) fn attest(&self, made: &Made, policy: u64) -> Record {
        self.attest_by(&self.owner, made, policy)
    }

    pub(crate) fn attest_by(&self, author: &SecretKey, made: &Made, policy: u64) -> Record {
        attest(SUITE, self.network, policy, &made.h(), author)
    }

    pub(crate) fn at(&self, made: &Made) -> VersionAt {
        VersionAt { object: self.object(), h: made.h(), n: Hint::FIRST }
    }
}

/// A caller of one peer.
pub(crate) struct Caller {
    pub(crate) calls: Arc<dyn Calls>,
    pub(crate) to: Endpoint,
    pub(crate) reader: Option<Bytes>,
}

impl Caller {
    pub(crate) fn new(calls: Arc<dyn Calls>, to: Endpoint) -> Self {
        Self { calls, to, reader: None }
    }

    pub(crate) async fn ask(&self, request: ObjectsRequest) -> Result<ObjectsAnswer, CallError> {
        self.calls.objects(&self.to, request, LIMIT).await
    }

    pub(crate) async fn put_all(&self, put: PutObjects) -> Result<PutObjectsAnswer, CallError> {
        match self.ask(ObjectsRequest::Put(put)).await? {
            ObjectsAnswer::Put(answer) => Ok(answer),
            answer => panic!("{answer:?}"),
        }
    }

    /// One outcome a record.
    pub(crate) async fn put(&self, records: Vec<Record>) -> Vec<Result<PutOutcome, CallError>> {
        let put = PutObjects { records, compress: true, ..PutObjects::default() };
        self.put_all(put).await.unwrap().outcomes
    }

    /// All of it must be taken.
    pub(crate) async fn must_put(&self, records: Vec<Record>) {
        let outcomes = self.put(records).await;
        let taken = |outcome: &Result<PutOutcome, CallError>| {
            matches!(outcome, Ok(PutOutcome::Stored | PutOutcome::Present))
        };
        assert!(outcomes.iter().all(taken), "{outcomes:?}");
    }

    pub(crate) async fn get_all(
        &self,
        versions: Vec<VersionAt>,
    ) -> Result<Vec<Result<Option<FoundVersion>, CallError>>, CallError> {
        let reader = self.reader.clone();
        match self
            .ask(ObjectsRequest::Get(GetVersions { versions, attested: true, reader }))
            .await?
        {
            ObjectsAnswer::Get(found) => Ok(found),
            answer => panic!("{answer:?}"),
        }
    }

    pub(crate) async fn get(
        &self,
        pen: &Pen,
        made: &Made,
    ) -> Result<Option<FoundVersion>, CallError> {
        self.get_all(vec![pen.at(made)]).await?.pop().unwrap()
    }

    pub(crate) async fn tips(&self, pen: &Pen) -> Result<ObjectTips, CallError> {
        let (objects, reader) = (vec![pen.object()], self.reader.clone());
        match self.ask(ObjectsRequest::Tips(GetTips { objects, reader })).await? {
            ObjectsAnswer::Tips(mut tips) => tips.pop().unwrap(),
            answer => panic!("{answer:?}"),
        }
    }

    /// The hashes of the tips, the one that counts first.
    pub(crate) async fn tip_hs(&self, pen: &Pen) -> Vec<RecordId> {
        self.tips(pen).await.unwrap().tips.iter().map(|tip| tip.record.id).collect()
    }

    pub(crate) async fn previous(
        &self,
        version: VersionAt,
        most: u32,
    ) -> Result<PreviousAnswer, CallError> {
        let reader = self.reader.clone();
        match self.ask(ObjectsRequest::Previous(GetPrevious { version, most, reader })).await? {
            ObjectsAnswer::Previous(found) => Ok(found),
            answer => panic!("{answer:?}"),
        }
    }
}

/// Whether it was denied, in words that say this.
pub(crate) fn is_denied<T>(result: &Result<T, CallError>, says: &str) -> bool {
    matches!(result, Err(CallError::Denied { reason }) if reason.contains(says))
}

pub(crate) fn public(secret: &SecretKey) -> PublicKey {
    secret.public()
}
