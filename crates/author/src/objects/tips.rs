//! What an object is at: the versions without a successor, as so many holders know them that one knows all that was acknowledged.
//!
//! N - W + 1 holders of each place in use have to answer, and the others are asked as well, so that branches are found which were
//! written where a part of the network was cut off. An answer proves of each tip whose it is; that it is the newest, nothing does:
//! what another one was made of is dropped.
//!
//! Of a writer whom the policy does not list any more no tip counts. So whoever takes a writer out whose version is to stay, writes on it
//! first, as with devices and heads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crypto::{NetworkId, PeerId, PublicKey, RecordId, Suite};
use document::{Kind, Record};
use env::calls::CallError;
use env::calls::objects::{FoundVersion, GetTips, ObjectTips, ObjectsAnswer, ObjectsRequest};
use version::policy::{For, Taken};
use version::{
    AnyAttestation, Bases, Hint, OVERFLOWS_MAX, ObjectKey, ObjectRecord, Policy, Redirect,
    ValueKind, Version, VersionId,
};
use walk::objects::{Answers, Judge, Judged, Question};

use super::chain;
use super::reading::{judged, liars, silent};
use super::{Object, ObjectsError, Subject};

/// Bytes of an answer, about.
const TIPS_BYTES: usize = 256 << 10;

/// A version without a successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Which version.
    pub id: VersionId,
    /// Who wrote it: one whom the policy lists.
    pub author: PublicKey,
    /// What it was made of.
    pub bases: Bases,
    /// What its value is.
    pub kind: ValueKind,
}

/// What an object is at.
#[derive(Clone, Debug, Default)]
pub struct Tips {
    /// Versions without a successor, greatest depth first, of the same depth the greatest hash: the first is the one that counts
    /// where nobody merged them.
    pub tips: Vec<Tip>,
    /// Whether there is the object: somebody knows a version of it, or what its owner says of it.
    pub exists: bool,
    /// Whether so many holders of every place answered that one of them knows each acknowledged version. If not, there may
    /// be more.
    pub is_enough: bool,
    /// Whether a peer knows of more tips than it sent, or of too long a history between two of these to say whether one was made
    /// of the other.
    pub more: bool,
    /// Peers that answered.
    pub answered: Vec<PeerId>,
    /// Peers that answered with what does not prove itself; nothing of it counts.
    pub refused: Vec<PeerId>,
    /// Versions that would be tips, by writers whom the policy does not list.
    pub unlisted: Vec<Tip>,
    /// Peers that gave no answer that counts, and why.
    pub errors: Vec<(PeerId, CallError)>,
}

impl Tips {
    /// What is to be said where too few holders answered to say what the object is at.
    pub(crate) fn unsure(&self, key: ObjectKey) -> Option<ObjectsError> {
        (!self.is_enough).then(|| ObjectsError::Unavailable {
            subject: Subject::Object(key),
            asked: self.answered.len(),
            unreachable: self.errors.len(),
            errors: self.errors.clone(),
        })
    }
}

/// What one peer proved.
#[derive(Clone, Default)]
struct Told {
    denied: Option<String>,
    knows: bool,
    policy: Option<(Policy, Record)>,
    tips: Vec<(chain::Proven, PublicKey)>,
    more: bool,
    redirects: Vec<Redirect>,
}

impl Object {
    /// What the object is at.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`ObjectsError::Unavailable`] where not one holder answered, [`ObjectsError::Denied`], [`ObjectsError::Corrupt`] where every
    /// answer was a lie. Where some answered and not enough, [`Tips::is_enough`] says so.
    pub async fn tips(&self) -> Result<Tips, ObjectsError> {
        self.tips_of(false).await
    }

    /// As [`Object::tips`], but asks further peers of the rank, too: those that writers go on to where holders cannot be
    /// reached. After a part of the network was cut off it finds what was written there before repair has brought it home.
    ///
    /// # Errors
    /// As [`Object::tips`].
    pub async fn tips_everywhere(&self) -> Result<Tips, ObjectsError> {
        self.tips_of(true).await
    }

    async fn tips_of(&self, wide: bool) -> Result<Tips, ObjectsError> {
        let mut tips = Tips { is_enough: true, ..Tips::default() };
        let mut found: BTreeMap<RecordId, (Tip, Version)> = BTreeMap::new();
        let (mut number, mut denied) = (0, None);
        loop {
            let hint = self.hint(number);
            let answers = self.ask_tips(&hint, wide).await?;
            tips.refused.extend(liars(&answers.errors));
            if answers.answers.is_empty() && number == 0 {
                return Err(silent(Subject::Object(self.key), answers.errors));
            }
            tips.is_enough &= answers.is_enough;
            tips.errors.extend(answers.errors);
            let mut redirecting = BTreeSet::new();
            for (peer, told) in answers.answers {
                tips.answered.push(peer);
                let Some(told) = told else { continue };
                denied = told.denied.or(denied);
                tips.exists |= told.knows;
                tips.more |= told.more;
                self.take_policy(&peer, told.policy);
                let next = |redirect: &&Redirect| redirect.n == hint;
                redirecting.extend(told.redirects.iter().filter(next).map(|one| one.peer));
                for ((h, version, n), author) in told.tips {
                    let id = VersionId { h, l: version.l, n };
                    let (bases, kind) = (version.bases, version.kind);
                    let tip = Tip { id, author, bases, kind };
                    found.entry(h).or_insert((tip, version));
                }
            }
            self.note_place(number, &redirecting);
            let known = self.objects.known().of(&self.key);
            if number >= known.overflow.max(known.seen) || number >= OVERFLOWS_MAX {
                break;
            }
            number += 1;
        }
        if let Some(reason) = denied.filter(|_| !tips.exists && !self.is_own()) {
            return Err(ObjectsError::Denied { subject: Subject::Object(self.key), reason });
        }
        self.objects.known().at(self.key).asked |= tips.is_enough && tips.exists;
        for peers in [&mut tips.answered, &mut tips.refused] {
            peers.sort_unstable();
            peers.dedup();
        }
        self.counted(tips, found).await
    }

    async fn ask_tips(&self, hint: &Hint, wide: bool) -> Result<Answers<Told>, ObjectsError> {
        let (suite, key, record) = (self.objects.suite(), self.key, self.record.clone());
        let judge: Judge<Told> = Arc::new(move |peer, answer| match answer {
            ObjectsAnswer::Tips(mut answers) if answers.len() == 1 => match answers.remove(0) {
                Ok(tips) => judged(told(suite, &key, &record, peer, tips)),
                // It knows no such object, or who asks may not read it: that is one answer.
                Err(CallError::Denied { reason }) => {
                    Judged::Here(Told { denied: Some(reason), ..Told::default() })
                }
                Err(error) => Judged::Failed(error),
            },
            _ => Judged::Lie("it answers something else than tips".to_owned()),
        });
        let question = Question {
            place: self.place(hint),
            copies: self.redundancy().copies,
            enough: self.enough(),
            request: ObjectsRequest::Tips(GetTips {
                objects: vec![self.key],
                reader: self.objects.reader(),
            }),
            bytes: TIPS_BYTES,
            judge,
            may_all: false,
        };
        self.objects.walker().answers(&question, wide).await.map_err(ObjectsError::Walk)
    }

    /// Takes a policy that a peer has: a lower one than is known shows that the peer lags.
    fn take_policy(&self, peer: &PeerId, policy: Option<(Policy, Record)>) {
        let Some((policy, record)) = policy else { return };
        match self.objects.known().take(policy, record) {
            Ok(Taken::New | Taken::Known) => {}
            Err(error) => tracing::debug!(%peer, %error, "a peer has an older policy"),
        }
    }

    fn note_place(&self, number: u64, redirecting: &BTreeSet<PeerId>) {
        if redirecting.is_empty() || number >= OVERFLOWS_MAX {
            return;
        }
        let needed = self.redundancy().acknowledged as usize;
        let mut known = self.objects.known();
        let known = known.at(self.key);
        known.seen = known.seen.max(number + 1);
        if redirecting.len() >= needed && known.overflow == number {
            known.overflow = number + 1;
        }
    }

    /// Leaves those that count: written by whom the policy lists, and none made of another.
    async fn counted(
        &self,
        mut tips: Tips,
        found: BTreeMap<RecordId, (Tip, Version)>,
    ) -> Result<Tips, ObjectsError> {
        let policy = self.counting_policy();
        let (listed, unlisted): (Vec<_>, Vec<_>) =
            found.into_values().partition(|(tip, _)| policy.may_write(&tip.author));
        tips.unlisted = unlisted.into_iter().map(|(tip, _)| tip).collect();
        for (tip, version) in &listed {
            self.objects.cache().put(tip.id.h, version.clone());
        }
        let (left, whole) = self.without_ancestors(listed).await;
        tips.more |= !whole;
        tips.tips = left;
        tips.tips.sort_unstable_by_key(|tip| std::cmp::Reverse((tip.id.l, tip.id.h)));
        Ok(tips)
    }
}

/// Proves what a peer says of an object.
fn told(
    suite: Suite,
    key: &ObjectKey,
    object: &ObjectRecord,
    peer: &PeerId,
    tips: ObjectTips,
) -> Result<Told, String> {
    let network = object.network;
    if let Some(record) = &tips.object
        && (record.kind != Kind::Object || suite.id(&record.bytes) != key.record())
    {
        return Err("another object's record".to_owned());
    }
    let policy = tips.policy.map(|record| policy_of(suite, object, record)).transpose()?;
    let mut proven = Vec::new();
    let places = chain::Places::new(suite, *key);
    for FoundVersion { record, attestation } in &tips.tips {
        let version = chain::version(suite, key, &places, record)?;
        let bytes = attestation.as_ref().ok_or("a tip that nobody attests")?;
        let author = attested(suite, &network, &version.0, bytes)?;
        proven.push((version, author));
    }
    let mut redirects = Vec::new();
    for bytes in &tips.redirects {
        let redirect = Redirect::decode(bytes).map_err(|error| error.to_string())?;
        redirect.verify(&network).map_err(|error| error.to_string())?;
        let i = redirect.n.number(suite, key);
        let next = i.and_then(|i| Hint::overflow(suite, key, i + 1));
        if (redirect.peer, redirect.object, Some(redirect.next)) != (*peer, *key, next) {
            return Err("a redirect that is not its own, or leads nowhere".to_owned());
        }
        redirects.push(redirect);
    }
    let knows = policy.is_some() || !proven.is_empty();
    Ok(Told { denied: None, knows, policy, tips: proven, more: tips.more, redirects })
}

/// The policy in a record, which must be about this object.
pub(crate) fn policy_of(
    suite: Suite,
    object: &ObjectRecord,
    record: Record,
) -> Result<(Policy, Record), String> {
    if record.kind != Kind::Policy || suite.id(&record.bytes) != record.id {
        return Err("another record than a policy".to_owned());
    }
    let policy = Policy::verify(&record.bytes).map_err(|error| error.to_string())?;
    let about = match &policy.for_what {
        For::Object(name) => *name == object.name,
        For::Family(prefix) => object.name.starts_with(prefix),
    };
    if !about || policy.owner != object.owner || policy.network != object.network {
        return Err("a policy of another object".to_owned());
    }
    Ok((policy, record))
}

/// Who attests this version.
pub(crate) fn attested(
    suite: Suite,
    network: &NetworkId,
    h: &RecordId,
    bytes: &bytes::Bytes,
) -> Result<PublicKey, String> {
    let attestation = AnyAttestation::decode(bytes).map_err(|error| error.to_string())?;
    if !attestation.names(h) || attestation.attester().network != *network {
        return Err(format!("an attestation that is not for version {h}"));
    }
    attestation.verify(suite).map_err(|error| error.to_string())?;
    Ok(*attestation.attester().author.key())
}
