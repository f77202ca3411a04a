//! The changes that organisations agree on, one a roster: joining, leaving, changing a key or a name.
//!
//! Each keeps what it does not name. Former keys that have run out, or whose organisation left, are not carried on.

use super::{FormerKey, Roster, RosterError};
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
        former.retain(|former| now < former.until);
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
        self.next(organisations, former).map(Some)
    }
}
