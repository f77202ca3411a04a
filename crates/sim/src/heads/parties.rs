//! The members of a committee on their simulated machines, and the second machine that runs under a liar's key.

use std::time::Duration;

use committee::engine::{self, Charter, Founding, Links, MemberId, MemberSecret, Settings};
use committee::planted::{self, Conduct};
use committee::{Committee as _, CommitteeError, Handle, Status};
use commonware_runtime::{
    Blob as _, Clock as _, Handle as Task, ReadOptions, Spawner as _, Storage as _, WriteOptions,
    deterministic,
};
use crypto::{NetworkId, Suite};

use super::cast::{Cast, Plan};
use super::sea::{Machine, Sea, place};

pub(super) const NETWORK: NetworkId = NetworkId::new([7; 32]);
/// Receipts that a version needs.
pub(super) const WANTED: u8 = 2;
/// How long a client waits for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);

/// How long a refresh waits for members that are away.
const DEAL_WITHIN: Duration = Duration::from_secs(2);

type Run = Task<Result<(), CommitteeError>>;

/// A member's machine.
pub(super) struct Party {
    name: String,
    member: usize,
    running: Option<(Handle, Run)>,
    /// When it starts again, where it is down for a while, in milliseconds.
    pub(super) back_ms: Option<u64>,
}

/// All of them.
pub(super) struct Parties {
    context: deterministic::Context,
    sea: Sea,
    plan: Plan,
    pub(super) charter: Charter,
    pub(super) all: Vec<Party>,
    /// Who sees the second twin.
    second: Vec<usize>,
    /// Who is cut off from the others.
    away: Vec<usize>,
    /// Who lost its votes.
    pub(super) forgot: Option<usize>,
}

fn secret(member: usize) -> MemberSecret {
    MemberSecret::new(&[member as u8 + 1; 32]).unwrap_or_else(|error| panic!("{error}"))
}

fn links(members: usize, member: usize) -> Links {
    let all: Vec<_> = (0..members).map(|one| (secret(one).id(), place(one))).collect();
    Links { secret: secret(member), listen: place(member), members: all }
}

fn must<T>(result: Result<T, impl std::fmt::Display>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

impl Parties {
    /// Founds a committee, and starts it.
    pub(super) async fn found(context: deterministic::Context, plan: Plan) -> Self {
        let sea = Sea::default();
        let founding = |member| Founding {
            name: format!("m{member}"),
            network: NETWORK,
            suite: Suite::Holdfast1,
            organisations: Vec::new(),
            wanted: WANTED,
            number: 1,
            links: links(plan.members, member),
            within: Duration::from_secs(60),
        };
        let all: Vec<_> = (0..plan.members)
            .map(|member| {
                let founding = founding(member);
                let machine = Machine::new(&context, &sea, member, member);
                machine.spawn(move |machine| engine::found(machine, founding))
            })
            .collect();
        let mut charter = None;
        for one in all {
            charter = Some(must(must(one.await, "a founder ends"), "all founders are there"));
        }
        let Some(charter) = charter else { panic!("there are founders") };
        let party =
            |member| Party { name: format!("m{member}"), member, running: None, back_ms: None };
        let mut all: Vec<Party> = (0..plan.members).map(party).collect();
        if let Some(liar) = plan.liar().filter(|_| plan.has_twins()) {
            let name = String::from("twin");
            copy(&context, &format!("m{liar}-committee"), "twin-committee").await;
            all.push(Party { name, member: liar, running: None, back_ms: None });
        }
        if let Some(liar) = plan.liar() {
            let conduct = match plan.cast {
                Cast::Withholder => Conduct::Withholds,
                Cast::Forger => Conduct::Forges,
                _ => Conduct::Honest,
            };
            planted::behave(&format!("m{liar}"), conduct);
        }
        let (second, away) = (Vec::new(), Vec::new());
        let mut parties = Self { context, sea, plan, charter, all, second, away, forgot: None };
        parties.chart();
        for which in 0..parties.all.len() {
            parties.start(which);
        }
        parties
    }

    pub(super) fn now_ms(&self) -> u64 {
        let since = self.context.current().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }

    /// Whether what this party says must be right.
    pub(super) fn is_honest(&self, name: &str) -> bool {
        let party = self.all.iter().find(|party| party.name == name);
        party.is_some_and(|party| Some(party.member) != self.plan.liar())
    }

    pub(super) fn is_honest_member(&self, id: &MemberId) -> bool {
        let honest = (0..self.plan.members).filter(|one| Some(*one) != self.plan.liar());
        honest.map(|member| secret(member).id()).any(|one| one == *id)
    }

    /// Draws the network as it is to be now.
    fn chart(&self) {
        let liar = self.plan.liar();
        let twin = |which: usize| which >= self.plan.members;
        for one in 0..self.all.len() {
            for other in 0..one {
                let (a, b) = (self.all[one].member, self.all[other].member);
                // Each of the others sees one of the twins.
                let unseen = match (twin(one), Some(b) == liar, Some(a) == liar) {
                    (true, false, _) => !self.second.contains(&b),
                    (false, true, _) => self.plan.has_twins() && self.second.contains(&a),
                    (false, _, true) => self.plan.has_twins() && self.second.contains(&b),
                    _ => false,
                };
                // The liar's machines are wherever they are wanted.
                let lies = [a, b].iter().any(|member| Some(*member) == liar);
                let apart = self.away.contains(&a) != self.away.contains(&b);
                self.sea.cut(one, other, unseen || (apart && !(lies && self.plan.has_twins())));
            }
        }
    }

    pub(super) fn cut(&mut self, away: Vec<usize>) {
        self.away = away;
        self.chart();
    }

    pub(super) fn sides(&mut self, second: Vec<usize>) {
        self.second = second;
        self.chart();
    }

    pub(super) fn delay(&self, one: usize, other: usize, millis: u64) {
        self.sea.delay(one, other, Duration::from_millis(millis));
    }

    /// Sets how long each way takes; all that a delayer says takes longer.
    pub(super) fn ways(&self, mut takes: impl FnMut() -> u64) {
        for one in 0..self.all.len() {
            for other in 0..self.all.len() {
                let slow = self.plan.cast == Cast::Delayer && Some(one) == self.plan.liar();
                self.delay(one, other, takes() + if slow { 700 } else { 0 });
            }
        }
    }

    pub(super) fn start(&mut self, which: usize) {
        let party = &mut self.all[which];
        let (handle, requests) = Handle::new(self.charter.group.clone());
        let settings = Settings {
            answer_within: ANSWER_WITHIN,
            log_growth: 16 << 10,
            deal_within: DEAL_WITHIN,
            ..Settings::new(&party.name, links(self.plan.members, party.member))
        };
        let machine = Machine::new(&self.context, &self.sea, party.member, which);
        let task = machine.spawn(move |machine| engine::run(machine, settings, requests));
        party.running = Some((handle, task));
        party.back_ms = None;
    }

    pub(super) async fn kill(&mut self, which: usize) {
        if let Some((_, task)) = self.all[which].running.take() {
            self.sea.gone(which);
            task.abort();
            let _ = task.await;
            // What it had open is closed by now.
            self.context.sleep(Duration::from_millis(20)).await;
        }
    }

    /// The member is killed and loses its votes and its chain.
    pub(super) async fn forget(&mut self, which: usize) {
        self.kill(which).await;
        for part in ["votes-0", "chain"] {
            let partition = format!("{}-{part}", self.all[which].name);
            let _ = self.context.remove(&partition, None).await;
        }
        self.forgot = Some(which);
        self.second.push(which);
        self.away.push(which);
        self.chart();
        self.start(which);
    }

    /// The ways to the members that run, the liar's among them.
    pub(super) fn handles(&self) -> Vec<(usize, Handle)> {
        let running = self.all.iter().enumerate().filter_map(|(which, party)| {
            party.running.as_ref().map(|(handle, _)| (which, handle.clone()))
        });
        running.collect()
    }

    /// How the honest members are.
    pub(super) async fn statuses(&self) -> Vec<(String, Option<Status>)> {
        let mut all = Vec::new();
        for party in self.all.iter().filter(|party| self.is_honest(&party.name)) {
            let status = match &party.running {
                Some((handle, _)) => handle.status().await.ok(),
                None => None,
            };
            all.push((party.name.clone(), status));
        }
        all
    }
}

/// Copies a partition of a disk.
async fn copy(context: &deterministic::Context, from: &str, to: &str) {
    for name in must(context.scan(from).await, "a partition is there") {
        let (blob, length) = must(context.open(from, &name).await, "a file opens");
        let read = blob.read_at(0, length as usize, ReadOptions::default()).await;
        let bytes = must(read, "a file is read").coalesce().freeze();
        let (other, _) = must(context.open(to, &name).await, "a file opens");
        must(other.write_at(0, bytes, WriteOptions::default()).await, "a file is written");
        must(other.sync().await, "a file is synced");
    }
}
