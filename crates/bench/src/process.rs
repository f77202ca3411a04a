//! What the system says about processes: processor time, memory, bytes read and written.
//!
//! Linux only: all of it is read from `/proc`. What cannot be read (a process that ended a moment
//! ago) is none, and never counted as 0.

use std::fs;
use std::time::Duration;

/// A process, by its id.
pub(crate) type Pid = u32;

/// Processor time that a process used so far, in its own code and in the kernel for it.
pub(crate) fn cpu(pid: Pid) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last bracket may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks_to_time(ticks))
}

/// Processor time that this process used so far.
pub(crate) fn own_cpu() -> Duration {
    cpu(std::process::id()).unwrap_or_default()
}

/// Processor time that the whole machine used so far, in all processes and the kernel.
pub(crate) fn machine_cpu() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user, nice, system, (idle, waiting), irq, softirq, stolen; guests are counted in user.
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| ticks.get(*at)).sum();
    Some(ticks_to_time(busy))
}

fn ticks_to_time(ticks: u64) -> Duration {
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_micros(ticks.saturating_mul(1_000_000) / a_second)
}

/// Processor time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The largest resident size a process ever had, in bytes.
pub(crate) fn peak_memory(pid: Pid) -> Option<u64> {
    kib(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Sets a process's peak back to what its size is now.
pub(crate) fn forget_peak(pid: Pid) -> std::io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// The first of the cores that this process may use.
pub(crate) fn first_core() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().split(['-', ',']).next()?.parse().ok()
}

/// A process's resident size, in bytes.
pub(crate) fn resident(pid: Pid) -> Option<u64> {
    kib(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// A process's proportional size, in bytes: what it shares with others is divided among them.
pub(crate) fn proportional(pid: Pid) -> Option<u64> {
    kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// How many threads a process has.
pub(crate) fn threads(pid: Pid) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), "Threads:")
}

fn kib(path: &str, name: &str) -> Option<u64> {
    field(path, name).map(|kib| kib * 1024)
}

/// Bytes that a process asked to read from files and pipes so far, and to write.
pub(crate) fn moved(pid: Pid) -> Option<(u64, u64)> {
    let path = format!("/proc/{pid}/io");
    Some((field(&path, "rchar:")?, field(&path, "wchar:")?))
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How much of the machine was used between two moments, by the processes of an experiment and by
/// all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    machine: Option<Duration>,
    ours: Duration,
    at: std::time::Instant,
}

impl Share {
    /// The first moment; `ours` is what the experiment's processes used so far.
    pub(crate) fn since(ours: Duration) -> Self {
        Self { machine: machine_cpu(), ours, at: std::time::Instant::now() }
    }

    /// Cores that others kept busy since then, on average.
    pub(crate) fn others(&self, ours: Duration) -> Option<f64> {
        let machine = machine_cpu()?.checked_sub(self.machine?)?;
        let ours = ours.saturating_sub(self.ours);
        let wall = self.at.elapsed().as_secs_f64().max(1e-3);
        Some(machine.saturating_sub(ours).as_secs_f64() / wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        let (before, thread) = (own_cpu(), thread_cpu());
        let mut sum = 0u64;
        while thread_cpu() < thread + Duration::from_millis(60) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(own_cpu() >= before + Duration::from_millis(40), "ticks of 10 ms");
        assert!(machine_cpu().is_some_and(|machine| machine > before));
        // In this order, as other tests beside take memory; the system's counts are a few hundred KiB behind.
        let (now, peak) = (resident(pid), peak_memory(pid).map(|peak| peak + (4 << 20)));
        assert!(now.is_some_and(|now| now > 1 << 20) && peak >= now, "{now:?} {peak:?}");
        assert!(proportional(pid).is_some_and(|shared| shared > 1 << 20));
        assert!(threads(pid).is_some_and(|threads| threads >= 1));
        assert!(moved(pid).is_some());
        assert!(first_core().is_some());
        let large = std::hint::black_box(vec![1u8; 64 << 20]);
        let before = peak_memory(pid);
        drop(large);
        assert!(forget_peak(pid).is_ok());
        // Other tests run beside this one, and take memory too.
        assert!(peak_memory(pid) < before, "{before:?}");
    }

    #[test]
    fn who_is_gone_is_not_counted_as_nothing() {
        let gone = u32::MAX - 1;
        assert_eq!((cpu(gone), peak_memory(gone), resident(gone)), (None, None, None));
        assert_eq!((proportional(gone), moved(gone), threads(gone)), (None, None, None));
    }
}
