//! Whether more programs want the processors than there are turns for: what is done beside other work then takes memory
//! and makes nothing faster.
//!
//! Linux tells how many threads run or stand in a processor's queue at this moment, those that sleep or wait for a disk not
//! counted: the number before the stroke in `/proc/loadavg` (proc(5)). It is of the whole machine, as the processors are that
//! `/sys/devices/system/cpu/online` lists. One moment may mislead, so whoever asks does it again for each piece of work.

/// Threads for each processor from which on it is crowded. On two processors one put to nine peers finds them at a median of
/// three or four threads and seldom above eleven; four puts at once at 14, 16 at 24, 32 at 29.
const THREADS_MIN: usize = 6;

/// Whether it is crowded now. `false` where the system does not tell. Takes microseconds, of which it waits none.
pub(crate) fn crowded() -> bool {
    let read = |path| std::fs::read_to_string(path).ok();
    let running = read("/proc/loadavg").and_then(|line| running(&line));
    let online = || read("/sys/devices/system/cpu/online").and_then(|line| online(&line));
    running.is_some_and(|running| {
        running > THREADS_MIN && online().is_some_and(|online| running > THREADS_MIN * online)
    })
}

/// `0.20 0.18 0.12 3/80 11206`: the three.
fn running(line: &str) -> Option<usize> {
    line.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// `0-3,8`: five.
fn online(line: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    line.trim_end().split(',').map(count).try_fold(0usize, |sum, count| sum.checked_add(count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(running("0.20 0.18 0.12 13/80 11206\n"), Some(13));
        for wrong in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 3 80", "0.20 0.18 0.12 x/80 1"] {
            assert_eq!(running(wrong), None, "{wrong:?}");
        }
        for (line, count) in [("0\n", 1), ("0-1\n", 2), ("0-3,8\n", 5), ("1,3-4,7-7\n", 4)] {
            assert_eq!(online(line), Some(count), "{line:?}");
        }
        for wrong in ["", "\n", "a", "3-1", "0-", "-3", "0-18446744073709551615"] {
            assert_eq!(online(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn threads_that_want_the_processors_are_a_crowd() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};

        let Some(processors) = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()
        else {
            // A system that does not tell.
            return;
        };
        let many = THREADS_MIN * online(&processors).expect("a list of ranges") + 1;
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..many {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(60);
            let found = std::iter::repeat_with(crowded).take_while(|_| Instant::now() < deadline);
            let found = found.into_iter().any(|crowded| crowded);
            ended.store(true, Ordering::Relaxed);
            assert!(found, "{many} threads that never sleep");
        });
    }
}
