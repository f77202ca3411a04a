//! `hold peer status --dir`: a peer on this machine, as its own page tells.

mod member;

use std::cmp::Reverse;
use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::page::Told;
use crate::peerdir;

use member::OwnMember;

/// `hold peer status --dir`: what a peer on this machine tells of itself.
#[derive(Serialize)]
struct OwnStatus {
    /// Where its page of metrics is, `HOST:PORT`.
    metrics: String,
    /// Its public key.
    peer: String,
    /// serving, read-only, leaving, left or draining.
    state: String,
    /// Why it takes no writes, where it does not.
    read_only: Option<String>,
    /// Why the others take it for a stranger, where they do.
    disowned: Option<String>,
    /// Seconds since its start.
    uptime_s: u64,
    /// What it stores.
    store: OwnStore,
    /// What it keeps of versioned objects.
    objects: OwnObjects,
    /// What scrub and compaction did since its start.
    upkeep: OwnUpkeep,
    /// What it does to keep the network whole.
    repair: OwnRepair,
    /// Leases that run here.
    leases: u64,
    /// The member of a committee that it hosts.
    committee: Option<OwnMember>,
    /// What each organisation pays for here.
    payers: Vec<OwnPayer>,
    /// Other peers whose last call was answered, or that were not called yet.
    peers_healthy: u64,
    /// Other peers whose last call failed.
    peers_suspect: u64,
    /// Other peers that did not answer for a minute, stopped or left.
    peers_away: u64,
    /// The number of the newest roster it knows.
    roster: u64,
    /// The organisations that it lists.
    organisations: u64,
    /// Whether a failed fsync ended its publication log.
    log_poisoned: bool,
    /// When its certificate ends, Unix seconds.
    certificate_until: u64,
}

/// An organisation that pays for records of a peer.
#[derive(Serialize)]
struct OwnPayer {
    /// Its key.
    organisation: String,
    /// Bytes.
    bytes: u64,
    /// Bytes that it may have, where that is set.
    quota: Option<u64>,
}

/// What a peer stores.
#[derive(Serialize)]
struct OwnStore {
    /// Records it holds.
    records: u64,
    /// Their bytes.
    bytes: u64,
    /// Of the records, fragments of stripes.
    fragments: u64,
    /// Bytes of their files.
    file_bytes: u64,
    /// Of those, bytes that no live record needs.
    dead_bytes: u64,
    /// Bytes that can still be written.
    free_bytes: u64,
    /// Records found damaged and not written again.
    damaged: u64,
    /// Whether a failed fsync ended writes.
    poisoned: bool,
}

/// What a peer keeps of versioned objects.
#[derive(Serialize)]
struct OwnObjects {
    /// Objects with a version here.
    objects: u64,
    /// Versions; what was dropped since its start is counted until the next.
    versions: u64,
    /// Bytes of versions in memory.
    cached_bytes: u64,
    /// How many there may be.
    cache_bytes_max: u64,
    /// Versions that others here were made of and that are not here.
    awaited: u64,
    /// Policies known, of objects and families.
    policies: u64,
    /// Attestations held.
    attestations: u64,
    /// Signed heads held.
    heads: u64,
}

impl OwnObjects {
    fn new(page: &Page) -> Self {
        let number = |name: &str| page.number(&format!("/objects/{name}"));
        Self {
            objects: number("objects"),
            versions: number("versions"),
            cached_bytes: number("cached_bytes"),
            cache_bytes_max: number("cache_bytes_max"),
            awaited: number("awaited"),
            policies: number("policies"),
            attestations: number("attestations"),
            heads: number("heads"),
        }
    }
}

impl fmt::Display for OwnObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, versions, cached_bytes, cache_bytes_max, awaited, heads, .. } = self;
        write!(f, "objects: {objects} with {versions} versions and {heads} heads")?;
        write!(f, ", {cached_bytes} of at most {cache_bytes_max} bytes in memory")?;
        if *awaited > 0 {
            write!(f, ", {awaited} versions that others stand on are not here")?;
        }
        Ok(())
    }
}

/// What scrub and compaction did since a peer's start.
#[derive(Serialize)]
struct OwnUpkeep {
    /// Bytes read by scrub.
    scrubbed_bytes: u64,
    /// Whole passes over the store.
    scrub_passes: u64,
    /// When the last one ended, Unix seconds; null before the first.
    scrub_last_pass: Option<u64>,
    /// Records that scrub found damaged.
    scrub_damaged: u64,
    /// Damaged parts of files that hold no live record, as the last whole pass met them.
    scrub_damaged_ranges: u64,
    /// Publications whose entries in the log were found damaged; they are caught up again.
    log_damaged: u64,
    /// Damaged records that were fetched from other peers, or made again, and written.
    mended_records: u64,
    /// Fragments that were made again from others of their stripe.
    rebuilt_fragments: u64,
    /// Bytes of files that compaction removed.
    compaction_freed_bytes: u64,
    /// Bytes that it wrote again for that.
    compaction_moved_bytes: u64,
}

/// What a peer does to keep the network whole.
#[derive(Serialize)]
struct OwnRepair {
    /// Whether it does anything for it.
    on: bool,
    /// Peers that the network does without now.
    absent: Vec<String>,
    /// Copies that should be here and are not yet.
    copies_lacking: u64,
    /// Stripes known here to lack fragments.
    stripes_due: u64,
    /// Of those, stripes that nobody can read now.
    stripes_unreadable: u64,
    /// Fragments that they lack.
    fragments_missing: u64,
    /// Stripes being mended by this peer now.
    mending: u64,
    /// Copies fetched since its start.
    copies_fetched: u64,
    /// Fragments made again since its start.
    fragments_made: u64,
    /// Own fragments handed to another holder since its start.
    fragments_moved: u64,
    /// Records dropped since its start that others hold.
    dropped: u64,
    /// Bytes fetched to mend since its start.
    fetched_bytes: u64,
    /// Bytes sent to mend since its start.
    sent_bytes: u64,
    /// Bytes a second that mending may move.
    bytes_s: u64,
    /// Whether it leaves.
    leaving: bool,
    /// Of a peer that leaves: records not handed over yet.
    left_to_hand_over: u64,
    /// Of a peer that leaves: who lacks copies yet that it should take.
    takers: Vec<OwnTaker>,
    /// Other peers with which it has not compared since the last of them came or went.
    unknown: u64,
    /// Whether nothing is left to be done here: it was compared with all others, and all that any of them has was found. Stripes
    /// that nobody can read now are none of it, once their holders were asked.
    settled: bool,
    /// What each other peer proved of what it should hold.
    audits: Vec<OwnAudit>,
}

/// Who has yet to take what a peer hands over that leaves.
#[derive(Serialize)]
pub(super) struct OwnTaker {
    /// Its key.
    peer: String,
    /// Copies that it lacks.
    copies: u64,
}

impl OwnTaker {
    /// Those that a page's `/status` names, who lacks most first.
    pub(super) fn all(status: &Value) -> Vec<Self> {
        let one = |value: &Value| {
            let peer = value.get("peer")?.as_str()?.to_owned();
            Some(Self { peer, copies: value.get("copies").and_then(Value::as_u64)? })
        };
        let all = status.pointer("/repair/takers").and_then(Value::as_array);
        let mut all: Vec<Self> = all.into_iter().flatten().filter_map(one).collect();
        all.sort_by_key(|taker| Reverse(taker.copies));
        all
    }
}

impl fmt::Display for OwnTaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lacks {} copies that it should take", self.peer, self.copies)
    }
}

/// What another peer proved to this one of what it should hold.
#[derive(Serialize)]
struct OwnAudit {
    /// Its key.
    peer: String,
    /// Items proven since this peer's start.
    proven: u64,
    /// Items that were not.
    failed: u64,
    /// How many of its last 64 items there were.
    last: u64,
    /// Of those, how many failed.
    last_failed: u64,
    /// The 95th percentile of its last answers, milliseconds.
    usual_ms: u64,
    /// Whether this peer says that it is faulty.
    faulty: bool,
}

impl OwnAudit {
    fn all(page: &Page) -> Vec<Self> {
        let all = page.0.pointer("/repair/audits").and_then(Value::as_array);
        let one = |value: &Value| {
            let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
            Some(Self {
                peer: value.get("peer")?.as_str()?.to_owned(),
                proven: number("proven"),
                failed: number("failed"),
                last: number("last"),
                last_failed: number("last_failed"),
                usual_ms: number("usual_ms"),
                faulty: value.get("faulty").and_then(Value::as_bool).unwrap_or(false),
            })
        };
        all.into_iter().flatten().filter_map(one).collect()
    }
}

impl OwnRepair {
    fn new(page: &Page) -> Self {
        let number = |name: &str| page.number(&format!("/repair/{name}"));
        let absent = page.0.pointer("/repair/absent").and_then(Value::as_array);
        let absent = absent.into_iter().flatten().filter_map(Value::as_str);
        Self {
            on: page.0.pointer("/repair").is_some_and(Value::is_object),
            absent: absent.map(str::to_owned).collect(),
            copies_lacking: number("copies_lacking"),
            stripes_due: number("stripes_due"),
            stripes_unreadable: number("stripes_unreadable"),
            fragments_missing: number("fragments_missing"),
            mending: number("mending"),
            copies_fetched: number("copies_fetched"),
            fragments_made: number("fragments_made"),
            fragments_moved: number("fragments_moved"),
            dropped: number("dropped"),
            fetched_bytes: number("fetched_bytes"),
            sent_bytes: number("sent_bytes"),
            bytes_s: number("bytes_s"),
            leaving: page.is("/repair/leaving"),
            left_to_hand_over: number("left_to_hand_over"),
            takers: OwnTaker::all(&page.0),
            unknown: number("unknown"),
            settled: page.is("/repair/settled"),
            audits: OwnAudit::all(page),
        }
    }
}

impl fmt::Display for OwnRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.on {
            return f.write_str("repair: off");
        }
        let absent = self.absent.len();
        if self.settled && absent == 0 && self.stripes_due == 0 {
            f.write_str("repair: nothing lacks here, compared with all others")?;
        } else {
            let Self { copies_lacking, stripes_due, fragments_missing, mending, .. } = self;
            write!(f, "repair: {absent} peers absent, {copies_lacking} copies lack here")?;
            write!(f, ", {stripes_due} stripes lack {fragments_missing} fragments")?;
            write!(f, ", {mending} being mended, {} bytes a second at most", self.bytes_s)?;
            if self.unknown > 0 {
                write!(f, ", not compared with {} peers yet", self.unknown)?;
            }
        }
        if self.stripes_unreadable > 0 {
            write!(f, "\nUNREADABLE now: {} stripes", self.stripes_unreadable)?;
        }
        let Self { copies_fetched, fragments_made, fragments_moved, dropped, .. } = self;
        write!(f, "\nmended: {copies_fetched} copies fetched, {fragments_made} fragments made")?;
        write!(f, ", {fragments_moved} moved, {dropped} records dropped that others hold")?;
        let Self { fetched_bytes, sent_bytes, .. } = self;
        write!(f, "; {fetched_bytes} bytes fetched and {sent_bytes} sent for it")?;
        let asked = self.audits.iter().filter(|audit| audit.last > 0).count();
        write!(f, "\naudits: {asked} peers were asked to prove what they hold")?;
        for OwnAudit { peer, last, last_failed, faulty, .. } in &self.audits {
            if *faulty {
                write!(f, "\nFAULTY: {peer} failed {last_failed} of its last {last} items")?;
            } else if *last_failed > 0 {
                write!(f, "\naudit: {peer} failed {last_failed} of its last {last} items")?;
            }
        }
        if self.leaving {
            write!(f, "\nleaves: {} records to be handed over", self.left_to_hand_over)?;
            self.takers.iter().try_for_each(|taker| write!(f, "\n{taker}"))?;
        }
        Ok(())
    }
}

/// A page's `/status`: what is not there, as an older peer may leave it, counts as nothing.
struct Page(Value);

impl Page {
    fn number(&self, at: &str) -> u64 {
        self.0.pointer(at).and_then(Value::as_u64).unwrap_or(0)
    }

    fn text(&self, at: &str) -> Option<String> {
        self.0.pointer(at).and_then(Value::as_str).map(str::to_owned)
    }

    fn payers(&self) -> Vec<OwnPayer> {
        let of = self.0.pointer("/leases/by_organisation").and_then(Value::as_object);
        let payer = |(organisation, payer): (&String, &Value)| OwnPayer {
            organisation: organisation.clone(),
            bytes: payer["bytes"].as_u64().unwrap_or(0),
            quota: payer["quota"].as_u64(),
        };
        of.into_iter().flatten().map(payer).collect()
    }

    fn is(&self, at: &str) -> bool {
        self.0.pointer(at).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl OwnStatus {
    fn new(told: &Told, page: &Page) -> Self {
        let store = |name: &str| page.number(&format!("/store/{name}"));
        let upkeep = |name: &str| page.number(&format!("/store/upkeep/{name}"));
        Self {
            metrics: told.address.to_string(),
            peer: told.peer.clone(),
            state: page.text("/state").unwrap_or_default(),
            read_only: page.text("/read_only"),
            disowned: page.text("/disowned"),
            uptime_s: page.number("/uptime_s"),
            store: OwnStore {
                records: store("records"),
                bytes: store("bytes"),
                fragments: store("fragments"),
                file_bytes: store("file_bytes"),
                dead_bytes: store("dead_bytes"),
                free_bytes: store("free_bytes"),
                damaged: store("damaged"),
                poisoned: page.is("/store/poisoned"),
            },
            objects: OwnObjects::new(page),
            upkeep: OwnUpkeep {
                scrubbed_bytes: upkeep("scrubbed_bytes"),
                scrub_passes: upkeep("scrub_passes"),
                scrub_last_pass: Some(upkeep("scrub_last_pass")).filter(|at| *at > 0),
                scrub_damaged: upkeep("scrub_damaged"),
                scrub_damaged_ranges: upkeep("scrub_damaged_ranges"),
                log_damaged: upkeep("log_damaged"),
                mended_records: upkeep("mended_records"),
                rebuilt_fragments: upkeep("rebuilt_fragments"),
                compaction_freed_bytes: upkeep("compaction_freed_bytes"),
                compaction_moved_bytes: upkeep("compaction_moved_bytes"),
            },
            repair: OwnRepair::new(page),
            leases: page.number("/leases/leases"),
            committee: OwnMember::new(page),
            payers: page.payers(),
            peers_healthy: page.number("/peers/healthy"),
            peers_suspect: page.number("/peers/suspect"),
            peers_away: page.number("/peers/away"),
            roster: page.number("/roster"),
            organisations: page.number("/organisations"),
            log_poisoned: page.is("/publications/poisoned"),
            certificate_until: page.number("/certificate_until"),
        }
    }
}

impl fmt::Display for OwnStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, uptime_s, store, upkeep, .. } = self;
        write!(f, "{state} for {uptime_s} s")?;
        if let Some(reason) = &self.read_only {
            write!(f, ", takes no writes: {reason}")?;
        }
        if let Some(reason) = &self.disowned {
            write!(f, "\nNO MEMBER any more: {reason}")?;
        }
        let OwnStore { records, bytes, fragments, file_bytes, dead_bytes, free_bytes, .. } = store;
        write!(f, "\nstore: {records} records, {bytes} bytes in files of {file_bytes} bytes")?;
        write!(f, " ({dead_bytes} of them dead), {free_bytes} bytes free")?;
        if *fragments > 0 {
            write!(f, "\nstripes: {fragments} of the records are fragments")?;
        }
        if self.objects.objects > 0 {
            write!(f, "\n{}", self.objects)?;
        }
        write!(f, "\nscrub: {} passes, {} bytes read", upkeep.scrub_passes, upkeep.scrubbed_bytes)?;
        if let Some(last) = upkeep.scrub_last_pass {
            write!(f, ", last pass {} s ago", peerdir::now_s().saturating_sub(last))?;
        }
        let (found, mended) = (upkeep.scrub_damaged, upkeep.mended_records);
        let damaged = store.damaged;
        write!(f, "\ndamage: {damaged} records now, {found} found by scrub, {mended} mended")?;
        let (freed, moved) = (upkeep.compaction_freed_bytes, upkeep.compaction_moved_bytes);
        write!(f, "\ncompaction: {freed} bytes given back, {moved} written again")?;
        write!(f, "\n{}", self.repair)?;
        if let Some(member) = &self.committee {
            write!(f, "\n{member}")?;
        }
        for OwnPayer { organisation, bytes, quota } in &self.payers {
            write!(f, "\npaid: {bytes} bytes by {organisation}")?;
            if let Some(quota) = quota {
                write!(f, " of {quota}")?;
            }
        }
        let Self { peers_healthy, peers_suspect, peers_away, .. } = self;
        write!(f, "\npeers: {peers_healthy} healthy, {peers_suspect} suspect, {peers_away} away")?;
        write!(f, "\nroster: {}, {} organisations", self.roster, self.organisations)?;
        // An older peer does not tell it.
        if self.certificate_until > 0 {
            let left_s = self.certificate_until.saturating_sub(peerdir::now_s());
            write!(f, "\ncertificate: {} days left", left_s / peerdir::DAY_S)?;
        }
        if store.poisoned || self.log_poisoned {
            f.write_str("\nan fsync failed: check the disk, then start the peer again")?;
        }
        if damaged > 0 {
            f.write_str("\nthe disk damages what is on it: replace it")?;
        }
        Ok(())
    }
}

/// Asks the peer that runs on `dir`.
pub(super) async fn run(session: &Session, dir: &Path) -> Result<Exit, HoldError> {
    let told = Told::read(dir)?;
    let page = Page(told.status().await?);
    session.out.result(&OwnStatus::new(&told, &page))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_in_words() {
        let told = Told { address: ([127, 0, 0, 1], 9).into(), peer: "02".to_owned() };
        let page = |text: &str| Page(serde_json::from_str(text).unwrap_or_default());
        let well = OwnStatus::new(&told, &page("{}")).to_string();
        for part in ["fsync", "replace", "MEMBER"] {
            assert!(!well.contains(part), "{part}: {well}");
        }
        let until = peerdir::now_s() + 20 * peerdir::DAY_S - 60;
        let certified = page(&format!(r#"{{"certificate_until":{until}}}"#));
        let certified = OwnStatus::new(&told, &certified).to_string();
        assert!(certified.contains("certificate: 19 days left"), "{certified}");
        let ill = page(
            r#"{"state":"read-only","read_only":"its disk is full",
            "disowned":"its organisation revoked its key",
            "store":{"damaged":2,"upkeep":{"scrub_damaged":3}},"publications":{"poisoned":true}}"#,
        );
        let ill = OwnStatus::new(&told, &ill).to_string();
        let busy = page(
            r#"{"repair":{"copies_fetched":3,"fetched_bytes":700,"sent_bytes":11,"settled":true}}"#,
        );
        let busy = OwnStatus::new(&told, &busy).to_string();
        for part in ["nothing lacks here", "3 copies fetched", "700 bytes fetched and 11 sent"] {
            assert!(busy.contains(part), "{part}: {busy}");
        }
        let objects = page(
            r#"{"objects":{"objects":2,"versions":9,"cached_bytes":70,"cache_bytes_max":99}}"#,
        );
        let objects = OwnStatus::new(&told, &objects).to_string();
        for part in ["2 with 9 versions", "70 of at most 99 bytes"] {
            assert!(objects.contains(part), "{part}: {objects}");
        }
        for part in [
            "no writes: its disk is full",
            "MEMBER any more: its organisation revoked",
            "2 records now, 3 found",
            "fsync",
            "replace",
        ] {
            assert!(ill.contains(part), "{part}: {ill}");
        }
    }
}
