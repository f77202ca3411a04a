//! Authors of a community: each cuts, codes and walks by itself, as `hold put` and `hold get` do.
//!
//! A librarian stores copies for a thin client and no stripes, so a load of contents in stripes comes from authors, one an
//! organisation, in this one process. What is timed is the whole of a user's wait: a put is sealing, coding, every record
//! stored, and the durable counter of its keys; a get is envelope, entry, and every page proven.

use std::sync::Arc;
use std::time::Instant;

use author::{Author, AuthorError, AuthorOptions, Home, NoProgress, Payer, PutOptions};
use crypto::{Class, Classified, Genesis, ReaderKey, RecordId};
use env::calls::Credential;
use env::{Env, SystemEntropy};
use placement::Profile;
use rpc::{Client, ClientLimits, Identity};
use walk::{Directory, WalkOptions, Walker};

use super::clients::{CONNECTIONS, pass};
use super::documents::Sizes;
use super::{Load, Outcome, Running, What, arrivals};
use crate::community::{Community, ORGANISATIONS};
use crate::error::BenchError;
use crate::seeded::Seeded;
use crate::stop::Stop;

/// The least scrypt that a keyring may have: their files go with the experiment.
const SCRYPT_LOG_N: u8 = 10;
const PASSPHRASE: &[u8] = b"only for measuring";

/// The authors, each a reader of the others too.
pub(crate) struct Authors {
    authors: Vec<Arc<Author>>,
    readers: Vec<ReaderKey>,
    profile: Profile,
}

impl Authors {
    /// Authors of every organisation of a community.
    pub(crate) async fn new(
        community: &Community,
        profile: Profile,
        stop: &Stop,
    ) -> Result<Arc<Self>, BenchError> {
        let (mut authors, mut readers) = (Vec::new(), Vec::new());
        for organisation in 0..ORGANISATIONS {
            let author = author(community, organisation, None, stop).await?;
            readers.extend(author.home().keyring().readers().first().copied());
            authors.push(author);
        }
        Ok(Arc::new(Self { authors, readers, profile }))
    }

    /// Puts a content for the readers that are not the author; answers what each of them gets it by.
    async fn put(&self, author: usize, content: &[u8]) -> Result<Vec<RecordId>, AuthorError> {
        let others = self.readers.iter().enumerate().filter(|(number, _)| *number != author);
        let options = PutOptions {
            readers: others.map(|(_, reader)| *reader).collect(),
            profile: Some(self.profile),
            ..PutOptions::default()
        };
        let put = self.authors[author].put(content, options, Arc::new(NoProgress)).await?;
        Ok(put.envelopes.iter().map(|shared| shared.address).collect())
    }
}

/// An author in this process, whose pass this organisation signed; it pays for what it puts where it is said for how many seconds.
pub(crate) async fn author(
    community: &Community,
    organisation: usize,
    pays_s: Option<u64>,
    stop: &Stop,
) -> Result<Arc<Author>, BenchError> {
    let env = Env::real();
    let path = community.network();
    let bytes = std::fs::read(&path).map_err(BenchError::io("read", &path))?;
    let genesis = Genesis::decode(&bytes).map_err(|_| BenchError::Wrong("the network file"))?;
    let dir = community.path().join(format!("author{organisation}"));
    let home = Home::create_with(&dir, PASSPHRASE, &SystemEntropy, SCRYPT_LOG_N)?;
    let credential =
        Credential::Client(pass(community, organisation, home.keyring().client_key(), stop)?);
    let identity = Identity::new(home.keyring().client(), genesis.network())?;
    let limits = ClientLimits { connections: CONNECTIONS, ..ClientLimits::default() };
    let shown = credential.clone();
    let client = Client::new(identity, Arc::new(move || shown.clone()), env.clone(), limits);
    let directory = Directory::new(Arc::new(genesis), env.clone(), None);
    let options = WalkOptions { credential, ..WalkOptions::default() };
    let walker = Walker::new(env.clone(), client, directory, options);
    let addresses: Vec<String> = community.peers.iter().map(|peer| peer.address.clone()).collect();
    let known = walker.join(&addresses).await.map_err(|_| BenchError::Wrong("nobody answers"))?;
    if known < community.peers.len() {
        return Err(BenchError::Wrong("not all peers are known"));
    }
    let payer = pays_s.map(|seconds| Payer { secret: home.keyring().client(), seconds });
    Ok(Author::paying(env, Arc::new(home), walker, &AuthorOptions::default(), payer))
}

impl Running<Arc<Authors>> {
    /// One upload to its end, or to its first part that does not go well.
    async fn upload(self: Arc<Self>, sizes: Sizes, mut seeded: Seeded) {
        let mut content = vec![0; sizes.draw(&mut seeded)];
        seeded.fill(&mut content);
        let author = seeded.below(self.by.authors.len());
        let since = Instant::now();
        let addresses = match self.by.put(author, &content).await {
            Ok(addresses) => addresses,
            Err(error) => return self.with(|outcome| outcome.count_author(&error)),
        };
        self.sample(What::Put, since);
        self.with(|outcome| {
            outcome.put_bytes += content.len() as u64;
            outcome.acknowledged.extend(&addresses);
        });
        let readers = (0..self.by.authors.len()).filter(|reader| *reader != author);
        for (reader, address) in readers.zip(addresses) {
            let (since, mut bytes) = (Instant::now(), Vec::new());
            let reader = &self.by.authors[reader];
            match reader.get(address, &mut bytes, None, Arc::new(NoProgress)).await {
                Ok(_) => self.sample(What::Large, since),
                Err(error) => return self.with(|outcome| outcome.count_author(&error)),
            }
            let same = bytes == content;
            self.with(|outcome| outcome.wrong |= !same);
        }
    }
}

impl Outcome {
    fn count_author(&mut self, error: &AuthorError) {
        match error.class() {
            Class::Busy => self.busy += 1,
            _ => self.failed += 1,
        }
    }
}

/// Runs a load to its end. Sealing is part of what is timed, as it is of what an author waits for.
///
/// # Errors
/// [`BenchError::Interrupted`], and [`BenchError::Wrong`] where a get answered other bytes.
pub(crate) async fn run(
    authors: &Arc<Authors>,
    load: Load,
    stop: &Stop,
) -> Result<Outcome, BenchError> {
    let running = Arc::new(Running::new(authors.clone()));
    let upload = async |draws| Ok(Some(running.clone().upload(load.sizes, draws)));
    arrivals(&running, load, stop, upload).await
}
