//! Members on real threads, disks and loopback connections: one stops and comes back, and they change.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use committee::engine::{Charter, Founding, Links, MemberId, MemberSecret, Settings};
use committee::{
    Answer, Committee as _, CommitteeError, Handle, Member, Operation, Outcome, Phase, Update,
};
use crypto::{Class, Classified as _, NetworkId, SecretKey, Suite};
use version::ObjectRecord;

const NETWORK: NetworkId = NetworkId::new([9; 32]);
const COUNT: usize = 4;

struct Four {
    folder: tempfile::TempDir,
    links: Vec<Links>,
    running: Vec<Option<Member>>,
    places: Vec<(MemberId, SocketAddr)>,
    id: u8,
}

fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let held: Vec<TcpListener> = (0..count).map(bind).collect();
    held.iter().map(|one| one.local_addr().unwrap()).collect()
}

impl Four {
    fn new() -> Self {
        Self::of(COUNT)
    }

    /// So many machines, of which the first four are members.
    fn of(machines: usize) -> Self {
        let secrets: Vec<MemberSecret> =
            (1..=machines as u8).map(|one| MemberSecret::new(&[one; 32]).unwrap()).collect();
        let ids = secrets.iter().map(MemberSecret::id);
        let places: Vec<(MemberId, SocketAddr)> = ids.zip(free_addresses(machines)).collect();
        let links = secrets.into_iter().zip(&places).enumerate().map(|(which, (secret, place))| {
            let mut members = places[..COUNT].to_vec();
            if which >= COUNT {
                members.push(*place);
            }
            Links { secret, listen: place.1, members }
        });
        let links = links.collect();
        let running = (0..machines).map(|_| None).collect();
        Self { folder: tempfile::tempdir().unwrap(), links, running, places, id: 0 }
    }

    fn path(&self, which: usize) -> PathBuf {
        Path::new(self.folder.path()).join(which.to_string())
    }

    fn found(&self) -> Charter {
        let founding = |links: &Links| Founding {
            name: String::from("member"),
            network: NETWORK,
            suite: Suite::Holdfast1,
            organisations: Vec::new(),
            wanted: 0,
            number: 1,
            links: links.clone(),
            within: Duration::from_secs(60),
        };
        let all: Vec<_> = self.links[..COUNT]
            .iter()
            .enumerate()
            .map(|(which, links)| {
                let (path, founding) = (self.path(which), founding(links));
                std::thread::spawn(move || Member::found(path, founding).unwrap())
            })
            .collect();
        let charters: Vec<Charter> = all.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(charters.windows(2).all(|two| two[0] == two[1]));
        charters[0].clone()
    }

    fn start(&mut self, which: usize) {
        let settings = Settings {
            answer_within: Duration::from_secs(10),
            deal_within: Duration::from_secs(30),
            ..Settings::new("member", self.links[which].clone())
        };
        self.running[which] = Some(Member::start(self.path(which), settings).unwrap());
    }

    fn stop(&mut self, which: usize) {
        self.running[which].take().unwrap().stop().unwrap();
    }

    async fn ask(
        &mut self,
        which: usize,
        charter: &Charter,
        operation: Operation,
    ) -> Result<Answer, CommitteeError> {
        self.id += 1;
        let key = SecretKey::from_bytes(&[1; 32]).unwrap();
        let (group, author, id) = (charter.rules.group, key.public(), [self.id; 16]);
        let update =
            Update { network: NETWORK, group, author, id, last_valid: u64::MAX, operation };
        let submission = update.sign(&key).unwrap();
        let member = self.running[which].as_ref().unwrap();
        let answers = member.handle().update(submission).await?;
        let answer = Answer::decode(&answers[0].encode()).unwrap();
        answer.verify(&NETWORK, &charter.group).unwrap();
        Ok(answer)
    }

    async fn patiently(&mut self, which: usize, charter: &Charter, operation: Operation) -> Answer {
        for _ in 0..20 {
            if let Ok(answer) = self.ask(which, charter, operation.clone()).await {
                return answer;
            }
        }
        panic!("no answer")
    }
}

impl Four {
    fn handle(&self, which: usize) -> Handle {
        self.running[which].as_ref().unwrap().handle().clone()
    }

    /// Operators ask for these members, and it is waited until they all vote in the next epoch.
    async fn change(&self, by: &[usize], list: &[usize], epoch: u64) {
        let wanted: Vec<_> =
            list.iter().map(|which| (self.places[*which].0, Some(self.places[*which].1))).collect();
        for which in by {
            self.handle(*which).reshare(wanted.clone(), None).await.unwrap();
        }
        self.until(list, epoch).await;
    }

    async fn until(&self, list: &[usize], epoch: u64) {
        let mut last = Vec::new();
        for _ in 0..1_200 {
            last.clear();
            for which in list {
                last.push(self.handle(*which).status().await.unwrap());
            }
            if last.iter().all(|status| status.epoch == epoch && status.votes) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not all are in epoch {epoch}: {last:?}");
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.push((name, std::fs::read(&path).unwrap()));
        }
    }
    all
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The secret of a founder's share: the last 32 bytes of its file, whose name is in hex.
fn share_of(folder: &Path) -> Vec<u8> {
    let name: String = b"share".iter().map(|byte| format!("{byte:02x}")).collect();
    let all = files(folder);
    let (_, bytes) = all.iter().find(|(file, _)| *file == name).unwrap();
    bytes[bytes.len() - 32..].to_vec()
}

fn object(name: &str) -> Operation {
    let owner = SecretKey::from_bytes(&[1; 32]).unwrap().public();
    let name = Bytes::copy_from_slice(name.as_bytes());
    let record = ObjectRecord { network: NETWORK, owner, name }.encode().unwrap();
    Operation::Object { record, policy: Bytes::new() }
}

#[test]
fn four_members_on_loopback_survive_one_say_so_without_two_and_resume() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut four = Four::new();
        let charter = four.found();
        (0..COUNT).for_each(|which| four.start(which));
        let first = four.patiently(0, &charter, object("first")).await;
        assert!(matches!(first.outcome, Outcome::Accepted { .. }));
        four.stop(3);
        let second = four.patiently(1, &charter, object("second")).await;
        assert!(matches!(second.outcome, Outcome::Accepted { .. }));
        four.stop(2);
        let error = loop {
            match four.ask(0, &charter, object("third")).await {
                // Both may still have voted on it before they went.
                Ok(_) | Err(CommitteeError::Busy { .. }) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CommitteeError::NotEnoughMembers { needed: 3, heard: 2 }));
        assert_eq!(error.class(), Class::Unavailable);
        four.start(2);
        let third = four.patiently(0, &charter, object("fourth")).await;
        assert!(matches!(third.outcome, Outcome::Accepted { .. }));
        [0, 1, 2].into_iter().for_each(|which| four.stop(which));
    });
}

#[test]
fn four_members_become_five_of_which_one_is_new_in_anothers_place_under_one_key() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut four = Four::of(6);
        let charter = four.found();
        (0..COUNT).for_each(|which| four.start(which));
        let before = four.patiently(0, &charter, object("before")).await.encode();
        let first = share_of(&four.path(0));
        assert!(files(&four.path(0)).iter().any(|(_, bytes)| has(bytes, &first)));
        for which in [4, 5] {
            Member::join(four.path(which), "member", &charter).unwrap();
            four.start(which);
        }
        // The fourth is gone for good; two others come.
        four.stop(3);
        four.change(&[0, 1, 2], &[0, 1, 2, 4, 5], 1).await;
        let outcome = four.patiently(4, &charter, object("with the new")).await.outcome;
        assert!(matches!(outcome, Outcome::Accepted { .. }));
        // What was certified before verifies with the same key.
        Answer::decode(&before).unwrap().verify(&NETWORK, &charter.group).unwrap();
        // All of them restart, and are refreshed.
        let list = [0, 1, 2, 4, 5];
        list.into_iter().for_each(|which| four.stop(which));
        list.into_iter().for_each(|which| four.start(which));
        four.until(&list, 1).await;
        for which in [1, 2, 4, 5] {
            four.handle(which).refresh().await.unwrap();
        }
        four.until(&list, 2).await;
        let changing = four.handle(5).changing().await.unwrap();
        assert_eq!((changing.epoch, changing.phase), (2, Phase::Rest));
        // No file of a member has its first share any more.
        assert!(!files(&four.path(0)).iter().any(|(_, bytes)| has(bytes, &first)));
        four.stop(1);
        let outcome = four.patiently(5, &charter, object("without one")).await.outcome;
        assert!(matches!(outcome, Outcome::Accepted { .. }));
        [0, 2, 4, 5].into_iter().for_each(|which| four.stop(which));
    });
}
