//! Four members on loopback in one process: what a lone update takes, what many take together, and what rest costs.
//!
//! `cargo run --release -p committee --example measure`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bytes::Bytes;
use committee::engine::{Charter, Founding, Links, MemberId, MemberSecret, Settings};
use committee::{Answer, Committee as _, Handle, Member, Operation, Submission, Update};
use crypto::{NetworkId, SecretKey, Suite};
use rustix::time::{ClockId, clock_gettime};
use version::ObjectRecord;

const NETWORK: NetworkId = NetworkId::new([9; 32]);
const LONE: u64 = 100;
const CLIENTS: u8 = 8;
const BUNDLE: u64 = 250;
const SECONDS: Duration = Duration::from_secs(5);

fn founding(links: &Links) -> Founding {
    Founding {
        name: String::from("member"),
        network: NETWORK,
        suite: Suite::Holdfast1,
        organisations: Vec::new(),
        wanted: 0,
        number: 1,
        links: links.clone(),
        within: Duration::from_secs(60),
    }
}

fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn update(charter: &Charter, key: &SecretKey, number: u64) -> Update {
    let (network, owner) = (NETWORK, key.public());
    let name = Bytes::from(number.to_be_bytes().to_vec());
    let record = ObjectRecord { network, owner, name }.encode().unwrap();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    Update {
        network,
        group: charter.rules.group,
        author: owner,
        id,
        last_valid: u64::MAX,
        operation: Operation::Object { record, policy: Bytes::new() },
    }
}

async fn many(handle: Handle, charter: Charter, client: u8) -> u64 {
    let key = SecretKey::from_bytes(&[client; 32]).unwrap();
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < SECONDS {
        let updates: Vec<Update> =
            (0..BUNDLE).map(|one| update(&charter, &key, (1 << 32) + done + one)).collect();
        let bundle = Submission::bundle(&updates, &key).unwrap();
        let answers = handle.update(bundle).await;
        // One that was busy is sent again, as it was.
        done += answers.map_or(0, |answers| answers.len() as u64);
    }
    done
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let secrets: Vec<MemberSecret> =
        (1..=4).map(|one| MemberSecret::new(&[one; 32]).unwrap()).collect();
    let held: Vec<TcpListener> =
        (0..4).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let places: Vec<SocketAddr> = held.iter().map(|one| one.local_addr().unwrap()).collect();
    drop(held);
    let members: Vec<(MemberId, SocketAddr)> =
        secrets.iter().map(MemberSecret::id).zip(places).collect();
    let links: Vec<Links> = secrets
        .into_iter()
        .zip(&members)
        .map(|(secret, (_, listen))| Links { secret, listen: *listen, members: members.clone() })
        .collect();
    let path = |which: usize| folder.path().join(which.to_string());
    let founders = links.iter().enumerate().map(|(which, links)| {
        let (path, founding) = (path(which), founding(links));
        std::thread::spawn(move || Member::found(path, founding).unwrap())
    });
    let founders: Vec<_> = founders.collect();
    let charter = founders.into_iter().map(|one| one.join().unwrap()).next().unwrap();
    let start = |(which, links): (usize, &Links)| {
        Member::start(path(which), Settings::new("member", links.clone())).unwrap()
    };
    let members: Vec<Member> = links.iter().enumerate().map(start).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let key = SecretKey::from_bytes(&[9; 32]).unwrap();
        let mut took = Vec::new();
        let mut answer: Option<Answer> = None;
        for number in 0..LONE {
            let submission = update(&charter, &key, number).sign(&key).unwrap();
            let at = Instant::now();
            let handle = members[number as usize % 4].handle();
            answer = handle.update(submission).await.unwrap().pop();
            took.push(at.elapsed());
        }
        took.sort();
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!("lone updates: p50 {p50:?}, p99 {p99:?}");
        let answer = answer.unwrap();
        let at = Instant::now();
        (0..100).for_each(|_| drop(answer.verify(&NETWORK, &charter.group).unwrap()));
        println!("an answer: {} bytes, checked in {:?}", answer.encode().len(), at.elapsed() / 100);
        let before = cpu();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let rest = (cpu() - before).as_secs_f64() / 10.0 / 4.0 * 100.0;
        println!("at rest: {rest:.1} % of a core a member");
        let clients = (10..10 + CLIENTS).map(|client| {
            let handle = members[usize::from(client) % 4].handle().clone();
            tokio::spawn(many(handle, charter.clone(), client))
        });
        let clients: Vec<_> = clients.collect();
        let at = Instant::now();
        let mut done = 0;
        for client in clients {
            done += client.await.unwrap();
        }
        println!("bundles of {BUNDLE}: {:.0} updates/s", done as f64 / at.elapsed().as_secs_f64());
    });
    members.into_iter().for_each(|member| member.stop().unwrap());
}
