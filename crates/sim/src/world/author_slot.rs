//! One author: its home, which outlives its programs.

use std::sync::Arc;

use author::{Author, AuthorOptions, Home, Payer};
use crypto::{ClientKey, Tier};
use env::calls::Credential;
use testkit::network::key;
use walk::{Directory, WalkOptions, Walker};

use super::World;
use crate::process::{Process, Slowness};
use crate::skew::SkewedClock;

/// The base-2 logarithm of scrypt's N: the least there is, since a run makes some homes.
const LOG_N: u8 = 10;
/// How long what is put is paid for where a put says nothing else: longer than any run.
const LEASE_SECONDS: u64 = 7 * 24 * 3600;
const PASSPHRASE: &[u8] = b"correct horse";

/// One author.
pub struct AuthorSlot {
    number: usize,
    /// Its program, where one runs.
    pub running: Option<RunningAuthor>,
    /// Its home, as long as nothing forces it to be read again: opening one costs more than all else that a restart does.
    home: Option<Arc<Home>>,
}

/// One run of an author's program.
#[derive(Clone)]
pub struct RunningAuthor {
    /// The author.
    pub author: Arc<Author>,
    /// What it runs in.
    pub process: Arc<Process>,
}

impl AuthorSlot {
    pub(super) fn new(number: usize) -> Self {
        Self { number, running: None, home: None }
    }

    /// Ends its program at once.
    pub(super) fn end(&mut self) {
        if let Some(running) = self.running.take() {
            running.process.kill();
        }
    }
}

impl World {
    /// An author's program; it is started, and joins, where none runs.
    pub async fn author(&self, number: usize) -> RunningAuthor {
        let running = self.authors()[number].running.clone();
        if let Some(running) = running.filter(|running| !running.process.is_dead()) {
            return running;
        }
        let process = Arc::new(Process::default());
        let clock = SkewedClock::new(self.env.clock.clone());
        let env = self.env_of(&process, &clock, &Slowness::default());
        let secret = key("sim author", number);
        let organisation = number % self.plan.organisations;
        let client = ClientKey::new(secret.public());
        let pass = self.community.pass(client, organisation, Tier::Own, &self.env);
        let credential = Credential::Client(pass);
        let shown = credential.clone();
        let inner = self.direct.calls(secret.public());
        let party = self.author_party(number);
        self.wires.of_network(self.community.genesis.clone());
        let calls = self.wires.line(party, inner, Arc::new(move || shown.clone()));
        let directory = Directory::new(self.community.genesis.clone(), env.clone(), None);
        let options = WalkOptions { credential, ..WalkOptions::default() };
        let walker = Walker::new(env.clone(), calls, directory, options);
        let dir = self.homes.path().join(format!("author-{number}"));
        let open = self.authors()[number].home.clone();
        let home = open.unwrap_or_else(|| {
            let home = if Home::exists(&dir) {
                Home::open(&dir, PASSPHRASE)
            } else {
                Home::create_with(&dir, PASSPHRASE, env.entropy.as_ref(), LOG_N)
            };
            Arc::new(home.expect("a home that opens"))
        });
        self.authors()[number].home = Some(home.clone());
        let payer = || Payer { secret: secret.clone(), seconds: LEASE_SECONDS };
        let payer = self.plan.keeping.is_some().then(payer);
        let author = Author::paying(env, home, walker, &AuthorOptions::default(), payer);
        let running = RunningAuthor { author, process };
        self.history.event(format!("author {number} runs"));
        self.authors()[number].running = Some(running.clone());
        self.join(number, &running).await;
        running
    }

    /// Lets an author learn the peers, from whoever answers.
    pub async fn join(&self, number: usize, running: &RunningAuthor) {
        let members = self.community.members.iter();
        let bootstrap: Vec<String> = members.map(|member| member.address.clone()).collect();
        let joining = Box::pin(running.author.walker().join(&bootstrap));
        let joined = running.process.gate(joining).await;
        let known = joined.and_then(Result::ok);
        self.history.event(format!("author {number} knows {known:?}"));
    }

    /// Ends an author's program at once. The next one reads all it has from its home's folder.
    pub fn kill_author(&self, number: usize) {
        self.leave_author(number);
        self.authors()[number].home = None;
    }

    /// Ends an author's program, whose home stays open for the next: it knows nothing of the network.
    pub fn leave_author(&self, number: usize) {
        self.history.event(format!("author {number} is gone"));
        self.authors()[number].end();
    }
}

impl std::fmt::Debug for AuthorSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthorSlot({}, running: {})", self.number, self.running.is_some())
    }
}
