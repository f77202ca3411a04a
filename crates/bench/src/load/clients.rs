//! Thin clients of a community: `Put` and `Get` at entry peers drawn evenly.
//!
//! A peer does the walking for clients of its own organisation. So there is a client an organisation,
//! with a pass that the organisation signed, in this one process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{ClientKey, Genesis, PeerId, RecordId};
use document::Record;
use env::Env;
use env::calls::{CallError, Calls, Credential, Endpoint, FindRequest};
use futures::StreamExt;
use placement::View;
use rpc::{Client, ClientLimits, Identity};
use walk::{Directory, WalkOptions, Walker};

use super::documents::{Sealing, fresh_key};
use super::{Entries, Got};
use crate::community::{Community, ORGANISATIONS};
use crate::error::BenchError;
use crate::program::Program;
use crate::seeded::Seeded;
use crate::stop::Stop;

/// A request without an answer by then has failed.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Connections that carry records, to each peer.
const BULK_CONNECTIONS: usize = 4;
/// Connections of one client, over all peers.
pub(super) const CONNECTIONS: usize = 1024;
/// Copies that the community's networks keep of each record, where their genesis does not say it.
const COPIES: u32 = 3;
/// Records read back at once.
const READ_BACK: usize = 64;

/// The clients, and the peers they may ask.
pub(crate) struct Clients {
    clients: Vec<Arc<Client>>,
    /// Each with the number of its organisation.
    peers: Vec<(usize, Endpoint)>,
    sealing: Sealing,
    /// Who holds what.
    view: Arc<View>,
    copies: usize,
}

impl Clients {
    /// Clients of every organisation of a community.
    pub(crate) async fn new(community: &Community, stop: &Stop) -> Result<Arc<Self>, BenchError> {
        let path = community.network();
        let bytes = std::fs::read(&path).map_err(BenchError::io("read", &path))?;
        let genesis = Genesis::decode(&bytes).map_err(|_| BenchError::Wrong("the network file"))?;
        let clients = (0..ORGANISATIONS).map(|org| client(community, org, &genesis, stop));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let peers = community.peers.iter().map(|peer| {
            let id: Option<PeerId> = peer.id.parse().ok();
            let id = id.ok_or(BenchError::Wrong("a peer's key"))?;
            let endpoint = Endpoint::of(id, peer.address.clone());
            Ok((peer.organisation, endpoint))
        });
        let peers = peers.collect::<Result<Vec<_>, BenchError>>()?;
        let sealing = Sealing::new(genesis.network());
        let copies = genesis.copies.unwrap_or(COPIES) as usize;
        let view = view(community, genesis, clients[0].clone()).await?;
        Ok(Arc::new(Self { clients, peers, sealing, view, copies }))
    }

    fn any(&self, seeded: &mut Seeded) -> (&Arc<Client>, &Endpoint) {
        let (organisation, endpoint) = &self.peers[seeded.below(self.peers.len())];
        (&self.clients[*organisation], endpoint)
    }

    /// Asks for each record once more; how many are not to be had.
    pub(crate) async fn missing(&self, ids: &[RecordId], stop: &Stop) -> Result<usize, BenchError> {
        let asked = futures::stream::iter(ids.iter().enumerate()).map(|(number, id)| async move {
            let mut seeded = Seeded::new(number as u64);
            for _ in 0..3 {
                if self.get(&mut seeded, *id).await.is_ok() {
                    return true;
                }
            }
            false
        });
        let mut found = asked.buffer_unordered(READ_BACK);
        let mut missing = 0;
        while let Some(found) = found.next().await {
            stop.check()?;
            missing += usize::from(!found);
        }
        Ok(missing)
    }
}

impl Entries for Clients {
    fn sealing(&self) -> Sealing {
        self.sealing.clone()
    }

    async fn put(&self, seeded: &mut Seeded, record: Record) -> Result<(), CallError> {
        let (client, to) = self.any(seeded);
        client.put(to, record, Duration::ZERO, REQUEST_LIMIT).await.map(drop)
    }

    async fn get(&self, seeded: &mut Seeded, id: RecordId) -> Result<Got, CallError> {
        let (client, to) = self.any(seeded);
        let place = id.into();
        let record = client.get(to, FindRequest { id, place }, REQUEST_LIMIT).await?;
        let held =
            to.peer.is_some_and(|peer| self.view.holders(&place, self.copies).contains(&peer));
        Ok(Got { bytes: record.bytes, held })
    }
}

/// The peers as all of them see each other.
async fn view(
    community: &Community,
    genesis: Genesis,
    client: Arc<Client>,
) -> Result<Arc<View>, BenchError> {
    let env = Env::real();
    let directory = Directory::new(Arc::new(genesis), env.clone(), None);
    let walker = Walker::new(env, client, directory, WalkOptions::default());
    let addresses: Vec<String> = community.peers.iter().map(|peer| peer.address.clone()).collect();
    let known = walker.join(&addresses).await.map_err(|_| BenchError::Wrong("nobody answers"))?;
    match known < community.peers.len() {
        true => Err(BenchError::Wrong("not all peers are known")),
        false => Ok(walker.directory().view()),
    }
}

fn client(
    community: &Community,
    org: usize,
    genesis: &Genesis,
    stop: &Stop,
) -> Result<Arc<Client>, BenchError> {
    let secret = fresh_key();
    let pass = pass(community, org, ClientKey::new(secret.public()), stop)?;
    let identity = Identity::new(secret, genesis.network())?;
    let limits = ClientLimits {
        connections: CONNECTIONS,
        bulk_connections: BULK_CONNECTIONS,
        ..ClientLimits::default()
    };
    let credential = move || Credential::Client(pass.clone());
    Ok(Client::new(identity, Arc::new(credential), Env::real(), limits))
}

/// A pass that an organisation signs for a client's key.
pub(super) fn pass(
    community: &Community,
    org: usize,
    client: ClientKey,
    stop: &Stop,
) -> Result<Bytes, BenchError> {
    let pass = community.path().join(format!("pass{org}"));
    let text = |path: &std::path::Path| path.display().to_string();
    let program: &Program = &community.program;
    let args = ["org", "pass", "--dir"].map(str::to_owned).into_iter();
    let args = args.chain([text(&community.org(org)), "--network".to_owned()]);
    let args = args.chain([text(&community.network()), "--client".to_owned(), client.to_string()]);
    program.ask(args.chain(["-o".to_owned(), text(&pass)]), stop)?;
    std::fs::read(&pass).map(Bytes::from).map_err(BenchError::io("read", &pass))
}
