//! Requests as they arrive: RESP arrays of bulk strings, and lines typed by hand.
//!
//! A request that is whole in the bytes at hand is read where it lies: its arguments are spans of
//! those bytes. A request that is not goes on where it stopped when more has come. A large
//! argument that is not there yet gets a buffer of its own, which the connection then reads into,
//! and becomes the value as it is: it is copied at most once, by the first bytes of it that came
//! with other things.
//!
//! The errors and the limits for callers that have not given the password are Redis's, to the
//! letter.

mod line;

use bytes::Bytes;

/// An inline request, or the header of an argument, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// An argument from this length on is read into its own buffer.
const LARGE_BYTES: usize = 32 << 10;
/// The first part of such a buffer; it doubles as it fills, so that a claim alone costs nothing.
const LARGE_STEP: usize = 64 << 10;
/// Arguments for which there is room in the next request too.
const SPANS_KEPT: usize = 1_024;
/// Arguments of a request before the password was given.
const STRANGER_ARGUMENTS_MAX: usize = 10;
/// Bytes of an argument before the password was given.
const STRANGER_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Bounds of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Arguments, the command's name among them.
    pub arguments: usize,
    /// Bytes of an argument.
    pub argument_bytes: usize,
    /// Bytes of all of them.
    pub command_bytes: usize,
    /// Whether the caller has yet to give the password.
    pub stranger: bool,
}

/// Why bytes are no request. The connection ends after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// A line without an end.
    LongLine,
    /// A quote without its pair.
    Quotes,
    /// The header of a request without an end.
    LongCount,
    /// Not a number of arguments.
    Count,
    /// Too many for who has not given the password.
    StrangerCount,
    /// The header of an argument without an end.
    LongLength,
    /// Another byte where `$` is due.
    Expected(u8),
    /// Not a length.
    Length,
    /// Too long for who has not given the password.
    StrangerLength,
    /// All arguments together are too long.
    Large,
    /// All connections together have too much that is not whole.
    Crowded,
}

impl ProtocolError {
    /// Redis's words for it.
    pub(crate) fn text(self) -> String {
        let text = match self {
            Self::LongLine => "too big inline request",
            Self::Quotes => "unbalanced quotes in request",
            Self::LongCount => "too big mbulk count string",
            Self::Count => "invalid multibulk length",
            Self::StrangerCount => "unauthenticated multibulk length",
            Self::LongLength => "too big bulk count string",
            Self::Expected(byte) => {
                return format!("Protocol error: expected '$', got '{}'", byte.escape_ascii());
            }
            Self::Length => "invalid bulk length",
            Self::StrangerLength => "unauthenticated bulk length",
            Self::Large => "the arguments of one request are too long together",
            Self::Crowded => "too many requests wait for their ends; try again later",
        };
        format!("Protocol error: {text}")
    }
}

/// Where an argument is.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// In the request's own bytes.
    Here { start: u32, length: u32 },
    /// In a buffer of its own.
    Apart(u32),
}

/// What became of the bytes at hand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A request is whole: its arguments are ready, the next begins at `end`.
    Request {
        /// Bytes of it in the data.
        end: usize,
    },
    /// More is needed; the data is to be kept.
    More,
    /// More is needed, and what comes belongs to a large argument: the data is to be kept up to
    /// `keep`, what was behind it is taken.
    Large {
        /// Bytes to keep.
        keep: usize,
    },
}

/// A large argument on its way.
#[derive(Debug)]
struct Large {
    bytes: Vec<u8>,
    length: usize,
}

/// One connection's place in its stream of requests.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Of the next byte to look at, from the request's begin.
    at: usize,
    /// Arguments that are still to come, once the header was read.
    missing: usize,
    /// Whether the header was read.
    started: bool,
    /// Bytes of arguments so far.
    bytes: usize,
    spans: Vec<Span>,
    apart: Vec<Bytes>,
    large: Option<Large>,
}

impl Parser {
    /// Goes on with `data`, which begins at the request's begin.
    ///
    /// # Errors
    /// [`ProtocolError`]: the stream cannot be read on.
    pub(crate) fn parse(&mut self, data: &[u8], bounds: &Bounds) -> Result<Parsed, ProtocolError> {
        if !self.started {
            match data.first() {
                None => return Ok(Parsed::More),
                Some(b'*') => {
                    let Some(count) = self.header(data, ProtocolError::LongCount)? else {
                        return Ok(Parsed::More);
                    };
                    self.missing = arguments(count, bounds)?;
                    self.started = true;
                }
                Some(_) => return self.line(data, bounds),
            }
        }
        while self.missing > 0 {
            if let Some(parsed) = self.argument(data, bounds)? {
                return Ok(parsed);
            }
        }
        Ok(Parsed::Request { end: self.at })
    }

    /// Forgets the request that was whole.
    pub(crate) fn next(&mut self) {
        self.at = 0;
        self.started = false;
        self.bytes = 0;
        self.spans.clear();
        self.apart.clear();
        if self.spans.capacity() > SPANS_KEPT || self.apart.capacity() > SPANS_KEPT {
            (self.spans, self.apart) = (Vec::new(), Vec::new());
        }
    }

    /// The request's arguments, once it is whole.
    pub(crate) fn arguments<'a>(&'a self, data: &'a [u8]) -> Arguments<'a> {
        Arguments { data, spans: &self.spans, apart: &self.apart }
    }

    /// Whether a large argument is not whole.
    pub(crate) fn has_large(&self) -> bool {
        self.large.as_ref().is_some_and(|large| large.missing() > 0)
    }

    /// The buffer of a large argument that is not whole, with room for what is to come next.
    pub(crate) fn large(&mut self) -> Option<&mut Vec<u8>> {
        let large = self.large.as_mut().filter(|large| large.missing() > 0)?;
        if large.bytes.len() == large.bytes.capacity() {
            let step = large.bytes.len().max(LARGE_STEP).min(large.missing());
            large.bytes.reserve_exact(step);
        }
        Some(&mut large.bytes)
    }

    /// What was read into that buffer beyond the argument's end: the request's next bytes.
    pub(crate) fn beyond(&mut self) -> Vec<u8> {
        let whole = |large: &&mut Large| large.bytes.len() > large.length + 2;
        match self.large.as_mut().filter(whole) {
            Some(large) => large.bytes.split_off(large.length + 2),
            None => Vec::new(),
        }
    }

    /// Bytes held beside the connection's own input.
    pub(crate) fn held(&self) -> usize {
        let large = self.large.as_ref().map_or(0, |large| large.bytes.capacity());
        let apart: usize = self.apart.iter().map(Bytes::len).sum();
        let lists =
            self.spans.capacity() * size_of::<Span>() + self.apart.capacity() * size_of::<Bytes>();
        large + apart + lists
    }

    /// One argument, or why it cannot be had yet.
    fn argument(&mut self, data: &[u8], bounds: &Bounds) -> Result<Option<Parsed>, ProtocolError> {
        if let Some(large) = self.large.take() {
            if large.missing() > 0 {
                self.large = Some(large);
                return Ok(Some(Parsed::Large { keep: self.at }));
            }
            let mut bytes = large.bytes;
            bytes.truncate(large.length);
            self.apart(Bytes::from(bytes));
            self.missing -= 1;
            return Ok(None);
        }
        let start = self.at;
        match data.get(start) {
            None => return Ok(Some(Parsed::More)),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::Expected(*other)),
        }
        let Some(length) = self.header(data, ProtocolError::LongLength)? else {
            return Ok(Some(Parsed::More));
        };
        let length = self.length(length, bounds)?;
        let rest = data.get(self.at..).unwrap_or_default();
        if rest.len() >= length + 2 {
            let start = self.at as u32;
            self.spans.push(Span::Here { start, length: length as u32 });
            self.at += length + 2;
        } else if length >= LARGE_BYTES {
            let mut bytes = Vec::with_capacity((length + 2).min(LARGE_STEP.max(rest.len())));
            bytes.extend_from_slice(rest);
            self.large = Some(Large { bytes, length });
            self.bytes += length;
            return Ok(Some(Parsed::Large { keep: self.at }));
        } else {
            self.at = start;
            return Ok(Some(Parsed::More));
        }
        self.bytes += length;
        self.missing -= 1;
        Ok(None)
    }

    /// The number behind a header's first byte, or none where its line has no end yet.
    fn header(&mut self, data: &[u8], long: ProtocolError) -> Result<Option<i64>, ProtocolError> {
        let rest = data.get(self.at..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\r', rest).filter(|end| end + 1 < rest.len()) else {
            return if rest.len() > LINE_BYTES_MAX { Err(long) } else { Ok(None) };
        };
        let number = rest.get(1..end).and_then(crate::number::integer);
        self.at += end + 2;
        // What is no number is as wrong as one out of bounds.
        Ok(Some(number.unwrap_or(i64::MAX)))
    }

    fn length(&self, length: i64, bounds: &Bounds) -> Result<usize, ProtocolError> {
        let length = usize::try_from(length).map_err(|_| ProtocolError::Length)?;
        if length > bounds.argument_bytes {
            return Err(ProtocolError::Length);
        }
        if bounds.stranger && length > STRANGER_ARGUMENT_BYTES_MAX {
            return Err(ProtocolError::StrangerLength);
        }
        if self.bytes + length > bounds.command_bytes {
            return Err(ProtocolError::Large);
        }
        Ok(length)
    }

    /// A request typed by hand: words on a line.
    fn line(&mut self, data: &[u8], bounds: &Bounds) -> Result<Parsed, ProtocolError> {
        let Some(end) = memchr::memchr(b'\n', data) else {
            return if data.len() > LINE_BYTES_MAX {
                Err(ProtocolError::LongLine)
            } else {
                Ok(Parsed::More)
            };
        };
        let line = data.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        for word in line::words(line).ok_or(ProtocolError::Quotes)? {
            if self.spans.len() == bounds.arguments {
                return Err(ProtocolError::LongLine);
            }
            self.apart(Bytes::from(word));
        }
        self.at = end + 1;
        self.started = true;
        Ok(Parsed::Request { end: end + 1 })
    }

    fn apart(&mut self, bytes: Bytes) {
        self.spans.push(Span::Apart(self.apart.len() as u32));
        self.apart.push(bytes);
    }
}

impl Large {
    fn missing(&self) -> usize {
        (self.length + 2).saturating_sub(self.bytes.len())
    }
}

fn arguments(count: i64, bounds: &Bounds) -> Result<usize, ProtocolError> {
    if count <= 0 {
        return Ok(0);
    }
    let count = usize::try_from(count).map_err(|_| ProtocolError::Count)?;
    if count > bounds.arguments {
        return Err(ProtocolError::Count);
    }
    if bounds.stranger && count > STRANGER_ARGUMENTS_MAX {
        return Err(ProtocolError::StrangerCount);
    }
    Ok(count)
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    data: &'a [u8],
    spans: &'a [Span],
    apart: &'a [Bytes],
}

impl<'a> Arguments<'a> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// One of them; empty beyond the last.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        match self.spans.get(index) {
            Some(Span::Here { start, length }) => {
                let start = *start as usize;
                self.data.get(start..start + *length as usize).unwrap_or_default()
            }
            Some(Span::Apart(at)) => self.apart.get(*at as usize).map_or(&[], |bytes| bytes),
            None => &[],
        }
    }

    /// One of them to keep: copied, unless it has its own buffer.
    pub(crate) fn bytes(&self, index: usize) -> Bytes {
        match self.spans.get(index) {
            Some(Span::Apart(at)) => self.apart.get(*at as usize).cloned().unwrap_or_default(),
            _ => Bytes::copy_from_slice(self.get(index)),
        }
    }

    /// All from `first` on.
    pub(crate) fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let arguments = *self;
        (first.min(self.len())..self.len()).map(move |index| arguments.get(index))
    }
}

/// Arguments that wait for EXEC.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    spans: Vec<Span>,
    apart: Vec<Bytes>,
}

impl Kept {
    /// Copies of a request's arguments.
    pub(crate) fn of(arguments: &Arguments<'_>) -> Self {
        let apart: Vec<Bytes> = (0..arguments.len()).map(|at| arguments.bytes(at)).collect();
        Self { spans: (0..apart.len()).map(|at| Span::Apart(at as u32)).collect(), apart }
    }

    /// The request again.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        Arguments { data: &[], spans: &self.spans, apart: &self.apart }
    }
}

#[cfg(test)]
mod tests;
