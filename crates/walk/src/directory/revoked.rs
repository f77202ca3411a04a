//! Keys whose organisation took its word back: none of its peers among them is known any more.
//!
//! Lists come by any way (news, files), since they prove themselves; of two by one organisation the
//! higher sequence counts, and as with announcements of two with one sequence that with the greater bytes. A revoked peer is as if it had never announced itself: it has no rank, no
//! address and no standing, and its announcements are refused until a newer list leaves it out. (A rank it has for a while longer where
//! its organisation changes all the time who takes part, see `turnover`.)

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use crypto::{CertificateError, OrgId, PeerId, PublicKey, Revocation, Roster};
use placement::Candidate;

use super::{Departures, Directory, Inner, turnover};

/// What a revocation taught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Whether it is newer than what was known of its organisation.
    pub newer: bool,
    /// Keys that the organisation now disowns, those disowned before too; empty where not newer.
    pub keys: Vec<PublicKey>,
    /// Peers that were known until now.
    pub peers: Vec<PeerId>,
}

impl Directory {
    /// Takes a signed revocation.
    ///
    /// # Errors
    /// [`CertificateError`] where it does not count in this network. Nothing changes then.
    pub fn revoke(&self, revocation: &Bytes) -> Result<Revoked, CertificateError> {
        if self.lock().revoked.values().any(|(_, known)| known == revocation) {
            return Ok(Revoked::default());
        }
        let now = self.env.clock.unix_s();
        self.take_as(revocation, |roster| Revocation::verify(revocation, roster, now))
    }

    /// Takes a revocation that this program accepted before and kept: also one of the future, where the clock was set back.
    ///
    /// # Errors
    /// As [`Directory::revoke`].
    pub fn revoke_kept(&self, revocation: &Bytes) -> Result<Revoked, CertificateError> {
        let now = self.env.clock.unix_s();
        self.take_as(revocation, |roster| Revocation::verify_kept(revocation, roster, now))
    }

    /// Takes a revocation as `verify` has it by the roster that counts when it is taken.
    fn take_as(
        &self,
        revocation: &Bytes,
        verify: impl Fn(&Roster) -> Result<Revocation, CertificateError>,
    ) -> Result<Revoked, CertificateError> {
        loop {
            let roster = self.roster();
            let verified = verify(&roster)?;
            let inner = self.lock();
            if Arc::ptr_eq(&inner.roster, &roster) {
                return Ok(self.take_verified(inner, verified, revocation));
            }
        }
    }

    fn take_verified(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        verified: Revocation,
        revocation: &Bytes,
    ) -> Revoked {
        let new = (verified.sequence, revocation);
        let known = inner.revoked.get(&verified.organisation);
        if known.is_some_and(|(known, bytes)| (known.sequence, bytes) >= new) {
            return Revoked::default();
        }
        let keys = verified.keys.clone();
        let gone: Vec<PeerId> = keys.iter().map(|key| PeerId::new(*key)).collect();
        let of_it = |inner: &Inner, peer: &PeerId| {
            let known = inner.peers.get(peer);
            known.is_some_and(|known| {
                known.announcement.certificate.organisation == verified.organisation
            })
        };
        let peers: Vec<PeerId> = gone.into_iter().filter(|peer| of_it(&inner, peer)).collect();
        let at = self.at();
        let ranked = peers.iter().filter_map(|peer| inner.peers.get(peer)?.candidate(at.unix_s));
        let ranked: Vec<Candidate> = ranked.collect();
        // Before they are gone: where this is too much, the view keeps who was there.
        ranked.iter().for_each(|candidate| inner.changes(Some(candidate), None, at));
        let hectic = inner.turnover.take_begun();
        if !peers.is_empty() {
            inner.peers.retain(|peer, _| !peers.contains(peer));
            inner.count_shares();
        }
        inner.revoked.insert(verified.organisation, (verified, revocation.clone()));
        inner.renew_digest();
        drop(inner);
        turnover::tell_begun(hectic);
        // Nobody listening is no error.
        let _ =
            self.departures.send(Departures::Revoked { keys: keys.clone(), peers: peers.clone() });
        Revoked { newer: true, keys, peers }
    }

    /// Whether an organisation disowns a key.
    pub fn is_revoked(&self, organisation: &OrgId, key: &PublicKey) -> bool {
        self.lock().is_revoked(organisation, key)
    }

    /// The newest list of every organisation that has one, as signed.
    pub fn revocations(&self) -> Vec<Bytes> {
        self.lock().revoked.values().map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The newest list of an organisation, as signed.
    pub fn revocation_of(&self, organisation: &OrgId) -> Option<Bytes> {
        self.lock().revoked.get(organisation).map(|(_, bytes)| bytes.clone())
    }
}

impl Inner {
    pub(super) fn is_revoked(&self, organisation: &OrgId, key: &PublicKey) -> bool {
        self.revoked.get(organisation).is_some_and(|(revocation, _)| revocation.names(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crypto::Change;
    use testkit::network::community;

    use super::*;

    #[test]
    fn of_two_lists_with_one_sequence_all_keep_the_same() {
        testkit::time::run(1, |env| async move {
            let community = community(3, 6);
            let organisation = community.organisation(0).key;
            let list = |numbers: &[usize]| {
                let mut keys: Vec<PublicKey> =
                    numbers.iter().map(|number| *community.peer(*number).key()).collect();
                keys.sort_unstable();
                let list = Revocation { organisation, sequence: 1, keys };
                list.sign(&community.organisations[0], &community.genesis.network())
            };
            let lists = [list(&[0]), list(&[0, 3])];
            let kept = [[0, 1], [1, 0]].map(|order| {
                let directory = Directory::new(community.genesis.clone(), env.clone(), None);
                directory.learn_from(&community.known());
                order.into_iter().for_each(|at| drop(directory.revoke(&lists[at]).unwrap()));
                directory.revocations()
            });
            assert_eq!(kept[0], kept[1]);
        });
    }

    #[test]
    fn what_two_know_of_revoked_keys_is_the_same_hash_and_changes_with_it() {
        testkit::time::run(1, |env| async move {
            let community = community(3, 6);
            let list = |organisation: usize, sequence| {
                let key = *community.peer(organisation).key();
                let of = community.organisation(organisation).key;
                let list = Revocation { organisation: of, sequence, keys: vec![key] };
                list.sign(&community.organisations[organisation], &community.genesis.network())
            };
            let lists = [list(0, 1), list(2, 1)];
            let knowing = |known: &[usize]| {
                let directory = Directory::new(community.genesis.clone(), env.clone(), None);
                known.iter().for_each(|at| drop(directory.revoke(&lists[*at]).unwrap()));
                directory
            };
            let hash = |directory: &Directory| directory.known().revoked;
            let lacks = |one: &Directory, other: &Directory| one.lacking(&other.known()).1;
            let (nothing, first, second) = (knowing(&[]), knowing(&[0]), knowing(&[1]));
            assert_eq!(lacks(&first, &nothing), [lists[0].clone()]);
            assert!(lacks(&nothing, &first).is_empty());
            let (one, other) = (knowing(&[0, 1]), knowing(&[1, 0]));
            assert_eq!(hash(&one), hash(&other));
            assert!(lacks(&one, &other).is_empty());
            let all = [&nothing, &first, &second, &one].map(|known| hash(known));
            let different: std::collections::BTreeSet<_> = all.into_iter().collect();
            assert_eq!(different.len(), 4);
            // Of an organisation that left there is none.
            let change = Change::Remove(community.organisation(0).key);
            let next = community.roster(&one.roster(), &change, &[1, 2]);
            one.learn_roster(&next).unwrap();
            assert_eq!(hash(&one), hash(&second));
        });
    }

    #[test]
    fn a_list_counts_by_the_roster_that_counts_when_it_is_taken() {
        testkit::time::run(1, |env| async move {
            let community = community(3, 3);
            let directory = Directory::new(community.genesis.clone(), env.clone(), None);
            let leaves = community.organisation(2).key;
            let change = Change::Remove(leaves);
            let next = community.roster(&directory.roster(), &change, &[0, 1]);
            let keys = vec![*community.peer(2).key()];
            let list = Revocation { organisation: leaves, sequence: 1, keys };
            let list = list.sign(&community.organisations[2], &community.genesis.network());
            // Its organisation leaves just after it was verified.
            let taken = directory.take_as(&list, |roster| {
                let verified = Revocation::verify(&list, roster, env.clock.unix_s());
                directory.learn_roster(&next).unwrap();
                verified
            });
            assert!(matches!(taken, Err(CertificateError::Organisation(_))), "{taken:?}");
            assert!(directory.revocations().is_empty());
        });
    }
}
