//! Other programs, measured in turn with ours on the same file.
//!
//! ```text
//! try 1: our put, our get, A in and out, B in and out, ...    try 2: the same again
//! ```
//! Whoever drives a program hands it in as [`Beside`]; what is compared, and how, is decided here.
//!
//! - **Time** is a client's from its start to its end, less what it takes for next to nothing: as of
//!   our runs the opening of the keyring is left out.
//! - **Stored bytes** are what the program's folders grew by, whatever its settings say.
//! - **A put** is compared a stored byte: who keeps more may take longer. **A get** reads the content
//!   once whatever is kept, so there the lower of both ratios counts: the plain one, and the one a
//!   stored byte.
//!
//! Only one program runs at a time, ours excepted, whose peers are at rest meanwhile. Before each transfer all
//! that is unwritten is written, and the machine rests ([`Bench::rest`]). A program that fails, be it in its last turn, leaves bars that were not measured; what it did
//! before stands in the rows and ratios.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::percentiles::middle;
use crate::report::{Bar, Report};

/// Ours must be at least as fast.
const BAR: f64 = 1.0;
/// A program whose turn takes longer is not asked again in the same run.
const TURN_LONG: Duration = Duration::from_secs(90);

/// Why a program's turn came to nothing.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A program that is not ours.
pub trait Beside {
    /// Its name, for people and in the report.
    fn name(&self) -> &'static str;
    /// Which version runs.
    fn version(&self) -> &str;
    /// How it is set up and what it does with the bytes, in one sentence.
    fn does(&self) -> &'static str;

    /// Takes a file in and gives it out again: starts the program with its data in `folder`, ends it,
    /// and leaves nothing of it running. What came out was compared by [`same`](crate::same). A
    /// program that is not asked for this does nothing.
    ///
    /// # Errors
    /// Why it could not be done.
    fn transfer(
        &mut self,
        bench: &Bench,
        file: &Path,
        folder: &Path,
    ) -> Result<Vec<Theirs>, BoxError> {
        let _ = (bench, file, folder);
        Ok(Vec::new())
    }

    /// The same with a folder of small files, for a program that takes such. What came out was
    /// compared by [`same_tree`](crate::same_tree).
    ///
    /// # Errors
    /// Why it could not be done.
    fn tree(&mut self, bench: &Bench, tree: &Path, folder: &Path) -> Result<Vec<Theirs>, BoxError> {
        let _ = (bench, tree, folder);
        Ok(Vec::new())
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Content went in.
    Put,
    /// It came out.
    Get,
}

/// One transfer of another program.
#[derive(Clone, Copy, Debug)]
pub struct Theirs {
    /// Which way.
    pub work: Work,
    /// Of several ways of one program, which: `elsewhere`. Empty where there is one.
    pub way: &'static str,
    /// From the client's start to its end.
    pub took: Duration,
    /// The same for next to nothing.
    pub start: Duration,
    /// Bytes by which all its folders had grown once the content was in.
    pub stored_bytes: u64,
}

impl Theirs {
    /// Seconds of the transfer itself.
    fn seconds(&self) -> f64 {
        self.took.saturating_sub(self.start).as_secs_f64().max(1e-3)
    }
}

/// A row of the report.
#[derive(Serialize)]
struct Row<'a> {
    work: Work,
    program: &'a str,
    version: &'a str,
    way: &'a str,
    does: &'a str,
    bytes: u64,
    seconds: f64,
    start_seconds: f64,
    mb_s: f64,
    stored_bytes: u64,
    redundancy: f64,
}

/// One program, and what it did so far.
struct Asked<'a> {
    program: &'a mut dyn Beside,
    done: Vec<Theirs>,
    failed: Option<String>,
    long: bool,
}

/// What goes in and comes out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// One large file, compared a stored byte.
    File(&'a Path),
    /// A folder of small files, where the number counts and not their bytes.
    Tree(&'a Path),
}

/// A transfer of ours that theirs are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours {
    pub(super) seconds: f64,
    /// What a put left at the peers.
    pub(super) stored_bytes: Option<u64>,
}

/// All that are measured beside ours.
pub(super) struct Rivals<'a> {
    bytes: u64,
    /// The content for people: `1 GiB`.
    what: String,
    asked: Vec<Asked<'a>>,
}

impl<'a> Rivals<'a> {
    pub(super) fn new(programs: &'a mut [Box<dyn Beside>], bytes: u64, what: String) -> Self {
        let asked = programs.iter_mut().map(|program| Asked {
            program: &mut **program,
            done: Vec::new(),
            failed: None,
            long: false,
        });
        Self { bytes, what, asked: asked.collect() }
    }

    /// Before each of our transfers, as before each of theirs.
    pub(super) fn rest(&self, bench: &Bench) -> Result<(), BenchError> {
        if self.asked.is_empty() { Ok(()) } else { bench.rest() }
    }

    /// One turn of each.
    pub(super) fn turn(
        &mut self,
        bench: &Bench,
        content: Content,
        at: &Path,
    ) -> Result<(), BenchError> {
        for asked in self.asked.iter_mut().filter(|one| one.failed.is_none() && !one.long) {
            let folder = at.join(format!("{}-{}", asked.program.name(), asked.done.len()));
            std::fs::create_dir_all(&folder).map_err(BenchError::io("make", &folder))?;
            rustix::fs::sync();
            let started = Instant::now();
            let done = match content {
                Content::File(file) => asked.program.transfer(bench, file, &folder),
                Content::Tree(tree) => asked.program.tree(bench, tree, &folder),
            };
            bench.stop.check()?;
            asked.long = started.elapsed() > TURN_LONG;
            // Many small files stay until all is measured, as ours do (`tree::round`).
            if let Content::File(_) = content {
                std::fs::remove_dir_all(&folder).map_err(BenchError::io("remove", &folder))?;
            }
            match done {
                Ok(done) => {
                    for one in &done {
                        bench.tell(asked.told(one, self.bytes));
                    }
                    asked.done.extend(done);
                }
                Err(error) => {
                    let text = chain(&*error);
                    bench.tell(format!("{} failed: {text}", asked.program.name()));
                    asked.failed = Some(text);
                }
            }
        }
        Ok(())
    }

    /// Rows, ratios, bars and a picture; `ours` are the medians of put and get.
    pub(super) fn conclude(
        &self,
        report: &mut Report,
        content: Content,
        (put, get): (Ours, Ours),
    ) -> Result<(), BenchError> {
        let mb_s = |ours: Ours| self.bytes as f64 / 1e6 / ours.seconds;
        let mut shown =
            Shown { names: vec!["ours".into()], puts: vec![mb_s(put)], gets: vec![mb_s(get)] };
        for asked in &self.asked {
            let name = asked.program.name();
            for one in &asked.done {
                report.run(&asked.row(one, self.bytes))?;
            }
            if let Some(failed) = &asked.failed {
                report.run(&serde_json::json!({ "program": name, "failed": failed }))?;
            }
            for (work, way) in asked.kinds() {
                let ours = if work == Work::Put { put } else { get };
                let of = |one: &&Theirs| one.work == work && one.way == way;
                let median = median(asked.done.iter().filter(of));
                let plain = median.map_or(f64::NAN, |one| one.seconds() / ours.seconds);
                let theirs = median.map_or(f64::NAN, |one| one.stored_bytes as f64);
                let a_byte = plain * put.stored_bytes.unwrap_or(0) as f64 / theirs;
                let told = if way.is_empty() { name.to_owned() } else { format!("{name} {way}") };
                let whole = asked.failed.is_none();
                self.compare(report, content, work, &told, (plain, a_byte), whole);
                if let Some(one) = median {
                    shown.add(&told, work, self.bytes as f64 / 1e6 / one.seconds());
                }
            }
        }
        if shown.names.len() > 1 {
            report.charts.push(shown.chart(&self.what));
        }
        Ok(())
    }

    /// The ratios of another way in which ours did the same, which no bar is set for; `way` is part of their names.
    pub(super) fn also(&self, report: &mut Report, way: &str, (put, get): (Ours, Ours)) {
        for asked in &self.asked {
            for (work, theirs) in asked.kinds() {
                let (verb, ours) = if work == Work::Put { ("put", put) } else { ("get", get) };
                let of = |one: &&Theirs| one.work == work && one.way == theirs;
                let median = median(asked.done.iter().filter(of));
                let plain = median.map_or(f64::NAN, |one| one.seconds() / ours.seconds);
                report.ratio(format!("{verb}_files_{way}_to_{}", asked.program.name()), plain);
            }
        }
    }

    /// The ratios and the bar of one work of one program, which did all its turns or not.
    fn compare(
        &self,
        report: &mut Report,
        content: Content,
        work: Work,
        told: &str,
        (plain, a_byte): (f64, f64),
        whole: bool,
    ) {
        let verb = if work == Work::Put { "put" } else { "get" };
        let what = format!("{verb} {} beside {told}", self.what);
        let told = told.replace([' ', '-'], "_");
        let measured = |ratio: f64| if whole { ratio } else { f64::NAN };
        if let Content::Tree(_) = content {
            report.ratio(format!("{verb}_files_to_{told}"), plain);
            report.bars.push(Bar::at_least(what, measured(plain), BAR));
            return;
        }
        report.ratio(format!("{verb}_to_{told}"), plain);
        report.ratio(format!("{verb}_to_{told}_a_stored_byte"), a_byte);
        report.bars.push(match work {
            Work::Put => Bar::at_least(format!("{what}, a stored byte"), measured(a_byte), BAR),
            // Nothing measured must stay so: `min` of nothing and a number is the number.
            Work::Get if a_byte.is_nan() => Bar::at_least(what, a_byte, BAR),
            Work::Get => Bar::at_least(what, measured(plain.min(a_byte)), BAR),
        });
    }
}

impl Asked<'_> {
    fn row<'b>(&'b self, one: &'b Theirs, bytes: u64) -> Row<'b> {
        let seconds = one.seconds();
        Row {
            work: one.work,
            program: self.program.name(),
            version: self.program.version(),
            way: one.way,
            does: self.program.does(),
            bytes,
            seconds,
            start_seconds: one.start.as_secs_f64(),
            mb_s: bytes as f64 / 1e6 / seconds,
            stored_bytes: one.stored_bytes,
            redundancy: one.stored_bytes as f64 / bytes as f64,
        }
    }

    fn told(&self, one: &Theirs, bytes: u64) -> String {
        let row = self.row(one, bytes);
        let verb = if one.work == Work::Put { "put" } else { "get" };
        format!(
            "{verb} beside, {} {}: {:.0} MB/s, {:.2} stored a byte; to start took {:.2} s",
            row.program, row.way, row.mb_s, row.redundancy, row.start_seconds
        )
    }

    /// What it was seen to do; put and get too where it failed before it did that.
    fn kinds(&self) -> Vec<(Work, &'static str)> {
        let mut kinds = Vec::new();
        for one in &self.done {
            if !kinds.contains(&(one.work, one.way)) {
                kinds.push((one.work, one.way));
            }
        }
        for work in [Work::Put, Work::Get] {
            if self.failed.is_some() && !kinds.iter().any(|(done, _)| *done == work) {
                kinds.push((work, ""));
            }
        }
        kinds
    }
}

/// The one in the middle by time; of two the faster, as of ours the slower.
fn median<'a>(all: impl Iterator<Item = &'a Theirs>) -> Option<Theirs> {
    let all: Vec<Theirs> = all.copied().collect();
    if all.is_empty() { None } else { Some(*middle(&all, Theirs::seconds)) }
}

/// An error with all that it came from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text += &format!(": {error}");
        next = error.source();
    }
    text
}

/// MB/s of each, for the picture.
struct Shown {
    names: Vec<String>,
    puts: Vec<f64>,
    gets: Vec<f64>,
}

impl Shown {
    fn add(&mut self, name: &str, work: Work, mb_s: f64) {
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.puts.push(f64::NAN);
            self.gets.push(f64::NAN);
            self.names.len() - 1
        });
        let rates = if work == Work::Put { &mut self.puts } else { &mut self.gets };
        rates[at] = mb_s;
    }

    fn chart(self, what: &str) -> Chart {
        let points = |rates: Vec<f64>| {
            rates.into_iter().enumerate().map(|(at, rate)| (at as f64, rate)).collect()
        };
        let title = format!("{what} in and out, beside other programs");
        Chart::bars(&title, "MB/s of content", self.names)
            .with("put", points(self.puts))
            .with("get", points(self.gets))
    }
}

#[cfg(test)]
mod tests;
