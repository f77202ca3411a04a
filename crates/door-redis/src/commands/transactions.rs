//! MULTI and EXEC. On one thread a transaction is commands executed in a row, in one batch.
//!
//! Limits: one that would write more than fits a batch beside what others write, or whose answer is too long, is taken back
//! whole and answered with an error.

use crate::door::{Door, KEY_BYTES_MAX};
use crate::fail::{Done, Fail, KEY_TOO_LONG, LARGE_TRANSACTION, NOT_KEPT};
use crate::session::{Call, Transaction, WATCHED_MAX};
use crate::slots::Content;

/// MULTI.
pub(crate) fn multi(_: &mut Door, call: &mut Call<'_>) -> Done {
    if call.session.transaction.is_some() {
        return Err(Fail::Say("ERR MULTI calls can not be nested"));
    }
    call.session.transaction = Some(Transaction::default());
    call.out.ok();
    Ok(())
}

/// DISCARD.
pub(crate) fn discard(_: &mut Door, call: &mut Call<'_>) -> Done {
    if call.session.transaction.take().is_none() {
        return Err(Fail::Say("ERR DISCARD without MULTI"));
    }
    call.session.watched.clear();
    call.out.ok();
    Ok(())
}

/// EXEC. A command that fails does not keep the others from their work, as in Redis.
pub(crate) fn exec(door: &mut Door, call: &mut Call<'_>) -> Done {
    let Some(transaction) = call.session.transaction.take() else {
        return Err(Fail::Say("ERR EXEC without MULTI"));
    };
    let watched = std::mem::take(&mut call.session.watched);
    // What is being written may fail and take with it what came behind it: not half of a transaction.
    if !door.land() {
        return Err(NOT_KEPT);
    }
    if transaction.broken {
        return Err(Fail::Say("EXECABORT Transaction discarded because of previous errors."));
    }
    if watched.iter().any(|(key, stamp)| current(door, key) != stamp) {
        door.lean_on_all();
        call.out.null_array();
        return Ok(());
    }
    let mut touched = false;
    call.out.array(transaction.commands.len());
    for (command, kept) in &transaction.commands {
        door.run(command, call.session, kept.arguments(), call.out);
        touched |= door.touched;
        // Half of a transaction is none: whoever called takes all of it back.
        if door.batch.overrun {
            return Err(LARGE_TRANSACTION);
        }
        call.out.fits()?;
    }
    door.touched |= touched;
    Ok(())
}

/// WATCH.
pub(crate) fn watch(door: &mut Door, call: &mut Call<'_>) -> Done {
    if call.session.transaction.is_some() {
        return Err(Fail::Say("ERR WATCH inside MULTI is not allowed"));
    }
    if call.session.watched.len() + call.len() > WATCHED_MAX {
        return Err(Fail::Say("ERR a connection watches at most 1024 keys"));
    }
    if call.args.from(1).any(|key| key.len() > KEY_BYTES_MAX) {
        return Err(KEY_TOO_LONG);
    }
    for key in call.args.from(1) {
        let stamp = current(door, key);
        call.session.watched.push(key, stamp);
    }
    call.out.ok();
    Ok(())
}

/// UNWATCH.
pub(crate) fn unwatch(_: &mut Door, call: &mut Call<'_>) -> Done {
    call.session.watched.clear();
    call.out.ok();
    Ok(())
}

/// The number of the last write to a key; one that is not there has none.
fn current(door: &Door, key: &[u8]) -> u64 {
    let found = door.slots.find(door.slots.hash(key), key);
    let state = found.map(|index| &door.slots.slot(index).state);
    // One that was loaded and never written has the number 0 too, and is not absent.
    state.map_or(u64::MAX, |state| match state.content {
        Content::Absent => u64::MAX,
        _ if state.expires <= door.now => u64::MAX,
        _ => state.stamp,
    })
}
