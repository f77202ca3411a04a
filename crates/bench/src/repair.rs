//! Whole organisations die, and the network mends itself: how long it takes, what it moves, and whether everything can be read meanwhile.
//!
//! ```text
//! 24 peers of 6 organisations; files of 1 KB to 300 MB are put
//! two organisations are killed with -9; nobody does anything
//! all files are read over and over, until nothing lacks and everybody says so; then `hold check` of all
//! ```
//! The least that can be moved: all that the dead held once, and k - 1 fragments of each stripe that lost some, to whoever makes
//! them and has one of the others. What the dead held is the difference of what the peers say they store. Which stripes lost some,
//! `hold check` tells between the kill and the moment at which the network counts the dead as absent; where that came first, some may be mended
//! already, and the least is less than it was. Copies are made of nothing but copies, and a stripe that lost nothing costs nothing.

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
    stripes: u64,
    /// Of them, those that lost fragments.
    stripes_hit: u64,
    /// Whether they were counted before anything was mended.
    counted_in_time: bool,
    fragments_made: u64,
    copies_fetched: u64,
    moved_bytes: u64,
    least_bytes: u64,
    seconds: f64,
    /// Of them, until the first byte of repair moved.
    began_after_s: f64,
    reads: usize,
}

/// What the peers moved to mend, since they started or since another time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    bytes: u64,
    fragments_made: u64,
    copies_fetched: u64,
}

impl Moved {
    /// By the peers that run, since they started.
    fn of(community: &Community) -> Result<Self, BenchError> {
        let mut sum = Self::default();
        for peer in &community.peers {
            let status = peer.status()?;
            let number = |at: &str| status["repair"][at].as_u64().unwrap_or(0);
            sum.bytes += number("fetched_bytes") + number("sent_bytes");
            sum.fragments_made += number("fragments_made");
            sum.copies_fetched += number("copies_fetched");
        }
        Ok(sum)
    }

    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            fragments_made: self.fragments_made.saturating_sub(before.fragments_made),
            copies_fetched: self.copies_fetched.saturating_sub(before.copies_fetched),
        }
    }
}

/// When organisations were killed, and what those that are left had moved until then.
#[derive(Clone, Copy, Debug)]
struct Killed {
    at: Instant,
    moved: Moved,
}

/// Stripes of contents, as `hold check` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hit {
    stripes: u64,
    /// Of them, those that lack fragments.
    lacking: u64,
    /// Bytes of k - 1 fragments of each of those.
    fetched_bytes: u64,
}

impl Hit {
    fn of(contents: &[serde_json::Value], k: u64) -> Self {
        let mut hit = Self::default();
        for content in contents {
            let number = |at: &str| content[at].as_u64().unwrap_or(0);
            let (stripes, lacking) = (number("stripes"), number("stripes_lacking"));
            hit.stripes += stripes;
            hit.lacking += lacking;
            // The pages of the last stripe may be shorter: they are taken as long as the others are on average.
            let fragment = number("bytes") / (stripes * k).max(1);
            hit.fetched_bytes += fragment * lacking * k.saturating_sub(1);
        }
        hit
    }
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
        let started = Killed { at: Instant::now(), moved: Moved::default() };
        bench.stop.until(what, SETTLED_LIMIT, || {
            bench.stop.sleep(LOOK_EVERY)?;
            let look = self.look(&community, &started)?;
            Ok((look.settled == self.peers).then_some(()))
        })?;
        let stored = community.stored()?;
        bench.tell(format!("{content} bytes put, {stored} stored"));
        let gone = self.organisations - self.lost..self.organisations;
        community.kill_organisations(|organisation| gone.contains(&organisation));
        let killed = Killed { at: Instant::now(), moved: Moved::of(&community)? };
        let lost = stored.saturating_sub(community.stored()?);
        let Profile::Stripe { k, .. } = profile else {
            return Err(BenchError::Argument { name: "--peers", reason: "enough for stripes" });
        };
        let hit = Hit::of(&checked(bench, &community, &home, &list)?, u64::from(k));
        let counted_in_time = Moved::of(&community)? == killed.moved;
        let Hit { stripes, lacking, .. } = hit;
        bench.tell(format!("{lost} bytes lost, of {lacking} of {stripes} stripes too"));
        let (looks, reads) = self.watch(bench, &community, &home, (&tree, &list), &killed)?;
        let seconds = killed.at.elapsed().as_secs_f64();
        let mut report = Report::new("repair", bench.quick);
        for look in &looks {
            report.run(look)?;
        }
        let moved = Moved::of(&community)?.since(killed.moved);
        let began = looks.iter().find(|look| look.moved_bytes > 0).map_or(0.0, |look| look.seconds);
        let mended = Mended {
            content_bytes: content,
            stored_bytes: stored,
            lost_bytes: lost,
            stripes: hit.stripes,
            stripes_hit: hit.lacking,
            counted_in_time,
            fragments_made: moved.fragments_made,
            copies_fetched: moved.copies_fetched,
            moved_bytes: moved.bytes,
            least_bytes: lost + hit.fetched_bytes,
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
            Profile::Stripe { n, .. } if self.organisations > n as usize => {
                wrong("--organisations", "at most as many as a stripe has fragments")
            }
            Profile::Stripe { n, .. } if n as usize <= left => Ok(profile),
            _ => wrong("--peers", "as many as a stripe has fragments must be left"),
        }
    }

    /// Reads everything again and again until nothing lacks; how far it was meanwhile, and how often it was read.
    fn watch(
        &self,
        bench: &Bench,
        community: &Community,
        home: &Home,
        (tree, list): (&Path, &Path),
        killed: &Killed,
    ) -> Result<(Vec<Look>, usize), BenchError> {
        let (mut looks, mut reads, mut quiet) = (Vec::new(), 0, 0);
        let out = community.path().join("out");
        let mut reading = None;
        loop {
            let mut run = match reading.take() {
                Some(run) => run,
                None => self.read(community, home, list, &out)?,
            };
            bench.stop.sleep(LOOK_EVERY)?;
            let look = self.look(community, killed)?;
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
                && is_whole(&checked(bench, community, home, list)?)
            {
                return Ok((looks, reads));
            }
            if killed.at.elapsed() > MENDED_LIMIT {
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

    fn look(&self, community: &Community, since: &Killed) -> Result<Look, BenchError> {
        let gone = self.peers - community.peers.len();
        let mut look = Look {
            seconds: since.at.elapsed().as_secs_f64(),
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
        look.moved_bytes = look.moved_bytes.saturating_sub(since.moved.bytes);
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
        report.ratio("repair_seconds", mended.seconds);
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

/// What the program says of each content.
fn checked(
    bench: &Bench,
    community: &Community,
    home: &Home,
    list: &Path,
) -> Result<Vec<serde_json::Value>, BenchError> {
    let text = fs::read_to_string(list).map_err(BenchError::io("read", list))?;
    let mut addresses = Vec::new();
    for line in text.lines() {
        let put: serde_json::Value = serde_json::from_str(line)?;
        addresses.push(put["address"].as_str().unwrap_or_default().to_owned());
    }
    let mut contents = Vec::with_capacity(addresses.len());
    for some in addresses.chunks(200) {
        let mut command = home.command(&community.program, ["check", "--json"]);
        let ended = Run::start(command.args(some))?.finish(RUN_LIMIT, &bench.stop)?;
        for line in ended.text().lines() {
            contents.push(serde_json::from_str(line)?);
        }
    }
    Ok(contents)
}

/// Whether everything has all its copies and fragments.
fn is_whole(contents: &[serde_json::Value]) -> bool {
    !contents.is_empty() && contents.iter().all(|content| content["state"] == "full")
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
        assert!(repair(24, 24, 1).checked().is_err(), "more organisations than fragments");
    }

    #[test]
    fn only_stripes_that_lost_fragments_make_others_be_fetched() {
        let content = |bytes: u64, stripes: u64, lacking: u64| {
            serde_json::json!({ "bytes": bytes, "stripes": stripes, "stripes_lacking": lacking,
                "missing": 9, "state": "lacking" })
        };
        // One that lies in its entry, one that lost nothing, and two of three stripes of 8 pages of 100 bytes.
        let contents = [content(700, 0, 0), content(4_000, 5, 0), content(2_400, 3, 2)];
        let hit = Hit::of(&contents, 8);
        assert_eq!(hit, Hit { stripes: 8, lacking: 2, fetched_bytes: 2 * 7 * 100 });
        assert!(!is_whole(&contents) && !is_whole(&[]));
        assert!(is_whole(&[serde_json::json!({ "state": "full" })]));
    }

    #[test]
    fn what_was_moved_before_the_kill_is_not_counted() {
        let before = Moved { bytes: 10, fragments_made: 2, copies_fetched: 3 };
        let after = Moved { bytes: 25, fragments_made: 6, copies_fetched: 3 };
        let moved = Moved { bytes: 15, fragments_made: 4, copies_fetched: 0 };
        assert_eq!(after.since(before), moved);
    }
}
