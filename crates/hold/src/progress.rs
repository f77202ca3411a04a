//! Progress on a terminal: bytes, rate, time left, and records confirmed. Nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out::Out;

/// How often the bar is drawn, in a second.
const DRAWS: u8 = 10;
const SIZED: &str = "{prefix} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec}, {eta} left{msg}";
const UNSIZED: &str = "{prefix} {spinner} {bytes}, {bytes_per_sec}{msg}";

/// A bar that is there only where a person watches.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// For a transfer of `bytes`, where that is known. `verb` stands before it.
    pub(crate) fn new(out: &Out, verb: &'static str, bytes: Option<u64>) -> Self {
        if !out.watched() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr_with_hz(DRAWS));
        let template = if bytes.is_some() { SIZED } else { UNSIZED };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(verb);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// So many bytes are through, and so many records are confirmed.
    pub(crate) fn set(&self, bytes: u64, records: Option<u64>) {
        self.0.set_position(bytes);
        if let Some(records) = records {
            self.0.set_message(format!(", {records} fragments confirmed"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
