//! Four members on loopback in one process: what a lone update takes, what many take together, and what rest costs.
//!
//! `cargo run --release -p committee --example measure [seconds]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use committee::engine::{Charter, Founding, Links, MemberId, MemberSecret, Settings};
use committee::{Answer, Committee as _, Handle, Member, Operation, Outcome, Submission, Update};
use crypto::{NetworkId, PublicKey, RecordId, SecretKey, Suite};
use rustix::time::{ClockId, clock_gettime};
use version::merkle::Tree;
use version::receipt::Terms;
use version::{Durability, Hint, ObjectKey, ObjectRecord, Receipt, VersionId};

const NETWORK: NetworkId = NetworkId::new([9; 32]);
const LONE: u64 = 100;
const BUNDLE: usize = 250;
/// Versions of one receipt.
const BATCH: usize = 64;
/// Peers that keep each version.
const KEEPERS: u8 = 2;

fn founding(links: &Links) -> Founding {
    Founding {
        name: String::from("member"),
        network: NETWORK,
        suite: Suite::Holdfast1,
        organisations: Vec::new(),
        wanted: KEEPERS,
        number: 1,
        links: links.clone(),
        within: Duration::from_secs(60),
    }
}

fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

type Kept = (VersionId, Vec<Bytes>);

/// Versions that peers keep, and what they answered: each signs once for many, whoever's they are.
static VERSIONS: Mutex<(u64, Vec<Kept>)> = Mutex::new((0, Vec::new()));

/// So many of one call.
fn put(from: u64, count: u64) -> (Vec<RecordId>, Tree, Vec<Receipt>) {
    let one = |one: u64| Suite::Holdfast1.id(&one.to_be_bytes());
    let hs: Vec<RecordId> = (from..from + count).map(one).collect();
    let tree = Tree::new(Suite::Holdfast1, &hs).unwrap();
    let time_ms = 1_700_000_000_000;
    let terms = Terms { durability: Durability::Group, lease_ms: 0, time_ms };
    let peer = |peer| SecretKey::from_bytes(&[200 + peer; 32]).unwrap();
    let sign = |one| Receipt::sign(&peer(one), &NETWORK, terms, &tree);
    let receipts = (0..KEEPERS).map(sign).collect();
    (hs, tree, receipts)
}

/// One, of a call in which others' are too.
fn version() -> Kept {
    let mut versions = VERSIONS.lock().unwrap();
    let (number, kept) = &mut *versions;
    if kept.is_empty() {
        let (hs, tree, receipts) = put(*number, BATCH as u64);
        *number += BATCH as u64;
        for (at, h) in hs.iter().enumerate() {
            let of = |one: &Receipt| one.of_one(&hs, &tree, at).unwrap().encode();
            let version = VersionId { h: *h, l: *number, n: Hint::FIRST };
            kept.push((version, receipts.iter().map(of).collect()));
        }
    }
    kept.pop().unwrap()
}

/// So many of a call of their own, with its receipts.
fn call(count: u64) -> (Vec<VersionId>, Vec<Receipt>) {
    let from = {
        let mut versions = VERSIONS.lock().unwrap();
        versions.0 += count;
        versions.0 - count
    };
    let (hs, _, receipts) = put(from, count);
    let version = |h| VersionId { h, l: from + count, n: Hint::FIRST };
    (hs.into_iter().map(version).collect(), receipts)
}

/// A client with one object, whose head it moves.
struct Client {
    key: SecretKey,
    author: PublicKey,
    charter: Charter,
    object: ObjectKey,
    number: u64,
    heads: Vec<Option<(RecordId, u64)>>,
}

impl Client {
    fn new(charter: &Charter, which: u32, branches: usize) -> Self {
        let mut key = [1; 32];
        key[..4].copy_from_slice(&which.to_be_bytes());
        let key = SecretKey::from_bytes(&key).unwrap();
        let object = record(&key).key(Suite::Holdfast1).unwrap();
        let (charter, heads) = (charter.clone(), vec![None; branches]);
        Self { author: key.public(), key, charter, object, number: 0, heads }
    }

    fn update(&mut self, operation: Operation) -> Update {
        self.number += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.number.to_be_bytes());
        let (network, group, author) = (NETWORK, self.charter.rules.group, self.author);
        Update { network, group, author, id, last_valid: u64::MAX, operation }
    }

    fn known(&mut self) -> Submission {
        let record = record(&self.key).encode().unwrap();
        self.update(Operation::Object { record, policy: Bytes::new() }).sign(&self.key).unwrap()
    }

    fn set(&mut self, branch: usize, (new, receipts): Kept) -> Update {
        let (object, expected) = (self.object, self.heads[branch]);
        let branch = format!("b{branch}").into();
        self.update(Operation::Set { object, branch, expected, new, receipts })
    }

    fn moved(&mut self, branch: usize, update: &Update, answer: &Answer) {
        let Outcome::Accepted { height } = answer.outcome else { panic!("{:?}", answer.outcome) };
        let Operation::Set { new, .. } = &update.operation else { panic!("a set") };
        self.heads[branch] = Some((new.h, height));
    }
}

fn record(key: &SecretKey) -> ObjectRecord {
    ObjectRecord { network: NETWORK, owner: key.public(), name: Bytes::from_static(b"report") }
}

async fn told(handle: &Handle, submission: Submission) -> Vec<Answer> {
    loop {
        if let Ok(answers) = handle.update(submission.clone()).await {
            return answers;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn singles(handle: Handle, mut client: Client, seconds: Duration) -> u64 {
    told(&handle, client.known()).await;
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < seconds {
        let update = client.set(0, version());
        let answers = told(&handle, update.sign(&client.key).unwrap()).await;
        client.moved(0, &update, &answers[0]);
        done += 1;
    }
    done
}

async fn bundles(handle: Handle, mut client: Client, seconds: Duration) -> u64 {
    told(&handle, client.known()).await;
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < seconds {
        let (versions, receipts) = call(BUNDLE as u64);
        let set = |(branch, version)| client.set(branch, (version, Vec::new()));
        let updates: Vec<Update> = versions.into_iter().enumerate().map(set).collect();
        let bundle = Submission::bundle_kept(&updates, receipts, &client.key).unwrap();
        let answers = told(&handle, bundle).await;
        for (branch, (update, answer)) in updates.iter().zip(&answers).enumerate() {
            client.moved(branch, update, answer);
        }
        done += answers.len() as u64;
    }
    done
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |text| text.parse().unwrap());
    let seconds = Duration::from_secs(seconds);
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
        let mut client = Client::new(&charter, 0, 1);
        told(members[0].handle(), client.known()).await;
        let mut took = Vec::new();
        let mut answer: Option<Answer> = None;
        for number in 0..LONE {
            let update = client.set(0, version());
            let submission = update.sign(&client.key).unwrap();
            let at = Instant::now();
            let handle = members[number as usize % 4].handle();
            answer = handle.update(submission).await.unwrap().pop();
            took.push(at.elapsed());
            client.moved(0, &update, answer.as_ref().unwrap());
        }
        took.sort();
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!("lone updates: p50 {p50:?}, p99 {p99:?}");
        let answer = answer.unwrap();
        let at = Instant::now();
        (0..100).for_each(|_| drop(answer.verify(&NETWORK, &charter.group).unwrap()));
        println!("an answer: {} bytes, checked in {:?}", answer.encode().len(), at.elapsed() / 100);
        let before = cpu();
        tokio::time::sleep(seconds).await;
        let rest = (cpu() - before).as_secs_f64() / seconds.as_secs_f64() / 4.0 * 100.0;
        println!("at rest: {rest:.1} % of a core a member");
        let height = async || members[0].handle().status().await.unwrap().height;
        let loads = [(60, false), (1_000, false), (4_000, false), (8, true), (64, true)];
        for (count, bundled) in loads {
            let first = 10_000 * (count + u32::from(bundled));
            let (before, at, from) = (cpu(), Instant::now(), height().await);
            let clients = (first..first + count).map(|which| {
                let handle = members[which as usize % 4].handle().clone();
                let client = Client::new(&charter, which, if bundled { BUNDLE } else { 1 });
                match bundled {
                    true => tokio::spawn(bundles(handle, client, seconds)),
                    false => tokio::spawn(singles(handle, client, seconds)),
                }
            });
            let clients: Vec<_> = clients.collect();
            let mut done = 0;
            for client in clients {
                done += client.await.unwrap();
            }
            let (took, blocks) = (at.elapsed(), height().await - from);
            let each = (cpu() - before) / (done as u32).max(1);
            println!(
                "{count} clients, {}: {:.0} updates/s, {each:?} of processor time each, {blocks} blocks in {took:?}",
                if bundled { "bundles of 250" } else { "one by one" },
                done as f64 / took.as_secs_f64(),
            );
        }
    });
    members.into_iter().for_each(|member| member.stop().unwrap());
}
