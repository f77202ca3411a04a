//! What a content is, and where each of its records lies right now.
//!
//! Holders prove what they hold by a MAC over the record under a fresh key, so nothing is moved. Envelope and entry are at
//! hand, so their proofs are checked exactly. Pages are not: their holders' answers are compared with each other, and where they
//! differ, or only one answers, the page is fetched to see who is right. Holders that collude could claim a page that all
//! of them lost; a get would find out. So it would of a fragment of a stripe, which has one holder and nothing to compare it
//! with (see `stripes`).
//!
//! Each record is told, so how many are is bounded: [`STRIPES_TOLD_MAX`] and [`PAGES_TOLD_MAX`]. An entry of a mebibyte may
//! name one stripe of 256 fragments 32,768 times. What is beyond is counted; `Author::check` asks about all and keeps nothing.

mod stripes;

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{Mac, PeerId, Place, RecordId};
use document::entry::LIST_INDEX_BASE;
use document::{Kind, Record};
use env::calls::{CallError, VerifyRequest, VerifyResponse};
use futures::StreamExt;
use placement::{Profile, Redundancy, View};
use walk::{ASKED_MAX, Directory, Health, Held, Holding, NEAR_EXTRA, WalkError};

use crate::author::Author;
use crate::content::{At, Content, PageAt};
use crate::error::AuthorError;
use crate::types::{Fragment, Holder, Info};

/// Stripes whose fragments are told, the first ones: at most a quarter of a million fragments.
pub const STRIPES_TOLD_MAX: usize = 1_024;
/// Pages and list pages that are told where they are kept in copies, the first ones.
pub const PAGES_TOLD_MAX: usize = 16_384;
/// Pages asked of a peer in one call: 32 MiB that it reads from its disk.
const PAGES_ASKED: usize = 16;
/// Peers asked at once.
const PEERS_ASKED: usize = 16;
/// How long a peer may take to prove that many.
const VERIFY_LIMIT: Duration = Duration::from_secs(20);

/// What a peer says about a page: its MAC under the fresh key, or that it does not have it; an error is no answer.
type Claim = Result<Option<Mac>, CallError>;

/// A page or a list page, to be asked for.
#[derive(Clone, Copy)]
struct Asked {
    id: RecordId,
    index: u32,
    key: [u8; 32],
}

impl Author {
    /// What the content at an address is, and who holds its records: nobody is asked where librarians walk for this user.
    ///
    /// # Errors
    /// [`AuthorError::NotForUs`], [`AuthorError::Fetch`], [`AuthorError::Corrupt`]. Holders that do not answer are no
    /// errors: they are in the answer.
    pub async fn info(&self, address: RecordId) -> Result<Info, AuthorError> {
        let content = self.content(address).await?;
        let copies = self.copies_wanted(&content).await?;
        let mut fragments = vec![
            self.proven(&content.opened.record, copies.envelope).await,
            self.proven(&content.entry, copies.entry).await,
        ];
        let lists = content.lists().iter().zip(LIST_INDEX_BASE..).map(|(id, index)| (*id, index));
        for batch in lists.take(PAGES_TOLD_MAX).collect::<Vec<_>>().chunks(PAGES_ASKED) {
            fragments.extend(self.compared(batch, copies.lists).await);
        }
        let Parted { pages, stripes, count } = parted(self, &content).await?;
        for batch in pages.chunks(PAGES_ASKED) {
            fragments.extend(self.compared(batch, copies.pages).await);
        }
        let k = content.stripe_pages();
        let surveyed = self.surveyed(&stripes, k.unwrap_or(1)).await?;
        let profile = match surveyed.profile {
            None if !pages.is_empty() => Some(Profile::Copies(copies.pages)),
            profile => profile,
        };
        fragments.extend(surveyed.fragments);
        let untold = count - (pages.len() + stripes.len()) as u64;
        let (stripes, pages) = k.map_or((0, count), |k| (count, count * u64::from(k)));
        Ok(Info {
            envelope: content.opened.record.id,
            entry: content.entry.id,
            author: content.opened.envelope.author,
            details: content.details(),
            created_s: content.created_s,
            profile,
            pages,
            stripes,
            untold,
            fragments,
        })
    }

    /// Who holds a record that is at hand, of which there should be so many copies.
    pub(crate) async fn proven(&self, record: &Record, copies: u32) -> Fragment {
        let redundancy = Redundancy { copies, ..self.walker().redundancy(record.kind) };
        let holdings =
            self.walker().holdings(record.id, record.place, redundancy, Some(record)).await;
        fragment(record.id, record.kind, None, holdings, copies)
    }

    /// Who holds these pages, of each of which there should be so many copies, by comparing what their holders say.
    pub(crate) async fn compared(&self, pages: &[(RecordId, u32)], copies: u32) -> Vec<Fragment> {
        if self.walker().is_thin() {
            let unasked = |(id, index): &(RecordId, u32)| {
                fragment(*id, Kind::Page, Some(*index), Vec::new(), 0)
            };
            return pages.iter().map(unasked).collect();
        }
        let directory = self.walker().directory();
        let view = directory.view();
        let asked = pages.iter().map(|&(id, index)| Asked { id, index, key: self.env().random() });
        let asked: Vec<Asked> = asked.collect();
        let near: Vec<Vec<PeerId>> = asked
            .iter()
            .map(|page| near(&view, directory, &Place::from(page.id), copies as usize))
            .collect();
        let mut by_peer: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
        for (page, peers) in near.iter().enumerate() {
            for peer in peers {
                by_peer.entry(*peer).or_default().push(page);
            }
        }
        let asked_of = &asked;
        let calls = by_peer.into_iter().map(|(peer, pages)| async move {
            let wanted: Vec<Asked> = pages.iter().map(|page| asked_of[*page]).collect();
            (peer, pages, self.claims(&peer, &wanted).await)
        });
        let answers: Vec<_> =
            futures::stream::iter(calls).buffer_unordered(PEERS_ASKED).collect().await;
        let mut claims: BTreeMap<(usize, PeerId), Claim> = BTreeMap::new();
        for (peer, pages, answered) in answers {
            claims.extend(pages.into_iter().map(|page| (page, peer)).zip(answered));
        }
        let mut fragments = Vec::new();
        for (number, (page, peers)) in asked.iter().zip(near).enumerate() {
            let told = peers
                .into_iter()
                .enumerate()
                .filter_map(|(rank, peer)| Some((rank, peer, claims.remove(&(number, peer))?)));
            let told: Vec<(usize, PeerId, Claim)> = told.collect();
            let right = self.right_mac(page, &told).await;
            let holdings = told.into_iter().map(|(rank, peer, claim)| Holding {
                peer,
                organisation: directory.organisation_of(&peer),
                rank,
                held: held(claim, &right),
            });
            let kind = Kind::Page;
            fragments.push(fragment(page.id, kind, Some(page.index), holdings.collect(), copies));
        }
        fragments
    }

    /// Asks one peer for its proofs of these pages, one answer a page.
    async fn claims(&self, peer: &PeerId, pages: &[Asked]) -> Vec<Claim> {
        let directory = self.walker().directory();
        let Some(to) = directory.endpoint(peer) else {
            return vec![Err(CallError::NotFound); pages.len()];
        };
        let requests = pages.iter().map(|page| VerifyRequest {
            id: page.id,
            place: page.id.into(),
            mac_key: page.key,
        });
        let call = self.walker().calls().verify_batch(&to, requests.collect(), VERIFY_LIMIT);
        let answers = match self.env().within(VERIFY_LIMIT, call).await {
            Ok(answers) => answers,
            Err(_) => Err(CallError::TimedOut { address: to.address, limit: VERIFY_LIMIT }),
        };
        match answers {
            Ok(answers) if answers.len() == pages.len() => answers
                .into_iter()
                .map(|answer| {
                    answer.map(|answer| match answer {
                        VerifyResponse::Mac(mac) => Some(mac),
                        VerifyResponse::Closest(_) => None,
                    })
                })
                .collect(),
            Ok(_) => {
                let reason = "another number of answers than questions".to_owned();
                vec![Err(CallError::Corrupt { address: peer.to_string(), reason }); pages.len()]
            }
            Err(error) => vec![Err(error); pages.len()],
        }
    }

    /// The MAC that a holder of the page gives: the one that at least two agree on where nobody objects, else that of
    /// the page itself. `None` where nobody has it.
    ///
    /// # Errors
    /// Why that could not be found out.
    async fn right_mac(
        &self,
        page: &Asked,
        told: &[(usize, PeerId, Claim)],
    ) -> Result<Option<Mac>, CallError> {
        let macs = told.iter().filter_map(|(_, _, claim)| claim.as_ref().ok().copied().flatten());
        let macs: Vec<Mac> = macs.collect();
        let Some(first) = macs.first().copied() else { return Ok(None) };
        if macs.len() > 1 && macs.iter().all(|mac| *mac == first) {
            return Ok(Some(first));
        }
        let found = match self.walker().find(Some(Kind::Page), page.id, page.id.into()).await {
            Ok(found) => found,
            Err(WalkError::NotFound { .. } | WalkError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(CallError::Internal { reason: error.to_string() }),
        };
        let (suite, key) = (self.suite(), page.key);
        let mac = self.cpu(move || suite.mac(&key, &found.record.bytes)).await;
        mac.map(Some).map_err(|error| CallError::Internal { reason: error.to_string() })
    }
}

/// What a content is in, by what is told of it.
struct Parted {
    pages: Vec<(RecordId, u32)>,
    stripes: Vec<(RecordId, u32)>,
    /// All of them, those that are not told too.
    count: u64,
}

/// Goes through a content's pages or stripes as far as they are told. Where the content's size says how many there are, lists
/// that name none of these are not fetched.
async fn parted(author: &Author, content: &Content) -> Result<Parted, AuthorError> {
    let mut parted = Parted { pages: Vec::new(), stripes: Vec::new(), count: 0 };
    let in_all = content.opener.page_count().map(|pages| match content.stripe_pages() {
        Some(k) => pages / u64::from(k),
        None => pages,
    });
    let mut parts = content.parts(0);
    while let Some((index, at)) = parts.next(author).await? {
        let (told, id, max) = match at {
            At::Page(PageAt::Inline(_)) => continue,
            At::Page(PageAt::Record(id)) => (&mut parted.pages, id, PAGES_TOLD_MAX),
            At::Stripe(id) => (&mut parted.stripes, id, STRIPES_TOLD_MAX),
        };
        if told.len() < max {
            told.push((id, index));
        } else if let Some(in_all) = in_all {
            parted.count = in_all;
            break;
        }
        parted.count += 1;
    }
    Ok(parted)
}

fn held(claim: Claim, right: &Result<Option<Mac>, CallError>) -> Held {
    match claim {
        Ok(Some(mac)) => match right {
            Ok(right) if *right == Some(mac) => Held::Yes,
            Ok(_) => Held::Corrupt,
            // Whether it is the page's own is not known.
            Err(error) => Held::Unreachable(error.clone()),
        },
        Ok(None) => Held::No,
        Err(error) => Held::Unreachable(error),
    }
}

/// Those that should hold a record, and those that do, or may, though they need not.
fn fragment(
    id: RecordId,
    kind: Kind,
    index: Option<u32>,
    holdings: Vec<Holding>,
    copies: u32,
) -> Fragment {
    let found = holdings.iter().any(|holding| holding.held == Held::Yes);
    let told = holdings.into_iter().filter(|holding| match &holding.held {
        Held::Yes => true,
        // Where nobody shows it, it may be at any that does not answer.
        Held::Unreachable(_) if !found => true,
        _ => holding.rank < copies as usize,
    });
    let holders = told.map(|holding| Holder {
        peer: holding.peer,
        organisation: holding.organisation,
        reachable: !matches!(holding.held, Held::Unreachable(_)),
        held: holding.held == Held::Yes,
    });
    Fragment { id, kind, index, stripe: None, number: None, holders: holders.collect() }
}

/// Who may hold a record: the first N and some in rank that are not away, and those before them that are.
fn near(view: &View, directory: &Directory, place: &Place, copies: usize) -> Vec<PeerId> {
    let mut left = copies + NEAR_EXTRA;
    let rank = view.holders(place, ASKED_MAX);
    let counted = rank.into_iter().take_while(|peer| {
        let goes_on = left > 0;
        left -= usize::from(goes_on && directory.health(peer) != Health::Away);
        goes_on
    });
    counted.collect()
}
