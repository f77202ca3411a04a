//! Which objects an owner has, as peers know them.
//!
//! An object's record lies with its versions, so every peer may hold some: all are asked, some at once. It is best effort, and says
//! so: what only peers hold that do not answer is not told. Records of objects are not signed, so a peer may make some up: where that
//! makes too many, names that two peers tell come first; and no peer's pages are waited for longer than [`LIST_LIMIT`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, PublicKey};
use document::Kind;
use env::calls::objects::{ListObjects, NAMES_MAX, ObjectsAnswer, ObjectsRequest};
use futures::StreamExt;
use version::{ObjectKey, ObjectRecord};
use walk::objects::{Judge, Judged};

use super::reading::judged;
use super::{Objects, ObjectsError, Subject};

/// The most objects of one list.
pub const LISTED_MAX: usize = 100_000;
/// Peers asked at once.
const AT_ONCE_MAX: usize = 16;
/// Bytes of a page, about.
const LIST_BYTES: usize = 256 << 10;

/// How long one peer's pages may take together.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: ObjectKey,
    /// The name in its record: of an open object the one that its owner gave, of a sealed one a MAC of it, which has no way
    /// back.
    pub name: Bytes,
}

impl Objects {
    /// An owner's objects whose names begin so, in the order of their names, as far as the peers that answer hold them and this user may
    /// read them; at most `most`, and [`LISTED_MAX`]. The names of sealed objects are MACs: all begin with nothing alone.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`ObjectsError::Unavailable`] where not one peer answered.
    pub async fn list(
        &self,
        owner: PublicKey,
        prefix: &[u8],
        most: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        let most = most.min(LISTED_MAX);
        let view = self.walker().directory().view();
        let peers: Vec<PeerId> = view.candidates().iter().map(|one| one.peer).collect();
        let prefix = Bytes::copy_from_slice(prefix);
        let asked = peers.into_iter().map(|peer| {
            let prefix = prefix.clone();
            async move { (peer, self.list_at(peer, owner, prefix, most).await) }
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE_MAX);
        let mut found: BTreeMap<Bytes, (Listed, u32)> = BTreeMap::new();
        let (mut errors, mut answered) = (Vec::new(), 0);
        while let Some((peer, answer)) = answers.next().await {
            match answer {
                Ok(listed) => {
                    answered += 1;
                    for one in listed {
                        found.entry(one.name.clone()).or_insert((one, 0)).1 += 1;
                    }
                }
                Err(error) => errors.push((peer, error)),
            }
        }
        if answered == 0 {
            let (subject, unreachable) = (Subject::List, errors.len());
            return Err(ObjectsError::Unavailable { subject, asked: 0, unreachable, errors });
        }
        Ok(best(found, most))
    }

    /// One peer's, page after page.
    async fn list_at(
        &self,
        peer: PeerId,
        owner: PublicKey,
        prefix: Bytes,
        most: usize,
    ) -> Result<Vec<Listed>, env::calls::CallError> {
        let mut listed: Vec<Listed> = Vec::new();
        let clock = &self.author().env().clock;
        let end = clock.elapsed() + LIST_LIMIT;
        while listed.len() < most && clock.elapsed() < end {
            let after = listed.last().map(|one| one.name.clone()).unwrap_or_default();
            let judge = self.judge_of_list(owner, prefix.clone(), after.clone());
            let page = u32::try_from((most - listed.len()).min(NAMES_MAX)).unwrap_or(u32::MAX);
            let (prefix, reader) = (prefix.clone(), self.reader());
            let request = ListObjects { owner, prefix, after, most: page, reader };
            let request = ObjectsRequest::List(request);
            let page = self.walker().answer_of(&peer, request, LIST_BYTES, judge).await?;
            match page {
                Some(page) if !page.is_empty() => listed.extend(page),
                _ => break,
            }
        }
        Ok(listed)
    }

    /// Proves a page: records of this owner's objects, in order, behind the one before.
    fn judge_of_list(&self, owner: PublicKey, prefix: Bytes, after: Bytes) -> Judge<Vec<Listed>> {
        let (suite, network) = (self.suite(), self.network());
        Arc::new(move |_, answer| {
            let ObjectsAnswer::List(records) = answer else {
                return Judged::Lie("it answers something else than a list".to_owned());
            };
            let mut last = after.clone();
            let mut listed = Vec::with_capacity(records.len().min(NAMES_MAX));
            for record in &records {
                let decoded = ObjectRecord::decode(&record.bytes).map_err(|e| e.to_string());
                let object = match decoded {
                    Ok(object) => object,
                    Err(error) => return Judged::Lie(error),
                };
                let fits = record.kind == Kind::Object
                    && (object.network, object.owner) == (network, owner)
                    && object.name.starts_with(&prefix)
                    && object.name > last;
                if !fits || listed.len() == NAMES_MAX {
                    return Judged::Lie("objects that were not asked for".to_owned());
                }
                last = object.name.clone();
                listed.push(Listed { key: suite.id(&record.bytes).into(), name: object.name });
            }
            judged(Ok(listed))
        })
    }
}

/// The first of these in the order of their names, each with how many peers told it; of more than `most` those that two told first.
fn best(found: BTreeMap<Bytes, (Listed, u32)>, most: usize) -> Vec<Listed> {
    let of_two = found.values().filter(|(_, told)| *told >= 2).count().min(most);
    let (mut of_two, mut others) = (of_two, most - of_two);
    let mut takes = |told: u32| {
        let left = if told >= 2 { &mut of_two } else { &mut others };
        let takes = *left > 0;
        *left -= usize::from(takes);
        takes
    };
    let kept = found.into_values().filter(|(_, told)| takes(*told));
    kept.map(|(listed, _)| listed).collect()
}

#[cfg(test)]
mod tests {
    use crypto::RecordId;

    use super::*;

    #[test]
    fn names_that_one_peer_makes_up_push_out_none_that_two_tell() {
        let list = |told: &[(&str, u32)]| -> BTreeMap<Bytes, (Listed, u32)> {
            let one = |(name, told): &(&str, u32)| {
                let name = Bytes::copy_from_slice(name.as_bytes());
                let key = RecordId::new([1; 32]).into();
                (name.clone(), (Listed { key, name }, *told))
            };
            told.iter().map(one).collect()
        };
        let names = |listed: Vec<Listed>| -> Vec<String> {
            listed.iter().map(|one| String::from_utf8_lossy(&one.name).into_owned()).collect()
        };
        let told = [("a", 1), ("b", 1), ("c", 3), ("d", 1), ("e", 2)];
        assert_eq!(names(best(list(&told), 3)), ["a", "c", "e"]);
        assert_eq!(names(best(list(&told), 1)), ["c"]);
        assert_eq!(names(best(list(&told), 9)), ["a", "b", "c", "d", "e"]);
        assert_eq!(names(best(list(&[("a", 1), ("b", 1)]), 1)), ["a"]);
    }
}
