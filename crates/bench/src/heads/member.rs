//! A member as a process of its own, and the committee that such processes are.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use committee::engine::{Charter, Founding, Links, MemberId, MemberSecret, Settings};
use committee::{Committee as _, Handle, Member, Submission};
use crypto::{NetworkId, Suite};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::Bench;
use crate::community::first_line;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::line::{self, Line};
use crate::ports::Ports;
use crate::process::{self, Pid};
use crate::program::{Program, Run};

pub(super) const NETWORK: NetworkId = NetworkId::new([9; 32]);
/// Receipts that a version needs.
pub(super) const KEEPERS: u8 = 2;
/// How long a founding, or a start, may take.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
const NAME: &str = "member";

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Site {
    folder: PathBuf,
    which: usize,
    /// Where the members listen for each other.
    members: Vec<SocketAddr>,
    /// Where this one listens for clients.
    clients: SocketAddr,
}

fn secret(which: usize) -> Result<MemberSecret, BenchError> {
    Ok(MemberSecret::new(&[which as u8 + 1; 32])?)
}

impl Site {
    fn links(&self) -> Result<Links, BenchError> {
        let mut members: Vec<(MemberId, SocketAddr)> = Vec::new();
        for (which, place) in self.members.iter().enumerate() {
            members.push((secret(which)?.id(), *place));
        }
        let listen = self.members.get(self.which).copied();
        let listen = listen.ok_or(BenchError::Answer { verb: String::from("bench heads") })?;
        Ok(Links { secret: secret(self.which)?, listen, members })
    }

    fn founding(&self) -> Result<Founding, BenchError> {
        Ok(Founding {
            name: String::from(NAME),
            network: NETWORK,
            suite: Suite::Holdfast1,
            organisations: Vec::new(),
            wanted: KEEPERS,
            number: 1,
            links: self.links()?,
            within: FOUND_WITHIN,
        })
    }
}

/// Runs the member of such a file until it is killed.
///
/// # Errors
/// [`BenchError`].
pub(super) fn serve(file: &Path) -> Result<(), BenchError> {
    let text = std::fs::read(file).map_err(BenchError::io("read", file))?;
    let site: Site = serde_json::from_slice(&text)?;
    let member = Member::start(site.folder.clone(), Settings::new(NAME, site.links()?))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::io("run", "clients"))?;
    let end: std::io::Result<()> = runtime.block_on(async {
        let listener = TcpListener::bind(site.clients).await?;
        println!("ready");
        loop {
            let (stream, _) = listener.accept().await?;
            let handle = member.handle().clone();
            tokio::spawn(line::answer(stream, move |asked| answers(handle.clone(), asked)));
        }
    });
    end.map_err(BenchError::io("listen at", site.clients.to_string()))
}

/// What became of a submission; nothing where it is not one, or is to be tried again.
async fn answers(handle: Handle, asked: Bytes) -> Vec<Bytes> {
    let answers = match Submission::decode(&asked) {
        Ok(submission) => handle.update(submission).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    answers.iter().map(committee::Answer::encode).collect()
}

/// Member processes.
pub(super) struct Members {
    pub(super) charter: Charter,
    runs: Vec<Run>,
    pub(super) clients: Vec<SocketAddr>,
    folder: Folder,
}

impl Members {
    /// Founds a committee of so many, and starts them.
    pub(super) fn start(bench: &Bench, count: usize) -> Result<Self, BenchError> {
        let folder = Folder::new(bench.dir.as_deref())?;
        let mut ports = Ports::new();
        let mut place = || Ok::<_, BenchError>((Ipv4Addr::LOCALHOST, ports.free()?).into());
        let members: Vec<SocketAddr> = (0..count).map(|_| place()).collect::<Result<_, _>>()?;
        let clients: Vec<SocketAddr> = (0..count).map(|_| place()).collect::<Result<_, _>>()?;
        let site = |which: usize| Site {
            folder: folder.path().join(which.to_string()),
            which,
            members: members.clone(),
            clients: clients[which],
        };
        let mut founders = Vec::new();
        for which in 0..count {
            let (site, founding) = (site(which), site(which).founding()?);
            founders.push(std::thread::spawn(move || Member::found(site.folder, founding)));
        }
        let mut charter = None;
        for one in founders {
            let end = one.join().map_err(|_| committee::CommitteeError::Stopped)?;
            charter = Some(end?);
        }
        let charter = charter.ok_or(committee::CommitteeError::Stopped)?;
        for which in 0..count {
            let file = folder.path().join(format!("{which}.json"));
            std::fs::write(&file, serde_json::to_vec(&site(which))?)
                .map_err(BenchError::io("write", &file))?;
        }
        let mut members = Self { charter, runs: Vec::new(), clients, folder };
        members.run(bench)?;
        Ok(members)
    }

    /// Kills all of them with -9.
    pub(super) fn kill(&mut self) {
        self.runs.clear();
    }

    /// Starts all of them, and waits until they take clients.
    pub(super) fn run(&mut self, bench: &Bench) -> Result<(), BenchError> {
        let program = Program::new(&bench.program);
        let mut lines = Vec::new();
        for which in 0..self.clients.len() {
            let mut command = program.command(["bench", "heads", "--as-member"]);
            command.arg(self.folder.path().join(format!("{which}.json")));
            let run = Run::start_taking(&mut command, |child| lines.push(first_line(child)))?;
            self.runs.push(run);
        }
        let ready = |line: &Option<Receiver<String>>| {
            line.as_ref().is_none_or(|line| line.try_recv().is_ok())
        };
        for line in lines {
            bench
                .stop
                .until("a member did not start", FOUND_WITHIN, || Ok(ready(&line).then_some(())))?;
        }
        Ok(())
    }

    /// A connection to each.
    pub(super) async fn lines(&self) -> Result<Vec<Line>, BenchError> {
        line::all(&self.clients).await
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.runs.iter().map(Run::pid)
    }

    /// Processor time of all of them so far.
    pub(super) fn cpu(&self) -> Duration {
        self.pids().filter_map(process::cpu).sum()
    }
}
