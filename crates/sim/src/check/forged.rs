//! Q1 where an author lies: a page whose id proves it and whose MAC is wrong gives nothing, as a whole and in part.

use std::sync::Arc;

use author::{AuthorError, NoProgress};
use crypto::{AuthorKey, EEK_BYTES, Eek, ReaderKey, RecordId};
use document::{
    ContentInfo, Document, DocumentError, EntrySealer, Record, SealedContent, envelope,
};
use testkit::network::key;

use super::bytes;
use crate::chance::{Chance, noise};
use crate::workload::content;
use crate::world::{RunningAuthor, World};

/// Bytes of such a content: more than an entry takes, so that its page is a record of its own.
const FORGED_BYTES: usize = 20_000;

/// Somebody shares such a content with one of the authors, who reads it.
pub(crate) async fn check(world: &World) {
    let mut chance = Chance::new(world.seed, "forged content");
    let reader = chance.index(world.plan.authors);
    let running = world.author(reader).await;
    let keys = running.author.reader_keys();
    let to = keys[chance.index(keys.len())];
    let forged = forge(world, to, &mut chance).expect("a content of one page can be sealed");
    let (records, address) = forged;
    for record in records {
        if !is_stored(world, reader, &running, record).await {
            return;
        }
    }
    for range in [None, Some(0..FORGED_BYTES as u64)] {
        let mut got = Vec::new();
        let getting = running.author.get(address, &mut got, range, Arc::new(NoProgress));
        let answer = world.within(reader, &running, "get", Box::pin(getting)).await;
        let Some(answer) = answer else { continue };
        bytes::check(&world.history, &got, &[], answer.is_ok());
        match answer {
            // What it gave is found by its bytes.
            Ok(_) => {}
            Err(AuthorError::Corrupt { .. }) => world.history.tally("forged: refused"),
            Err(error) => {
                let what = format!("a page with a wrong MAC is no such: {}", bytes::text(&error));
                world.history.find("Q1", what);
            }
        }
    }
}

/// The page, the entry and the envelope, and what the content is found by.
fn forge(
    world: &World,
    reader: ReaderKey,
    chance: &mut Chance,
) -> Result<([Record; 3], RecordId), DocumentError> {
    let genesis = &world.community.genesis;
    let suite = genesis.suite;
    let secret = key("sim forger", 0);
    let mut eek = [0; EEK_BYTES];
    eek.copy_from_slice(&noise(chance.bits(), EEK_BYTES));
    let eek = Eek::from_bytes(&eek);
    let mut sealer = EntrySealer::new(suite, eek.clone(), AuthorKey::new(secret.public()));
    let mut macs = sealer.macs();
    let bytes = content(chance.bits(), FORGED_BYTES, &world.history.needle());
    let mut sealed = sealer.ticket()?.seal(&bytes)?;
    // All that is made of it below fits: the record's id, the entry's list, the MACs over the whole.
    sealed.page.mac[0] ^= 1;
    sealed.record = Record::of(suite, &Document::Page(sealed.page.clone()));
    macs.add(&sealed);
    let pages = SealedContent::Pages(vec![sealed.record.id]);
    let info = ContentInfo { media_type: "text/plain".to_owned(), ..ContentInfo::default() };
    let created = u32::try_from(world.env.clock.unix_s()).unwrap_or(u32::MAX);
    let entry = sealer.finish(macs, pages, info, created)?.entry;
    let envelope = envelope::seal(suite, genesis.network(), entry.id, &secret, &reader, &eek);
    let envelope = Record::of(suite, &Document::Envelope(envelope));
    let address = envelope.id;
    Ok(([sealed.record, entry, envelope], address))
}

/// Stores a record at its holders, in a network where nothing is wrong.
async fn is_stored(world: &World, number: usize, running: &RunningAuthor, record: Record) -> bool {
    let walker = running.author.walker();
    let (kind, redundancy) = (record.kind, walker.redundancy(record.kind));
    let storing = Box::pin(walker.store(record, redundancy));
    match world.within(number, running, "store", storing).await {
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            let what = format!("all trouble is over and a {} is not stored: {error}", kind.name());
            world.history.find("Q6", what);
            false
        }
        None => false,
    }
}
