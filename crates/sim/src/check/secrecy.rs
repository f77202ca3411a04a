//! Q5: disks, messages and logs never show what was planted in contents, names and types.
//!
//! Messages are searched as they go ([`History::on_wire`]), log lines as they are written ([`Logs`]), disks at the end.

use env::disk::Disk;
use testkit::disk::FaultyDisk;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::history::History;
use crate::probe;
use crate::search::Needle;
use crate::world::World;

/// Searches every file of every disk.
pub fn check(world: &World) {
    let peers = world.peers();
    for (number, peer) in peers.iter().enumerate() {
        for disk in [&peer.store_disk, &peer.news_disk] {
            for name in files_with(disk, &world.history.needle()) {
                let what = format!("a plaintext marker on the disk of peer {number}: {name}");
                world.history.find("Q5", what);
            }
        }
    }
}

/// The files of a disk that have the marker in them.
fn files_with(disk: &FaultyDisk, needle: &Needle) -> Vec<String> {
    let names = disk.list().unwrap_or_default();
    let has = |name: &String| disk.bytes(name).is_some_and(|bytes| needle.is_in(&bytes));
    names.into_iter().filter(has).collect()
}

/// Takes every log line of this thread, at every level, and searches it.
pub(crate) struct Logs(pub(crate) History);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Logs {
    fn search(&self, text: Text) {
        if self.0.needle().is_in(text.0.as_bytes()) {
            self.0.find("Q5", format!("a plaintext marker in a log line:{}", text.0));
        }
    }
}

impl Subscriber for Logs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text(String::new());
        span.record(&mut text);
        self.search(text);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text(String::new());
        values.record(&mut text);
        self.search(text);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if *event.metadata().level() <= Level::INFO {
            self.0.logged(&text.0);
            probe::logged(&self.0, &text.0);
        }
        self.search(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use super::*;

    fn history() -> History {
        let clock = Arc::new(testkit::time::VirtualClock::new());
        History::new(clock, Needle::new(1), false)
    }

    #[test]
    fn a_marker_is_found_on_a_disk_in_a_message_and_in_a_log_line() {
        let needle = Needle::new(1);
        let mut plain = b"before ".to_vec();
        plain.extend_from_slice(needle.bytes());
        let disk = FaultyDisk::new(1);
        let file = disk.open("a", true).expect("a file");
        file.write_at(0, &[IoSlice::new(&plain[1..20])]).expect("written");
        assert_eq!(files_with(&disk, &needle), Vec::<String>::new());
        file.write_at(0, &[IoSlice::new(&plain)]).expect("written");
        assert_eq!(files_with(&disk, &needle), ["a"]);

        let seen = history();
        seen.on_wire("test", &plain.clone().into());
        assert_eq!(seen.lock().findings.len(), 1);

        let seen = history();
        tracing::subscriber::with_default(Logs(seen.clone()), || {
            tracing::debug!(name = "other", "nothing");
            assert_eq!(seen.lock().findings.len(), 0);
            tracing::debug!(name = needle.text(), "something");
            tracing::info!("got {}", needle.text());
        });
        assert_eq!(seen.lock().findings.len(), 2);
    }
}
