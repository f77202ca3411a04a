//! What befalls the world, and the end of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use testkit::disk::FaultyDisk;
use testkit::network::Fault;

use super::World;
use crate::chance::Chance;
use crate::plan::Event;
use crate::wires::Weather;

impl World {
    /// Lets everything of the plan happen in its time.
    pub async fn befall(self: &Arc<Self>) {
        let began = self.env.clock.elapsed();
        for (at, event) in &self.plan.events {
            let left = (began + *at).saturating_sub(self.env.clock.elapsed());
            self.env.clock.sleep(left).await;
            self.happens(event).await;
        }
    }

    pub(crate) async fn happens(self: &Arc<Self>, event: &Event) {
        self.history.event(format!("{event:?}"));
        self.history.tally(name(event));
        match event {
            Event::Weather(weather) => self.wires.set_weather(*weather),
            Event::CutOff(side) => {
                self.wires.cut_off(side.clone());
                self.link_all(side);
            }
            Event::Mute(mute) => {
                self.wires.mute(mute.clone());
                // A link of news is a connection: it needs both ways.
                self.link_all(mute);
            }
            Event::Pause(peer) => self.pause(*peer, true),
            Event::Resume(peer) => self.pause(*peer, false),
            Event::PowerFails(peer, operations) => {
                let peers = self.peers();
                let process = peers[*peer].running.as_ref().map(|running| running.process.clone());
                for disk in peers[*peer].disks() {
                    let process = process.clone();
                    disk.crash_after_and(*operations, move || {
                        process.iter().for_each(|process| process.kill());
                    });
                }
            }
            Event::PowerOff(peer) => {
                self.kill_peer(*peer);
                self.peers()[*peer].crash_disks();
            }
            Event::Kill(peer) => self.kill_peer(*peer),
            Event::Stop(peer) => {
                let (world, peer) = (Arc::clone(self), *peer);
                let stop = async move { world.stop_peer(peer).await };
                self.env.tasks.spawn(stop.boxed()).detach();
            }
            Event::Start(peer) => self.start_peer(*peer).await,
            Event::Full(peer, more, is_told) => {
                let peers = self.peers();
                for disk in peers[*peer].disks() {
                    disk.hide_capacity(!is_told);
                    disk.set_capacity(disk.used_bytes() + more);
                }
            }
            Event::Roomy(peer) => {
                let peers = self.peers();
                peers[*peer].disks().iter().for_each(|disk| disk.set_capacity(u64::MAX));
            }
            Event::Slow(peer, ms_max) => self.peers()[*peer].slowness.set(*ms_max),
            Event::FailReads(peer, fail) => {
                let peers = self.peers();
                peers[*peer].disks().iter().for_each(|disk| disk.fail_reads(*fail));
            }
            Event::FailWrites(peer, count) => {
                let peers = self.peers();
                peers[*peer].disks().iter().for_each(|disk| disk.fail_writes(*count));
            }
            Event::FailSyncs(peer, count) => {
                let peers = self.peers();
                peers[*peer].disks().iter().for_each(|disk| disk.fail_syncs(*count));
            }
            Event::Skew(peer, ahead_ms) => self.peers()[*peer].clock.set(*ahead_ms),
            Event::KillAuthor(author) => self.kill_author(*author),
            Event::LoseSyncs(..)
            | Event::Rot(..)
            | Event::Destroy(_)
            | Event::Remember(_)
            | Event::SetBack(_)
            | Event::Lie(..)
            | Event::Mislead(..) => self.loses(event),
        }
    }

    /// What befalls the victim.
    fn loses(&self, event: &Event) {
        match event {
            Event::LoseSyncs(peer, percent) => {
                let peers = self.peers();
                peers[*peer].disks().iter().for_each(|disk| disk.lose_syncs(*percent));
            }
            Event::Rot(peer, bytes) => {
                let peers = self.peers();
                for _ in 0..*bytes {
                    peers[*peer].disks().iter().for_each(|disk| drop(disk.rot()));
                }
            }
            Event::Destroy(peer) => {
                self.kill_peer(*peer);
                self.count_met(*peer);
                let mut chance = Chance::new(self.seed, "new disks");
                self.peers()[*peer].replace_disks(&mut chance);
            }
            Event::Remember(peer) => self.peers()[*peer].remember(),
            Event::SetBack(peer) => {
                self.kill_peer(*peer);
                self.count_met(*peer);
                self.peers()[*peer].set_back();
            }
            Event::Lie(peer, lie) => {
                self.peers()[*peer].lie = lie.clone();
                self.direct.set(&self.community.peer(*peer), lie.clone());
            }
            Event::Mislead(peer, lie) => self.liars.set(*peer, *lie),
            _ => {}
        }
    }

    /// Counts the faults that a peer's disks really met.
    pub(crate) fn count_met(&self, number: usize) {
        let met: Vec<_> =
            self.peers()[number].disks().into_iter().map(FaultyDisk::take_met).collect();
        for (what, count) in met.into_iter().flatten() {
            self.history.tally_many(what, count);
        }
    }

    fn pause(&self, peer: usize, on: bool) {
        let peers = self.peers();
        let Some(running) = &peers[peer].running else { return };
        if on { running.process.pause() } else { running.process.resume() }
    }

    /// Takes the links of news between these parties and the others down, and all others up.
    fn link_all(&self, side: &BTreeSet<usize>) {
        let running: Vec<usize> = {
            let peers = self.peers();
            (0..peers.len()).filter(|peer| peers[*peer].running.is_some()).collect()
        };
        for (at, a) in running.iter().enumerate() {
            for b in &running[at + 1..] {
                let (one, other) = (self.community.peer(*a), self.community.peer(*b));
                if side.contains(a) == side.contains(b) {
                    self.mesh.heal(one, other);
                } else {
                    self.mesh.cut(one, other);
                }
            }
        }
    }

    /// Whether a peer's operator would restart it: a poisoned publication log, and rot in it, heal at a restart.
    fn needs_restart(&self, number: usize) -> bool {
        self.plan.events.iter().any(|(_, event)| {
            matches!(event, Event::FailSyncs(peer, _) | Event::Rot(peer, _) if *peer == number)
        })
    }

    /// Ends all trouble: everybody runs, on disks that work, over calm wires. What is lost stays lost.
    pub async fn mend(self: &Arc<Self>) {
        self.mend_all_but(&BTreeSet::new()).await;
    }

    /// The same, but these peers stay as they are.
    pub(crate) async fn mend_all_but(self: &Arc<Self>, but: &BTreeSet<usize>) {
        self.history.event("all trouble ends");
        self.calm.store(true, Ordering::SeqCst);
        self.wires.set_weather(Weather::CALM);
        for number in (0..self.plan.peers).filter(|number| !but.contains(number)) {
            self.pause(number, false);
            {
                let mut peers = self.peers();
                let peer = &mut peers[number];
                peer.lie = Fault::None;
                self.liars.set(number, None);
                peer.clock.set(0);
                peer.slowness.set(0);
                for disk in peer.disks() {
                    disk.set_capacity(u64::MAX);
                    disk.fail_reads(false);
                    disk.fail_syncs(0);
                    disk.fail_writes(0);
                    disk.lose_syncs(0);
                }
            }
            let unpowered = self.peers()[number].disks().iter().any(|disk| !disk.is_powered());
            let poisoned = {
                let peers = self.peers();
                let running = peers[number].running.as_ref();
                let status = running.map(|running| running.librarian.status());
                status.is_some_and(|one| one.store.poisoned || one.publications.poisoned)
            };
            if unpowered || poisoned || self.needs_restart(number) {
                self.kill_peer(number);
            }
            if unpowered {
                self.peers()[number].crash_disks();
            }
            self.start_peer(number).await;
            self.direct.set(&self.community.peer(number), Fault::None);
        }
        self.wires.cut_off(BTreeSet::new());
        self.wires.mute(BTreeSet::new());
        self.link_all(&BTreeSet::new());
    }
}

/// What a tally calls it.
fn name(event: &Event) -> &'static str {
    match event {
        Event::Weather(_) => "event: weather",
        Event::CutOff(_) => "event: partition",
        Event::Mute(_) => "event: partition one way",
        Event::Pause(_) | Event::Resume(_) => "event: pause",
        Event::PowerFails(..) | Event::PowerOff(_) => "event: power cut",
        Event::Kill(_) => "event: kill",
        Event::Stop(_) => "event: stop",
        Event::Start(_) => "event: start",
        Event::Full(..) | Event::Roomy(_) => "event: full disk",
        Event::Slow(..) => "event: slow disk",
        Event::FailReads(..) => "event: failing reads",
        Event::FailWrites(..) => "event: failed write",
        Event::FailSyncs(..) => "event: failed sync",
        Event::Skew(..) => "event: clock jump",
        Event::KillAuthor(_) => "event: author killed",
        Event::LoseSyncs(..) => "event: lost syncs",
        Event::Rot(..) => "event: rot",
        Event::Destroy(_) => "event: disk lost",
        Event::Remember(_) | Event::SetBack(_) => "event: disk set back",
        Event::Lie(_, lie) => match lie {
            Fault::Flip => "event: lie, a flipped bit",
            Fault::Garbage => "event: lie, made-up bytes",
            Fault::Deny => "event: lie, it has nothing",
            Fault::Forget => "event: lie, it keeps nothing",
            Fault::Hang => "event: lie, no answer",
            Fault::Delay(_) => "event: lie, late answers",
            _ => "event: honest again",
        },
        Event::Mislead(_, Some(_)) => "event: lie, by who knows the others",
        Event::Mislead(_, None) => "event: honest again",
    }
}
