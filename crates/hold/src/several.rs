//! Several files at once, told in their order: one that fails is warned of and keeps no other from being done.
//!
//! Where [`FAILED_IN_A_ROW_MAX`] fail one behind the other it is not the files that are wrong: then none is begun any more, and those
//! under way are brought to their ends and told, so that what was told is done and what is done was told. So too where one ends since
//! the run is to stop, or where what came of one could not be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::StreamExt;

use crate::error::HoldError;
use crate::exit::Exit;
use crate::out::{Out, one_line};
use crate::progress::Bar;

/// How many are under way at once: a small one waits for its calls, one after the other. What they hold in memory together is one
/// window, as for one file.
const AT_ONCE: usize = 16;
/// How many fail one behind the other until no more are tried.
const FAILED_IN_A_ROW_MAX: usize = 4 * AT_ONCE;

/// What is done to files, for people.
pub(crate) struct Doing {
    /// What stands before the bar.
    pub(crate) verb: &'static str,
    /// What those are that it is done to.
    pub(crate) done: &'static str,
}

/// Does `one` for each name, and tells by `told` what came of it, and how that ended. Where some failed it warns of how many.
///
/// # Errors
/// Why the first failed, where nothing was done: what is wrong with the only one is what is wrong with the run. What `told` said first,
/// when all that were begun are at their ends; [`HoldError::Interrupted`] where one ended so, when those are told that are done.
pub(crate) async fn files<I, T, F>(
    out: &Out,
    doing: Doing,
    items: Vec<(String, I)>,
    one: impl Fn(String, I, Arc<Bar>) -> F,
    mut told: impl FnMut(T, String) -> Result<Exit, HoldError>,
) -> Result<Vec<Exit>, HoldError>
where
    F: Future<Output = Result<T, HoldError>>,
{
    let (all, in_a_row, stopped) = (items.len(), AtomicUsize::new(0), AtomicBool::new(false));
    let is_told = AtomicBool::new(true);
    let bar = Bar::sum(out, doing.verb);
    let begun = items.into_iter().take_while(|_| {
        in_a_row.load(Ordering::Relaxed) < FAILED_IN_A_ROW_MAX
            && !stopped.load(Ordering::Relaxed)
            && is_told.load(Ordering::Relaxed)
    });
    let under_way = futures::stream::iter(begun).map(|(name, item)| {
        let one = one(name.clone(), item, Arc::clone(&bar));
        let (in_a_row, stopped) = (&in_a_row, &stopped);
        async move {
            let done = one.await;
            match &done {
                Ok(_) => in_a_row.store(0, Ordering::Relaxed),
                Err(HoldError::Interrupted) => stopped.store(true, Ordering::Relaxed),
                Err(_) => drop(in_a_row.fetch_add(1, Ordering::Relaxed)),
            }
            (done, name)
        }
    });
    let mut under_way = under_way.buffered(AT_ONCE);
    let (mut exits, mut first, mut untold) = (Vec::new(), None, None);
    while let Some((done, name)) = under_way.next().await {
        match done {
            Ok(done) => exits.push(bar.aside(|| told(done, name)).unwrap_or_else(|error| {
                is_told.store(false, Ordering::Relaxed);
                untold.get_or_insert(error);
                Exit::Partly
            })),
            Err(HoldError::Interrupted) => {}
            Err(error) => {
                exits.push(error.exit());
                bar.aside(|| out.warn(format_args!("{name}: {}", one_line(&error))));
                first.get_or_insert(error);
            }
        }
    }
    drop(under_way);
    drop(bar);
    if stopped.load(Ordering::Relaxed) {
        return Err(HoldError::Interrupted);
    }
    let (tried, is_done) = (exits.len(), |exit: &&Exit| matches!(exit, Exit::Done | Exit::Partly));
    let done = exits.iter().filter(is_done).count();
    let first = match first {
        Some(error) if done == 0 => return Err(error),
        first => first,
    };
    if first.is_some() || untold.is_some() {
        out.warn(format_args!(
            "{done} of {all} files are {}; {} failed, {} were not tried",
            doing.done,
            tried - done,
            all - tried
        ));
    }
    match untold {
        Some(error) => Err(error),
        None => Ok(exits),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// How the files ended, which were told, and how many were begun.
    async fn run(
        fails: impl Fn(usize) -> bool,
    ) -> (Result<Vec<Exit>, HoldError>, Vec<usize>, usize) {
        run_until(fails, usize::MAX).await
    }

    /// As [`run`]; from this file on the run is to stop, and those that are not stored end.
    async fn run_until(
        fails: impl Fn(usize) -> bool,
        stop: usize,
    ) -> (Result<Vec<Exit>, HoldError>, Vec<usize>, usize) {
        let out = Out::new(false, true);
        let (begun, mut seen) = (AtomicUsize::new(0), Vec::new());
        let items = (0..500).map(|number| (number.to_string(), number)).collect();
        let doing = Doing { verb: "put", done: "stored" };
        let one = |name: String, number: usize, _| {
            assert_eq!(name, number.to_string());
            begun.fetch_add(1, Ordering::Relaxed);
            let fails = fails(number);
            async move {
                match fails {
                    _ if number >= stop && number % 2 == 1 => Err(HoldError::Interrupted),
                    true => Err(HoldError::NoVia),
                    false => Ok(number),
                }
            }
        };
        let told = |number: usize, _| {
            seen.push(number);
            Ok(if number == 7 { Exit::Partly } else { Exit::Done })
        };
        let exits = files(&out, doing, items, one, told).await;
        (exits, seen, begun.into_inner())
    }

    #[tokio::test]
    async fn one_that_fails_keeps_no_other_from_being_done() {
        let (exits, told, begun) = run(|number| number % 3 == 0).await;
        let exits = exits.unwrap();
        assert_eq!((exits.len(), begun), (500, 500));
        assert_eq!((exits[0], exits[7], exits[8]), (Exit::Invalid, Exit::Partly, Exit::Done));
        assert_eq!(told, (0..500).filter(|number| number % 3 != 0).collect::<Vec<_>>());
        assert_eq!(Exit::of_all(&exits), Exit::Partly);
    }

    #[tokio::test]
    async fn where_many_fail_in_a_row_no_more_are_begun_and_the_first_says_why() {
        let (exits, told, begun) = run(|number| number >= 100).await;
        let exits = exits.unwrap();
        assert_eq!(told, (0..100).collect::<Vec<_>>());
        assert_eq!(exits.len(), begun, "what was begun is told");
        let most = 100 + FAILED_IN_A_ROW_MAX + AT_ONCE;
        assert!((100 + FAILED_IN_A_ROW_MAX..=most).contains(&begun), "{begun}");
        let (none, told, _) = run(|_| true).await;
        assert!(matches!(none, Err(HoldError::NoVia)) && told.is_empty());
    }

    /// As where the reader of a pipe goes away.
    #[tokio::test]
    async fn where_nothing_can_be_told_no_more_are_begun_and_all_that_were_are_told_about() {
        let (begun, mut seen) = (AtomicUsize::new(0), Vec::new());
        let items = (0..500).map(|number| (number.to_string(), number)).collect();
        let one = |_: String, number: usize, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(number))
        };
        let told = |number: usize, _| {
            seen.push(number);
            match number < 100 {
                true => Ok(Exit::Done),
                false => Err(HoldError::Output(std::io::ErrorKind::BrokenPipe.into())),
            }
        };
        let doing = Doing { verb: "put", done: "stored" };
        let ended = files(&Out::new(false, true), doing, items, one, told).await;
        assert!(matches!(ended, Err(HoldError::Output(_))));
        let begun = begun.into_inner();
        assert!((101..=101 + AT_ONCE).contains(&begun), "{begun}");
        assert_eq!(seen, (0..begun).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn where_the_run_is_to_stop_no_more_are_begun_and_what_is_done_is_told() {
        let (ended, told, begun) = run_until(|_| false, 100).await;
        assert!(matches!(ended, Err(HoldError::Interrupted)));
        assert!(begun <= 101 + AT_ONCE, "{begun}");
        let done: Vec<usize> =
            (0..begun).filter(|number| *number < 100 || number % 2 == 0).collect();
        assert_eq!(told, done);
    }
}
