//! A header that lies costs each holder one attempt at most: no run of a peer fetches more fragments of such a stripe than one
//! attempt takes.

use crypto::RecordId;

use crate::world::World;

/// Counts what every run of every peer fetched of stripes with lying headers.
pub(crate) fn check(world: &World) {
    let mut over = Vec::new();
    {
        let history = world.history.lock();
        for (place, fetched) in &history.poisoned {
            let header = history.stripes.get(&RecordId::new(*place.as_bytes()));
            let once = header.map_or(0, document::Stripe::k);
            let parties = fetched.iter().filter(|((party, _), _)| *party < world.plan.peers);
            for ((party, _), count) in parties.filter(|(_, count)| **count > once) {
                over.push(format!(
                    "peer {party} fetched {count} fragments of {place}, {once} are one attempt"
                ));
            }
        }
    }
    over.into_iter().for_each(|what| world.history.find("Q3", what));
}
