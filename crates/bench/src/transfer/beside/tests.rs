#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

const MIB: u64 = 1 << 20;

/// A program whose turns are told beforehand.
struct Told {
    turns: Vec<Result<Vec<Theirs>, BoxError>>,
    asked: usize,
}

impl Beside for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn version(&self) -> &str {
        "1"
    }

    fn does(&self) -> &'static str {
        "nothing"
    }

    fn transfer(&mut self, _: &Bench, _: &Path, at: &Path) -> Result<Vec<Theirs>, BoxError> {
        assert!(at.is_dir(), "its folder is there");
        std::fs::write(at.join("data"), b"data").unwrap();
        self.asked += 1;
        self.turns.remove(0)
    }
}

fn theirs(work: Work, way: &'static str, millis: u64, stored_bytes: u64) -> Theirs {
    let start = Duration::from_millis(100);
    Theirs { work, way, took: Duration::from_millis(millis) + start, start, stored_bytes }
}

const OURS: Ours = Ours { seconds: 1.0, stored_bytes: Some(3 * MIB) };

fn bench() -> Bench {
    Bench {
        program: "hold".into(),
        dir: None,
        quick: true,
        stop: crate::Stop::default(),
        tell: Box::new(|_| ()),
    }
}

fn run(turns: Vec<Result<Vec<Theirs>, BoxError>>) -> Report {
    let tries = turns.len();
    let folder = tempfile::tempdir().unwrap();
    let mut programs: Vec<Box<dyn Beside>> = vec![Box::new(Told { turns, asked: 0 })];
    let mut rivals = Rivals::new(&mut programs, MIB, "1 MiB".into());
    let content = Content::File(Path::new("file"));
    for _ in 0..tries {
        rivals.turn(&bench(), content, folder.path()).unwrap();
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "its folder goes");
    let mut report = Report::new("transfer", true);
    rivals.conclude(&mut report, content, (OURS, OURS)).unwrap();
    report
}

fn value(report: &Report, at: usize) -> (Option<f64>, bool) {
    (report.bars[at].value, report.bars[at].ok)
}

#[test]
fn a_put_counts_a_stored_byte_and_a_get_the_lower_ratio() {
    // Theirs takes half of our time, and keeps a third of our bytes.
    let turn = vec![theirs(Work::Put, "", 500, MIB), theirs(Work::Get, "", 500, MIB)];
    let report = run(vec![Ok(turn)]);
    assert_eq!(report.ratios["put_to_told"], 0.5);
    assert_eq!(report.ratios["put_to_told_a_stored_byte"], 1.5);
    assert_eq!(value(&report, 0), (Some(1.5), true));
    assert_eq!(value(&report, 1), (Some(0.5), false), "a get reads the content once");
    // Theirs takes twice our time, and keeps six times our bytes.
    let turn = vec![theirs(Work::Put, "", 2000, 18 * MIB), theirs(Work::Get, "", 2000, 18 * MIB)];
    let report = run(vec![Ok(turn)]);
    let third = |value: Option<f64>| (value.unwrap() - 1.0 / 3.0).abs() < 1e-9;
    assert!(third(report.bars[0].value) && third(report.bars[1].value), "{:?}", report.bars);
}

#[test]
fn the_middle_turn_counts_and_each_way_by_itself() {
    let turn = |millis, far| {
        Ok(vec![
            theirs(Work::Put, "", millis, 3 * MIB),
            theirs(Work::Get, "", millis, 3 * MIB),
            theirs(Work::Get, "elsewhere", far, 3 * MIB),
        ])
    };
    let report = run(vec![turn(9000, 100), turn(2000, 4000), turn(1, 5000)]);
    assert_eq!(report.ratios["put_to_told"], 2.0);
    assert_eq!(report.ratios["get_to_told"], 2.0);
    assert_eq!(report.ratios["get_to_told_elsewhere"], 4.0);
    assert_eq!((report.runs.len(), report.bars.len()), (9, 3));
    assert!(report.is_met());
}

#[test]
fn of_two_turns_theirs_is_the_faster() {
    let turn = |millis| Ok(vec![theirs(Work::Put, "", millis, 3 * MIB)]);
    let report = run(vec![turn(500), turn(2000)]);
    assert_eq!((report.ratios["put_to_told"], value(&report, 0)), (0.5, (Some(0.5), false)));
}

#[test]
fn who_fails_leaves_bars_that_are_missed() {
    let gone = || Err(BoxError::from("it is gone"));
    let report = run(vec![gone()]);
    assert_eq!((value(&report, 0), value(&report, 1)), ((None, false), (None, false)));
    assert_eq!(report.runs[0]["failed"], "it is gone");
    // Once it failed it is not asked again; what it did before stays, and is no bar that is met.
    let good = Ok(vec![theirs(Work::Put, "", 2000, 3 * MIB)]);
    let report = run(vec![good, gone(), gone()]);
    assert_eq!(report.ratios["put_to_told"], 2.0);
    assert_eq!(report.runs.len(), 2);
    assert_eq!((value(&report, 0), value(&report, 1)), ((None, false), (None, false)));
}

#[test]
fn who_is_not_asked_and_nobody_leave_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::Tree(Path::new("tree"));
    let told = || Box::new(Told { turns: Vec::new(), asked: 0 }) as Box<dyn Beside>;
    for mut programs in [Vec::new(), vec![told()]] {
        let mut report = Report::new("transfer", true);
        let mut rivals = Rivals::new(&mut programs, MIB, "9 files".into());
        rivals.turn(&bench(), content, folder.path()).unwrap();
        rivals.conclude(&mut report, content, (OURS, OURS)).unwrap();
        assert!(report.runs.is_empty() && report.bars.is_empty() && report.charts.is_empty());
    }
}

#[test]
fn of_small_files_the_number_counts() {
    let mut programs: Vec<Box<dyn Beside>> = vec![Box::new(Told { turns: Vec::new(), asked: 0 })];
    let mut rivals = Rivals::new(&mut programs, MIB, "9 files".into());
    rivals.asked[0].done.push(theirs(Work::Put, "", 2000, 99 * MIB));
    let mut report = Report::new("transfer", true);
    rivals.conclude(&mut report, Content::Tree(Path::new("tree")), (OURS, OURS)).unwrap();
    assert_eq!(value(&report, 0), (Some(2.0), true));
    assert_eq!(report.ratios.keys().collect::<Vec<_>>(), ["put_files_to_told"]);
}
