//! Certified heads: a committee of production members on the engine's own simulated machine, clients, and everything that can go wrong.
//!
//! A seed decides who lies and how ([`Cast`]), what befalls the members, and what clients do. What must hold is one promise (Q4): no two
//! certificates for one height, so none for one head; no update is lost, done twice, or done where its head was not as it expected;
//! updates and fresh reads are linearizable. When all trouble is over everything goes on (Q6), and no honest member is cut off by
//! another.

mod cast;
mod check;
mod clients;
mod history;
mod parties;
mod sea;

use std::sync::Arc;
use std::time::Duration;

use committee::planted::{self, Seen};
use commonware_runtime::{Clock as _, Runner as _, Spawner as _, Supervisor as _, deterministic};

pub use cast::{CASTS, Cast};
use cast::{Plan, Trouble};
use clients::{Client, Shore};
use history::History;
use parties::Parties;

use crate::bugs::Planted;
use crate::chance::Chance;
use crate::run::{Report, RunOptions, run_all};

/// For how long all is calm before the end, in milliseconds: members find each other, and who was away catches up.
const CALM_MS: u64 = 8_000;
/// A run that takes longer of virtual time hangs.
const RUN: Duration = Duration::from_secs(1_800);

/// The trial of this seed.
pub fn run(seed: u64, options: RunOptions) -> Report {
    let _planted = Planted::new(options.bug);
    planted::forget();
    planted::watch();
    let config = deterministic::Config::new().with_seed(seed).with_timeout(Some(RUN));
    let history = deterministic::Runner::new(config).start(async |context| {
        let shore = trial(context, seed, options).await;
        std::mem::take(&mut *shore.history())
    });
    planted::forget();
    let hash = history.hash();
    let History { events, lines, findings, tallies, .. } = history;
    let tallies = tallies.into_iter().collect();
    Report { seed, hash, events, findings, lines, tallies }
}

/// Trials of seeds on `threads` threads, as [`crate::run_many`].
pub fn run_many(seeds: std::ops::Range<u64>, threads: usize, options: RunOptions) -> Vec<Report> {
    run_all(seeds, threads, options.bug.is_none(), command, |seed| run(seed, options))
}

/// The command that runs one trial again and tells all its events.
pub fn command(seed: u64) -> String {
    format!("HOLD_SIM_SEED={seed} cargo test -p sim --test heads -- --nocapture")
}

async fn trial(context: deterministic::Context, seed: u64, options: RunOptions) -> Arc<Shore> {
    let plan = Plan::new(seed);
    let mut history = History::new(options.keep_events);
    history.event(format!("seed {seed}: {plan:?}"));
    let parties = Parties::found(context.child("parties"), plan.clone()).await;
    let mut chance = Chance::new(seed, "ways");
    parties.ways(|| plan.ways.0 + chance.below(plan.ways.1));
    let group = parties.charter.group.clone();
    let shore = Shore::new(history, parties);
    let client = |number| {
        let context = context.child("client");
        Client::new(&shore, context, seed, number, group.clone())
    };
    client(99).begin().await;
    let work: Vec<_> = (0..plan.clients)
        .map(|number| {
            context.child("work").spawn({
                let client = client(number);
                move |_| client.work()
            })
        })
        .collect();
    for (after, trouble) in plan.troubles.clone() {
        pass(&context, &shore, after).await;
        befall(&shore, trouble).await;
    }
    pass(&context, &shore, 2_000).await;
    mend(&context, &shore).await;
    shore.close();
    for one in work {
        let _ = one.await;
    }
    let ends = (0..plan.clients).map(|number| {
        let client = client(plan.clients + number);
        context.child("end").spawn(move |_| client.end())
    });
    for one in ends.collect::<Vec<_>>() {
        let _ = one.await;
    }
    look(&shore).await;
    level(&context, &shore, &plan).await;
    check::check(&mut shore.history());
    shore
}

/// Lets time pass; who is down comes back when it is its time.
async fn pass(context: &deterministic::Context, shore: &Shore, millis: u64) {
    let mut left = millis;
    while left > 0 {
        let step = left.min(100);
        context.sleep(Duration::from_millis(step)).await;
        left -= step;
        let mut parties = shore.parties.lock().await;
        let now = parties.now_ms();
        let back = |party: &parties::Party| party.back_ms.is_some_and(|back| back <= now);
        let all: Vec<usize> =
            (0..parties.all.len()).filter(|one| back(&parties.all[*one])).collect();
        for which in all {
            shore.history().event(format!("party {which} starts again"));
            parties.start(which);
        }
        shore.show(parties.handles());
        drop(parties);
        look(shore).await;
    }
}

/// Writes down what the members did.
async fn look(shore: &Shore) {
    let parties = shore.parties.lock().await;
    let mut history = shore.history();
    for seen in planted::seen() {
        match seen {
            Seen::Final(who, header, outcomes) if parties.is_honest(&who) => {
                history.decided(&who, &header, outcomes);
            }
            Seen::Final(..) => {}
            Seen::CutOff(who, whom) => {
                history.tally("cut off");
                history.event(format!("{who} cuts {whom} off"));
                if parties.is_honest(&who) && parties.is_honest_member(&whom) {
                    history.find("Q6", format!("{who} cut off an honest member"));
                }
            }
        }
    }
}

async fn befall(shore: &Shore, trouble: Trouble) {
    shore.history().event(format!("{trouble:?}"));
    let mut parties = shore.parties.lock().await;
    let now = parties.now_ms();
    match trouble {
        Trouble::Cut(away) => {
            shore.history().tally("cuts");
            parties.cut(away);
        }
        Trouble::Join => parties.cut(Vec::new()),
        Trouble::Crash(which, millis) => {
            shore.history().tally("crashes");
            parties.kill(which).await;
            parties.all[which].back_ms = Some(now + millis);
        }
        Trouble::CrashAll(millis) => {
            shore.history().tally("crashes of all");
            for which in 0..parties.all.len() {
                parties.kill(which).await;
                parties.all[which].back_ms = Some(now + millis);
            }
        }
        Trouble::Delay(one, other, millis) => parties.delay(one, other, millis),
        Trouble::Sides(second) => {
            shore.history().tally("twins change sides");
            parties.sides(second);
        }
        Trouble::Refresh => {
            shore.history().tally("refreshes asked for");
            for (_, handle) in parties.handles() {
                // Who is behind, or follows, may not ask.
                let _ = handle.refresh().await;
            }
        }
        Trouble::Forget(which) => {
            shore.history().tally("votes lost");
            parties.forget(which).await;
        }
    }
    shore.show(parties.handles());
}

/// All trouble ends, but the liar goes on.
async fn mend(context: &deterministic::Context, shore: &Shore) {
    {
        let mut parties = shore.parties.lock().await;
        shore.history().event(String::from("all trouble ends"));
        parties.cut(Vec::new());
        parties.ways(|| 3);
        let now = parties.now_ms();
        for party in &mut parties.all {
            party.back_ms = party.back_ms.map(|_| now);
        }
    }
    pass(context, shore, CALM_MS).await;
}

/// In the end all honest members are as far as each other, and who lost its votes has not voted.
async fn level(context: &deterministic::Context, shore: &Shore, plan: &Plan) {
    let mut last = Vec::new();
    for _ in 0..30 {
        let parties = shore.parties.lock().await;
        last = parties.statuses().await;
        drop(parties);
        let heights = last.iter().map(|(_, status)| status.as_ref().map_or(0, |one| one.height));
        let (least, most) = (heights.clone().min(), heights.max());
        if least.is_some_and(|least| least > 0 && Some(least + 3) >= most) {
            break;
        }
        context.sleep(Duration::from_secs(1)).await;
    }
    look(shore).await;
    let parties = shore.parties.lock().await;
    let mut history = shore.history();
    let highest = last.iter().filter_map(|(_, status)| status.as_ref()).map(|one| one.height).max();
    for (which, (name, status)) in last.iter().enumerate() {
        match status {
            None => history.find("Q6", format!("{name} does not run any more")),
            Some(status) if Some(status.height + 3) < highest => {
                let what = format!("{name} is at {}, others at {highest:?}", status.height);
                history.find("Q6", what);
            }
            Some(_) => {}
        }
        if status.as_ref().is_some_and(|status| status.epoch > 0) {
            history.tally("members in a later epoch");
        }
        let forgot = parties.forgot == Some(which);
        if forgot && status.as_ref().is_some_and(|status| status.votes) {
            history.tally("a member without its votes votes");
        }
    }
    history.event(format!("{} members, the highest at {highest:?}", plan.members));
}
