use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::client::Opened;

/// From which modules what operators read by default is.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(event.metadata().target().to_owned());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The door has a thread of its own, so the lines are those of the whole program.
#[test]
fn bad_connections_make_no_lines() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let opened = Opened::new();
    for _ in 0..300 {
        let mut caller = opened.caller();
        caller.send(b"*x\r\n");
        assert!(caller.answer().text().starts_with("ERR Protocol error"));
        assert!(caller.is_closed());
    }
    while opened.metric("cut_off") < 300 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let lines = lines.0.lock().unwrap();
    let from = |module: &str| lines.iter().filter(|target| *target == module).count();
    assert!(from("door_redis") > 0, "that it is open is told");
    assert_eq!(from("door_redis::connection") + from("door_redis::circle"), 0);
}
