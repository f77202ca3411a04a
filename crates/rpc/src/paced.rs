//! How many frames the other side of a connection sends that carry nothing: callers to a server, and peers to who dialled them.
//!
//! Data and calls are bounded elsewhere. But HTTP/2 has frames that mean work and nothing else (WINDOW_UPDATE, PRIORITY, SETTINGS, PING,
//! unknown ones, DATA of a byte each), 9 to 17 bytes long: a socket brings millions a second, at a third of a microsecond of
//! processor each. So frames are counted as their heads pass. What a connection may send grows with what it does: with each call,
//! with each KiB of data that it sends, and with what it is sent, since whoever reads tells so by such frames (RFC 9113, section 6.9). What is
//! beyond it is of the house's allowance, and of one that all strangers share; beyond those too the connection is read no further
//! for a while. A connection that this side dialled is a house of its own, and all of them share what strangers share at a server.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use env::Env;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Bytes of a frame's head (RFC 9113, section 4.1).
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Frames that a connection may send before it does anything, and may save up.
const FREE: i64 = 1_000;
const SAVED_MAX: i64 = 4_000;
/// Frames beyond its own head that a call may bring along: its windows, its end.
const OF_A_CALL: i64 = 4;
/// Bytes of data for which one frame more is free. Programs send 4 to 16 KiB a frame.
const DATA_BYTES: usize = 1 << 10;
/// Bytes sent to the caller for each of which it may send two frames: programs tell of 4 KiB and more that they read, once for the
/// stream and once for the connection.
const SENT_BYTES: usize = 4 << 10;

/// The longest wait for what others have used up: who is a few frames beyond its part is not to miss its deadline for them.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(2);

/// Frames of a house beyond those, a second and at once: 7 ms of a processor.
const HOUSE_RATE: u32 = 20_000;
/// And of all strangers together: 3 % of one.
const STRANGERS_RATE: u32 = 100_000;

/// An allowance of frames.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: u32,
    wait_max: Duration,
    /// Frames left, fewer than none where they were used up before their time; and as of when.
    left: Mutex<(f64, Duration)>,
}

impl Pace {
    pub(crate) fn of_a_house() -> Self {
        Self::new(HOUSE_RATE, Duration::MAX)
    }

    pub(crate) fn of_strangers() -> Self {
        Self::new(STRANGERS_RATE, SHARED_WAIT_MAX)
    }

    fn new(rate: u32, wait_max: Duration) -> Self {
        Self { rate, wait_max, left: Mutex::new((f64::from(rate), Duration::ZERO)) }
    }

    /// Takes these frames; how long until they are covered.
    fn take(&self, frames: u32, now: Duration) -> Duration {
        let rate = f64::from(self.rate);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_sub(left.1).as_secs_f64();
        let now_left = (left.0 + passed * rate).min(rate) - f64::from(frames);
        *left = (now_left, now.max(left.1));
        Duration::from_secs_f64((-now_left / rate).max(0.0)).min(self.wait_max)
    }
}

/// How fast a connection's frames are read.
pub(crate) struct Paced {
    frames: Frames,
    /// What it shares with others beside its house.
    shared: Option<Arc<Pace>>,
    env: Env,
    /// It is not read before.
    until: Option<BoxFuture<'static, ()>>,
}

impl Paced {
    pub(crate) fn new(env: Env, shared: Option<Arc<Pace>>) -> Self {
        Self { frames: Frames::default(), shared, env, until: None }
    }

    /// Whether it may be read again.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(until) = &mut self.until {
            ready!(until.poll_unpin(cx));
            self.until = None;
        }
        Poll::Ready(())
    }

    /// Counts what was read.
    pub(crate) fn read(&mut self, bytes: &[u8], house: &Pace) {
        let beyond = self.frames.read(bytes);
        if beyond == 0 {
            return;
        }
        let now = self.env.clock.elapsed();
        let of_shared = self.shared.as_ref().map(|pace| pace.take(beyond, now));
        let wait = house.take(beyond, now).max(of_shared.unwrap_or_default());
        if !wait.is_zero() {
            self.until = Some(self.env.clock.sleep(wait));
        }
    }

    /// Counts what was sent.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.frames.wrote(bytes);
    }
}

/// What all connections that one client dials share.
#[derive(Clone)]
pub(crate) struct Pacing {
    env: Env,
    shared: Arc<Pace>,
}

impl Pacing {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, shared: Arc::new(Pace::of_strangers()) }
    }

    /// Of one connection more.
    pub(crate) fn connection(&self) -> Paced {
        Paced::new(self.env.clone(), Some(self.shared.clone()))
    }
}

/// What one connection sends and is sent.
#[derive(Debug)]
struct Frames {
    /// Frames that it may send; fewer than none where it sent more.
    left: i64,
    /// Bytes of the frame under way that are still to come.
    payload: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// Bytes of data, and bytes sent, that did not make a frame yet.
    data: usize,
    sent: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { left: FREE, payload: 0, head: [0; HEAD_BYTES], head_len: 0, data: 0, sent: 0 }
    }
}

impl Frames {
    /// Follows the frames through these bytes; how many there are beyond what the connection may send.
    fn read(&mut self, mut bytes: &[u8]) -> u32 {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let take = bytes.len().min(self.payload);
                self.payload -= take;
                bytes = &bytes[take..];
                continue;
            }
            let take = bytes.len().min(HEAD_BYTES - self.head_len);
            self.head[self.head_len..self.head_len + take].copy_from_slice(&bytes[..take]);
            self.head_len += take;
            bytes = &bytes[take..];
            if self.head_len == HEAD_BYTES {
                self.head_len = 0;
                self.begin();
            }
        }
        self.left = self.left.min(SAVED_MAX);
        let beyond = u32::try_from(-self.left).unwrap_or(0);
        self.left = self.left.max(0);
        beyond
    }

    /// A frame begins, whose head is here.
    fn begin(&mut self) {
        let [a, b, c, kind, ..] = self.head;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        self.left -= 1;
        match kind {
            DATA => {
                self.data += self.payload;
                self.left += whole(&mut self.data, DATA_BYTES);
            }
            HEADERS => self.left += 1 + OF_A_CALL,
            _ => {}
        }
    }

    /// So many bytes were sent to the other side.
    fn wrote(&mut self, bytes: usize) {
        self.sent += bytes;
        self.left = (self.left + 2 * whole(&mut self.sent, SENT_BYTES)).min(SAVED_MAX);
    }
}

/// How often `part` is in `all`, of which the rest is left.
fn whole(all: &mut usize, part: usize) -> i64 {
    let times = *all / part;
    *all %= part;
    i64::try_from(times).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap_or(u32::MAX).to_be_bytes();
        let head = [length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        [&head[..], &vec![7; payload]].concat()
    }

    #[test]
    fn what_calls_send_and_what_readers_tell_is_free() {
        let mut frames = Frames::default();
        for _ in 0..20_000 {
            let call =
                [frame(HEADERS, 60), frame(DATA, 100), frame(8, 4), frame(8, 4), frame(3, 4)];
            assert_eq!(frames.read(&call.concat()), 0, "a small call, its windows and its end");
        }
        for _ in 0..1_000 {
            assert_eq!(frames.read(&frame(DATA, 4 << 10)), 0);
        }
        for _ in 0..20_000 {
            frames.wrote(4 << 10);
            assert_eq!(frames.read(&[frame(8, 4), frame(8, 4)].concat()), 0);
        }
    }

    #[test]
    fn what_carries_nothing_is_counted_however_it_is_cut() {
        for (kind, payload) in [(8, 4), (2, 5), (4, 0), (6, 8), (77, 3), (DATA, 1), (DATA, 0)] {
            for cut in [1, 5, 13, 4_096] {
                let all: Vec<u8> = (0..10_000).flat_map(|_| frame(kind, payload)).collect();
                let mut frames = Frames::default();
                let beyond: u32 = all.chunks(cut).map(|part| frames.read(part)).sum();
                let free = if (kind, payload) == (DATA, 1) { FREE + 9 } else { FREE };
                assert_eq!(i64::from(beyond), 10_000 - free, "{kind} {payload} {cut}");
            }
        }
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let mut frames = Frames::default();
        frames.wrote(1 << 30);
        let all: Vec<u8> = (0..10_000).flat_map(|_| frame(8, 4)).collect();
        assert_eq!(i64::from(frames.read(&all)), 10_000 - SAVED_MAX);
    }

    #[test]
    fn an_allowance_is_there_again_with_time() {
        let pace = Pace::new(1_000, Duration::MAX);
        let at = Duration::from_millis;
        assert_eq!(pace.take(1_000, at(5)), Duration::ZERO);
        assert_eq!(pace.take(500, at(5)), at(500));
        assert_eq!(pace.take(0, at(255)), at(250));
        assert_eq!(pace.take(500, at(1_005)), Duration::ZERO, "half a second's worth was left");
        assert_eq!(
            pace.take(1_001, at(60_000)),
            at(1),
            "no more than a second's worth is saved up"
        );
    }

    #[test]
    fn what_others_used_up_is_waited_for_no_longer_than_a_deadline_bears() {
        let pace = Pace::of_strangers();
        for _ in 0..2_000 {
            pace.take(1_260, Duration::ZERO);
        }
        assert_eq!(pace.take(1, Duration::ZERO), SHARED_WAIT_MAX);
    }
}
