//! `hold bench scale`: what moves in networks of up to 100,000 peers and a milliard stripes, by the planner itself.
//!
//! Two questions, without any process. **Who has to hold what** ([`shift`]): when a peer joins, is absent, or an organisation
//! vanishes, which share of all that is stored changes its holder, and is it no more than what must? Places are drawn, and what
//! is found for them is scaled to [`STORED`] stripes: shares do not depend on how many there are. **What mending
//! costs** ([`traffic`]): stripes and copies are stored, peers vanish, and every plan is carried out; what it fetches and sends is
//! counted, at three sizes of what is stored and for growing losses.
//!
//! Pure but for its output.

mod shift;
pub(crate) mod traffic;

use crypto::{OrgId, PeerId, Place, SecretKey, Suite};
use placement::{Candidate, View};

use crate::Bench;
use crate::error::BenchError;
use crate::report::Report;

/// Stripes that the shares are scaled to.
const STORED: f64 = 1e9;
/// Data in each of them, in bytes.
const STRIPE_BYTES: f64 = (1 << 20) as f64;

/// `hold bench scale`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Peers of the largest network.
    pub peers: usize,
}

/// The most peers that are looked at.
pub const SCALE_PEERS_MAX: usize = 100_000;

impl Scale {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        if !(24..=SCALE_PEERS_MAX).contains(&self.peers) {
            return Err(BenchError::Argument { name: "--peers", reason: "from 24 to 100000" });
        }
        let mut report = Report::new("scale", bench.quick);
        shift::run(self.peers, bench, &mut report)?;
        traffic::run(bench, &mut report)?;
        Ok(report)
    }
}

/// So many peers of so many organisations by turns, all as large, and so many more that joined last.
pub(crate) fn network(peers: usize, organisations: usize, joined: usize) -> View {
    let organisation = |number: usize| OrgId::new(key(number as u64, 2));
    let organisations: Vec<OrgId> = (0..organisations).map(organisation).collect();
    let candidates = (0..peers + joined).map(|peer| Candidate {
        peer: PeerId::new(key(peer as u64, 1)),
        organisation: organisations[peer % organisations.len()],
        weight: 1 << 40,
    });
    View::new(0, candidates.collect())
}

/// The key of the peer with this number in [`network`].
pub(crate) fn peer(number: usize) -> PeerId {
    PeerId::new(key(number as u64, 1))
}

fn key(number: u64, role: u8) -> crypto::PublicKey {
    let mut bytes = [role; 32];
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    match SecretKey::from_bytes(&bytes) {
        Ok(key) => key.public(),
        // 1 or 2 repeated, and any number behind it, are far below the group's order.
        Err(_) => unreachable!("a small number is a private key"),
    }
}

/// The place with this number.
pub(crate) fn place(number: u64) -> Place {
    Place::new(Suite::Holdfast1.hash(&number.to_be_bytes()))
}
