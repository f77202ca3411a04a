use bytes::Bytes;
use crypto::{PeerId, Place, RecordId, Suite};
use env::calls::*;
use futures::StreamExt;

use super::memory::{closest, of, record};
use super::*;
use crate::client::connection::Connection;
use crate::client::wire;
use crate::proto;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_arrives_and_its_answer_comes_back() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let record = record("some sealed bytes");

    let found = client.find(&to, of(record.id), LIMIT).await;
    assert_eq!(found, Ok(FindResponse::Closest(closest())));
    assert_eq!(client.get(&to, of(record.id), LIMIT).await, Err(CallError::NotFound));
    assert_eq!(client.store(&to, record.clone(), LIMIT).await, Ok(StoreOutcome::Stored));
    assert_eq!(client.store(&to, record.clone(), LIMIT).await, Ok(StoreOutcome::Present));
    let put = client.put(&to, record.clone(), Duration::from_secs(7), LIMIT).await;
    assert_eq!(put, Ok(PutResponse { acked: 8, wanted: 30 }));
    let put = client.put(&to, record.clone(), Duration::MAX, LIMIT).await;
    assert_eq!(put, Ok(PutResponse { acked: 11, wanted: 30 }), "it waits 10 s at most");
    let found = client.find(&to, of(record.id), LIMIT).await;
    assert_eq!(found, Ok(FindResponse::Found(record.clone())));
    assert_eq!(client.get(&to, of(record.id), LIMIT).await, Ok(record.clone()));

    let verify = VerifyRequest { id: record.id, place: Place::from(record.id), mac_key: [9; 32] };
    let mac = Suite::Holdfast1.mac(&[9; 32], &record.bytes);
    assert_eq!(client.verify(&to, verify, LIMIT).await, Ok(VerifyResponse::Mac(mac)));

    let credential = Credential::Client(Bytes::from_static(b"pass"));
    let request = IntroduceRequest::new(credential.clone(), 3);
    let told = client.introduce(&to, request, LIMIT).await.unwrap();
    assert_eq!((told.peers.len(), told.roster, told.unix_ms), (3, 7, 8));
    assert_eq!((told.records, told.bytes, &told.announcement[..]), (9, 10, &b"mine"[..]));
    assert_eq!(told.peers[0].last_good_ms, Some(0));
    assert_eq!(*peer.service.introductions.lock().unwrap(), [credential]);
    peer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_answer_each_request_in_order() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let records: Vec<_> = (0..1024).map(|i| record(format!("record {i}"))).collect();
    let mut sent = records.clone();
    sent[5].id = RecordId::new([5; 32]);
    let outcomes = client.store_batch(&to, sent, LIMIT).await.unwrap();
    assert_eq!(outcomes.len(), 1024);
    assert!(matches!(outcomes[5], Err(CallError::Invalid { .. })), "{:?}", outcomes[5]);
    assert_eq!(outcomes[6], Ok(StoreOutcome::Stored));

    let finds: Vec<_> = records.iter().map(|record| of(record.id)).collect();
    let answers = client.find_batch(&to, finds, LIMIT).await.unwrap();
    assert_eq!(answers[5], Ok(FindResponse::Closest(closest())));
    assert_eq!(answers[1023], Ok(FindResponse::Found(records[1023].clone())));

    let ask = |record: &document::Record| VerifyRequest {
        id: record.id,
        place: record.place,
        mac_key: [3; 32],
    };
    let macs = client.verify_batch(&to, records[..9].iter().map(ask).collect(), LIMIT).await;
    let expected = Suite::Holdfast1.mac(&[3; 32], &records[8].bytes);
    assert_eq!(macs.unwrap()[8], Ok(VerifyResponse::Mac(expected)));

    for len in [0, 1025] {
        let refused = client.find_batch(&to, vec![of(records[0].id); len], LIMIT).await;
        assert!(matches!(refused, Err(CallError::Invalid { .. })), "{len}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_large_records_is_answered_as_far_as_8_mib_go() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let record = record(vec![7; 2 << 20]);
    client.store(&to, record.clone(), LIMIT).await.unwrap();
    let answers = client.find_batch(&to, vec![of(record.id); 6], LIMIT).await.unwrap();
    let found = Ok(FindResponse::Found(record));
    assert_eq!(answers.iter().filter(|answer| **answer == found).count(), 4);
    assert_eq!(answers[5], Err(CallError::Busy { retry_after: Duration::ZERO }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_passes_its_events_and_ends() {
    let peer = Running::start(ServerLimits::default());
    let from = Cursor { peer: Some(PeerId::new(peer.key)), offset: 3, unix_ms: 4 };
    let authors = Some(Bytes::from_static(b"filter"));
    let request = SubscribeRequest { authors, from, ..SubscribeRequest::default() };
    let events = client().subscribe(&peer.endpoint(), request, LIMIT).await.unwrap();
    let events: Vec<_> = events.map(Result::unwrap).collect().await;
    let publication = Bytes::from_static(b"publication");
    let expected = [
        SubscribeEvent::Gap { cursor: from },
        SubscribeEvent::Publication { publication, received_ms: 5, cursor: from },
        SubscribeEvent::CaughtUp { cursor: from },
    ];
    assert_eq!(events, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_prove_their_keys() {
    let peer = Running::start(ServerLimits::default());
    let client = client();
    client.find(&peer.endpoint(), of(memory::PRIVATE), LIMIT).await.unwrap_err();
    let callers: Vec<_> = peer.service.callers.lock().unwrap().iter().copied().collect();
    assert_eq!(callers, [secret(2).public()]);
    // Without an expectation any peer of the network is taken.
    let any = Endpoint::at(&peer.address.to_string());
    assert!(client.find(&any, of(RecordId::new([1; 32])), LIMIT).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_calls_at_once_of_every_size() {
    let peer = Running::start(ServerLimits::default());
    // Known, so that its connections have windows for records: a stranger's large messages wait for each other in narrow ones.
    let credential = Arc::new(|| Credential::Client(Bytes::from_static(b"pass")));
    let client = Client::new(identity(2, 1), credential, Env::real(), ClientLimits::default());
    let to = peer.endpoint();
    let one = |i: usize| {
        let (client, to) = (client.clone(), to.clone());
        async move {
            let record = record(vec![u8::try_from(i).unwrap(); 1 + i * 33_000]);
            client.store(&to, record.clone(), LIMIT).await.unwrap();
            let found = client.find(&to, of(record.id), LIMIT).await.unwrap();
            assert!(found == FindResponse::Found(record), "call {i}");
        }
    };
    futures::future::join_all((0..64).map(one)).await;
    assert!(client.open_connections() <= 3, "{}", client.open_connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_answer_in_order_and_one_failure_ends_no_other() {
    let peer = Running::start(ServerLimits::default());
    let mut wire = wire(&identity(2, 1), &peer.endpoint()).await.unwrap();
    let records: Vec<_> = (0..100).map(|i| record(format!("streamed {i}"))).collect();
    let requests = records.clone().into_iter().enumerate().map(|(i, record)| {
        let mut record: proto::Record = record.into();
        if i == 3 {
            record.id = Bytes::from_static(b"short");
        }
        proto::StoreRequest { record: Some(record) }
    });
    let answers = wire.store_stream(futures::stream::iter(requests.collect::<Vec<_>>())).await;
    let answers: Vec<_> = answers.unwrap().into_inner().map(Result::unwrap).collect().await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.open("").unwrap()).collect();
    assert_eq!((answers.len(), &answers[4]), (100, &Ok(StoreOutcome::Stored)));
    assert!(matches!(answers[3], Err(CallError::Invalid { .. })));

    let mut ids: Vec<_> = records.iter().map(|record| record.id).collect();
    ids[7] = memory::PANICS;
    let requests: Vec<proto::FindRequest> = ids.iter().map(|id| of(*id).into()).collect();
    let answers = wire.find_stream(futures::stream::iter(requests)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().open("").unwrap()).collect().await;
    assert!(matches!(answers[7], Err(CallError::Internal { .. })));
    assert_eq!(answers[99], Ok(FindResponse::Found(records[99].clone())));

    let verify = VerifyRequest { id: ids[0], place: ids[0].into(), mac_key: [1; 32] };
    let requests = futures::stream::iter([verify.into()]);
    let answers = wire.verify_stream(requests).await.unwrap().into_inner();
    assert_eq!(answers.count().await, 1);
}

/// Neither is a call of the librarian, and whoever asks is mostly a stranger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_health_and_questions_of_reflection_are_bounded() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

    let peer = Running::start(ServerLimits { calls: 16, ..ServerLimits::default() });
    let connection = dialled(&peer).await;
    let channel = connection.line.channel.clone();
    let mut watches = Vec::new();
    let refused = loop {
        let mut health = HealthClient::new(channel.clone());
        match health.watch(HealthCheckRequest { service: String::new() }).await {
            Ok(watch) => watches.push(watch),
            Err(refused) => break refused,
        }
    };
    assert_eq!((watches.len(), refused.code()), (128, tonic::Code::ResourceExhausted));
    // A stranger has half of a quarter of the calls: a question holds its call for as long as it is open.
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let open = async |question: &ServerReflectionRequest| {
        let mut reflection = ServerReflectionClient::new(channel.clone());
        let questions = futures::stream::iter([question.clone()]);
        let questions = questions.chain(futures::stream::pending());
        let mut answers = reflection.server_reflection_info(questions).await?.into_inner();
        let first: Option<ServerReflectionResponse> = answers.message().await?;
        first.ok_or_else(|| tonic::Status::internal("no answer"))?;
        Ok::<_, tonic::Status>(answers)
    };
    let (mut first, second) = (open(&question).await.unwrap(), open(&question).await.unwrap());
    let refused = open(&question).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    // It ends by itself.
    assert_eq!(first.message().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    drop(second);
    let long = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol("x".repeat(5_000))),
    };
    assert!(open(&long).await.is_err());
}

/// Also a full peer is asked whether it is well: by as many at a time as have a place for it, and no longer than others ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_for_health_that_say_nothing_are_few_and_end() {
    use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

    let peer = Running::start(ServerLimits { calls: 16, ..ServerLimits::default() });
    let connection = dialled(&peer).await;
    let ask = async || {
        let mut calls = tonic::client::Grpc::new(connection.line.channel.clone());
        calls.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let path = "/grpc.health.v1.Health/Check".parse().unwrap();
        let never = tonic::Request::new(futures::stream::pending());
        calls.client_streaming(never, path, codec).await.unwrap_err().code()
    };
    let told = futures::future::join_all((0..200).map(|_| ask())).await;
    let of = |code| told.iter().filter(|told| **told == code).count();
    // A stranger has half of a quarter of the calls, where two that come at once may both pass, and half of the places beside them.
    let ended = of(tonic::Code::DeadlineExceeded);
    assert!((34..=36).contains(&ended), "{ended}");
    assert_eq!(of(tonic::Code::ResourceExhausted), 200 - ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_and_reflection_answer_on_the_same_listener() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

    let peer = Running::start(ServerLimits::default());
    let connection = dialled(&peer).await;
    let mut health = HealthClient::new(connection.line.channel.clone());
    for service in ["", "holdfast.v1.Librarian"] {
        let request = HealthCheckRequest { service: service.into() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(
            answer.status(),
            tonic_health::pb::health_check_response::ServingStatus::Serving
        );
    }
    let mut reflection = ServerReflectionClient::new(connection.line.channel.clone());
    let message_request =
        Some(MessageRequest::FileContainingSymbol("holdfast.v1.Librarian.StoreBatch".into()));
    let request = ServerReflectionRequest { host: String::new(), message_request };
    let answers = reflection.server_reflection_info(futures::stream::iter([request])).await;
    let answer = answers.unwrap().into_inner().next().await.unwrap().unwrap();
    let text = format!("{:?}", answer.message_response.unwrap());
    assert!(text.starts_with("FileDescriptorResponse"), "{text}");
}

async fn dialled(peer: &Running) -> Connection {
    Connection::dial(&identity(2, 1), None, &pacing(), &peer.endpoint()).await.unwrap()
}
