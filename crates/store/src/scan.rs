//! Reading a segment of a log or journal without an index: every frame in order, past what is
//! damaged.
//!
//! After a valid header the next frame begins where its payload ends, whether or not the payload is
//! intact. Where there is no valid header, the marker is searched for, so that damage costs the
//! frames it hits and no others. A frame whose payload would go past the end of the file was cut
//! off by a crash, or belongs to a header that a disk put in the wrong place: the search goes on
//! right behind its header.
//!
//! What comes before the first multiple of a direct write reaches the disk after it (`env::disk`), so a power cut may leave zeros
//! there: where only a filler was to be, nothing is missing, and it is taken for there.
//!
//! A walk that is `passing` takes what the disk cannot read for damaged, where the disk reads the rest of the file.

use std::io;

use env::disk::File;

use crate::header::FILE_HEADER_BYTES;
use crate::log::frame::Marker;
use crate::window::Window;

/// The header of a family of frames.
pub(crate) trait FrameHeader: Sized + Copy {
    /// Bytes of the longest header.
    const BYTES_MAX: usize;
    /// Bytes of the longest frame that [`FrameHeader::unwritten`] knows.
    const UNWRITTEN_BYTES_MAX: u64 = 0;
    /// The valid header at the start of `bytes`, if there is one of the segment with this marker.
    fn decode(marker: &Marker, bytes: &[u8]) -> Option<Self>;
    /// Bytes of this header.
    fn header_len(&self) -> u64;
    /// Bytes of its payload.
    fn payload_len(&self) -> u64;
    /// The CRC-32C of its payload.
    fn payload_crc(&self) -> u32;
    /// The header of a frame that says nothing, of which these bytes from `offset` on are all that reached the disk.
    fn unwritten(_marker: &Marker, _offset: u64, _bytes: &[u8]) -> Option<Self> {
        None
    }
}

/// Something found in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<H> {
    /// A frame with a valid header. `intact` is about its payload, and `true` where payloads are
    /// not read.
    Frame { offset: u64, header: H, intact: bool },
    /// Bytes that belong to no frame.
    Gap { from: u64, to: u64 },
}

/// How a segment is walked.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// Whether payloads are read and checked.
    pub payloads: bool,
    /// Whether to go on behind what cannot be read.
    pub passing: bool,
    /// The walk ends behind the frame, or the gap, with which so many bytes were walked.
    pub enough: u64,
}

/// Walks the first `len` bytes of a segment from `start`, where a frame begins, and returns where
/// its last intact one ends. Bytes behind that are reported too.
pub(crate) fn scan<H: FrameHeader>(
    file: &dyn File,
    start: u64,
    len: u64,
    marker: &Marker,
    payloads: bool,
    seen: &mut dyn FnMut(Seen<H>),
) -> io::Result<u64> {
    let way = Way { payloads, passing: false, enough: u64::MAX };
    let walked = scan_some(file, (start, len), marker, way, seen)?;
    Ok(walked.intact_end)
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Behind the last intact frame.
    pub intact_end: u64,
    /// Where the walk goes on; the end of the file where it is done.
    pub next: u64,
    /// Behind the last of what could not be read.
    pub unread_end: Option<u64>,
}

/// As [`scan`], in another way.
pub(crate) fn scan_some<H: FrameHeader>(
    file: &dyn File,
    (start, len): (u64, u64),
    marker: &Marker,
    way: Way,
    seen: &mut dyn FnMut(Seen<H>),
) -> io::Result<Walked> {
    let mut window = match way.passing {
        true => Window::passing(file, len),
        false => Window::new(file, len),
    };
    let mut offset = start.max(FILE_HEADER_BYTES).min(len);
    let mut intact_end = offset;
    let mut gap_from = None;
    let stop = offset.saturating_add(way.enough.max(1));
    while offset < len && (offset < stop || gap_from.is_some()) {
        let header = match window.at(offset, H::BYTES_MAX) {
            Ok(bytes) => H::decode(marker, bytes),
            Err(error) => window.pass(error, offset + 1).map(|()| None)?,
        };
        let frame_len = |header: &H| header.header_len() + header.payload_len();
        let fits = header.filter(|header| offset + frame_len(header) <= len);
        let Some(header) = fits else {
            gap_from.get_or_insert(offset);
            let behind = offset + header.map_or(1, |header| header.header_len());
            offset = window.find(behind, marker)?.unwrap_or(len);
            continue;
        };
        if let Some(from) = gap_from.take() {
            seen(match unwritten(&mut window, (from, offset), marker) {
                Some(header) => Seen::Frame { offset: from, header, intact: true },
                None => Seen::Gap { from, to: offset },
            });
        }
        let payload = offset + header.header_len();
        offset += frame_len(&header);
        let intact = !way.payloads
            || match window.crc(payload, header.payload_len()) {
                Ok(crc) => crc == header.payload_crc(),
                Err(error) => window.pass(error, offset).map(|()| false)?,
            };
        seen(Seen::Frame { offset: payload - header.header_len(), header, intact });
        if intact {
            intact_end = offset;
        }
    }
    if let Some(from) = gap_from {
        seen(Seen::Gap { from, to: len });
    }
    Ok(Walked { intact_end, next: offset, unread_end: window.bad_end() })
}

/// What was to be in a range without a frame, where it says nothing and was only not written.
fn unwritten<H: FrameHeader>(
    window: &mut Window<'_>,
    (from, to): (u64, u64),
    marker: &Marker,
) -> Option<H> {
    let len = to.saturating_sub(from);
    if len > H::UNWRITTEN_BYTES_MAX {
        return None;
    }
    // What cannot be read stays a gap.
    let bytes = window.at(from, usize::try_from(len).ok()?).ok()?;
    H::unwritten(marker, from, bytes)
}
