//! Staying current: a program that runs for long learns of new peers, rosters and revocations while it runs.
//!
//! Librarians hear news; a client hears nothing unless it asks. So it introduces itself to a random peer now and then: one
//! small call, whose answer is empty where nothing changed. What is more urgent shows in answers: see `finding`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crypto::PeerId;
use env::Task;
use env::calls::CallError;

use crate::core::{CALL_LIMIT, Core};
use crate::error::WalkError;
use crate::health::Health;
use crate::walker::Walker;

/// How often a client asks what changed; each pause is drawn from 0.75 to 1.25 of it.
pub const REFRESH_EVERY: Duration = Duration::from_secs(60);

impl Walker {
    /// Asks a random peer what changed, every [`REFRESH_EVERY`], until the walker or the task is dropped.
    ///
    /// Where this program is refused, what vouches for it may count no more. Who takes part is told to everybody, so
    /// `unvouched` asks instead: a walker over the same directory, with another key, that shows nothing.
    #[must_use = "dropping the task ends it"]
    pub fn keep_current(&self, unvouched: Option<Arc<Self>>) -> Task {
        let core = Arc::downgrade(&self.core);
        self.core.env.tasks.spawn(Box::pin(refresh_all(core, unvouched)))
    }

    /// Asks a random peer that is well what changed, or the librarian that walks for this program.
    ///
    /// # Errors
    /// [`CallError`]: what the peer said, or [`CallError::NotFound`] where none is well.
    pub async fn refresh(&self) -> Result<(), CallError> {
        refresh(&self.core).await
    }
}

async fn refresh_all(core: Weak<Core>, unvouched: Option<Arc<Walker>>) {
    loop {
        let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
        let random = u32::from(u16::from_be_bytes(env.random()));
        let pause = REFRESH_EVERY * 3 / 4 + REFRESH_EVERY * random / 2 / 65_536;
        env.clock.sleep(pause).await;
        let Some(core) = core.upgrade() else { return };
        let refreshed = refresh(&core).await;
        drop(core);
        if let Err(error) = &refreshed {
            tracing::debug!(%error, "nothing new was learnt");
        }
        if let (Err(CallError::Denied { .. }), Some(unvouched)) = (refreshed, &unvouched)
            && let Err(error) = unvouched.refresh().await
        {
            tracing::debug!(%error, "nothing new was learnt as a stranger either");
        }
    }
}

async fn refresh(core: &Core) -> Result<(), CallError> {
    if core.through.is_some() {
        let to = core.librarian().await.map_err(first)?;
        return core.introduce_asking(&to, 0, CALL_LIMIT).await.map(drop);
    }
    let peers = core.directory.peers().into_iter();
    let others = peers.filter(|status| Some(status.peer) != core.directory.own());
    let well: Vec<PeerId> = others
        .filter(|status| status.health == Health::Healthy)
        .map(|status| status.peer)
        .collect();
    let random = u64::from_be_bytes(core.env.random());
    let at = random.checked_rem(well.len() as u64).and_then(|at| usize::try_from(at).ok());
    let to = at.and_then(|at| core.directory.endpoint(well.get(at)?));
    core.introduce(&to.ok_or(CallError::NotFound)?).await.map(drop)
}

/// What the first librarian said that could not be asked.
fn first(error: WalkError) -> CallError {
    match error {
        WalkError::NoPeers { tried } => tried.into_iter().next().map(|(_, error)| error),
        _ => None,
    }
    .unwrap_or(CallError::NotFound)
}
