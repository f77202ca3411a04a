//! Contents of every awkward size, in both suites; ranges; what is sealed with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use author::{AuthorError, NoProgress, Progress, PutOptions};
use crypto::{Class, Classified, Suite};
use placement::Profile;
use testkit::time;

use crate::network::{Net, get, noise, put};

const CHUNK: usize = 2 << 20;

#[test]
fn every_size_comes_back_in_both_suites() {
    for suite in Suite::ALL {
        time::run(1, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let author = net.user("ada");
            for length in [0, 1, 16 << 10, (16 << 10) + 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 << 20] {
                for content in [noise(length as u64, length), vec![b'a'; length]] {
                    if suite == Suite::Libri1 && length == 0 {
                        let error = put(&author, &content).await.unwrap_err();
                        assert!(matches!(error, AuthorError::Empty));
                        assert_eq!(error.class(), Class::Invalid);
                        continue;
                    }
                    let report = put(&author, &content).await.unwrap();
                    assert_eq!(report.bytes, length as u64);
                    assert!(report.full && report.acked == report.wanted, "{report:?}");
                    let (bytes, got) = get(&author, report.address).await.unwrap();
                    assert!(bytes == content, "{length} bytes in {suite}");
                    assert_eq!((got.bytes, got.degraded), (length as u64, false));
                    assert_eq!(got.details.media_type, "text/plain");
                    assert_eq!(got.details.name.as_deref(), Some("letters/to anna.txt"));
                }
            }
            assert_eq!(author.window_bytes().0, 0, "every lease is given back");
        });
    }
}

#[test]
fn a_put_says_that_there_are_no_more_copies_than_peers() {
    for (suite, peers, copies) in [
        (Suite::Holdfast1, 1, 1),
        (Suite::Holdfast1, 2, 2),
        (Suite::Holdfast1, 3, 3),
        (Suite::Libri1, 2, 2),
    ] {
        time::run(7, |env| async move {
            let net = Net::new(&env, 1, peers, suite);
            let author = net.user("ada");
            for content in [&noise(1, 100)[..], &noise(1, 3 << 20)] {
                let report = put(&author, content).await.unwrap();
                assert!(report.full, "{report:?}");
                assert_eq!(report.profile, Profile::Copies(copies), "{peers} peers");
            }
        });
    }
}

#[test]
fn small_contents_are_two_records_and_large_ones_have_pages() {
    time::run(2, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        for (length, pages) in [(16 << 10, 0), ((16 << 10) + 1, 1), (CHUNK, 1), (CHUNK + 1, 2)] {
            let before = net.records();
            let report = put(&author, &noise(3, length)).await.unwrap();
            // Three copies of a page, five of entry and envelope.
            assert_eq!(net.records() - before, 3 * pages + 2 * 5, "{length}");
            let info = author.info(report.address).await.unwrap();
            assert_eq!((info.pages, info.details.size), (pages as u64, length as u64));
            assert_eq!((info.envelope, info.entry), (report.address, report.entry));
            assert_eq!(info.fragments.len(), 2 + pages);
            for fragment in &info.fragments {
                let copies = if fragment.kind == document::Kind::Page { 3 } else { 5 };
                assert_eq!(fragment.holders.len(), copies);
                assert!(fragment.holders.iter().all(|holder| holder.held && holder.reachable));
                assert!(fragment.holders.iter().all(|holder| holder.organisation.is_some()));
            }
        }
    });
}

#[test]
fn long_metadata_moves_a_small_page_out_of_its_entry() {
    time::run(3, |env| async move {
        let net = Net::copying(&env);
        let author = net.user("ada");
        let options = PutOptions {
            media_type: Some("text/x-poem".to_owned()),
            properties: [("k".to_owned(), vec![7; 600])].into(),
            ..PutOptions::default()
        };
        let report = author.put(&b"short"[..], options, Arc::new(NoProgress)).await.unwrap();
        let info = author.info(report.address).await.unwrap();
        assert_eq!(info.pages, 1);
        assert_eq!(info.details.properties["k"], vec![7; 600]);
        assert_eq!((info.details.media_type.as_str(), info.details.name), ("text/x-poem", None));
        assert_eq!(get(&author, report.address).await.unwrap().0, b"short");

        let options = PutOptions {
            properties: [("k".to_owned(), vec![7; 300 << 10])].into(),
            ..PutOptions::default()
        };
        let error = author.put(&b"short"[..], options, Arc::new(NoProgress)).await.unwrap_err();
        assert!(matches!(error, AuthorError::Unsealable(_)));
        assert_eq!(error.class(), Class::Invalid);
    });
}

#[test]
fn metadata_that_is_too_long_is_refused_before_a_byte_is_read() {
    /// A source that must not be touched.
    struct Untouched;
    impl tokio::io::AsyncRead for Untouched {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _context: &mut std::task::Context<'_>,
            _into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            panic!("a byte was read");
        }
    }
    time::run(3, |env| async move {
        let copies = Net::copying(&env);
        let stripes = Net::new(&env, 3, 9, Suite::Holdfast1);
        let libri = Net::new(&env, 3, 9, Suite::Libri1);
        for (number, net) in [copies, stripes, libri].iter().enumerate() {
            let author = net.user("ada");
            // With all else that is sealed in an entry, a little too much; and far too much.
            for bytes in [(256 << 10) - 100, 300 << 10] {
                let properties = [("k".to_owned(), vec![7; bytes])].into();
                let options = PutOptions { properties, ..PutOptions::default() };
                let put = author.put(Untouched, options, Arc::new(NoProgress)).await;
                let error = put.unwrap_err();
                assert!(matches!(error, AuthorError::Unsealable(_)), "{number}: {error:?}");
                assert_eq!(net.records(), 0, "{number}");
            }
        }
    });
}

#[test]
fn ranges_give_their_bytes_and_touch_their_pages_alone() {
    for suite in Suite::ALL {
        time::run(4, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let author = net.user("ada");
            let content = noise(9, 3 * CHUNK + 5);
            let address = put(&author, &content).await.unwrap().address;
            let size = content.len();
            let edges = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK, size - 1, size];
            for start in edges {
                for end in edges.into_iter().filter(|end| *end >= start) {
                    let mut bytes = Vec::new();
                    let range = Some(start as u64..end as u64);
                    let before = net.network.total();
                    let report =
                        author.get(address, &mut bytes, range, Arc::new(NoProgress)).await.unwrap();
                    assert!(bytes == content[start..end], "{start}..{end} in {suite}");
                    assert_eq!(report.bytes, (end - start) as u64);
                    if suite == Suite::Holdfast1 && end - start <= 2 {
                        let calls = net.network.total() - before;
                        assert!(calls <= 2 + 2, "{calls} calls for two bytes");
                    }
                }
            }
            for (start, end) in [(0, size + 1), (size + 1, size + 1), (5, 4), (size, usize::MAX)] {
                let mut bytes = Vec::new();
                let range = Some(start as u64..end as u64);
                let error = author.get(address, &mut bytes, range, Arc::new(NoProgress)).await;
                let error = error.unwrap_err();
                assert!(matches!(error, AuthorError::Range { .. }), "{error:?}");
                assert_eq!((error.class(), bytes.len()), (Class::Invalid, 0));
            }
            assert_eq!(author.window_bytes().0, 0, "every lease is given back");
        });
    }
}

/// A tiny compressed page that decompresses to very much: read within the memory of parts.
#[test]
fn a_stream_of_zeros_comes_back_in_libri_1() {
    time::run(5, |env| async move {
        let net = Net::new(&env, 3, 3, Suite::Libri1);
        let author = net.user("ada");
        let content = vec![0; 32 << 20];
        let report = put(&author, &content).await.unwrap();
        assert!(report.stored < 1 << 20, "zeros compress");
        assert!(get(&author, report.address).await.unwrap().0 == content);
        let mut bytes = Vec::new();
        let last = content.len() as u64;
        author
            .get(report.address, &mut bytes, Some(last - 1..last), Arc::new(NoProgress))
            .await
            .unwrap();
        assert_eq!(bytes, [0]);
    });
}

#[test]
fn names_types_and_contents_are_nowhere_in_the_clear() {
    for suite in Suite::ALL {
        time::run(6, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let author = net.user("ada");
            let marker = noise(77, 64);
            let options = PutOptions {
                name: Some("Zebra-Quartz-Marker.pdf".to_owned()),
                properties: [("Wombat-Key".to_owned(), marker.clone())].into(),
                ..PutOptions::default()
            };
            let content = [marker.clone(), noise(1, 3 * CHUNK)].concat();
            author.put(&content[..], options, Arc::new(NoProgress)).await.unwrap();
            let seen = std::sync::Mutex::new(Vec::new());
            let address = put(&author, &marker).await.unwrap().address;
            let seen = Arc::new(seen);
            let into = Arc::clone(&seen);
            net.shared.tamper(Some(Arc::new(move |record| {
                into.lock().unwrap().push(record.bytes.clone());
                record
            })));
            get(&author, address).await.unwrap();
            for bytes in seen.lock().unwrap().iter() {
                for needle in [&marker[..], b"Zebra-Quartz", b"Wombat", b"application/pdf", b"anna"]
                {
                    assert!(!bytes.windows(needle.len()).any(|window| window == needle));
                }
            }
            assert!(!seen.lock().unwrap().is_empty());
        });
    }
}

/// Counts the bytes of plaintext.
#[derive(Default)]
struct Counted(AtomicU64);

impl Progress for Counted {
    fn content(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Whether a chunk or a segment is the last is known by the byte behind it, which is the next one's first.
#[test]
fn every_byte_that_is_read_is_told_once() {
    for (copies, whole) in [(None, 4 * CHUNK), (Some(3), CHUNK)] {
        time::run(9, |env| async move {
            let net = Net::with(&env, 3, 9, Suite::Holdfast1, copies);
            let author = net.user("ada");
            for length in [0, 1, whole, whole + 1, 2 * whole + 5] {
                let counted = Arc::new(Counted::default());
                let content = vec![7; length];
                let progress = Arc::clone(&counted);
                author.put(&content[..], PutOptions::default(), progress).await.unwrap();
                assert_eq!(counted.0.load(Ordering::Relaxed), length as u64);
            }
        });
    }
}
