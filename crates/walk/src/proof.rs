//! Whether a record that a peer sent is the one that was asked for.

use crypto::Suite;
use document::Record;

use crate::core::Wanted;

/// A record whose bytes prove its id.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) record: Record,
}

/// Checks identity first, then the proof; the text says what is wrong.
pub(crate) fn prove(suite: Suite, wanted: &Wanted, record: Record) -> Result<Proven, String> {
    if record.id != wanted.request.id || record.place != wanted.request.place {
        return Err("it is another record than the one asked for".to_owned());
    }
    if wanted.kind.is_some_and(|kind| kind != record.kind) {
        return Err(format!("it is called {} and should not be", record.kind.name()));
    }
    if suite.id(&record.bytes) != record.id {
        return Err("its bytes do not hash to its id".to_owned());
    }
    Ok(Proven { record })
}
