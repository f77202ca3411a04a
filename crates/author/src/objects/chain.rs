//! Versions as peers send them, proven: by the hash that was asked for, and each further one by the one that names it.

use std::collections::BTreeMap;

use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use version::{Hint, Links, ObjectKey, Previous, Step, Version, depth, places};

/// A version, its hash, and where its sender has it: a hint, which nothing proves.
pub(crate) type Proven = (RecordId, Version, Hint);

/// The object's places, to tell the hint of a record.
pub(crate) struct Places(Vec<(Hint, Place)>);

impl Places {
    /// Those of an object: a few dozen short hashes.
    pub(crate) fn new(suite: Suite, object: ObjectKey) -> Self {
        Self(places(suite, object).collect())
    }

    /// Where a record is said to be; the first place for one that is at none of them.
    fn hint(&self, record: &Record) -> Hint {
        let found = self.0.iter().find(|(_, place)| *place == record.place);
        found.map(|(hint, _)| *hint).unwrap_or_default()
    }
}

/// The version of a record: of this object, and the hash is that of its bytes.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn version(
    suite: Suite,
    object: &ObjectKey,
    places: &Places,
    record: &Record,
) -> Result<Proven, String> {
    if record.kind != Kind::Version {
        return Err(format!("a {} where a version was asked for", record.kind.name()));
    }
    let version = Version::decode(&record.bytes).map_err(|error| error.to_string())?;
    if version.object != *object {
        return Err(format!("a version of object {}", version.object));
    }
    let h = suite.id(&record.bytes);
    if h != record.id {
        return Err(format!("bytes of {h} as those of {}", record.id));
    }
    Ok((h, version, places.hint(record)))
}

/// The version with this hash and what comes before it, as a peer answered: nothing else, in this order, and each exactly as
/// deep as it must be.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn history(
    suite: Suite,
    object: &ObjectKey,
    h: &RecordId,
    most: usize,
    records: &[Record],
) -> Result<Vec<Proven>, String> {
    let mut by_h = BTreeMap::new();
    let places = Places::new(suite, *object);
    for record in records {
        let (h, version, hint) = self::version(suite, object, &places, record)?;
        by_h.insert(h, (version, hint));
    }
    let first = by_h.get(h).ok_or("the version that was asked for is not among the answer")?;
    let mut order = vec![(*h, first.0.clone(), first.1)];
    let mut walk = Previous::new(*h, most);
    while let Step::Need(next) = walk.step() {
        let Some((version, _)) = by_h.get(&next) else { break };
        let links = Links { object: version.object, l: version.l, bases: version.bases };
        walk.give(&next, &links).map_err(|error| error.to_string())?;
    }
    for next in walk.found() {
        let Some((version, hint)) = by_h.get(next) else { break };
        order.push((*next, version.clone(), *hint));
    }
    if order.len() != records.len() || order.iter().zip(records).any(|((h, ..), r)| *h != r.id) {
        return Err("versions that are not what comes before the one asked for".to_owned());
    }
    let fits = |(_, version, _): &Proven| {
        let bases: Vec<u64> = version
            .bases
            .iter()
            .filter_map(|base| by_h.get(&base))
            .map(|(base, _)| base.l)
            .collect();
        let whole = bases.len() == version.bases.len();
        let below = bases.iter().all(|l| *l < version.l);
        below && (!whole || depth(bases).is_ok_and(|l| l == version.l))
    };
    if !order.iter().all(fits) {
        return Err("versions whose depths do not fit together".to_owned());
    }
    Ok(order)
}
