//! A librarian that hosts a member of a committee: who may ask it what, and what is told of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use committee::engine::MemberId;
use committee::{Answer, Committee, CommitteeError, GroupKey, Position, Read, Status, Submission};
use crypto::Tier;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::{CallError, Calls, Credential, Endpoint};
use futures::FutureExt;
use futures::future::BoxFuture;
use librarian::Hosted;
use version::ObjectKey;

use crate::town::{LIMIT, Town, introduce};

const MEMBER: MemberId = MemberId::new([5; 32]);

fn golden(name: &str) -> Bytes {
    testkit::golden::read(&format!("{}/../committee", testkit::manifest!()), name).into()
}

/// A member that answers what is in the fixtures, or fails as it is told.
struct Fixed {
    group: GroupKey,
    fails: Mutex<Option<CommitteeError>>,
    asked: Mutex<usize>,
    silent: Mutex<bool>,
}

impl Fixed {
    fn new() -> Arc<Self> {
        let group = Answer::decode(&golden("certified-answer")).unwrap();
        let group = group.certificate.header().group.clone();
        Arc::new(Self {
            group,
            fails: Mutex::new(None),
            asked: Mutex::new(0),
            silent: Mutex::new(false),
        })
    }

    fn answer<T: Send + 'static>(&self, answer: T) -> BoxFuture<'_, Result<T, CommitteeError>> {
        *self.asked.lock().unwrap() += 1;
        let failed = self.fails.lock().unwrap().take();
        async move { failed.map_or(Ok(answer), Err) }.boxed()
    }
}

impl Committee for Fixed {
    fn group(&self) -> &GroupKey {
        &self.group
    }

    fn update(&self, _: Submission) -> BoxFuture<'_, Result<Vec<Answer>, CommitteeError>> {
        self.answer(vec![Answer::decode(&golden("certified-answer")).unwrap()])
    }

    fn read(&self, _: ObjectKey, _: &str) -> BoxFuture<'_, Result<Read, CommitteeError>> {
        self.answer(Read::decode(&golden("certified-read")).unwrap())
    }

    fn read_fresh(&self, o: ObjectKey, b: &str) -> BoxFuture<'_, Result<Read, CommitteeError>> {
        self.read(o, b)
    }

    fn read_at(
        &self,
        object: ObjectKey,
        branch: &str,
        _: (u64, u64),
    ) -> BoxFuture<'_, Result<Read, CommitteeError>> {
        self.read(object, branch)
    }

    fn how_far(&self, _: [u8; 32]) -> BoxFuture<'_, Result<Position, CommitteeError>> {
        async { Err(CommitteeError::Busy { retry_ms: 70 }) }.boxed()
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, CommitteeError>> {
        let status = Status {
            height: 12,
            time_ms: 34,
            view: 56,
            epoch: 0,
            // Between two epochs those before are told, of which it need not be one.
            members: vec![MemberId::new([6; 32]); 4],
            seated: true,
            needed: 3,
            heard: 4,
            votes: true,
            waiting: 1,
            entries: 2,
            state_bytes: 3,
        };
        if *self.silent.lock().unwrap() {
            return futures::future::pending().boxed();
        }
        async { Ok(status) }.boxed()
    }
}

fn hosted(member: &Arc<Fixed>) -> Hosted {
    let (charter, cards) = (Bytes::from_static(b"charter"), vec![Bytes::from_static(b"other")]);
    Hosted { member: Arc::clone(member) as Arc<dyn Committee>, id: MEMBER, charter, cards }
}

async fn ask(
    calls: &Arc<dyn Calls>,
    to: &Endpoint,
    ask: CommitteeAsk,
) -> Result<CommitteeAnswer, CallError> {
    calls.committee(to, CommitteeRequest { group: None, ask }, LIMIT).await
}

fn read() -> CommitteeAsk {
    let branch = Bytes::from_static(b"main");
    CommitteeAsk::Read { object: ObjectKey::new([1; 32]), branch, at: None }
}

#[test]
fn strangers_read_of_a_committee_and_clients_update() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let to = town.at(0);
        let update = || CommitteeAsk::Update(golden("certified-update"));
        let client = town.client(1, Tier::Known).await;
        assert_eq!(ask(&client, &to, read()).await, Err(CallError::NotFound), "hosts none");
        let member = Fixed::new();
        town.peers[0].host(Some(hosted(&member)));

        let strangers = town.stranger();
        let told = ask(&strangers, &to, read()).await;
        assert_eq!(told, Ok(CommitteeAnswer::Read(golden("certified-read"))));
        let before = *member.asked.lock().unwrap();
        let denied = ask(&strangers, &to, update()).await;
        assert!(matches!(denied, Err(CallError::Denied { .. })), "{denied:?}");
        assert_eq!(*member.asked.lock().unwrap(), before, "the member was not asked");
        let told = ask(&client, &to, update()).await;
        assert_eq!(told, Ok(CommitteeAnswer::Update(vec![golden("certified-answer")])));
        let bad = ask(&client, &to, CommitteeAsk::Update(Bytes::from_static(b"nonsense"))).await;
        assert!(matches!(bad, Err(CallError::Invalid { .. })), "{bad:?}");

        // Another committee's client is told that its member is not here.
        let group = Some([7; 32]);
        let request = CommitteeRequest { group, ask: read() };
        let elsewhere = client.committee(&to, request, LIMIT).await;
        assert_eq!(elsewhere, Err(CallError::NotFound));
        town.peers[0].host(None);
        assert_eq!(ask(&client, &to, read()).await, Err(CallError::NotFound));
    });
}

#[test]
fn what_a_member_fails_with_keeps_its_meaning_on_the_way() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let member = Fixed::new();
        town.peers[0].host(Some(hosted(&member)));
        let (client, to) = (town.client(0, Tier::Own).await, town.at(0));
        let busy = ask(&client, &to, CommitteeAsk::HowFar([1; 32])).await;
        assert_eq!(busy, Err(CallError::Busy { retry_after: Duration::from_millis(70) }));
        let few = CommitteeError::NotEnoughMembers { needed: 3, heard: 2 };
        *member.fails.lock().unwrap() = Some(few);
        let few = ask(&client, &to, read()).await;
        assert_eq!(few, Err(CallError::TooFewPeers { reached: 2, wanted: 3 }));
        let name = Bytes::from_static(&[0xff]);
        let wrong = CommitteeAsk::Read { object: ObjectKey::new([1; 32]), branch: name, at: None };
        let wrong = ask(&client, &to, wrong).await;
        assert!(matches!(wrong, Err(CallError::Invalid { .. })), "{wrong:?}");
    });
}

#[test]
fn a_hosted_member_is_told_of_and_its_card_goes_to_who_introduces_themselves() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let (peer, to, stranger) = (&town.peers[0], town.at(0), town.stranger());
        let card = async || introduce(&stranger, &to, Credential::None).await.unwrap().member;
        assert_eq!((card().await, peer.status().committee), (None, None));
        let member = Fixed::new();
        peer.show_card(Some(Bytes::from_static(b"card")));
        peer.host(Some(hosted(&member)));
        assert_eq!(card().await, Some(Bytes::from_static(b"card")));
        let answered =
            |town: &Town| town.peers[0].status().committee.is_some_and(|one| one.running);
        town.until("the member's status", answered).await;
        let status = peer.status().committee.unwrap();
        assert_eq!((status.height, status.heard, status.needed, status.votes), (12, 4, 3, true));
        let page = peer.metrics();
        for line in ["holdfast_committee_height 12", "holdfast_committee_votes 1"] {
            assert!(page.contains(line), "{line}: {page}");
        }
        let told = ask(&stranger, &to, CommitteeAsk::Status).await.unwrap();
        let CommitteeAnswer::Status(told) = told else { panic!("{told:?}") };
        assert_eq!(told.cards, [&b"card"[..], b"other"].map(Bytes::from_static));
        assert_eq!((told.height, told.view, told.members.len()), (12, 56, 4));
        let charter = ask(&stranger, &to, CommitteeAsk::Charter).await;
        // A stranger asks once a second.
        assert!(matches!(charter, Err(CallError::Busy { .. })), "{charter:?}");
        env.clock.sleep(Duration::from_secs(2)).await;
        let charter = ask(&stranger, &to, CommitteeAsk::Charter).await;
        assert_eq!(charter, Ok(CommitteeAnswer::Charter(Bytes::from_static(b"charter"))));
    });
}

#[test]
fn a_member_that_never_answers_is_hosted_and_does_not_run() {
    testkit::time::run(94, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let peer = &town.peers[0];
        let told = || peer.status().committee;
        let member = Fixed::new();
        *member.silent.lock().unwrap() = true;
        peer.host(Some(hosted(&member)));
        env.clock.sleep(Duration::from_secs(10)).await;
        let silent = told().expect("it is hosted");
        assert_eq!((silent.running, silent.member), (false, MEMBER.to_string()));
        *member.silent.lock().unwrap() = false;
        town.until("it answers", |town| {
            town.peers[0].status().committee.is_some_and(|told| told.running && told.seated)
        })
        .await;
        // With other cards it is the same member.
        peer.host(Some(hosted(&member)));
        assert!(told().is_some_and(|told| told.running && told.height == 12));
        peer.host(None);
        assert!(told().is_none());
    });
}
