//! What authors do meanwhile: contents as copies and as stripes, some paid for shortly, some ended; and records by themselves.

use std::sync::Arc;
use std::time::Duration;

use author::PutOptions;
use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::{Document, Kind, ParityBuffer, Record, Stripe};
use placement::Profile;
use walk::StripeRecords;

use super::{Cast, TROUBLE, Town};
use crate::chance::{Chance, noise};
use crate::check::bytes::text;
use crate::check::holdings::Kept;
use crate::ledger::{Entry, Fate};
use crate::world::RunningAuthor;

/// Sizes of contents: within an entry, and a few pages.
const SIZES: [usize; 6] = [100, 3_000, 16_385, 16_385, 20_000, 40_000];
/// Stripes that are asked for.
const STRIPES: [(u32, u32); 4] = [(1, 3), (2, 4), (2, 5), (3, 6)];
/// Contents that each author puts before anything goes wrong.
const FIRST: usize = 2;
/// Records that are stored by themselves: so many that every two peers have some in common.
const RECORDS: usize = 12;
/// The same, where somebody must be found by what it should have.
const RECORDS_MANY: usize = 48;
/// How long the shortest lease lasts, in seconds.
const SHORT_S: u64 = 20;
/// How long a put waits for its last copies.
const REST: Duration = Duration::from_secs(5);

impl Town {
    /// What there is before anything goes wrong.
    pub(super) async fn begin(&self) {
        let mut chance = Chance::new(self.world.seed, "first puts");
        for number in 0..self.world.plan.authors {
            self.world.author(number).await;
            for _ in 0..FIRST {
                self.puts(number, &mut chance).await;
            }
        }
        let many = self.cast.is_to_be_found();
        for number in 0..if many { RECORDS_MANY } else { RECORDS } {
            self.stores(number).await;
        }
        if self.cast == Cast::Poisoner {
            for number in 0..2 {
                self.poisons(number, &mut chance).await;
            }
        }
    }

    /// One author's work, until the trouble ends.
    pub(super) async fn works(self: Arc<Self>, number: usize) {
        let world = &self.world;
        let mut chance = Chance::new(world.seed, &format!("keeping author {number}"));
        while world.env.clock.elapsed() < TROUBLE {
            world.env.clock.sleep(Duration::from_millis(4_000 + chance.below(22_000))).await;
            match chance.below(10) {
                0..=4 => self.puts(number, &mut chance).await,
                5..=7 => self.gets(number, &mut chance).await,
                _ => self.forgets(number, &mut chance).await,
            }
        }
    }

    async fn puts(&self, number: usize, chance: &mut Chance) {
        let len = chance.one(&SIZES);
        let (k, n) = chance.one(&STRIPES);
        let striped = chance.permille(600) && n as usize <= self.world.plan.peers;
        let profile = striped.then_some(Profile::Stripe { k, n });
        let short = chance.permille(250).then(|| SHORT_S + chance.below(40));
        let options = PutOptions { profile, lease_seconds: short, ..PutOptions::default() };
        let put = self.world.put_kept(number, len, options, &[], chance).await;
        let Some(put) = put else { return };
        let address = put.report.address;
        let fate = match (short, put.report.until) {
            (Some(_), Some(until)) => Fate::Ends(until),
            _ => Fate::Stays,
        };
        let entry = Entry { content: Some((number, address)), kept: put.kept, fate };
        self.ledger.lock().push(entry);
    }

    /// A record by itself, which nobody pays for: a page of noise. One whose id is ground begins with the same byte as all others.
    async fn stores(&self, number: usize) {
        let running = self.world.author(0).await;
        let seed = self.world.seed as usize;
        let first = (0..1 << 16).map(|salt| {
            let number = seed.wrapping_mul(1 << 20) ^ (number << 16) ^ salt;
            testkit::network::page(Suite::Holdfast1, number % (1 << 40), 300)
        });
        let ground = self.cast == Cast::Grinder;
        let mut first = first.filter(|one| !ground || one.id.as_bytes()[0] == 0x5a);
        let Some(record) = first.next() else { return };
        let walker = running.author.walker();
        let redundancy = walker.redundancy(record.kind);
        let id = record.id;
        let storing = async {
            let mut stored = walker.store(record, redundancy).await?;
            stored.rest.wait(REST).await;
            Ok::<_, walk::WalkError>(())
        };
        let stored = self.world.within(0, &running, "store", Box::pin(storing)).await;
        if let Some(Ok(())) = stored {
            let kept = vec![Kept::Copies { id, kind: Kind::Page, holders: Default::default() }];
            self.ledger.lock().push(Entry { content: None, kept, fate: Fate::Stays });
        }
    }

    /// A stripe whose header lists a parity that the code does not make of its pages.
    async fn poisons(&self, number: usize, chance: &mut Chance) {
        let running = self.world.author(1).await;
        let (k, n) = (2, 5);
        let seed = (self.world.seed as usize % (1 << 30)) << 2 | number;
        let honest = testkit::network::stripe(seed, k, n, 700);
        let as_copy = |record: &Record| Record { place: record.id.into(), ..record.clone() };
        let pages: Vec<Record> = honest.fragments[..k].iter().map(as_copy).collect();
        let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap_or_default();
        let parity = (k..n).map(|index| {
            let mut buffer = ParityBuffer::new(index as u32, longest).ok()?;
            buffer.bytes_mut().copy_from_slice(&noise(chance.bits(), longest));
            Some(buffer.record(Suite::Holdfast1))
        });
        let Some(parity) = parity.collect::<Option<Vec<_>>>() else { return };
        let Ok(stripe) = Stripe::of(Suite::Holdfast1, pages, parity) else { return };
        let place = stripe.header.place;
        if let Ok(Document::Stripe(header)) = Document::decode(&stripe.header.bytes) {
            let mut history = self.world.history.lock();
            history.stripes.insert(stripe.header.id, header);
            history.poisoned.insert(place, Default::default());
        }
        let records = StripeRecords {
            header: stripe.header,
            fragments: stripe.fragments,
            threshold: n as u32,
        };
        let storing = running.author.walker().store_stripe(records);
        let stored = self.world.within(1, &running, "poison", Box::pin(storing)).await;
        let stored = matches!(stored, Some(Ok(_)));
        self.world.history.event(format!("a header that lies is stored: {stored}"));
        if stored {
            self.world.history.tally("poison: a header that lies is stored");
        }
    }

    async fn gets(&self, number: usize, chance: &mut Chance) {
        let world = &self.world;
        let running = world.author(number).await;
        let Some((address, _)) = self.chosen(number, chance) else { return };
        let found = world.readable(number).into_iter().find(|(_, one)| *one == address);
        let Some((at, address)) = found else { return };
        if let Some(Err(error)) = world.read(number, &running, at, address, None).await {
            world.history.tally("failed");
            crate::check::bytes::check_error(&world.history, "get", &error);
            world.history.event(format!("author {number} cannot get: {}", text(&error)));
        }
    }

    /// One of an author's contents that must be there, and its number in the ledger.
    fn chosen(&self, number: usize, chance: &mut Chance) -> Option<(RecordId, usize)> {
        let now = self.now_s();
        let entries = self.ledger.lock();
        let own: Vec<(RecordId, usize)> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.is_kept(now))
            .filter_map(|(at, entry)| Some((entry.content?, at)))
            .filter(|((author, _), _)| *author == number)
            .map(|((_, address), at)| (address, at))
            .collect();
        (!own.is_empty()).then(|| own[chance.index(own.len())])
    }

    /// From now on holders may drop what belongs to this entry of the ledger, whatever its author hears of it.
    fn may_be_dropped(&self, at: usize) {
        let kept = self.ledger.lock()[at].kept.clone();
        let ids = kept.iter().flat_map(|one| {
            let fragments = crate::ledger::fragments(&self.world, &one.id());
            fragments.into_iter().chain([one.id()])
        });
        let ids: Vec<RecordId> = ids.collect();
        self.world.history.lock().ended.extend(ids);
    }

    async fn forgets(&self, number: usize, chance: &mut Chance) {
        let world = &self.world;
        let running: RunningAuthor = world.author(number).await;
        let Some((address, at)) = self.chosen(number, chance) else { return };
        let before = std::mem::replace(&mut self.ledger.lock()[at].fate, Fate::Unsure);
        self.may_be_dropped(at);
        let ended = world.within(number, &running, "forget", running.author.forget(address)).await;
        let (fate, said) = match ended {
            // Nothing was told to anybody.
            Some(Ok(ended)) if ended.leases == 0 => (before, "nothing to forget".to_owned()),
            Some(Ok(ended)) if ended.unreached.is_empty() => {
                world.history.tally("over: forgotten");
                (Fate::Forgotten, format!("forgot, {} reached", ended.reached.len()))
            }
            Some(Ok(ended)) => {
                world.history.tally("over: forgotten by some");
                (Fate::Unsure, format!("forgot, {} unreached", ended.unreached.len()))
            }
            Some(Err(error)) => (Fate::Unsure, format!("cannot forget: {}", text(&error))),
            None => (Fate::Unsure, "died".to_owned()),
        };
        self.ledger.lock()[at].fate = fate;
        world.history.event(format!("author {number} {said}"));
    }
}

/// Bytes that are no record's.
pub(super) fn junk(chance: &mut Chance) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&Bytes::from(noise(chance.bits(), 32)));
    bytes
}
