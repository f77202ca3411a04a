//! Sending versions to their holders, and on to the next place where those are full.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use crypto::{PeerId, RecordId, Suite};
use version::{OVERFLOWS_MAX, Redirect, VersionId};
use walk::objects::{Delivered, DeliveredAt, PeerReceipt};
use walk::{Rest, WalkError};

use super::batch::{Made, Signed, WriteOptions, parcels};
use super::{Object, Objects, ObjectsError, Subject};

/// A version that W holders keep.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its id, with the place where it is.
    pub id: VersionId,
    /// Copies that are durable: at least W.
    pub acked: u32,
    /// Copies wanted: N.
    pub wanted: u32,
    /// Who has them.
    pub holders: Vec<PeerId>,
    /// The words of those of them that gave one, where receipts were asked for; each was checked.
    pub receipts: Vec<Arc<PeerReceipt>>,
    /// The other copies, on their way.
    pub rest: Rest,
}

/// What peers' receipts say of one version, each encoded so that it counts by itself.
pub(crate) fn words(
    suite: Suite,
    h: &RecordId,
    receipts: &[Arc<PeerReceipt>],
) -> Vec<(PeerId, Bytes)> {
    let word = |one: &Arc<PeerReceipt>| Some((one.receipt.peer, one.of(suite, h)?.encode()));
    receipts.iter().filter_map(word).collect()
}

/// Sends all, each place's to its holders, until each is stored or failed.
pub(crate) async fn send(
    objects: &Objects,
    mut made: Vec<Made>,
    signed: &Signed,
    options: WriteOptions,
) -> Result<Vec<Result<Written, ObjectsError>>, ObjectsError> {
    let mut outcomes: Vec<Option<Result<Written, ObjectsError>>> =
        made.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..made.len()).collect();
    // Each round moves whatever is left to the next place, of which there are so many.
    for _ in 0..=OVERFLOWS_MAX {
        if left.is_empty() {
            break;
        }
        let parcels = parcels(objects, &made, &left, signed)?;
        let (parcels, members): (Vec<_>, Vec<_>) = parcels.into_iter().unzip();
        left.clear();
        let delivered = objects.walker().put_objects(parcels, options.into()).await;
        for (delivered, members) in delivered.into_iter().zip(members) {
            match delivered {
                Ok(Delivered::Stored(at)) => kept(objects, &made, &members, at, &mut outcomes),
                Ok(Delivered::Redirected(redirects)) => {
                    let moved = go_on(&mut made, &members, &redirects);
                    match moved {
                        Ok(()) => left.extend(members),
                        Err(error) => failed(&made, &members, error, &mut outcomes),
                    }
                }
                Err(error) => failed(&made, &members, Failed::Walk(error), &mut outcomes),
            }
        }
    }
    let full = |(outcome, one): (Option<_>, &Made)| {
        outcome.unwrap_or_else(|| Err(ObjectsError::Full(one.object.key())))
    };
    Ok(outcomes.into_iter().zip(&made).map(full).collect())
}

fn kept(
    objects: &Objects,
    made: &[Made],
    members: &[usize],
    at: DeliveredAt,
    outcomes: &mut [Option<Result<Written, ObjectsError>>],
) {
    let rest = at.rest;
    for number in members {
        let one = &made[*number];
        objects.cache().put(one.h, one.version.clone());
        let of = |receipt: &&Arc<PeerReceipt>| receipt.hs.contains(&one.h);
        let written = Written {
            id: one.id(),
            acked: at.acked,
            wanted: at.wanted,
            holders: at.holders.clone(),
            receipts: at.receipts.iter().filter(of).cloned().collect(),
            rest: rest.clone(),
        };
        outcomes[*number] = Some(Ok(written));
    }
}

/// Why a parcel did not come to be kept: an error for each of its versions.
enum Failed {
    Walk(WalkError),
    /// These redirect where nothing is.
    Lied(Vec<PeerId>),
    Full,
}

fn failed(
    made: &[Made],
    members: &[usize],
    failed: Failed,
    outcomes: &mut [Option<Result<Written, ObjectsError>>],
) {
    for number in members {
        let one = &made[*number];
        let subject = Subject::Version(one.id());
        let error = match &failed {
            Failed::Walk(WalkError::Denied { reason }) => {
                ObjectsError::Denied { subject, reason: reason.clone() }
            }
            Failed::Walk(error) => ObjectsError::NotStored(error.clone()),
            Failed::Lied(from) => ObjectsError::Corrupt { subject, from: from.clone() },
            Failed::Full => ObjectsError::Full(one.object.key()),
        };
        outcomes[*number] = Some(Err(error));
    }
}

/// Moves versions to the next place, as W holders of this one say, and remembers it for the object.
fn go_on(made: &mut [Made], members: &[usize], redirects: &[Redirect]) -> Result<(), Failed> {
    let Some(first) = members.first() else { return Ok(()) };
    let object = made[*first].object.clone();
    let number = object.number(&made[*first].hint);
    if number >= OVERFLOWS_MAX {
        return Err(Failed::Full);
    }
    if let Err(from) = object.redirected(number, redirects) {
        return Err(Failed::Lied(from));
    }
    let next = object.hint(number + 1);
    for member in members {
        made[*member].hint = next;
    }
    Ok(())
}

impl Object {
    /// Takes redirects away from the place with this number: as many as W have to say the same.
    ///
    /// # Errors
    /// Those who say something else.
    fn redirected(&self, number: u64, redirects: &[Redirect]) -> Result<(), Vec<PeerId>> {
        let (n, next) = (self.hint(number), self.hint(number + 1));
        let says = |redirect: &&Redirect| {
            (redirect.object, redirect.n, redirect.next) == (self.key, n, next)
        };
        let peers: BTreeSet<PeerId> =
            redirects.iter().filter(says).map(|redirect| redirect.peer).collect();
        if peers.len() < self.redundancy().acknowledged as usize {
            let lied = redirects.iter().filter(|redirect| !says(redirect));
            return Err(lied.map(|redirect| redirect.peer).collect());
        }
        let mut known = self.objects.known();
        let known = known.at(self.key);
        known.overflow = known.overflow.max(number + 1);
        Ok(())
    }
}
