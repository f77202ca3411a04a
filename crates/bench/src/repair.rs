//! Whole organisations die, and the network mends itself: how long it takes, what it moves, and whether everything can be read meanwhile.
//!
//! ```text
//! 24 peers of 6 organisations; files of 1 KB to 300 MB are put
//! two organisations are killed with -9; nobody does anything
//! all files are read over and over, until nothing lacks and everybody says so; then `hold check` of all
//! ```
//! The least that can be moved: k - 1 fragments to whoever makes what a stripe lost, and all that was lost once. It is
//! counted by the bytes that the peers hold: of all fragments, a stripe's part of k - 1 of its n, and what the dead held. Copies and headers are
//! in that too, a few per cent.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use placement::Profile;
use serde::Serialize;

use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Home, Kind, PEERS_MAX, Shape};
use crate::error::BenchError;
use crate::folder::Folder;
use crate::program::Run;
use crate::report::{Bar, Report};
use crate::transfer::{same_tree, settle, write_tree};

/// Times the least that may be moved.
const TRAFFIC_MAX: f64 = 1.5;
/// How long the network may take, the time until peers count as absent included.
const MENDED_LIMIT: Duration = Duration::from_secs(1800);
/// How often it is looked how far it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long what was put may take to be whole.
const SETTLED_LIMIT: Duration = Duration::from_secs(300);
const RUN_LIMIT: Duration = Duration::from_secs(1800);
/// Files of a run: how many of how many bytes.
const FILES: [(usize, usize); 5] =
    [(4, 300 << 20), (8, 64 << 20), (50, 4 << 20), (600, 100_000), (400, 1_000)];
const FILES_QUICK: [(usize, usize); 3] = [(2, 3 << 20), (10, 100_000), (10, 1_000)];

/// `hold bench repair`.
#[derive(Clone, Copy, Debug)]
pub struct Repair {
    /// Peer processes.
    pub peers: usize,
    /// Organisations that they belong to, in turn.
    pub organisations: usize,
    /// Of those, killed.
    pub lost: usize,
    /// Seconds without an answer after which the network does without a peer.
    pub absent_after_s: u64,
}

/// How far the network is.
#[derive(Clone, Copy, Debug, Serialize)]
struct Look {
    seconds: f64,
    copies_lacking: u64,
    fragments_missing: u64,
    unreadable: u64,
    moved_bytes: u64,
    /// Peers that know who is gone, and of nothing that lacks.
    settled: usize,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Serialize)]
struct Mended {
    content_bytes: u64,
    stored_bytes: u64,
    lost_bytes: u64,
    fragments_made: u64,
    copies_fetched: u64,
    moved_bytes: u64,
    least_bytes: u64,
    seconds: f64,
    /// Of them, until the first byte of repair moved.
    began_after_s: f64,
    reads: usize,
}

impl Repair {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where what came out is not what went in.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let files = if bench.quick { &FILES_QUICK[..] } else { &FILES[..] };
        let content: u64 = files.iter().map(|(count, bytes)| (count * bytes) as u64).sum();
        Folder::check_room(bench.dir.as_deref(), content * 6)?;
        let profile = self.checked()?;
        let settings = format!(
            "\n[repair]\nabsent_after_s = {}\ncompare_s = {}\nsettle_s = {}\n",
            self.absent_after_s,
            if bench.quick { 1 } else { 5 },
            if bench.quick { 2 } else { 15 }
        );
        let kind = Kind { peers: self.peers, suite: "holdfast-1", profile: Some(profile) };
        let shape = Shape { organisations: self.organisations, settings };
        let mut community = Community::shaped(bench, kind, shape)?;
        let tree = community.path().join("tree");
        for (number, size) in files.iter().enumerate() {
            write_tree(&tree.join(number.to_string()), *size, bench)?;
        }
        let home = community.home("owner")?;
        let list = put(bench, &community, &home, &tree)?;
        settle(bench, &community)?;
        // What a put owed is mended before anything is killed.
        let what = "what was put was not settled";
        bench.stop.until(what, SETTLED_LIMIT, || {
            bench.stop.sleep(LOOK_EVERY)?;
            let look = self.look(&community, Instant::now())?;
            Ok((look.settled == self.peers).then_some(()))
        })?;
        let base = total(&community, "fetched_bytes")? + total(&community, "sent_bytes")?;
        let stored = community.stored()?;
        bench.tell(format!("{content} bytes put, {stored} stored"));
        let gone = self.organisations - self.lost..self.organisations;
        community.kill_organisations(|organisation| gone.contains(&organisation));
        let lost = stored.saturating_sub(community.stored()?);
        let base_left = total(&community, "fetched_bytes")? + total(&community, "sent_bytes")?;
        bench.tell(format!("{lost} bytes lost; {base} moved before"));
        let (looks, reads, seconds) = self.watch(bench, &community, &home, &tree, &list)?;
        let mut report = Report::new("repair", bench.quick);
        for look in &looks {
            report.run(look)?;
        }
        let Profile::Stripe { k, n } = profile else {
            return Err(BenchError::Argument { name: "--peers", reason: "enough for stripes" });
        };
        let sum = |at: &str| total(&community, at);
        let moved = sum("fetched_bytes")? + sum("sent_bytes")? - base_left;
        let least = stored / u64::from(n) * u64::from(k - 1) + lost;
        let began = looks.iter().find(|look| look.moved_bytes > 0).map_or(0.0, |look| look.seconds);
        let mended = Mended {
            content_bytes: content,
            stored_bytes: stored,
            lost_bytes: lost,
            fragments_made: sum("fragments_made")?,
            copies_fetched: sum("copies_fetched")?,
            moved_bytes: moved,
            least_bytes: least,
            seconds,
            began_after_s: began,
            reads,
        };
        report.run(&mended)?;
        self.conclude(&mut report, &mended, &looks);
        community.check()?;
        Ok(report)
    }

    fn checked(&self) -> Result<Profile, BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(3..=PEERS_MAX).contains(&self.peers) {
            return wrong("--peers", "from 3 to 64");
        }
        if self.lost == 0 || self.lost * 2 >= self.organisations || self.organisations > self.peers
        {
            return wrong("--lost", "fewer than half of the organisations, and one at least");
        }
        let profile = Profile::by_peers(self.peers);
        let left = self.peers - self.peers.div_ceil(self.organisations) * self.lost;
        match profile {
            Profile::Stripe { n, .. } if n as usize <= left => Ok(profile),
            _ => wrong("--peers", "as many as a stripe has fragments must be left"),
        }
    }

    /// Reads everything again and again until nothing lacks; how far it was meanwhile, how often it was read, and how long it took.
    fn watch(
        &self,
        bench: &Bench,
        community: &Community,
        home: &Home,
        tree: &Path,
        list: &Path,
    ) -> Result<(Vec<Look>, usize, f64), BenchError> {
        let started = Instant::now();
        let (mut looks, mut reads, mut quiet) = (Vec::new(), 0, 0);
        let out = community.path().join("out");
        let mut reading = None;
        loop {
            let mut run = match reading.take() {
                Some(run) => run,
                None => self.read(community, home, list, &out)?,
            };
            bench.stop.sleep(LOOK_EVERY)?;
            let look = self.look(community, started)?;
            quiet = if look.settled == community.peers.len() { quiet + 1 } else { 0 };
            looks.push(look);
            if run.ended()?.is_some() {
                run.finish(RUN_LIMIT, &bench.stop)?;
                same_tree(tree, &out, bench)?;
                fs::remove_dir_all(&out).map_err(BenchError::io("remove", &out))?;
                reads += 1;
                let Look { seconds, copies_lacking, fragments_missing, .. } = look;
                bench.tell(format!(
                    "{seconds:.0} s: read all {reads} times, {copies_lacking} copies and {fragments_missing} fragments lack"
                ));
            } else {
                reading = Some(run);
            }
            // What nobody knows to lack may still be found by the next comparison: the program is asked.
            if quiet >= 3
                && reads > 0
                && reading.is_none()
                && checked_all(bench, community, home, list)?
            {
                return Ok((looks, reads, started.elapsed().as_secs_f64()));
            }
            if started.elapsed() > MENDED_LIMIT {
                let what = "the network was not whole again";
                return Err(BenchError::Late { what, limit: MENDED_LIMIT });
            }
        }
    }

    /// Begins to read everything.
    fn read(
        &self,
        community: &Community,
        home: &Home,
        list: &Path,
        out: &Path,
    ) -> Result<Run, BenchError> {
        let mut command = home.command(&community.program, ["get", "--json", "--list"]);
        let told = community.path().join("told");
        let file = File::create(&told).map_err(BenchError::io("write", &told))?;
        Run::start(command.arg(list).arg("-o").arg(out).stdout(file))
    }

    fn look(&self, community: &Community, started: Instant) -> Result<Look, BenchError> {
        let gone = self.peers - community.peers.len();
        let mut look = Look {
            seconds: started.elapsed().as_secs_f64(),
            copies_lacking: 0,
            fragments_missing: 0,
            unreadable: 0,
            moved_bytes: 0,
            settled: 0,
        };
        for peer in &community.peers {
            let status = peer.status()?;
            let number = |at: &str| status["repair"][at].as_u64().unwrap_or(0);
            look.copies_lacking += number("copies_lacking");
            // Every holder of a stripe knows of it.
            look.fragments_missing = look.fragments_missing.max(number("fragments_missing"));
            look.unreadable = look.unreadable.max(number("stripes_unreadable"));
            look.moved_bytes += number("fetched_bytes") + number("sent_bytes");
            let knows =
                gone == 0 || status["repair"]["absent"].as_array().map_or(0, Vec::len) == gone;
            let settled = knows && status["repair"]["settled"].as_bool() == Some(true);
            look.settled += usize::from(settled && number("mending") == 0);
        }
        Ok(look)
    }

    fn conclude(&self, report: &mut Report, mended: &Mended, looks: &[Look]) {
        let traffic = mended.moved_bytes as f64 / mended.least_bytes.max(1) as f64;
        report.ratio("repair_traffic_to_least", traffic);
        let name = format!(
            "bytes moved to mend what {} of {} organisations held, to the least",
            self.lost, self.organisations
        );
        report.bars.push(Bar::at_most(name, traffic, TRAFFIC_MAX));
        let unreadable = looks.iter().map(|look| look.unreadable).max().unwrap_or(0);
        report.bars.push(Bar::at_most("stripes unreadable at any moment", unreadable as f64, 0.0));
        let whole = "seconds from the kill until everything is at full redundancy, reported";
        report.ratio("repair_seconds", mended.seconds);
        report.bars.push(Bar::at_most(whole, mended.seconds, MENDED_LIMIT.as_secs_f64()));
        let points = |of: fn(&Look) -> f64| looks.iter().map(|at| (at.seconds, of(at))).collect();
        let chart = Chart::lines("Lacking after organisations were killed", "seconds", "records");
        let chart = chart.with("copies", points(|at| at.copies_lacking as f64));
        let chart = chart.with("fragments", points(|at| at.fragments_missing as f64));
        report.charts.push(chart);
        let chart = Chart::lines("Moved to mend", "seconds", "MB");
        report.charts.push(chart.with("all peers", points(|at| at.moved_bytes as f64 / 1e6)));
    }
}

/// Puts the tree; the list of its addresses.
fn put(
    bench: &Bench,
    community: &Community,
    home: &Home,
    tree: &Path,
) -> Result<PathBuf, BenchError> {
    let list = community.path().join("list");
    let file = File::create(&list).map_err(BenchError::io("write", &list))?;
    let mut command = home.command(&community.program, ["put", "--json"]);
    Run::start(command.arg(tree).stdout(file))?.finish(RUN_LIMIT, &bench.stop)?;
    Ok(list)
}

/// Whether everything has all its copies and fragments, as the program says.
fn checked_all(
    bench: &Bench,
    community: &Community,
    home: &Home,
    list: &Path,
) -> Result<bool, BenchError> {
    let text = fs::read_to_string(list).map_err(BenchError::io("read", list))?;
    let mut addresses = Vec::new();
    for line in text.lines() {
        let put: serde_json::Value = serde_json::from_str(line)?;
        addresses.push(put["address"].as_str().unwrap_or_default().to_owned());
    }
    let mut states = BTreeSet::new();
    for some in addresses.chunks(200) {
        let mut command = home.command(&community.program, ["check", "--json"]);
        let ended = Run::start(command.args(some))?.finish(RUN_LIMIT, &bench.stop)?;
        for line in ended.text().lines() {
            let found: serde_json::Value = serde_json::from_str(line)?;
            states.insert(found["state"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(states.iter().all(|state| state == "full") && !states.is_empty())
}

/// A number of all peers' repair, added up.
fn total(community: &Community, at: &str) -> Result<u64, BenchError> {
    let mut sum = 0;
    for peer in &community.peers {
        sum += peer.status()?["repair"][at].as_u64().unwrap_or(0);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mended_is_refused_before_anything_starts() {
        let repair =
            |peers, organisations, lost| Repair { peers, organisations, lost, absent_after_s: 60 };
        assert!(repair(24, 6, 2).checked().is_ok());
        assert!(repair(12, 6, 2).checked().is_ok());
        assert!(repair(9, 3, 1).checked().is_err(), "six are left for eight fragments");
        assert!(repair(24, 6, 3).checked().is_err(), "half of the organisations");
        assert!(repair(24, 6, 0).checked().is_err());
    }
}
