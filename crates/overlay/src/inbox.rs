//! One queue of heard news a receiver, bounded in number and in bytes: who lags loses the oldest.
//!
//! A queue of its own for each receiver grows only as far as that receiver lags, where a shared
//! ring would hold its full length from the start. The bytes inside are shared by all of them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::stream::{BoxStream, Stream, StreamExt};

use crate::Heard;

/// The most news that wait for one receiver.
pub const INBOX_NEWS_MAX: usize = 4_096;
/// The most bytes of news that wait for one receiver.
pub const INBOX_BYTES_MAX: usize = 16 << 20;

/// All receivers of one overlay.
#[derive(Default)]
pub(crate) struct Inboxes(Mutex<Receivers>);

#[derive(Default)]
struct Receivers {
    open: Vec<Weak<Mutex<Inbox>>>,
    closed: bool,
}

#[derive(Default)]
struct Inbox {
    waiting: VecDeque<Heard>,
    bytes: usize,
    closed: bool,
    waker: Option<Waker>,
}

impl Inboxes {
    /// A stream of what is put from now on; it ends after [`Inboxes::close`] and when it is empty.
    pub(crate) fn stream(&self) -> BoxStream<'static, Heard> {
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let mut receivers = lock(&self.0);
        lock(&inbox).closed = receivers.closed;
        receivers.open.push(Arc::downgrade(&inbox));
        InboxStream(inbox).boxed()
    }

    /// Gives the news to every receiver that is still there.
    pub(crate) fn put(&self, heard: &Heard) {
        lock(&self.0).open.retain(|inbox| match inbox.upgrade() {
            Some(inbox) => {
                let waker = lock(&inbox).push(heard.clone());
                waker.into_iter().for_each(Waker::wake);
                true
            }
            None => false,
        });
    }

    /// Ends all streams once they are read to their end.
    pub(crate) fn close(&self) {
        let mut receivers = lock(&self.0);
        receivers.closed = true;
        for inbox in receivers.open.drain(..).filter_map(|inbox| inbox.upgrade()) {
            let mut inbox = lock(&inbox);
            inbox.closed = true;
            inbox.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Inbox {
    fn push(&mut self, heard: Heard) -> Option<Waker> {
        self.bytes += heard.news.bytes().len();
        self.waiting.push_back(heard);
        while self.waiting.len() > INBOX_NEWS_MAX || self.bytes > INBOX_BYTES_MAX {
            self.pop();
        }
        self.waker.take()
    }

    fn pop(&mut self) -> Option<Heard> {
        let heard = self.waiting.pop_front()?;
        self.bytes -= heard.news.bytes().len();
        Some(heard)
    }
}

struct InboxStream(Arc<Mutex<Inbox>>);

impl Stream for InboxStream {
    type Item = Heard;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        let mut inbox = lock(&self.0);
        if let Some(heard) = inbox.pop() {
            return Poll::Ready(Some(heard));
        }
        if inbox.closed {
            return Poll::Ready(None);
        }
        inbox.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The state behind the lock is changed in single steps, so one that a panic left is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use crypto::{PeerId, SecretKey};
    use futures::FutureExt;

    use super::*;
    use crate::News;

    fn heard(number: u32, length: usize) -> Heard {
        let mut bytes = vec![0; length.max(4)];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let from = PeerId::new(SecretKey::from_bytes(&[1; 32]).expect("a scalar").public());
        Heard { from, news: News::Envelope(Bytes::from(bytes)) }
    }

    #[test]
    fn who_lags_loses_the_oldest_by_number() {
        let inboxes = Inboxes::default();
        let stream = inboxes.stream();
        let all = INBOX_NEWS_MAX as u32 + 10;
        (0..all).for_each(|number| inboxes.put(&heard(number, 4)));
        inboxes.close();
        let left: Vec<_> = stream.collect().now_or_never().expect("it ended");
        assert_eq!(left.len(), INBOX_NEWS_MAX);
        assert_eq!(left[0], heard(10, 4));
        assert_eq!(left.last(), Some(&heard(all - 1, 4)));
    }

    #[test]
    fn who_lags_loses_the_oldest_by_bytes() {
        let inboxes = Inboxes::default();
        let stream = inboxes.stream();
        let size = 1 << 20;
        (0..20).for_each(|number| inboxes.put(&heard(number, size)));
        inboxes.close();
        let left: Vec<_> = stream.collect().now_or_never().expect("it ended");
        assert_eq!(left.len(), INBOX_BYTES_MAX / size);
        assert_eq!(left[0], heard(4, size));
    }

    #[test]
    fn each_receiver_hears_all_and_a_dropped_one_is_forgotten() {
        let inboxes = Inboxes::default();
        let (mut a, mut b) = (inboxes.stream(), inboxes.stream());
        inboxes.put(&heard(1, 4));
        assert_eq!(a.next().now_or_never(), Some(Some(heard(1, 4))));
        assert_eq!(b.next().now_or_never(), Some(Some(heard(1, 4))));
        assert_eq!(b.next().now_or_never(), None);
        drop(a);
        inboxes.put(&heard(2, 4));
        assert_eq!(lock(&inboxes.0).open.len(), 1);
        inboxes.close();
        assert_eq!(b.next().now_or_never(), Some(Some(heard(2, 4))));
        assert_eq!(b.next().now_or_never(), Some(None));
        assert_eq!(inboxes.stream().next().now_or_never(), Some(None));
    }
}
