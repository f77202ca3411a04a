//! Whether a record that a peer sent is the one that was asked for.

use crypto::Suite;
use document::{Document, Record};

use crate::core::Wanted;

/// A record whose bytes prove its id, and what they say.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) record: Record,
    pub(crate) document: Document,
}

/// Checks identity first, then the proof; the text says what is wrong.
pub(crate) fn prove(suite: Suite, wanted: &Wanted, record: Record) -> Result<Proven, String> {
    let is_other = record.id != wanted.request.id || record.place != wanted.request.place;
    #[cfg(feature = "planted-bugs")]
    let is_other = is_other && !crate::planted::is_on(crate::planted::PlantedBug::TakeOther);
    if is_other {
        return Err("it is another record than the one asked for".to_owned());
    }
    if wanted.kind.is_some_and(|kind| kind != record.kind) {
        return Err(format!("it is called {} and should not be", record.kind.name()));
    }
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is_on(crate::planted::PlantedBug::SkipProof) {
        let document = Document::decode(&record.bytes).map_err(|error| error.to_string())?;
        return Ok(Proven { record, document });
    }
    let document = document::prove(suite, &record).map_err(|error| error.to_string())?;
    Ok(Proven { record, document })
}
