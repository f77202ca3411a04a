//! Forms of versions as a store sees them: a payload that names the record it is made against.
//!
//! What a form is made of is `version`'s; a store needs to know its ancestor, to keep a form only beside one that is
//! plain, and to expand it where it is read, so that nobody above has to know in which way a record is kept.

use bytes::Bytes;
use crypto::RecordId;
use version::{Codecs, Form, View};

/// The record that a form is made against; `None` where the payload is no form.
pub(crate) fn base(payload: &Bytes) -> Option<RecordId> {
    Form::decode(payload).ok().map(|form| form.ancestor)
}

/// The bytes of the version that a form stands for, given the bytes of the version it is made against; `None` where the two do
/// not go together, or the codec is not known.
pub(crate) fn expand(payload: &Bytes, base: &[u8], codecs: &Codecs) -> Option<Bytes> {
    let form = Form::decode(payload).ok()?;
    let base = View::decode(base).ok()?;
    form.expand(codecs, base.value).ok()
}
