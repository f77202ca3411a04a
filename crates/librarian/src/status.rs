//! A peer's state for people and scripts, as one JSON object.

use std::collections::BTreeMap;

use crypto::PeerState;
use serde::Serialize;
use walk::Health;

use crate::committee::MemberStatus;
use crate::core::Core;
use crate::disowned::Disowned;
use crate::keeping::RepairStatus;
use crate::metrics::{LeaseLevels, Levels};

/// What a peer tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its key, hex.
    pub peer: String,
    /// Its organisation's key, hex.
    pub organisation: String,
    /// The network's name.
    pub network: String,
    /// The network's id, hex.
    pub network_id: String,
    /// The number of the newest roster known.
    pub roster: u64,
    /// Organisations it lists.
    pub organisations: usize,
    /// `serving`, `read-only`, `leaving`, `left`, or `draining`.
    pub state: &'static str,
    /// Why it takes no writes, where it does not.
    pub read_only: Option<&'static str>,
    /// Why the others take it for a stranger, where they do.
    pub disowned: Option<&'static str>,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// What it stores.
    pub store: StoreStatus,
    /// Of that, versioned objects.
    pub objects: ObjectsStatus,
    /// Who pays for it.
    pub leases: LeasesStatus,
    /// Other peers it knows.
    pub peers: PeersStatus,
    /// Its publication log.
    pub publications: LogStatus,
    /// What is done to keep the network whole; absent where the peer does nothing for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairStatus>,
    /// The member of a committee that it hosts; absent where it hosts none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committee: Option<MemberStatus>,
    /// Calls being answered.
    pub calls: usize,
    /// When its certificate expires, Unix seconds.
    pub certificate_until: u64,
}

/// What a peer stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreStatus {
    /// Records held.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the records, fragments of stripes: pages and parity that live at a stripe.
    pub fragments: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Records found damaged and not written again.
    pub damaged: u64,
    /// Bytes of the files that no live record needs.
    pub dead_bytes: u64,
    /// Whether a failed fsync ended writes.
    pub poisoned: bool,
    /// What scrub and compaction did since the start.
    pub upkeep: UpkeepStatus,
}

/// What a peer keeps of versioned objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObjectsStatus {
    /// Objects with a version here.
    pub objects: u64,
    /// Versions; what was dropped since the start is counted until the next.
    pub versions: u64,
    /// Bytes of versions in memory.
    pub cached_bytes: u64,
    /// Of those, how many there may be.
    pub cache_bytes_max: u64,
    /// Versions that others here were made of and that are not here.
    pub awaited: u64,
    /// Policies known, of objects and families.
    pub policies: usize,
    /// Attestations held.
    pub attestations: usize,
    /// Signed heads held.
    pub heads: usize,
}

/// Who pays for what is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeasesStatus {
    /// Leases that run.
    pub leases: usize,
    /// Places that they pay for: copies and stripes.
    pub places: usize,
    /// Words that ended leases and are kept.
    pub ended: usize,
    /// By organisation, its key in hex: what it pays for here.
    pub by_organisation: BTreeMap<String, PayerStatus>,
}

/// What an organisation pays for here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PayerStatus {
    /// Bytes.
    pub bytes: u64,
    /// Bytes that it may have, where that is set.
    pub quota: Option<u64>,
}

/// What scrub and compaction did since the peer's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpkeepStatus {
    /// Bytes read by scrub.
    pub scrubbed_bytes: u64,
    /// Whole passes over the store.
    pub scrub_passes: u64,
    /// When the last one ended, Unix seconds; `None` before the first.
    pub scrub_last_pass: Option<u64>,
    /// Records that scrub, or opening the store, found damaged.
    pub scrub_damaged: u64,
    /// Damaged parts of files that hold no live record, as the last whole pass met them.
    pub scrub_damaged_ranges: u64,
    /// Publications whose entries in the log were found damaged; they are caught up again.
    pub log_damaged: u64,
    /// Damaged records that were fetched from other peers, or made again, and written.
    pub mended_records: u64,
    /// Fragments that were made again from others of their stripe.
    pub rebuilt_fragments: u64,
    /// Bytes of files that compaction removed.
    pub compaction_freed_bytes: u64,
    /// Bytes that it wrote again for that.
    pub compaction_moved_bytes: u64,
}

/// Other peers as one peer sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeersStatus {
    /// Whose last call was answered, or that were not called yet.
    pub healthy: usize,
    /// Whose last call failed.
    pub suspect: usize,
    /// That stopped, left, or did not answer for a minute.
    pub away: usize,
    /// Linked for news.
    pub links: usize,
    /// How many of each organisation, by the name in the roster.
    pub by_organisation: BTreeMap<String, OrganisationStatus>,
}

/// The peers of one organisation, this peer not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrganisationStatus {
    /// Known.
    pub known: usize,
    /// Of those, healthy.
    pub healthy: usize,
}

/// The publication log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogStatus {
    /// First offset kept.
    pub start: u64,
    /// Next offset.
    pub end: u64,
    /// Whether a failed fsync ended appending to it.
    pub poisoned: bool,
    /// Open subscriptions.
    pub subscribers: usize,
}

impl Core {
    /// The state now.
    pub(crate) fn status(&self) -> Status {
        let stats = self.shelf.stats();
        let roster = self.directory.roster();
        let read_only = self.shelf.refuses_clients();
        let state = match (self.admission.is_draining(), self.state()) {
            (true, _) => "draining",
            (false, PeerState::Serving) => "serving",
            (false, PeerState::Leaving) => "leaving",
            (false, PeerState::Left) => "left",
            (false, _) => "read-only",
        };
        Status {
            peer: self.own.to_string(),
            organisation: self.organisation().to_string(),
            network: self.genesis.name.clone(),
            network_id: self.genesis.network().to_string(),
            roster: roster.number(),
            organisations: roster.organisations().len(),
            state,
            read_only,
            disowned: self.disowned().map(Disowned::words),
            uptime_s: self.uptime().as_secs(),
            store: StoreStatus {
                records: stats.records,
                bytes: stats.bytes,
                fragments: stats.fragments,
                file_bytes: stats.file_bytes,
                free_bytes: stats.free_bytes,
                damaged: stats.damaged,
                dead_bytes: self.shelf.dead_bytes(),
                poisoned: stats.poisoned,
                upkeep: self.metrics.upkeep.status(),
            },
            objects: self.objects_status(),
            leases: self.leases_status(),
            peers: self.peers_status(),
            publications: LogStatus {
                start: self.journal.start(),
                end: self.journal.end(),
                poisoned: self.journal.is_poisoned(),
                subscribers: self.seats.taken(),
            },
            repair: self.keeping.as_ref().map(|keeping| keeping.status(self)),
            committee: self.member.status(),
            calls: self.admission.in_progress().0,
            certificate_until: self.announcer.announcement().certificate.until,
        }
    }

    fn objects_status(&self) -> ObjectsStatus {
        let levels = self.objects.levels();
        ObjectsStatus {
            objects: levels.objects,
            versions: levels.versions,
            cached_bytes: levels.cached_bytes,
            cache_bytes_max: self.objects.cache_bytes_max,
            awaited: levels.awaited,
            policies: levels.policies,
            attestations: levels.attestations,
            heads: levels.heads,
        }
    }

    fn leases_status(&self) -> LeasesStatus {
        let (leases, places, ended) = self.leases.counts();
        let payer = |(organisation, bytes): (crypto::OrgId, u64)| {
            let quota = self.leases.quota_of(&organisation);
            (organisation.to_string(), PayerStatus { bytes, quota })
        };
        let by_organisation = self.leases.accounts().into_iter().map(payer).collect();
        LeasesStatus { leases, places, ended, by_organisation }
    }

    fn lease_levels(&self) -> LeaseLevels {
        let (leases, places, tombstones) = self.leases.counts();
        let bytes = self.leases.accounts().iter().map(|(_, bytes)| bytes).sum();
        LeaseLevels { leases, places, bytes, tombstones }
    }

    fn peers_status(&self) -> PeersStatus {
        let mut all = PeersStatus { links: self.overlay.links(), ..PeersStatus::default() };
        for status in self.directory.peers() {
            if status.peer == self.own {
                continue;
            }
            let organisation = all.by_organisation.entry(status.organisation_name).or_default();
            organisation.known += 1;
            match status.health {
                Health::Healthy => {
                    organisation.healthy += 1;
                    all.healthy += 1;
                }
                Health::Suspect => all.suspect += 1,
                Health::Away => all.away += 1,
            }
        }
        all
    }

    /// The same, as levels of the metrics.
    pub(crate) fn levels(&self) -> Levels {
        let peers = self.peers_status();
        let (calls, write_bytes) = self.admission.in_progress();
        Levels {
            uptime: self.uptime(),
            store: self.shelf.stats(),
            dead_bytes: self.shelf.dead_bytes(),
            healthy: peers.healthy,
            suspect: peers.suspect,
            away: peers.away,
            links: peers.links,
            calls,
            write_bytes,
            subscribers: self.seats.taken(),
            log_start: self.journal.start(),
            log_end: self.journal.end(),
            log_poisoned: self.journal.is_poisoned(),
            spreading: self.publications.spreading(),
            certificate_until: self.announcer.announcement().certificate.until,
            disowned: self.disowned().is_some(),
            read_only: self.shelf.refuses_clients().is_some(),
            roster: self.directory.roster().number(),
            organisations: self.directory.roster().organisations().len(),
            roster_conflicts: self.directory.roster_conflict().1,
            objects: self.objects.levels(),
            leases: self.lease_levels(),
            member: self.member.status().as_ref().map(Into::into).unwrap_or_default(),
        }
    }
}
