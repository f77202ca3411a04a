//! MB/s of 2 MiB records and calls/s of 256-byte ones, over real sockets and mutual TLS on loopback,
//! both sides in one process, beside the same work done by less:
//!
//! - `tls`: tokio-rustls alone, a request and an answer by turns or in flight together. What the
//!   kernel and the cipher allow.
//! - `tonic`: tonic and prost as they come, with the windows and frames that were measured best.
//! - `ours`: [`rpc::Client`] and [`rpc::Server`], introduced, so with wide windows.
//!
//! `cargo bench -p rpc --bench transport [-- WAY.. PART OF A ROW'S NAME..]`. The three take turns within
//! each row, so their ratios mean something where absolute figures do not (shared machines). Processor
//! time and page faults are of the whole process: of both sides.

mod bare;
mod measure;
mod ours;
mod raw;

use measure::{Kind, Row, WAYS};

const ROWS: [Row; 10] = [
    Row { name: "store 2 MiB, 1 in flight", kind: Kind::StoreLarge, in_flight: 1 },
    Row { name: "store 2 MiB, 4 in flight", kind: Kind::StoreLarge, in_flight: 4 },
    Row { name: "store 2 MiB, 16 in flight", kind: Kind::StoreLarge, in_flight: 16 },
    Row { name: "find 2 MiB, 1 in flight", kind: Kind::FindLarge, in_flight: 1 },
    Row { name: "find 2 MiB, 4 in flight", kind: Kind::FindLarge, in_flight: 4 },
    Row { name: "find 2 MiB, 16 in flight", kind: Kind::FindLarge, in_flight: 16 },
    Row { name: "store 256 B, 1 in flight", kind: Kind::StoreSmall, in_flight: 1 },
    Row { name: "store 256 B, 64 in flight", kind: Kind::StoreSmall, in_flight: 64 },
    Row { name: "find 256 B, 1 in flight", kind: Kind::FindSmall, in_flight: 1 },
    Row { name: "find 256 B, 64 in flight", kind: Kind::FindSmall, in_flight: 64 },
];

async fn run() {
    let raw = raw::Raw::start().await;
    let bare = bare::Bare::start().await;
    let ours = ours::Ours::start().await;
    let named: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (ways, only): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|name| WAYS.contains(&name.as_str()));
    let wanted = WAYS.map(|way| ways.is_empty() || ways.iter().any(|name| name == way));
    println!(
        "{:<27} {:<6} {:>10} {:>10} {:>12} {:>8}   of the first",
        "", "", "rate", "p50", "processor", "faults"
    );
    for row in ROWS {
        if !only.is_empty() && !only.iter().any(|only| row.name.contains(only.as_str())) {
            continue;
        }
        measure::row(&row, wanted, &raw, &bare, &ours).await;
    }
    ours.stop().await;
}

/// The allocator as `hold` sets it: freed buffers of records are kept while the process is busy.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "mallopt has no safe form among our crates")]
fn set_allocator() {
    // SAFETY: mallopt takes two integers and touches only the allocator's own parameters; no other
    // thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set_allocator() {}

fn main() {
    // `cargo test --all-targets` runs this too, and means nothing by it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    set_allocator();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(run());
}
