//! What runs must have met: each fault as it really struck, and each path by which production code recovers from it.
//!
//! An event of a plan is only an intention: a disk that fails its next write meets nobody if nobody writes. So disks and wires
//! count what they did, and a recovery path is seen by what a store tells of its opening or by the line that the path logs. A
//! test holds the seeds of `make test` to reaching all of [`REACHED`]: a fault that no longer strikes, or a path that no seed
//! takes any more, fails it, and so does a log line that was reworded.

use crate::history::History;
use crate::world::World;

/// Recovery paths, by a part of the line that each logs.
const LOGGED: [(&str, &str); 20] = [
    ("cut an unfinished write", "path: an unfinished write is cut"),
    ("a write failed", "path: a failed write is undone"),
    ("an fsync failed: the store takes no more writes", "path: a store is poisoned"),
    ("an fsync failed: the journal takes no more entries", "path: a publication log is poisoned"),
    ("publications not logged", "path: publications are not logged now"),
    ("a part of a segment is damaged", "path: a damaged part of a segment is passed over"),
    ("a part of a journal is damaged", "path: a damaged part of a log is passed over"),
    ("one of the two copies of a segment's head", "path: a segment's head is read from its copy"),
    ("a record is damaged on disk and is not served", "path: a damaged record is not served"),
    ("scrub found damage", "path: scrub finds damage"),
    ("damaged records were fetched again", "path: damaged records are mended"),
    ("nobody answers for a damaged record", "path: a damaged record cannot be mended yet"),
    ("scrub could not read the store", "path: scrub cannot read"),
    ("compacted", "path: compaction"),
    ("the disk is full: no more writes", "path: a full disk refuses writes"),
    ("the store failed", "path: a failing store answers so"),
    ("nobody to join answered yet", "path: joining is tried again"),
    ("calls did not finish in time and are cut off", "path: stopping cuts calls off"),
    ("copies were not finished in time", "path: stopping gives copies up"),
    ("cannot write a segment's index", "path: a segment goes without its index"),
];

/// Recovery paths, by the metric that counts them at a peer that runs at the end.
const METRICS: [(&str, &str); 4] = [
    ("holdfast_publications_total{source=\"CatchUp\"}", "path: catching up brings a publication"),
    ("holdfast_publications_total{source=\"News\"}", "path: news bring a publication"),
    ("holdfast_damaged_reads_total", "path: a read finds damage"),
    ("holdfast_spread_lost_total", "path: news are given up"),
];

/// What the seeds of `make test` must have met: all that some hundreds of seeds meet a dozen times or more, so that a change
/// of the code, which makes other runs of the same seeds, does not miss one by chance.
pub const REACHED: [&str; 79] = [
    "disk: a failed read",
    "disk: a failed sync",
    "disk: a failed write",
    "disk: a lost sync",
    "disk: a name lost with the power",
    "disk: a torn write",
    "disk: a write lost with the power",
    "disk: a write past the cache",
    "disk: it takes its time",
    "disk: no power to sync",
    "disk: no room for a write",
    "disk: slow",
    "disk: the power goes during a write",
    "event: author killed",
    "event: clock jump",
    "event: disk lost",
    "event: disk set back",
    "event: failed sync",
    "event: failed write",
    "event: failing reads",
    "event: full disk",
    "event: honest again",
    "event: kill",
    "event: lie, a flipped bit",
    "event: lie, it has nothing",
    "event: lie, it keeps nothing",
    "event: lie, by who knows the others",
    "event: lie, late answers",
    "event: lie, made-up bytes",
    "event: lie, no answer",
    "event: lost syncs",
    "event: partition",
    "event: partition one way",
    "event: pause",
    "event: power cut",
    "event: rot",
    "event: slow disk",
    "event: start",
    "event: stop",
    "event: weather",
    "forged: refused",
    "liar: present, and not kept",
    "losses: four and more",
    "losses: one, and all is read",
    "losses: three",
    "losses: two",
    "path: a damaged part of a log is passed over",
    "path: a damaged part of a segment is passed over",
    "path: a damaged record is not served",
    "path: a failed write is undone",
    "path: a failing store answers so",
    "path: a full disk refuses writes",
    "path: a publication log is poisoned",
    "path: a read finds damage",
    "path: a segment goes without its index",
    "path: a store is poisoned",
    "path: an unfinished write is cut",
    "path: catching up brings a publication",
    "path: damaged records are mended",
    "path: joining is tried again",
    "path: an open question finds something",
    "path: parity is fetched",
    "path: news bring a publication",
    "path: publications are not logged now",
    "path: scrub cannot read",
    "path: scrub finds damage",
    "read past a holder",
    "recovery: a damaged frame",
    "recovery: a part of a segment is no record",
    "recovery: a torn end was cut",
    "recovery: an index was made anew",
    "wire: a request lost",
    "wire: an answer lost",
    "wire: cut off",
    "wire: cut off one way",
    "wire: late",
    "wire: overtaken",
    "wire: reset by a dead peer",
    "wire: twice",
];

/// Counts the path that logs this line.
pub(crate) fn logged(history: &History, line: &str) {
    for (_, path) in LOGGED.iter().filter(|(text, _)| line.contains(text)) {
        history.tally(path);
    }
}

/// Counts the paths that peers' metrics tell of.
pub(crate) fn metrics(world: &World) {
    let running: Vec<_> = world.peers().iter().filter_map(|peer| peer.running.clone()).collect();
    for page in running.iter().map(|running| running.librarian.metrics()) {
        for (metric, path) in METRICS {
            let counts = page.lines().filter_map(|line| line.strip_prefix(metric));
            let count: u64 = counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum();
            if count > 0 {
                world.history.tally_many(path, count);
            }
        }
    }
}
