//! The same client and server over connections that are not the system's.

use std::io;

use async_trait::async_trait;
use env::calls::{CallError, Calls, FindResponse};
use tokio::sync::{Mutex, mpsc};

use super::memory::{of, record};
use super::*;
use crate::{Dial, Duplex, Listen};

const CONNECTION_BYTES: usize = 64 << 10;

type End = Box<dyn Duplex>;

/// Connects to whoever holds the other end of the channel, and counts.
struct Within(mpsc::Sender<End>);

#[async_trait]
impl Dial for Within {
    async fn dial(&self, address: &str) -> io::Result<End> {
        assert_eq!(address, "192.0.2.1:7");
        let (near, far) = tokio::io::duplex(CONNECTION_BYTES);
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        self.0.send(Box::new(far)).await.map_err(refused)?;
        Ok(Box::new(near))
    }
}

struct Waiting(Mutex<mpsc::Receiver<End>>);

#[async_trait]
impl Listen for Waiting {
    async fn accept(&self) -> io::Result<(End, SocketAddr)> {
        match self.0.lock().await.recv().await {
            Some(end) => Ok((end, self.address())),
            None => std::future::pending().await,
        }
    }

    fn address(&self) -> SocketAddr {
        "192.0.2.1:7".parse().unwrap()
    }
}

#[tokio::test]
async fn calls_go_through_other_connections_and_a_stopped_listener_is_closed() {
    let (dialled, taken) = mpsc::channel(4);
    let waiting = Box::new(Waiting(Mutex::new(taken)));
    let server = Server::over(waiting, identity(1, 1), ServerLimits::default());
    let to = endpoint(server.address());
    let (service, stop) = (Arc::new(Memory::default()), CancellationToken::new());
    let task = tokio::spawn(server.serve(service.clone(), Env::real(), stop.clone()));

    let within: Arc<dyn Dial> = Arc::new(Within(dialled));
    let (known, nothing) = (identity(2, 1), || Arc::new(|| Credential::None));
    let client =
        Client::through(within.clone(), known, nothing(), Env::real(), ClientLimits::default());
    let record = record(vec![7; 1 << 20]);
    client.store(&to, record.clone(), LIMIT).await.unwrap();
    let request = of(record.id);
    assert_eq!(client.find(&to, request, LIMIT).await.unwrap(), FindResponse::Found(record));

    let foreign =
        Client::through(within, identity(2, 9), nothing(), Env::real(), ClientLimits::default());
    let refused = foreign.find(&to, request, LIMIT).await;
    assert!(matches!(refused, Err(CallError::WrongPeer { .. })), "{refused:?}");

    stop.cancel();
    task.await.unwrap().unwrap();
    let refused = client.find(&to, request, LIMIT).await;
    assert!(matches!(refused, Err(CallError::Unreachable { .. })), "{refused:?}");
}
