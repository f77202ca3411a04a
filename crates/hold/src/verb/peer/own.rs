//! `hold peer status --dir`: a peer on this machine, as its own page tells.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::page::Told;
use crate::peerdir;

/// `hold peer status --dir`: what a peer on this machine tells of itself.
#[derive(Serialize)]
struct OwnStatus {
    /// Where its page of metrics is, `HOST:PORT`.
    metrics: String,
    /// Its public key.
    peer: String,
    /// serving, read-only or draining.
    state: String,
    /// Why it takes no writes, where it does not.
    read_only: Option<String>,
    /// Seconds since its start.
    uptime_s: u64,
    /// What it stores.
    store: OwnStore,
    /// What scrub and compaction did since its start.
    upkeep: OwnUpkeep,
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

/// A page's `/status`: what is not there, as an older peer may leave it, counts as nothing.
struct Page(Value);

impl Page {
    fn number(&self, at: &str) -> u64 {
        self.0.pointer(at).and_then(Value::as_u64).unwrap_or(0)
    }

    fn text(&self, at: &str) -> Option<String> {
        self.0.pointer(at).and_then(Value::as_str).map(str::to_owned)
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
        let OwnStore { records, bytes, fragments, file_bytes, dead_bytes, free_bytes, .. } = store;
        write!(f, "\nstore: {records} records, {bytes} bytes in files of {file_bytes} bytes")?;
        write!(f, " ({dead_bytes} of them dead), {free_bytes} bytes free")?;
        if *fragments > 0 {
            write!(f, "\nstripes: {fragments} of the records are fragments")?;
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
        let Self { peers_healthy, peers_suspect, peers_away, .. } = self;
        write!(f, "\npeers: {peers_healthy} healthy, {peers_suspect} suspect, {peers_away} away")?;
        write!(f, "\nroster: {}, {} organisations", self.roster, self.organisations)?;
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
        assert!(!well.contains("fsync") && !well.contains("replace"), "{well}");
        let ill = page(
            r#"{"state":"read-only","read_only":"its disk is full",
            "store":{"damaged":2,"upkeep":{"scrub_damaged":3}},"publications":{"poisoned":true}}"#,
        );
        let ill = OwnStatus::new(&told, &ill).to_string();
        for part in ["no writes: its disk is full", "2 records now, 3 found", "fsync", "replace"] {
            assert!(ill.contains(part), "{part}: {ill}");
        }
    }
}
