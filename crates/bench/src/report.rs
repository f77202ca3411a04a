//! What an experiment found: the object that is its last line, and the files of `--out`.
//!
//! The shape is one for all experiments and is fixed in the architecture's record of decisions;
//! what stands in a run is each experiment's own. A number that was not taken is null.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use serde_json::Value;

use crate::chart::Chart;
use crate::error::BenchError;

/// What was promised of one number, and what it is.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Bar {
    /// What is measured, with its unit.
    pub name: String,
    /// What it is; none where it was not measured.
    pub value: Option<f64>,
    /// What was promised: `<= 2`.
    pub bar: String,
    /// Whether it is kept.
    pub ok: bool,
}

impl Bar {
    /// At least so much.
    pub(crate) fn at_least(name: impl Into<String>, value: f64, bar: f64) -> Self {
        Self::of(name.into(), value, format!(">= {bar}"), value >= bar)
    }

    /// At most so much.
    pub(crate) fn at_most(name: impl Into<String>, value: f64, bar: f64) -> Self {
        Self::of(name.into(), value, format!("<= {bar}"), value <= bar)
    }

    fn of(name: String, value: f64, bar: String, ok: bool) -> Self {
        let value = value.is_finite().then_some(value);
        Self { name, value, bar, ok: ok && value.is_some() }
    }
}

/// The machine it ran on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    cpu: String,
    /// Cores this program may use.
    cores: usize,
    /// The machine's memory.
    memory_bytes: u64,
    /// The system and its release.
    system: String,
}

impl Machine {
    fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str, after: char| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split(after).nth(1).map(|value| value.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal", ':').unwrap_or_default();
        let memory_kib: u64 =
            memory.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        let system = rustix::system::uname();
        Self {
            cpu: value(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
            cores: cores(),
            memory_bytes: memory_kib * 1024,
            system: format!(
                "{} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            ),
        }
    }
}

/// Cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `hold bench limit`, `hold bench transfer`, `hold bench memory`, `hold bench libri`,
/// `hold bench overload`, `hold bench slow`, `hold bench kv redis`, `hold bench kv ycsb`, `hold bench kv scan`,
/// `hold bench kv delta`, `hold bench kv copies`, `hold bench scale`, `hold bench durability`, `hold bench repair`,
/// `hold bench rounds`, `hold bench heads`: what an experiment found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which experiment.
    pub experiment: &'static str,
    /// Where.
    pub machine: Machine,
    /// Of which program.
    pub commit: String,
    /// Whether it was the quick form, whose numbers mean little.
    pub quick: bool,
    /// The measured points.
    pub runs: Vec<Value>,
    /// What may be compared between machines.
    pub ratios: BTreeMap<String, f64>,
    /// What was promised.
    pub bars: Vec<Bar>,
    /// Its pictures.
    #[serde(skip)]
    pub charts: Vec<Chart>,
}

impl Report {
    pub(crate) fn new(experiment: &'static str, quick: bool) -> Self {
        let (runs, ratios, bars, charts) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let (machine, commit) = (Machine::this(), commit());
        Self { experiment, machine, commit, quick, runs, ratios, bars, charts }
    }

    pub(crate) fn run(&mut self, run: &impl Serialize) -> Result<(), BenchError> {
        self.runs.push(serde_json::to_value(run)?);
        Ok(())
    }

    /// Keeps a ratio, if it is one.
    pub(crate) fn ratio(&mut self, name: impl Into<String>, value: f64) {
        if value.is_finite() {
            self.ratios.insert(name.into(), value);
        }
    }

    /// Whether every bar is met.
    pub fn is_met(&self) -> bool {
        self.bars.iter().all(|bar| bar.ok)
    }

    /// The bars for people, a line each.
    pub fn bars_told(&self) -> String {
        let told = self.bars.iter().map(|bar| {
            let met = if bar.ok { "met   " } else { "missed" };
            let value = bar.value.map_or_else(|| "not measured".to_owned(), number);
            format!("{met}  {}: {value}, promised {}\n", bar.name, bar.bar)
        });
        told.collect()
    }

    /// The object as one line.
    ///
    /// # Errors
    /// [`BenchError::Json`].
    pub fn line(&self) -> Result<String, BenchError> {
        Ok(serde_json::to_string(self)?)
    }

    /// Writes `NAME.json` and `NAME.svg` into a folder, which is made where it is not there.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        fs::create_dir_all(folder).map_err(BenchError::io("make", folder))?;
        let json = folder.join(format!("{}.json", self.experiment));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&json, text).map_err(BenchError::io("write", &json))?;
        let svg = folder.join(format!("{}.svg", self.experiment));
        fs::write(&svg, Chart::page(&self.charts)).map_err(BenchError::io("write", &svg))
    }
}

/// With as many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The program's commit: what `HOLD_COMMIT` says, else git of the current folder.
fn commit() -> String {
    if let Some(commit) = std::env::var("HOLD_COMMIT").ok().filter(|commit| !commit.is_empty()) {
        return commit;
    }
    let git = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let told = git.ok().filter(|git| git.status.success());
    let told = told.and_then(|git| String::from_utf8(git.stdout).ok());
    told.map_or_else(|| "unknown".to_owned(), |told| told.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_bar_that_was_not_measured_is_missed() {
        assert!(Bar::at_least("a", 0.5, 0.5).ok);
        assert!(!Bar::at_least("a", 0.49, 0.5).ok);
        assert!(Bar::at_most("a", 2.0, 2.0).ok);
        assert!(!Bar::at_most("a", 2.1, 2.0).ok);
        let missing = Bar::at_most("a", f64::NAN, 2.0);
        assert_eq!((missing.value, missing.ok), (None, false));
        assert!(!Bar::at_least("a", f64::INFINITY, 2.0).ok, "nothing divided by nothing");
    }

    #[test]
    fn a_report_is_one_object_of_the_fixed_shape() {
        let mut report = Report::new("limit", true);
        report.ratio("kept", 0.25);
        report.ratio("left out", f64::NAN);
        report.bars.push(Bar::at_least("b", f64::NAN, 1.0));
        assert!(!report.is_met());
        let line = report.line().unwrap();
        assert!(!line.contains('\n'));
        let object: Value = serde_json::from_str(&line).unwrap();
        let names: Vec<&String> = object.as_object().unwrap().keys().collect();
        let mut names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        names.sort_unstable();
        let fixed = ["bars", "commit", "experiment", "machine", "quick", "ratios", "runs"];
        assert_eq!(names, fixed);
        assert_eq!(object["ratios"], serde_json::json!({ "kept": 0.25 }));
        assert_eq!(object["bars"][0]["value"], Value::Null);
        assert!(object["machine"]["cores"].as_u64().unwrap() > 0);
    }

    #[test]
    fn bars_are_told_with_digits_that_say_something() {
        let mut report = Report::new("limit", true);
        report.bars.push(Bar::at_least("a", 0.123_45, 0.5));
        report.bars.push(Bar::at_least("b", f64::NAN, 1.0));
        report.bars.push(Bar::at_most("c", 1234.5, 2000.0));
        let told = "missed  a: 0.123, promised >= 0.5\nmissed  b: not measured, promised >= 1\n\
                    met     c: 1234, promised <= 2000\n";
        assert_eq!(report.bars_told(), told);
    }

    #[test]
    fn its_files_are_named_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        Report::new("memory", false).write(&out).unwrap();
        let json: Value =
            serde_json::from_slice(&fs::read(out.join("memory.json")).unwrap()).unwrap();
        assert_eq!(json["experiment"], "memory");
        assert!(fs::read_to_string(out.join("memory.svg")).unwrap().starts_with("<svg "));
    }
}
