//! The lines between programs: every message may be late or lost, every pair may be cut off, and every byte is looked at.
//!
//! ```text
//! caller --request: late? lost? cut off?--> gate of the callee's process --> its librarian
//!    ^----answer: late? lost? cut off?------'   (dead: connection reset; paused: nothing)
//! ```
//! It wraps the calls of `testkit`'s network without wires, which also has the lying peers. As the real transport does, it
//! introduces the caller on each new connection; a restart of either side ends connections.
//!
//! Calls overtake each other, as streams of one connection do. What is not here: bandwidth, and TLS.

mod line;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crypto::Genesis;
use crypto::lease::Shown;
use env::Env;
use env::calls::keep::{Compare, KeepRequest, Words};
use env::calls::{Calls, Credential};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::chance::Chance;
use crate::history::History;
use crate::liar::Cheat;
use crate::process::Process;
use line::Line;

/// How messages fare, everywhere alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Messages lost, of a thousand.
    pub lost_permille: u64,
    /// The longest a message takes, in milliseconds; most take a few.
    pub delay_ms_max: u64,
    /// Messages that take up to that long, of a thousand.
    pub late_permille: u64,
    /// Requests that arrive twice, the second time some seconds later, of a thousand: a caller, or a proxy before it, that
    /// asked again though the first was heard.
    pub twice_permille: u64,
}

/// How much later a request arrives again, at most.
const AGAIN_MS_MAX: u64 = 8_000;
/// A delay from which on a message counts as late.
const LATE: Duration = Duration::from_millis(20);

impl Weather {
    /// Nothing is lost, nothing is late.
    pub const CALM: Self =
        Self { lost_permille: 0, delay_ms_max: 2, late_permille: 0, twice_permille: 0 };
}

/// All lines of one run. Parties are numbered: peers first, then authors.
pub struct Wires {
    env: Env,
    history: History,
    genesis: OnceLock<Arc<Genesis>>,
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    weather: Weather,
    /// Parties on the one side of a partition; empty where there is none.
    side: BTreeSet<usize>,
    /// Parties that nobody but each other hears.
    mute: BTreeSet<usize>,
    /// The number of the last request of one party that arrived at another.
    arrived: BTreeMap<(usize, usize), u64>,
    sent: u64,
    /// Who answers at an address now.
    processes: BTreeMap<String, (usize, Arc<Process>)>,
    next_run: u64,
    /// Runs by address: a new one is a new connection for everybody.
    runs: BTreeMap<String, u64>,
    /// Connections on which the caller has introduced itself: its run, address and the callee's run.
    introduced: BTreeSet<(u64, String, u64)>,
    /// Peers that cheat, and whom they accuse.
    cheats: BTreeMap<usize, (Cheat, Words)>,
}

/// What becomes of one call.
struct Fate {
    before: Duration,
    after: Duration,
    request_lost: bool,
    answer_lost: bool,
    /// How much later it arrives again.
    again: Option<Duration>,
    number: u64,
}

impl Wires {
    /// Calm wires of nobody.
    pub fn new(env: Env, seed: u64, history: History) -> Arc<Self> {
        Arc::new(Self {
            env,
            history,
            genesis: OnceLock::new(),
            state: Mutex::new(State {
                chance: Chance::new(seed, "wires"),
                weather: Weather::CALM,
                side: BTreeSet::new(),
                mute: BTreeSet::new(),
                arrived: BTreeMap::new(),
                sent: 0,
                processes: BTreeMap::new(),
                next_run: 0,
                runs: BTreeMap::new(),
                introduced: BTreeSet::new(),
                cheats: BTreeMap::new(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How messages fare from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Cuts these parties off from all others; nobody for an empty set.
    pub fn cut_off(&self, side: BTreeSet<usize>) {
        self.lock().side = side;
    }

    /// What these parties send arrives at none of the others; nobody for an empty set.
    pub fn mute(&self, mute: BTreeSet<usize>) {
        self.lock().mute = mute;
    }

    /// Lets a run of a peer answer at an address.
    pub fn serve(&self, party: usize, address: &str, process: Arc<Process>) {
        let mut state = self.lock();
        state.next_run += 1;
        let run = state.next_run;
        state.runs.insert(address.to_owned(), run);
        state.processes.insert(address.to_owned(), (party, process));
    }

    /// The lines of one run of a party's program.
    pub fn line(
        self: &Arc<Self>,
        party: usize,
        inner: Arc<dyn Calls>,
        credential: Arc<dyn Fn() -> Credential + Send + Sync>,
    ) -> Arc<dyn Calls> {
        let mut state = self.lock();
        state.next_run += 1;
        let run = state.next_run;
        drop(state);
        Arc::new(Line { wires: Arc::clone(self), party, run, inner, credential })
    }

    /// Lets a party cheat in what it asks of others, with these words, or (with none) be honest again.
    pub(crate) fn set_cheat(&self, party: usize, cheat: Option<Cheat>, words: Words) {
        let mut state = self.lock();
        match cheat {
            Some(cheat) => drop(state.cheats.insert(party, (cheat, words))),
            None => drop(state.cheats.remove(&party)),
        }
    }

    /// What a party really asks; `None` for what its program would ask and it does not.
    fn twisted(&self, party: usize, request: KeepRequest) -> Option<KeepRequest> {
        let state = self.lock();
        let Some((cheat, words)) = state.cheats.get(&party) else { return Some(request) };
        match (cheat, request) {
            // Its own program would tell others what is not there, and fetch it.
            (
                Cheat::HoldsNothing | Cheat::Relays,
                KeepRequest::Compare(_)
                | KeepRequest::Lists(_)
                | KeepRequest::Fetch(_)
                | KeepRequest::Prove(_),
            ) => None,
            (Cheat::Accuses | Cheat::Fakes, KeepRequest::Compare(compare)) => {
                let words = words.clone();
                Some(KeepRequest::Compare(Compare { words, ..compare }))
            }
            (_, request) => Some(request),
        }
    }

    /// Leases go over a wire; who pays is noted, where the network is known.
    fn leased(&self, leases: &[Shown]) {
        if let Some(genesis) = self.genesis.get() {
            self.history.leased(leases, genesis);
        }
    }

    /// The network that leases are of.
    pub(crate) fn of_network(&self, genesis: Arc<Genesis>) {
        // It is said once.
        let _ = self.genesis.set(genesis);
    }

    /// Whether a party asks others which leases were ended.
    fn is_deaf(&self, party: usize) -> bool {
        matches!(self.lock().cheats.get(&party), Some((Cheat::Deaf, _)))
    }

    fn fate(&self) -> Fate {
        let mut state = self.lock();
        let Weather { lost_permille, delay_ms_max, late_permille, twice_permille } = state.weather;
        let mut delay = || {
            let late = state.chance.permille(late_permille);
            let max = if late { delay_ms_max } else { delay_ms_max.min(4) };
            Duration::from_micros(200 + state.chance.below(max * 1000))
        };
        let (before, after) = (delay(), delay());
        let is_late = before.max(after) > LATE;
        let request_lost = state.chance.permille(lost_permille);
        let answer_lost = state.chance.permille(lost_permille);
        let twice = state.chance.permille(twice_permille);
        let again = twice.then(|| Duration::from_millis(state.chance.below(AGAIN_MS_MAX)));
        state.sent += 1;
        let number = state.sent;
        drop(state);
        if is_late {
            self.history.tally("wire: late");
        }
        Fate { before, after, request_lost, answer_lost, again, number }
    }

    /// Whether a message of one party reaches another.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let (is_cut, is_mute) = {
            let state = self.lock();
            let is_cut = state.side.contains(&from) != state.side.contains(&to);
            (is_cut, state.mute.contains(&from) && !state.mute.contains(&to))
        };
        if is_cut {
            self.history.tally("wire: cut off");
        }
        if is_mute {
            self.history.tally("wire: cut off one way");
        }
        !is_cut && !is_mute
    }

    /// A request arrived: whether one that was sent after it arrived before is counted.
    fn arrives(&self, from: usize, to: usize, number: u64) {
        let mut state = self.lock();
        let last = state.arrived.entry((from, to)).or_default();
        let overtaken = *last > number;
        *last = number.max(*last);
        drop(state);
        if overtaken {
            self.history.tally("wire: overtaken");
        }
    }

    /// Lets a request arrive once more; nobody waits for the answer.
    fn repeat(&self, process: &Arc<Process>, later: Duration, again: BoxFuture<'static, ()>) {
        let (clock, process) = (Arc::clone(&self.env.clock), Arc::clone(process));
        let history = self.history.clone();
        let arriving = async move {
            clock.sleep(later).await;
            if process.gate(again).await.is_some() {
                history.tally("wire: twice");
            }
        };
        self.env.tasks.spawn(arriving.boxed()).detach();
    }

    pub(crate) fn process_at(&self, address: &str) -> Option<(usize, Arc<Process>)> {
        self.lock().processes.get(address).cloned()
    }
}
