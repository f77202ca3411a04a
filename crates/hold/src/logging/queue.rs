//! Lines that wait for a thread of their own, which writes them: whoever logs never waits for who reads.
//!
//! A pipe whose reader stalls (`less`, a log collector that was stopped) takes 64 KiB, and then every write waits until that
//! one goes on. Who writes is a task that serves others, so the whole peer would wait with it.
//!
//! ```text
//!   push ──► waiting: lines and gaps, oldest first ──► one thread ──► the pipe
//! ```
//! Where there is no more room, lines are dropped and counted, until half of the room is free again: so a gap is
//! one and not every other line. It is told where it is, once the lines before it are written, by
//! a line of its own, which no level leaves out.
//!
//! Limits: [`LINES_MAX`] lines of together at most [`BYTES_MAX`] bytes wait, and as many gaps as lines and one.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Lines that wait to be written, at most.
const LINES_MAX: usize = 4_096;
/// Their bytes, at most.
const BYTES_MAX: usize = 1 << 20;
/// What a line says that stands for those that were dropped.
const LOST: &str = "log lines were dropped: nobody read the log as fast as it was written";
/// The part of the program that says it.
const TARGET: &str = "hold::logging";

/// The lines that wait. All of its functions but [`Queue::flush`] return at once.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something came.
    more: Condvar,
    /// Something was written.
    less: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// The lines among them.
    lines: usize,
    /// The bytes of those.
    bytes: usize,
    /// Lines are dropped until half of the room is free.
    is_full: bool,
    /// The thread has taken something that it has not written yet.
    is_writing: bool,
}

enum Entry {
    Line(Vec<u8>),
    /// So many lines were dropped here.
    Lost(u64),
}

impl Queue {
    /// A queue whose lines a thread of its own writes to `sink`; gaps are told as JSON where the lines are. The thread ends
    /// with the process.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(super) fn start(
        mut sink: impl Write + Send + 'static,
        json: bool,
    ) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self::default());
        let written = queue.clone();
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || {
            loop {
                let line = match written.next() {
                    Entry::Line(line) => line,
                    Entry::Lost(lines) => gap(lines, json).into_bytes(),
                };
                // A line that cannot be written is lost: who reads may be gone, and the disk full.
                let _ = sink.write_all(&line).and_then(|()| sink.flush());
                written.written();
            }
        })?;
        Ok(queue)
    }

    /// Takes a line with its end, or drops it where there is no room.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.lines <= LINES_MAX / 2 && state.bytes <= BYTES_MAX / 2 {
            state.is_full = false;
        }
        state.is_full |= state.lines >= LINES_MAX || state.bytes + line.len() > BYTES_MAX;
        if !state.is_full {
            state.lines += 1;
            state.bytes += line.len();
            state.waiting.push_back(Entry::Line(line.to_owned()));
        } else if let Some(Entry::Lost(lines)) = state.waiting.back_mut() {
            *lines += 1;
        } else {
            state.waiting.push_back(Entry::Lost(1));
        }
        drop(state);
        self.more.notify_one();
    }

    /// Waits until all is written, so long at most; whether it is.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let waits = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let waited = self.less.wait_timeout_while(self.state(), limit, waits);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !result.timed_out()
    }

    /// What is to be written next, once there is something.
    fn next(&self) -> Entry {
        let mut state = self.state();
        loop {
            if let Some(entry) = state.waiting.pop_front() {
                if let Entry::Line(line) = &entry {
                    state.lines -= 1;
                    state.bytes -= line.len();
                }
                state.is_writing = true;
                return entry;
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn written(&self) {
        self.state().is_writing = false;
        self.less.notify_all();
    }

    /// The state is changed in single steps, so one that a panic left is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each write is a line: so does `tracing_subscriber` write an event.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line that stands for so many that were dropped, in the form of those around it. Nothing in it needs to be escaped.
fn gap(lines: u64, json: bool) -> String {
    let mut at = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut at));
    if json {
        let fields = format!(r#"{{"message":"{LOST}","lines":{lines}}}"#);
        let line = format!(r#""timestamp":"{at}","level":"WARN","fields":{fields}"#);
        return format!("{{{line},\"target\":\"{TARGET}\"}}\n");
    }
    format!("{at}  WARN {TARGET}: {LOST} lines={lines}\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::File;
    use std::io::{BufRead, BufReader};

    use serde_json::json;

    use super::*;

    /// Longer than all that a test waits for.
    const LONG: Duration = Duration::from_secs(100);

    /// A queue before a pipe, and the end of that to read from.
    fn piped(json: bool) -> (Arc<Queue>, impl Iterator<Item = String>) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let queue = Queue::start(File::from(writer), json).unwrap();
        let lines = BufReader::new(File::from(reader)).lines();
        (queue, lines.map(Result::unwrap))
    }

    /// Lines of 1 KiB each, four times as many bytes as may wait.
    fn push_too_many(queue: &Queue) -> usize {
        let lines = 4 * BYTES_MAX / 1_024;
        for number in 0..lines {
            queue.push(format!("{number:<1023}\n").as_bytes());
        }
        lines
    }

    #[test]
    fn a_reader_that_stalls_holds_up_nobody_and_is_told_how_much_it_missed() {
        let (queue, mut lines) = piped(false);
        // Nobody reads yet: with a write that waits, this would never end.
        let pushed = push_too_many(&queue);
        let (mut read, mut lost) = (0, 0);
        while read + lost < pushed {
            let line = lines.next().unwrap();
            match line.split_once(" lines=") {
                Some((said, count)) => {
                    assert!(said.contains(&format!("WARN {TARGET}: {LOST}")), "{line}");
                    lost += count.parse::<usize>().unwrap();
                }
                None => {
                    assert_eq!(line.trim_end(), (read + lost).to_string(), "each in its place");
                    read += 1;
                }
            }
        }
        assert!(lost > 0 && read >= BYTES_MAX / 1_024, "{read} {lost}");
        queue.push(b"it goes on\n");
        assert_eq!(lines.next().unwrap(), "it goes on");
    }

    #[test]
    fn what_waits_is_bounded_in_lines_and_in_bytes() {
        // Without a thread that takes any of it.
        let queue = Queue::default();
        push_too_many(&queue);
        let bytes = queue.state().bytes;
        assert_eq!((queue.state().lines, bytes), (BYTES_MAX / 1_024, BYTES_MAX));
        assert_eq!(queue.state().waiting.len(), BYTES_MAX / 1_024 + 1, "a gap behind them");
        let queue = Queue::default();
        for _ in 0..3 * LINES_MAX {
            queue.push(b"\n");
        }
        assert_eq!(queue.state().waiting.len(), LINES_MAX + 1);
        // Until half of the room is free the gap only grows.
        for _ in 0..LINES_MAX / 2 - 1 {
            queue.next();
            queue.push(b"\n");
        }
        assert!(matches!(queue.state().waiting.back(), Some(Entry::Lost(_))));
        queue.next();
        queue.push(b"\n");
        assert!(matches!(queue.state().waiting.back(), Some(Entry::Line(_))));
    }

    #[test]
    fn what_waits_is_written_before_the_end_where_it_is_read() {
        let (queue, lines) = piped(false);
        let reads = std::thread::spawn(move || lines.take(10_000).count());
        for _ in 0..100 {
            for _ in 0..100 {
                queue.push(b"line\n");
            }
            assert!(queue.flush(LONG));
            let state = queue.state();
            assert!(state.waiting.is_empty() && !state.is_writing);
        }
        assert_eq!(reads.join().unwrap(), 10_000);
    }

    #[test]
    fn a_reader_that_stalls_does_not_keep_the_end() {
        let (queue, _lines) = piped(false);
        push_too_many(&queue);
        assert!(!queue.flush(Duration::from_millis(1)));
    }

    #[test]
    fn a_gap_among_lines_of_json_is_json() {
        let line: serde_json::Value = serde_json::from_str(&gap(7, true)).unwrap();
        assert_eq!((&line["level"], &line["target"]), (&json!("WARN"), &json!(TARGET)));
        assert_eq!(
            (&line["fields"]["message"], &line["fields"]["lines"]),
            (&json!(LOST), &json!(7))
        );
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}
