//! Counts the parts of a message before it is decoded.
//!
//! Two bytes of protobuf are an empty part, which is a hundred bytes once it is decoded: 8 MiB of them would be half a GiB,
//! though a message of a thousand records is refused a moment later. So the parts are counted first, where a message has
//! lists: nothing is kept, and a part that holds no list is passed over by its length.
//!
//! What is not protobuf is left to the decoder, which reads the same fields and finds the same end. Groups, which no message here has,
//! are refused.

use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

use crate::codec::Malformed;

/// Parts of a message at most: 8 MiB of the shortest announcements, each with what is around it, and more than
/// any other message has.
pub(crate) const PARTS_MAX: usize = 65_536;

/// The fields of a message in which there are lists, and those in them.
pub(crate) type Lists = &'static [(u32, In)];

/// What a field's message has in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct In(pub(crate) Lists);

/// Counts the fields of a message, of which those named by `lists` are looked into.
///
/// # Errors
/// [`Malformed::Parts`] where there are over [`PARTS_MAX`], or a group.
pub(super) fn check(message: &mut impl Buf, lists: Lists) -> Result<(), Malformed> {
    let mut left = PARTS_MAX;
    // Beyond what is not protobuf nothing is decoded.
    count(message, 0, lists, &mut left).unwrap_or(Ok(()))
}

/// Counts to where so many bytes remain; `None` at what is not protobuf.
fn count(
    message: &mut impl Buf,
    until: usize,
    lists: Lists,
    left: &mut usize,
) -> Option<Result<(), Malformed>> {
    while message.remaining() > until {
        let (tag, wire) = decode_key(message).ok()?;
        let Some(less) = left.checked_sub(1) else { return Some(Err(Malformed::Parts)) };
        *left = less;
        let len = match wire {
            WireType::Varint => {
                decode_varint(message).ok()?;
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(message).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return Some(Err(Malformed::Parts)),
        };
        // Also where the last varint went beyond the end.
        let end = message.remaining().checked_sub(len).filter(|end| *end >= until)?;
        let inside = lists.iter().find(|(of, _)| *of == tag && wire == WireType::LengthDelimited);
        match inside {
            Some((_, In(lists))) => match count(message, end, lists, left)? {
                Ok(()) => {}
                refused => return Some(refused),
            },
            None => message.advance(len),
        }
    }
    Some(Ok(()))
}
