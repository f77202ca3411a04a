//! MULTI and EXEC. On one thread a transaction is commands executed in a row, in one batch.
//!
//! Limits: one that would write more than fits a batch beside what others write, or whose answer is too long, is taken back
//! whole and answered with an error.

use crate::door::{Door, KEY_BYTES_MAX};
use crate::fail::{Done, Fail, KEY_TOO_LONG, LARGE_TRANSACTION, NOT_KEPT};
use crate::session::{Call, Mark, Transaction, WATCHED_MAX};
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
    for (key, mark) in watched.iter() {
        if current(door, key)? != mark {
            door.lean_on_all();
            call.out.null_array();
            return Ok(());
        }
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
        let mark = current(door, key)?;
        call.session.watched.push(key, mark);
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

/// What a key is now. Of one that is not there, which nothing in memory tells of, the depth of its tombstones does: it may have
/// been written and deleted.
fn current(door: &mut Door, key: &[u8]) -> Result<Mark, Fail> {
    let Some(index) = door.slots.find(door.slots.hash(key), key) else {
        return Ok(Mark::Absent(door.depth(key)?.map_or(0, |l| l + 1)));
    };
    let state = &door.slots.slot(index).state;
    let next = state.tip.map_or(0, |tip| tip.l + 1);
    Ok(match state.content {
        Content::Absent => Mark::Absent(next),
        // Its tombstone is still to come.
        _ if state.expires <= door.now => Mark::Absent(next + 1),
        // One that was loaded and never written has the number 0.
        _ => Mark::There(state.stamp),
    })
}
