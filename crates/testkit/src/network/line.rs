//! The one line by which all callers of a network without wires reach it, where it has a rate.
//!
//! Calls that move records at the same time share it as TCP connections do: each gets about the same part, so of calls that
//! begin together all end late, and not one after another.

use std::sync::PoisonError;
use std::time::Duration;

use env::calls::FindResponse;

use super::DirectNetwork;

/// Bytes of one call that go before those of the next.
const CHUNK_BYTES: usize = 16 << 10;

/// Both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    /// Bytes a second; `None`: no line is slow.
    rate: Option<u64>,
    sent_free_at: Duration,
    taken_free_at: Duration,
    sent: u64,
}

impl DirectNetwork {
    /// Gives the line of all callers a rate, bytes a second in each direction; `None` is as fast as it gets.
    pub fn line(&self, rate: Option<u64>) {
        self.lines().rate = rate;
    }

    /// Bytes of records that went out over the line while it had a rate, whatever became of them.
    pub fn line_sent(&self) -> u64 {
        self.lines().sent
    }

    pub(super) async fn send(&self, bytes: usize) {
        self.lines().sent += bytes as u64;
        self.over(bytes, |lines| &mut lines.sent_free_at).await;
    }

    pub(super) async fn take(&self, answers: &[&FindResponse]) {
        let bytes = answers.iter().map(|answer| match answer {
            FindResponse::Found(record) => record.bytes.len(),
            FindResponse::Closest(_) => 0,
        });
        self.over(bytes.sum(), |lines| &mut lines.taken_free_at).await;
    }

    async fn over(&self, bytes: usize, way: fn(&mut Lines) -> &mut Duration) {
        let mut left = bytes;
        while left > 0 {
            let chunk = left.min(CHUNK_BYTES);
            left -= chunk;
            let now = self.env.clock.elapsed();
            let until = {
                let mut lines = self.lines();
                let Some(rate) = lines.rate else { return };
                let free_at = way(&mut lines);
                *free_at = (*free_at).max(now)
                    + Duration::from_micros(chunk as u64 * 1_000_000 / rate.max(1));
                *free_at
            };
            self.env.clock.sleep(until.saturating_sub(now)).await;
        }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
