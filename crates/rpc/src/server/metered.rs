//! Counts request messages while they arrive, before they take memory.
//!
//! A gRPC message says its length in its first five bytes. The body is watched as it passes: at each
//! such prefix as many bytes are taken as the message has, of what callers share; until its caller may have
//! that many, the body is not read further, and HTTP/2's windows hold the caller back. Bytes are taken for whole messages, so
//! two half-read messages never wait for each other. The handler gives them back when it is done with the message.
//!
//! Of a call with one message the first bytes may hold nothing ([`Budget::free`]): as calls in work are counted, so are they.
//!
//! Limits: a message over the method's limit ends the call before any of it is kept; no room
//! within the wait is *busy*; a message that stops arriving ends the call.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use env::calls::CallError;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use super::share::{Room, Taken};
use crate::framing::PREFIX_BYTES;
use crate::status::to_status;

/// What a message counts at least, in bytes: the notes about it take as much.
const MESSAGE_BYTES_MIN: u32 = 64;
/// What the messages of one call hold, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages(Arc<Mutex<VecDeque<Taken>>>);

impl Messages {
    /// What the next message holds: streaming handlers take it as they take the message.
    pub(super) fn next(&self) -> Option<Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn push(&self, held: Taken, kept: bool) {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept {
            messages.clear();
        }
        messages.push_back(held);
    }
}

/// Where the bytes come from, and how long to wait for them.
#[derive(Clone)]
pub(super) struct Budget {
    /// What callers share.
    pub(super) room: Arc<Room>,
    /// What its caller holds of it.
    pub(super) of: Arc<AtomicUsize>,
    /// Bytes of the call that hold nothing; 0 where its messages are taken one by one.
    pub(super) free: u32,
    /// How long to wait for bytes.
    pub(super) wait: Duration,
    /// How long a message may stop arriving.
    pub(super) stall: Duration,
    /// Whether a message holds its bytes until the handler took it; else until the next one begins.
    pub(super) kept: bool,
}

/// Where in the stream of messages the body is.
enum At {
    /// In a prefix, with so many of its bytes seen.
    Prefix(usize, [u8; PREFIX_BYTES]),
    /// In a message, with so many bytes to come.
    Message(u32),
}

/// A request's body, counted.
pub(super) struct Metered {
    body: tonic::body::Body,
    env: Env,
    budget: Budget,
    message_bytes_max: usize,
    /// Whether the caller may take its time between messages.
    pauses: bool,
    at: At,
    /// Lengths of messages whose prefix was seen and which hold nothing yet.
    owed: VecDeque<u32>,
    /// Bytes being waited for, and the frame that is held back until then.
    waiting: Option<BoxFuture<'static, Result<Taken, CallError>>>,
    frame: Option<Frame<Bytes>>,
    stalled: Option<BoxFuture<'static, ()>>,
    messages: Messages,
}

impl Metered {
    pub(super) fn new(
        body: tonic::body::Body,
        env: Env,
        budget: Budget,
        message_bytes_max: usize,
        pauses: bool,
    ) -> (Self, Messages) {
        let messages = Messages::default();
        let metered = Self {
            body,
            env,
            budget,
            message_bytes_max,
            pauses,
            at: At::Prefix(0, [0; PREFIX_BYTES]),
            owed: VecDeque::new(),
            waiting: None,
            frame: None,
            stalled: None,
            messages: messages.clone(),
        };
        (metered, messages)
    }

    /// Follows the messages through these bytes; notes each one that starts.
    fn scan(&mut self, mut bytes: &[u8]) -> Result<(), CallError> {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Prefix(seen, prefix) => {
                    let take = bytes.len().min(PREFIX_BYTES - *seen);
                    prefix[*seen..*seen + take].copy_from_slice(&bytes[..take]);
                    *seen += take;
                    bytes = &bytes[take..];
                    if *seen < PREFIX_BYTES {
                        return Ok(());
                    }
                    if prefix[0] != 0 {
                        let reason = "a compressed message: none is taken".to_owned();
                        return Err(CallError::Invalid { reason });
                    }
                    let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
                    if len as usize > self.message_bytes_max {
                        let max = self.message_bytes_max;
                        let reason = format!("a message of {len} bytes: at most {max} are taken");
                        return Err(CallError::Invalid { reason });
                    }
                    self.owed.push_back(len.max(MESSAGE_BYTES_MIN));
                    self.at = match len {
                        0 => At::Prefix(0, [0; PREFIX_BYTES]),
                        _ => At::Message(len),
                    };
                }
                At::Message(left) => {
                    let take = bytes.len().min(*left as usize);
                    *left -= u32::try_from(take).unwrap_or(u32::MAX);
                    bytes = &bytes[take..];
                    if *left == 0 {
                        self.at = At::Prefix(0, [0; PREFIX_BYTES]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes what is owed for; ready when nothing is.
    fn poll_owed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let held = ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
                self.messages.push(held?, self.budget.kept);
            }
            let Some(bytes) = self.owed.pop_front() else { return Poll::Ready(Ok(())) };
            if let Some(free) = self.budget.free.checked_sub(bytes) {
                self.budget.free = free;
                continue;
            }
            let (Budget { room, of, wait, .. }, bytes) = (&self.budget, bytes as usize);
            match room.at_once(of, bytes) {
                Some(held) => self.messages.push(held, self.budget.kept),
                None => {
                    let later = room.clone().within(of.clone(), bytes, self.env.clone(), *wait);
                    self.waiting = Some(Box::pin(later));
                }
            }
        }
    }

    /// The next frame, unless a message that began, or the one of a call that has only one, stops arriving.
    fn poll_arriving(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.stalled = None;
            return Poll::Ready(frame);
        }
        if self.pauses && matches!(self.at, At::Prefix(0, _)) {
            return Poll::Pending;
        }
        let stall = self.budget.stall;
        let clock = &self.env.clock;
        let stalled = self.stalled.get_or_insert_with(|| clock.sleep(stall));
        ready!(stalled.as_mut().poll(cx));
        let error = CallError::TimedOut { address: String::new(), limit: stall };
        Poll::Ready(Some(Err(to_status(&error))))
    }
}

impl Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.frame.is_none() {
            match ready!(this.poll_arriving(cx)) {
                Some(Ok(frame)) => {
                    let scanned = frame.data_ref().map_or(Ok(()), |data| this.scan(&data.clone()));
                    if let Err(error) = scanned {
                        return Poll::Ready(Some(Err(to_status(&error))));
                    }
                    this.frame = Some(frame);
                }
                None if !matches!(this.at, At::Prefix(0, _)) => {
                    let reason = "the stream ended in a message".to_owned();
                    return Poll::Ready(Some(Err(to_status(&CallError::Invalid { reason }))));
                }
                end => return Poll::Ready(end),
            }
        }
        match ready!(this.poll_owed(cx)) {
            Ok(()) => Poll::Ready(this.frame.take().map(Ok)),
            Err(error) => Poll::Ready(Some(Err(to_status(&error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let between = matches!(self.at, At::Prefix(0, _));
        self.frame.is_none() && between && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
