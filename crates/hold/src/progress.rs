//! Progress on a terminal: bytes, rate, time left, and copies confirmed. Nothing elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out::Out;

/// How often the bar is drawn, in a second.
const DRAWS: u8 = 10;
const SIZED: &str = "{prefix} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec}, {eta} left{msg}";
const COUNTING: &str = "{prefix} {spinner} {msg}";
const UNSIZED: &str = "{prefix} {spinner} {bytes}, {bytes_per_sec}{msg}";

/// A bar that is there only where a person watches; it goes away when dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
    copies: AtomicU64,
    /// Whether it is the sum of many transfers, whose total nobody knows.
    sum: bool,
}

impl Bar {
    /// For one transfer. `verb` stands before it.
    pub(crate) fn new(out: &Out, verb: &'static str) -> Arc<Self> {
        let bar = drawn(out, verb, UNSIZED);
        Arc::new(Self { bar, copies: AtomicU64::new(0), sum: false })
    }

    /// For many transfers at once: what all of them did.
    pub(crate) fn sum(out: &Out, verb: &'static str) -> Arc<Self> {
        Arc::new(Self { bar: drawn(out, verb, UNSIZED), copies: AtomicU64::new(0), sum: true })
    }

    /// Prints something with the bar out of its way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

/// A bar that nobody sees where nobody watches.
fn drawn(out: &Out, verb: &'static str, template: &str) -> ProgressBar {
    if !out.watched() {
        return ProgressBar::hidden();
    }
    let target = ProgressDrawTarget::stderr_with_hz(DRAWS);
    let bar = ProgressBar::with_draw_target(None, target);
    // The style first: all else draws.
    style(&bar, template);
    bar.set_prefix(verb);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl author::Progress for Bar {
    fn content(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn acked(&self, copies: u32, _bytes: u64) {
        let copies = self.copies.fetch_add(copies.into(), Ordering::Relaxed) + u64::from(copies);
        self.bar.set_message(format!(", {copies} copies confirmed"));
    }

    fn waiting(&self) {
        if !self.sum {
            self.bar.set_message(", waiting for the last copies");
        }
    }

    fn restarted(&self) {
        if !self.sum {
            self.bar.set_position(0);
        }
    }

    fn total(&self, bytes: u64) {
        if !self.sum {
            self.bar.set_length(bytes);
            style(&self.bar, SIZED);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A count of things done, for what has no bytes to show.
pub(crate) struct Counting {
    bar: ProgressBar,
}

impl Counting {
    /// `what` is shown until the first is done. A total that is known makes a bar of it.
    pub(crate) fn new(out: &Out, verb: &'static str, what: &'static str) -> Self {
        let bar = drawn(out, verb, COUNTING);
        bar.set_message(what);
        Self { bar }
    }

    /// One more is done.
    pub(crate) fn one(&self) {
        self.bar.inc(1);
        self.bar.set_message(format!("{}", self.bar.position()));
    }

    /// Prints something with the bar out of its way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
