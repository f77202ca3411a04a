//! The decoder of `overlay`: news as it arrives from any peer.

use bytes::Bytes;
use overlay::{NEWS_BYTES_MAX, News};

use super::Target;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[Target { name: "news", run: run_news, seeds }];

fn seeds() -> Vec<Vec<u8>> {
    let news = [
        News::Announcement(Bytes::from_static(b"a signed announcement")),
        News::Envelope(Bytes::from_static(b"an encoded envelope document")),
        News::Envelope(vec![7; 300].into()),
    ];
    news.iter().map(|news| news.encode().expect("within the limits")).collect()
}

fn run_news(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(news) = News::decode(&bytes) {
        assert!((1..=NEWS_BYTES_MAX).contains(&news.bytes().len()));
        assert_eq!(news.encode().expect("what decodes encodes"), data);
    }
}
