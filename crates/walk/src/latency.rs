//! How long calls to peers take, and from it when to ask another peer as well.
//!
//! Each peer has a window of its last answers, small and large ones apart, since a page of 2 MiB takes longer than an
//! envelope anywhere. A call is *late* after the peer's own p95, but no later than twice what is usual for all peers:
//! else a peer that is always slow would never be late.

use std::collections::VecDeque;
use std::time::Duration;

/// Answers remembered of each peer and size.
const WINDOW: usize = 32;
/// Answers needed before they are believed.
const SAMPLES_MIN: usize = 4;
/// Bytes from which an answer counts as large.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
/// When a small call is late where nothing is known yet.
const LATE_SMALL: Duration = Duration::from_millis(250);
/// When a large call is late where nothing is known yet.
const LATE_LARGE: Duration = Duration::from_secs(1);
/// The earliest a call is called late: below it, scheduling noise decides.
const LATE_MIN: Duration = Duration::from_millis(10);
/// How many times the usual time a peer's median must be for it to be asked later than the others.
const SLOW_TIMES: u32 = 4;

/// The size of a call, as far as its time depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Entries, envelopes, questions.
    Small,
    /// Pages.
    Large,
}

impl Size {
    /// The size of a call that moves so many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        if bytes >= LARGE_BYTES { Self::Large } else { Self::Small }
    }

    fn index(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Large => 1,
        }
    }

    fn late_default(self) -> Duration {
        match self {
            Self::Small => LATE_SMALL,
            Self::Large => LATE_LARGE,
        }
    }
}

/// The last answers of one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    micros: [VecDeque<u32>; 2],
}

impl Latency {
    /// An answer took so long.
    pub(crate) fn add(&mut self, size: Size, took: Duration) {
        let window = &mut self.micros[size.index()];
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Forgets what was before this answer.
    pub(crate) fn restart(&mut self, size: Size, took: Duration) {
        self.micros[size.index()].clear();
        self.add(size, took);
    }

    fn quantile(&self, size: Size, percent: usize) -> Option<Duration> {
        self.quantile_of(size, percent, SAMPLES_MIN)
    }

    fn quantile_of(&self, size: Size, percent: usize, samples_min: usize) -> Option<Duration> {
        let window = &self.micros[size.index()];
        if window.len() < samples_min {
            return None;
        }
        let mut sorted: Vec<u32> = window.iter().copied().collect();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len() - 1);
        Some(Duration::from_micros(u64::from(sorted[at])))
    }
}

/// What is usual for all peers: the medians over peers of each peer's median and p95.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usual {
    median: [Option<Duration>; 2],
    p95: [Option<Duration>; 2],
}

impl Usual {
    /// What is usual among these peers.
    pub(crate) fn of<'a>(peers: impl Iterator<Item = &'a Latency> + Clone) -> Self {
        let mut usual = Self::default();
        for size in [Size::Small, Size::Large] {
            let of_all = |percent: usize, samples_min: usize| -> Vec<Duration> {
                let all = peers.clone();
                all.filter_map(|peer| peer.quantile_of(size, percent, samples_min)).collect()
            };
            let middle = |percent: usize| {
                let mut all = of_all(percent, SAMPLES_MIN);
                if all.is_empty() {
                    // A program that has just joined knows one answer of each: of several peers that says what is usual too.
                    all = of_all(percent, 1);
                    if all.len() < SAMPLES_MIN {
                        return None;
                    }
                }
                all.sort_unstable();
                // The lower middle: of two peers the slow one is not what is usual.
                all.get(all.len().saturating_sub(1) / 2).copied()
            };
            usual.median[size.index()] = middle(50);
            usual.p95[size.index()] = middle(95);
        }
        usual
    }

    /// Whether anything is usual yet, of small calls and of large ones.
    pub(crate) fn is_known(&self) -> bool {
        self.median.iter().all(Option::is_some)
    }

    /// How long to wait for this peer before another one is asked as well.
    pub(crate) fn late(&self, peer: &Latency, size: Size) -> Duration {
        let bound = self.p95[size.index()].map(|usual| usual * 2);
        let late = match (peer.quantile(size, 95), bound) {
            (Some(own), Some(bound)) => own.min(bound),
            (Some(own), None) => own,
            (None, Some(bound)) => bound,
            (None, None) => size.late_default(),
        };
        late.clamp(LATE_MIN, size.late_default())
    }

    /// Whether an answer in this time is nothing out of the way.
    pub(crate) fn is_usual(&self, size: Size, took: Duration) -> bool {
        self.median[size.index()].is_none_or(|usual| took <= usual * SLOW_TIMES)
    }

    /// Whether this peer is so much slower than the others that they are asked first.
    pub(crate) fn slow(&self, peer: &Latency, size: Size) -> bool {
        match (peer.quantile(size, 50), self.median[size.index()]) {
            (Some(own), Some(usual)) => own > usual * SLOW_TIMES && own > usual + LATE_MIN,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(milliseconds: u64) -> Latency {
        let mut latency = Latency::default();
        for _ in 0..WINDOW + 8 {
            latency.add(Size::Small, Duration::from_millis(milliseconds));
        }
        latency
    }

    #[test]
    fn a_peer_that_is_always_slow_is_late_by_what_is_usual() {
        let peers = [peer(10), peer(12), peer(1_000)];
        let usual = Usual::of(peers.iter());
        assert_eq!(usual.late(&peers[2], Size::Small), Duration::from_millis(24));
        assert_eq!(usual.late(&peers[0], Size::Small), Duration::from_millis(10));
        assert!(usual.slow(&peers[2], Size::Small));
        assert!(!usual.slow(&peers[1], Size::Small));
    }

    #[test]
    fn one_answer_of_each_of_some_peers_says_what_is_usual() {
        let of = |milliseconds: u64| {
            let mut latency = Latency::default();
            latency.add(Size::Small, Duration::from_millis(milliseconds));
            latency
        };
        let peers = [of(20), of(2_000), of(21), of(22), of(23)];
        let usual = Usual::of(peers.iter());
        let late = |peer: &Latency| usual.late(peer, Size::Small);
        assert_eq!(late(&peers[1]), Duration::from_millis(44), "twice the middle one");
        assert!(!usual.slow(&peers[1], Size::Small), "once is no habit");
        let few = Usual::of(peers[..3].iter());
        assert_eq!(few.late(&peers[1], Size::Small), LATE_SMALL);
    }

    #[test]
    fn nothing_is_known_of_large_calls_from_small_ones() {
        let peers = [peer(10)];
        let usual = Usual::of(peers.iter());
        assert_eq!(usual.late(&peers[0], Size::Large), LATE_LARGE);
        assert!(!usual.slow(&peers[0], Size::Large));
        assert_eq!(peers[0].micros[0].len(), WINDOW);
    }
}
