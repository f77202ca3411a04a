//! What others' calendars say: who is far ahead of them does nothing by its own that cannot be undone.

use std::collections::BTreeMap;

use crypto::{Listing, OrgId, PeerId};

use super::Directory;

impl Directory {
    /// A peer said what its calendar says, Unix milliseconds. Of an organisation its last word is kept, also where its certificates
    /// end by the own calendar: the calendar may be why.
    pub fn told_calendar(&self, peer: &PeerId, unix_ms: u64) {
        let (now_s, elapsed_ms) = (self.env.clock.unix_s(), self.elapsed_ms());
        let mut inner = self.lock();
        let Some(known) = inner.peers.get(peer) else { return };
        let organisation = known.announcement.certificate.organisation;
        if let Some(listed) = inner.roster.listed(&organisation, now_s) {
            let organisation = listed.organisation;
            inner.calendars.insert(organisation, unix_ms.saturating_sub(elapsed_ms));
        }
    }

    /// What the calendars of the roster's organisations say now, Unix milliseconds, of those that said so since the start.
    pub fn calendars(&self) -> BTreeMap<OrgId, u64> {
        let elapsed_ms = self.elapsed_ms();
        let mut inner = self.lock();
        let roster = inner.roster.clone();
        inner.calendars.retain(|organisation, _| roster.organisation(organisation).is_some());
        let began = inner.calendars.iter();
        began.map(|(organisation, at)| (*organisation, at.saturating_add(elapsed_ms))).collect()
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.env.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
