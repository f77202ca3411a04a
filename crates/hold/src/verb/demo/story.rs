//! The steps of the demonstration.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use author::{Author, AuthorError, InboxEvent, NoProgress, PutOptions, PutReport};
use crypto::{PeerId, ReaderKey, RecordId, Suite};
use document::Kind;
use env::Entropy;
use futures::StreamExt;

use super::Teller;
use crate::address;
use crate::connect::{self, User};
use crate::embedded::Embedded;
use crate::error::HoldError;
use crate::markers::{self, Markers, Search};

/// Bytes of the file that is made on the spot: several pages, the last one short.
const FILE_BYTES: usize = 5 * (1 << 20) + 4321;
/// Markers in it.
const MARKERS_PLANTED: usize = 8;
/// Samples of a file that was given, and their length in bytes.
const SAMPLES: usize = 16;
const SAMPLE_BYTES: usize = 24;
/// A sample with fewer different bytes than this could be anywhere by chance.
const SAMPLE_VARIETY: usize = 12;
/// How soon a share must be in the reader's inbox.
const INBOX_WITHIN: Duration = Duration::from_secs(1);
/// Peers stopped, of nine: what is kept as 4/8 survives the loss of four fragments, five copies that of four.
const STOPPED: usize = 4;

/// What is put, and what is looked for afterwards.
struct Planted {
    file: PathBuf,
    name: String,
    media_type: String,
    properties: BTreeMap<String, Vec<u8>>,
    markers: Vec<(&'static str, Vec<u8>)>,
}

/// Tells the story.
pub(super) async fn tell(
    teller: &mut Teller<'_>,
    network: &mut Embedded,
    folder: &Path,
    given: Option<&Path>,
) -> Result<(), HoldError> {
    teller.held(
        "A network of three organisations",
        format!(
            "{} librarians serve, each with its own key, certificate and disk.",
            network.peers.len()
        ),
    )?;
    let author = user(network, "author", 0).await?;
    let reader = user(network, "reader", 1).await?;
    let third = user(network, "third", 2).await?;
    teller.held(
        "Three users",
        "Each has a keyring of one seed under a passphrase, and a pass of an organisation."
            .to_owned(),
    )?;
    let planted = plant(folder, given)?;
    let size = fs::metadata(&planted.file).map_err(HoldError::io("read", &planted.file))?.len();
    let put = put(&author, &planted).await?;
    if !put.full || put.bytes != size {
        return Err(teller
            .failed(format!("{} of {} copies or fragments were stored", put.acked, put.wanted)));
    }
    teller.held(
        "The author puts a file",
        format!(
            "{size} bytes, sealed before they left this user, kept as {}.\n   \
             Its address is {}",
            put.profile,
            address::text(&put.address)
        ),
    )?;
    let shared = share(teller, &author, &reader, put.address).await?;
    stop_holders(teller, network, &author, put.address).await?;
    read_back(teller, &reader, shared, &planted.file, folder).await?;
    refuse(teller, &third, &[put.address, shared]).await?;
    drop((author, reader, third));
    network.start_all().await?;
    network.stop_all().await?;
    search(teller, &planted, folder)
}

async fn user(network: &Embedded, name: &str, org: usize) -> Result<User, HoldError> {
    let (config, home) = network.home(name, org).await?;
    connect::author_at(&config, home).await
}

/// A file with markers in it, or one that was given with samples of it; the name, the media type and
/// a property have markers either way.
fn plant(folder: &Path, given: Option<&Path>) -> Result<Planted, HoldError> {
    let (name, kind, property) = (markers::fresh(), markers::fresh(), markers::fresh());
    let mut planted = vec![
        ("name", name.clone().into_bytes()),
        ("media type", kind.clone().into_bytes()),
        ("property", property.clone().into_bytes()),
    ];
    let file = match given {
        Some(given) => {
            planted.extend(samples(given)?.into_iter().map(|sample| ("content", sample)));
            given.to_owned()
        }
        None => {
            let file = folder.join("file");
            let content = made(&mut planted);
            fs::write(&file, content).map_err(HoldError::io("write", &file))?;
            file
        }
    };
    Ok(Planted {
        file,
        name: format!("{name}.bin"),
        media_type: format!("application/x-{kind}"),
        properties: BTreeMap::from([("note".to_owned(), property.into_bytes())]),
        markers: planted,
    })
}

/// Random bytes, which no compression changes, with markers all over them.
fn made(planted: &mut Vec<(&'static str, Vec<u8>)>) -> Vec<u8> {
    let mut content = vec![0; FILE_BYTES];
    env::SystemEntropy.fill(&mut content);
    for number in 0..MARKERS_PLANTED {
        let marker = markers::fresh().into_bytes();
        let at = (FILE_BYTES - marker.len()) / MARKERS_PLANTED * number + number;
        content[at..at + marker.len()].copy_from_slice(&marker);
        planted.push(("content", marker));
    }
    content
}

/// Strings of the file that are in no other by chance.
fn samples(file: &Path) -> Result<Vec<Vec<u8>>, HoldError> {
    use std::os::unix::fs::FileExt;
    let open = fs::File::open(file).map_err(HoldError::io("read", file))?;
    let size = open.metadata().map_err(HoldError::io("read", file))?.len();
    let steps = SAMPLES as u64;
    let mut found = Vec::new();
    for number in 0..steps {
        let mut sample = vec![0; SAMPLE_BYTES];
        if open.read_exact_at(&mut sample, size / steps * number).is_err() {
            continue;
        }
        let varied: std::collections::BTreeSet<_> = sample.iter().collect();
        if varied.len() >= SAMPLE_VARIETY {
            found.push(sample);
        }
    }
    Ok(found)
}

async fn put(author: &Author, planted: &Planted) -> Result<PutReport, HoldError> {
    let file = tokio::fs::File::open(&planted.file).await;
    let file = file.map_err(HoldError::io("read", &planted.file))?;
    let options = PutOptions {
        name: Some(planted.name.clone()),
        media_type: Some(planted.media_type.clone()),
        properties: planted.properties.clone(),
        ..PutOptions::default()
    };
    Ok(author.put(file, options, Arc::new(NoProgress)).await?)
}

async fn share(
    teller: &mut Teller<'_>,
    author: &Author,
    reader: &Arc<Author>,
    content: RecordId,
) -> Result<RecordId, HoldError> {
    let to: ReaderKey = *reader.reader_keys().first().ok_or(AuthorError::Stopped)?;
    let mut inbox = reader.inbox(true, &[]);
    let shared = author.share(content, to).await?;
    let since = Instant::now();
    let arrived = async {
        while let Some(event) = inbox.next().await {
            match event? {
                InboxEvent::Received(received) if received.address == shared => return Ok(()),
                _ => {}
            }
        }
        Err(HoldError::from(AuthorError::Stopped))
    };
    match tokio::time::timeout(INBOX_WITHIN, arrived).await {
        Ok(arrived) => arrived?,
        Err(_) => return Err(teller.failed("the share was not in the inbox in time".to_owned())),
    }
    teller.held(
        "The author shares it with the reader",
        format!(
            "The file's key, sealed to the reader's key alone. It was in the reader's inbox {} ms later, at\n   {}",
            since.elapsed().as_millis(),
            address::text(&shared)
        ),
    )?;
    Ok(shared)
}

/// Stops the peers that hold all pages of a stripe, so that it must be made again from parity alone; of a file in its entry,
/// all holders of it but one.
async fn stop_holders(
    teller: &mut Teller<'_>,
    network: &mut Embedded,
    author: &Author,
    content: RecordId,
) -> Result<(), HoldError> {
    let info = author.info(content).await?;
    let striped = info.stripes > 0;
    let fragments = info.fragments.iter().filter(|fragment| match striped {
        true => fragment.stripe == Some(0),
        false => fragment.kind == Kind::Entry,
    });
    let holders = fragments.flat_map(|fragment| &fragment.holders).filter(|holder| holder.held);
    let mut holders: Vec<PeerId> = holders.map(|holder| holder.peer).collect();
    if holders.len() <= STOPPED {
        return Err(teller.failed("a record has fewer holders than it should".to_owned()));
    }
    holders.truncate(STOPPED);
    let mut stopped = 0;
    for slot in &mut network.peers {
        let holds =
            slot.running.as_ref().is_some_and(|peer| holders.contains(&peer.librarian.peer()));
        if holds && let Some(peer) = slot.running.take() {
            peer.stop().await?;
            stopped += 1;
        }
    }
    let lost = match striped {
        true => "they held every page of a part of the file; its parity is left",
        false => "one peer is left that holds the entry, in which the file lies",
    };
    teller.held("Four of nine peers go down", format!("{stopped} peers are stopped: {lost}."))
}

async fn read_back(
    teller: &mut Teller<'_>,
    reader: &Author,
    shared: RecordId,
    original: &Path,
    folder: &Path,
) -> Result<(), HoldError> {
    let back = folder.join("back");
    let got = reader.get_file(shared, &back, None, Arc::new(NoProgress)).await?;
    let (before, after) = (fingerprint(original)?, fingerprint(&back)?);
    if before != after {
        return Err(teller.failed("what came back is not what went in".to_owned()));
    }
    teller.held(
        "The reader reads it",
        format!(
            "{} bytes, every page proven{}. Both files hash to {}.",
            got.bytes,
            if got.degraded {
                ", those that are gone made again from parity or read elsewhere"
            } else {
                ""
            },
            hex::encode(after)
        ),
    )
}

/// A hash of a file, read in parts.
fn fingerprint(path: &Path) -> Result<[u8; 32], HoldError> {
    let mut file = fs::File::open(path).map_err(HoldError::io("read", path))?;
    let mut state = Suite::Holdfast1.mac_state(&[0; 32]);
    let mut part = vec![0; 1 << 18];
    loop {
        let read = file.read(&mut part).map_err(HoldError::io("read", path))?;
        if read == 0 {
            return Ok(state.finish());
        }
        state.update(&part[..read]);
    }
}

async fn refuse(
    teller: &mut Teller<'_>,
    third: &Author,
    addresses: &[RecordId],
) -> Result<(), HoldError> {
    for address in addresses {
        let mut sink = Vec::new();
        match third.get(*address, &mut sink, None, Arc::new(NoProgress)).await {
            Err(AuthorError::NotForUs { .. }) if sink.is_empty() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(teller.failed("a third user could read it".to_owned())),
        }
    }
    teller.held(
        "A third user cannot",
        "It knows both addresses and finds the envelopes; none of its keys opens them.".to_owned(),
    )
}

/// Looks for every marker in every file of every peer and in the log.
fn search(teller: &mut Teller<'_>, planted: &Planted, folder: &Path) -> Result<(), HoldError> {
    let markers = Markers::new(&planted.markers);
    // First where they must be found: a search that finds nothing anywhere proves nothing.
    let mut control = Search::default();
    let names = folder.join("names");
    let mut listed = fs::File::create(&names).map_err(HoldError::io("write", &names))?;
    for (_, marker) in &planted.markers {
        let written = listed.write_all(marker).and_then(|()| listed.write_all(b"\n"));
        written.map_err(HoldError::io("write", &names))?;
    }
    markers.search_file(&names, &mut control)?;
    let kinds = |search: &Search| {
        let mut kinds: Vec<_> = search.leaks.iter().map(|leak| leak.what).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    let mut wanted: Vec<_> = planted.markers.iter().map(|(what, _)| *what).collect();
    wanted.sort_unstable();
    wanted.dedup();
    if kinds(&control) != wanted {
        return Err(teller.failed("the search does not find markers where they are".to_owned()));
    }
    let mut found = Search::default();
    for number in 0.. {
        let dir = folder.join(format!("network/peer{number}"));
        if !dir.exists() {
            break;
        }
        found.merge(markers.search(&dir)?);
    }
    markers.search_file(&folder.join("log"), &mut found)?;
    if let Some(leak) = found.leaks.first() {
        let file = leak.file.strip_prefix(folder).unwrap_or(&leak.file);
        return Err(teller.failed(format!(
            "planted markers were found ({}), the first one, of the {}, {} in {}",
            kinds(&found).join(", "),
            leak.what,
            leak.form,
            file.display()
        )));
    }
    teller.held(
        "Nobody who stores it can read it",
        format!(
            "{} markers from the content, name, type and properties were looked for in {} files of all peers and in the log, {} bytes: none is there.",
            planted.markers.len(),
            found.files,
            found.bytes
        ),
    )
}
