//! The changes that organisations agree on, one a roster: joining, leaving, changing a key or a name.
//!
//! Each keeps what it does not name. Former keys are carried on for as long as a lease may run that was signed before they ran out
//! ([`LEASE_SECONDS_MAX`]), since a lease is checked at the time of its signing wherever its record is mended; those whose
//! organisation left are not, and of more than a roster has room for those go first that ran out first.

use super::{FormerKey, Roster, RosterError};
use crate::genesis::ORGANISATIONS_MAX;
use crate::lease::LEASE_SECONDS_MAX;
use crate::{OrgId, Organisation};

/// A change of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An organisation joins.
    Add(Organisation),
    /// An organisation leaves.
    Remove(OrgId),
    /// An organisation has another key from now on.
    Key {
        /// The key it has.
        from: OrgId,
        /// The key it will have.
        to: OrgId,
        /// Until when what the key signed still counts, Unix seconds; `None` where the key was stolen.
        until: Option<u64>,
    },
    /// An organisation is called something else.
    Name(Organisation),
}

impl Roster {
    /// The roster after this one with a change, made at `now`, Unix seconds; `None` where an organisation that the
    /// change speaks of is not listed, or one to be added already is.
    ///
    /// # Errors
    /// [`RosterError`] where the result is no roster.
    pub fn changed(&self, change: &Change, now: u64) -> Result<Option<Self>, RosterError> {
        let mut organisations = self.organisations.clone();
        let mut former: Vec<FormerKey> = self.former.clone();
        former.retain(|former| now < former.until.saturating_add(LEASE_SECONDS_MAX));
        let at = |key: &OrgId| self.organisations.iter().position(|known| known.key == *key);
        match change {
            Change::Add(organisation) => {
                if at(&organisation.key).is_some() {
                    return Ok(None);
                }
                // A key that comes back is not former any more.
                former.retain(|former| former.former != organisation.key);
                organisations.push(organisation.clone());
            }
            Change::Remove(key) => {
                let Some(at) = at(key) else { return Ok(None) };
                organisations.remove(at);
                former.retain(|former| former.organisation != *key);
            }
            Change::Key { from, to, until } => {
                let (Some(found), None) = (at(from), at(to)) else { return Ok(None) };
                organisations[found].key = *to;
                former.retain(|former| former.former != *to);
                for former in former.iter_mut().filter(|former| former.organisation == *from) {
                    former.organisation = *to;
                }
                let until = until.filter(|until| now < *until);
                former.extend(until.map(|until| FormerKey {
                    former: *from,
                    organisation: *to,
                    until,
                }));
            }
            Change::Name(organisation) => {
                let Some(at) = at(&organisation.key) else { return Ok(None) };
                organisations[at].name.clone_from(&organisation.name);
            }
        }
        if former.len() > ORGANISATIONS_MAX {
            former.sort_by_key(|former| former.until);
            let ended = former.partition_point(|former| former.until <= now);
            former.drain(..ended.min(former.len() - ORGANISATIONS_MAX));
        }
        self.next(organisations, former).map(Some)
    }
}
