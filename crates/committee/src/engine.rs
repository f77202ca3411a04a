//! A member: the engine, the chain that it decides on, and the connections to the other members.
//!
//! ```text
//!   clients ──▶ handle ──▶ member ◀──▶ the other members (blocks, submissions, what was missed)
//!                            ▲ │
//!        propose, verify,    │ │ digests, certified blocks
//!        certify, finalised  │ ▼
//!                          simplex ◀──▶ the other members (votes, certificates)
//! ```
//! All of it runs on one thread with a runtime of its own, real or simulated: the code is the same ([`Runtime`]). Nothing of the
//! engine's types leaves this module.

use commonware_cryptography::ed25519;
use commonware_runtime::{Clock, Metrics, Network, Resolver, Spawner, Storage};
use rand_core::CryptoRng;

mod chain;
mod charter;
mod files;
mod founding;
mod links;
mod log;
mod member;
mod pool;
mod port;
mod wire;

pub(crate) use charter::Outcome as DkgOutcome;
pub use charter::{Charter, MemberId, MemberSecret};
pub(crate) use files::charter as kept;
pub use files::join;
pub(crate) use founding::dkg_namespace;
pub use founding::{Founding, MEMBERS_MIN, found};
pub use links::{Links, MEMBERS_MAX};
pub use member::{Settings, run};
pub(crate) use pool::Reply;
pub(crate) use wire::Notarised;

pub(crate) type Key = ed25519::PublicKey;

/// What a member runs in.
pub trait Runtime:
    Clock + CryptoRng + Metrics + Network + Resolver + Spawner + Storage + Send + Sync + 'static
{
}

impl<T> Runtime for T where
    T: Clock + CryptoRng + Metrics + Network + Resolver + Spawner + Storage + Send + Sync + 'static
{
}

/// Unix milliseconds by the runtime's clock.
pub(crate) fn now_ms(clock: &impl Clock) -> u64 {
    let since = clock.current().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
