//! What was published or heard in the last two minutes, by hash: the same bytes count once.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crypto::Suite;

use crate::News;

/// For how long the same bytes count as the same news.
pub const SEEN_FOR: Duration = Duration::from_secs(120);
/// The most hashes kept; beyond that the oldest are forgotten early. About 8 MiB when full.
pub const SEEN_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Seen {
    hashes: HashSet<[u8; 32]>,
    order: VecDeque<(Duration, [u8; 32])>,
}

impl Seen {
    /// Notes the news; false where it had been noted less than [`SEEN_FOR`] ago.
    pub(crate) fn note(&mut self, news: &News, now: Duration) -> bool {
        self.expire(now);
        let hash = hash(news);
        let new = self.hashes.insert(hash);
        if new {
            self.order.push_back((now, hash));
        }
        if self.order.len() > SEEN_MAX {
            self.forget_oldest();
        }
        new
    }

    /// Whether the news was noted less than [`SEEN_FOR`] ago.
    pub(crate) fn has(&mut self, news: &News, now: Duration) -> bool {
        self.expire(now);
        self.hashes.contains(&hash(news))
    }

    fn expire(&mut self, now: Duration) {
        while self.order.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= SEEN_FOR) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, hash)) = self.order.pop_front() {
            self.hashes.remove(&hash);
        }
    }
}

/// The kind is in the hash, so an announcement never hides an envelope of the same bytes.
fn hash(news: &News) -> [u8; 32] {
    let mut hash = Suite::Holdfast1.hash(news.bytes());
    hash[0] ^= match news {
        News::Announcement(_) => 0,
        News::Envelope(_) => 1,
        News::Revocation(_) => 2,
        News::Roster(_) => 3,
    };
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(number: usize) -> News {
        News::Envelope(number.to_be_bytes().to_vec().into())
    }

    #[test]
    fn the_same_news_counts_once_within_two_minutes() {
        let mut seen = Seen::default();
        assert!(seen.note(&news(1), Duration::ZERO));
        assert!(!seen.note(&news(1), Duration::from_secs(119)));
        assert!(seen.note(&News::Announcement(news(1).bytes().clone()), Duration::from_secs(119)));
        assert!(seen.has(&news(1), Duration::from_secs(119)));
        assert!(!seen.has(&news(1), Duration::from_secs(120)));
        assert!(seen.note(&news(1), Duration::from_secs(120)));
    }

    #[test]
    fn it_stays_bounded() {
        let mut seen = Seen::default();
        for number in 0..SEEN_MAX + 100 {
            assert!(seen.note(&news(number), Duration::ZERO));
        }
        assert_eq!((seen.hashes.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
        assert!(!seen.has(&news(99), Duration::ZERO));
        assert!(seen.has(&news(100), Duration::ZERO));
    }
}
