//! A version kept small: what makes it of another version that is at hand, its ancestor.
//!
//! ```text
//! codec 1 | ancestor's h 32 | key 32 | flags 1 | [first base 32] | [second base 32] | l varint | value kind 1 |
//! value length varint | delta
//! flags: bits 0-1 count of bases; bit 2: the first base is the ancestor, and not written
//! ```
//! It stands for the version's bytes on a disk and on a wire, and is never identity: whoever expands one compares the
//! hash of what comes out with the version's `h`, as of any record. The ancestor is kept plain, so one read more is all
//! that a form costs, and it need not be an ancestor at all for what comes out to be right.
//!
//! Expansion is bounded before anything is allocated: by the length that the form states, at most
//! [`VALUE_BYTES_MAX`], and no codec is given room for more.

use bytes::Bytes;
use crypto::RecordId;

use crate::reader::Reader;
use crate::version::{VALUE_BYTES_MAX, View};
use crate::{Bases, Codecs, ObjectKey, ValueKind, VersionError, varint};

/// The longest that stands before a delta, in bytes.
pub const FORM_HEAD_BYTES_MAX: usize = 1 + 32 + 32 + 1 + 64 + 10 + 1 + 4;
/// The longest encoded form, in bytes: an application's delta may be as long as a value.
pub const FORM_BYTES_MAX: usize = FORM_HEAD_BYTES_MAX + VALUE_BYTES_MAX;

const WHAT: &str = "form";
const COUNT: u8 = 0b11;
const ON_ANCESTOR: u8 = 0b100;

/// A decoded form, which shares the bytes that it was decoded from.
#[derive(Clone, PartialEq, Eq)]
pub struct Form {
    /// What made the delta: see [`Codecs`].
    pub codec: u8,
    /// The version whose value it is made of.
    pub ancestor: RecordId,
    /// Of which object the version is.
    pub object: ObjectKey,
    /// The version's bases.
    pub bases: Bases,
    /// Its depth.
    pub l: u64,
    /// What its value is.
    pub kind: ValueKind,
    /// How many bytes its value has, at most [`VALUE_BYTES_MAX`].
    pub value_bytes: usize,
    /// What makes the value of the ancestor's.
    pub delta: Bytes,
}

impl Form {
    /// Decodes and checks all but the delta, which shares `bytes`.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, VersionError> {
        if bytes.len() > FORM_BYTES_MAX {
            let (found, max) = (bytes.len(), FORM_BYTES_MAX);
            return Err(VersionError::TooLarge { what: WHAT, found, max });
        }
        let mut reader = Reader::new(WHAT, bytes);
        let codec = reader.u8()?;
        let ancestor = RecordId::new(reader.array()?);
        let object = ObjectKey::new(reader.array()?);
        let flags = reader.u8()?;
        if flags & !(COUNT | ON_ANCESTOR) != 0 {
            return Err(VersionError::Field("flags of the form"));
        }
        let mut base = |first: bool| match first && flags & ON_ANCESTOR != 0 {
            true => Ok(ancestor),
            false => {
                // One form of each: a first base that is the ancestor is not written.
                let base = RecordId::new(reader.array()?);
                let twice = first && base == ancestor;
                if twice { Err(VersionError::Field("first base of the form")) } else { Ok(base) }
            }
        };
        let bases = match flags & COUNT {
            0 if flags == 0 => Bases::NONE,
            1 => Bases::one(base(true)?),
            2 => Bases::two(base(true)?, base(false)?)?,
            _ => return Err(VersionError::Field("flags of the form")),
        };
        let l = reader.varint()?;
        let kind = ValueKind::from_number(reader.u8()?);
        let kind = kind.ok_or(VersionError::Field("kind of value"))?;
        let value_bytes = reader.varint()?;
        let value_bytes = usize::try_from(value_bytes).unwrap_or(usize::MAX);
        if (l == 0) != bases.is_empty() {
            return Err(VersionError::Field("depth of the version"));
        }
        kind.check(value_bytes)?;
        let delta = bytes.slice(bytes.len() - reader.rest().len()..);
        Ok(Self { codec, ancestor, object, bases, l, kind, value_bytes, delta })
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(FORM_HEAD_BYTES_MAX + self.delta.len());
        head_into(&self.version(), self.value_bytes, self.codec, &self.ancestor, &mut out);
        out.extend_from_slice(&self.delta);
        out.into()
    }

    /// The bytes of the version: one allocation, of the length that they have. The caller compares their hash with
    /// the version's id.
    ///
    /// # Errors
    /// [`VersionError::Codec`] where `codecs` has not the form's, [`VersionError::Delta`] where the delta makes no value of the
    /// stated length.
    pub fn expand(&self, codecs: &Codecs, ancestor_value: &[u8]) -> Result<Bytes, VersionError> {
        self.kind.check(self.value_bytes)?;
        let view = self.version();
        let mut out = Vec::with_capacity(view.encoded_len() + self.value_bytes);
        view.head_into(self.value_bytes, &mut out);
        codecs.expand(self.codec, ancestor_value, &self.delta, self.value_bytes, &mut out)?;
        Ok(out.into())
    }

    /// The version, with no value.
    const fn version(&self) -> View<'static> {
        let Self { object, bases, l, kind, .. } = *self;
        View { object, bases, l, kind, value: &[] }
    }
}

/// Appends what stands before a delta.
pub(crate) fn head_into(
    version: &View<'_>,
    value_bytes: usize,
    codec: u8,
    ancestor: &RecordId,
    out: &mut Vec<u8>,
) {
    let on_ancestor = version.bases.first() == Some(*ancestor);
    out.push(codec);
    out.extend_from_slice(ancestor.as_bytes());
    out.extend_from_slice(version.object.as_bytes());
    out.push(version.bases.len() as u8 | if on_ancestor { ON_ANCESTOR } else { 0 });
    for base in version.bases.iter().skip(usize::from(on_ancestor)) {
        out.extend_from_slice(base.as_bytes());
    }
    varint::write(version.l, out);
    out.push(version.kind.number());
    varint::write(value_bytes as u64, out);
}

/// The bytes of the version that a form stands for: [`Form::expand`].
///
/// # Errors
/// [`VersionError`].
pub fn expand(form: &Form, codecs: &Codecs, ancestor_value: &[u8]) -> Result<Bytes, VersionError> {
    form.expand(codecs, ancestor_value)
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form")
            .field("codec", &self.codec)
            .field("ancestor", &self.ancestor)
            .field("version", &self.version())
            .field("value_bytes", &self.value_bytes)
            .field("delta_bytes", &self.delta.len())
            .finish()
    }
}
