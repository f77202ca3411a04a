//! How much the system takes into its cache and leaves there, before it begins to write it to the disk.
//!
//! A write through the cache costs a copy and no time of the disk, as long as what waits to be written is less than what
//! the system begins at (`vm.dirty_background_ratio` or `_bytes`, `Documentation/admin-guide/sysctl/vm.rst` of Linux).
//! From there on it costs both, and pushes out what the user had there.

use std::fs;

/// Bytes that one writer may leave in the system's cache now: half of what is free below the
/// threshold, as it is not the only one. None where the system does not say (it is not Linux). A
/// container with less memory than its machine is not looked for: there the system begins sooner.
pub fn unwritten_room() -> u64 {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let setting =
        |name| read(format!("/proc/sys/vm/dirty_background_{name}")).trim().parse().unwrap_or(0);
    room(&read("/proc/meminfo".to_owned()), setting("bytes"), setting("ratio"))
}

/// Of a text like `/proc/meminfo`, and the threshold in bytes, or where that is 0 in hundredths of what is available.
fn room(meminfo: &str, bytes: u64, ratio: u64) -> u64 {
    let of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.strip_prefix(':')?.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib.saturating_mul(1024))
    };
    let (Some(available), Some(dirty), Some(writing)) =
        (of("MemAvailable"), of("Dirty"), of("Writeback"))
    else {
        return 0;
    };
    let threshold = if bytes > 0 { bytes.min(available) } else { available / 100 * ratio.min(100) };
    threshold.saturating_sub(dirty.saturating_add(writing)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 2000 kB\nMemAvailable:    1000 kB\nDirty:    20 kB\n\
                           Writeback:    10 kB\nWritebackTmp:  500 kB\n";

    #[test]
    fn it_is_half_of_what_is_below_the_threshold() {
        let kib = |kib: u64| kib * 1024;
        assert_eq!(room(MEMINFO, 0, 10), (kib(1000) / 100 * 10 - kib(30)) / 2);
        assert_eq!(room(MEMINFO, kib(200), 10), kib(170) / 2);
        assert_eq!(room(MEMINFO, kib(5000), 0), kib(970) / 2, "no more than there is");
    }

    #[test]
    fn it_is_none_where_much_waits_or_nothing_is_told() {
        assert_eq!(room(MEMINFO, 0, 3), 0);
        assert_eq!(room(MEMINFO, 0, 0), 0);
        assert_eq!(room("", 0, 10), 0);
        assert_eq!(room("MemAvailable: x kB\nDirty: 1 kB\nWriteback: 1 kB\n", 0, 10), 0);
    }

    #[test]
    fn this_machine_has_less_than_its_memory() {
        let meminfo = fs::read_to_string("/proc/meminfo").expect("Linux has it");
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let total = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        assert!(unwritten_room() <= total.expect("it is told") * 1024 / 2);
    }
}
