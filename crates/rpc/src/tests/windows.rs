//! How much a connection may send before anything counts it: little, until its key is vouched for.

use crypto::RecordId;
use env::calls::*;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::memory::{of, record};
use super::*;
use crate::verifier::PeerVerifier;

/// A connection of this key as HTTP/2 sees it, and what the peer announced on it.
struct Announced {
    _tls: TlsStream<TcpStream>,
    stream: u32,
    connection: u32,
    frame: u32,
}

/// Connects and reads the peer's settings and its first window update.
async fn announced(peer: &Running, key: u8) -> Announced {
    let config = identity(key, 1).dialling(PeerVerifier::new(None)).unwrap();
    let tcp = TcpStream::connect(peer.address).await.unwrap();
    let name = ServerName::try_from("holdfast").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let (mut stream, mut connection, mut frame) = (65_535, None, 16_384);
    while connection.is_none() {
        let mut head = [0; 9];
        tls.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        tls.read_exact(&mut payload).await.unwrap();
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match head[3] {
            4 => {
                for setting in payload.chunks(6) {
                    match setting[1] {
                        4 => stream = number(&setting[2..]),
                        5 => frame = number(&setting[2..]),
                        _ => {}
                    }
                }
            }
            8 => connection = Some(65_535 + number(&payload)),
            _ => {}
        }
    }
    Announced { _tls: tls, stream, connection: connection.unwrap(), frame }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_narrow_until_a_key_was_vouched_for_and_bounded_after() {
    let limits = ServerLimits {
        wide_connections: 3,
        wide_connections_per_key: 2,
        ..ServerLimits::default()
    };
    let peer = Running::start(limits);
    let stranger = announced(&peer, 3).await;
    assert_eq!((stranger.stream, stranger.connection), (256 << 10, 512 << 10));
    assert_eq!(stranger.frame, 16 << 10);
    // Key 2 introduces itself by what vouches for it; key 4 says that it has nothing.
    let pass = || Credential::Client(bytes::Bytes::from_static(b"pass"));
    let limits = ClientLimits { bulk_connections: 0, ..ClientLimits::default() };
    for key in [2, 5, 6] {
        let client = Client::new(identity(key, 1), Arc::new(pass), Env::real(), limits);
        client.find(&peer.endpoint(), of(RecordId::new([1; 32])), LIMIT).await.unwrap();
        client.close();
    }
    let client = Client::new(identity(4, 1), Arc::new(Credential::default), Env::real(), limits);
    let nothing = IntroduceRequest::new(Credential::None, 0);
    client.introduce(&peer.endpoint(), nothing, LIMIT).await.unwrap();
    assert_eq!(announced(&peer, 4).await.connection, 512 << 10);
    // The seats of the clients' own connections come free when the peer sees their end.
    let first = loop {
        let first = announced(&peer, 2).await;
        if first.connection == 64 << 20 {
            break first;
        }
    };
    assert_eq!((first.stream, first.frame), (16 << 20, (2 << 20) + (16 << 10)));
    let second = loop {
        let second = announced(&peer, 2).await;
        if second.connection == 64 << 20 {
            break second;
        }
    };
    assert_eq!(announced(&peer, 2).await.connection, 512 << 10, "two are one key's share");
    let third = loop {
        let third = announced(&peer, 5).await;
        if third.connection == 64 << 20 {
            break third;
        }
    };
    assert_eq!(announced(&peer, 5).await.connection, 512 << 10, "three are all");
    let fourth = announced(&peer, 6).await.connection;
    assert_eq!(fourth, 64 << 20, "whose organisation has two makes room for whose has none");
    drop((first, second, third));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_vouched_for_dials_again_once_and_records_pass_either_way() {
    let peer = Running::start(ServerLimits::default());
    let pass = || Credential::Client(bytes::Bytes::from_static(b"pass"));
    let member = Client::new(identity(2, 1), Arc::new(pass), Env::real(), ClientLimits::default());
    let stranger = client_with(ClientLimits::default());
    for (byte, client) in [(1, member), (2, stranger)] {
        let record = record(vec![byte; 2 << 20]);
        client.store(&peer.endpoint(), record.clone(), LIMIT).await.unwrap();
        let found = client.find(&peer.endpoint(), of(record.id), LIMIT).await;
        assert_eq!(found, Ok(FindResponse::Found(record)));
    }
    assert_eq!(peer.service.introductions.lock().unwrap().len(), 2, "once on each connection");
}
