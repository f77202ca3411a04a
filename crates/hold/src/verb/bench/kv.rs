//! `hold bench kv`: the experiments on versions, each a verb of its own.

use bench::{BenchError, KvCopies, KvDelta, KvRedis, KvScan, KvYcsb, Report};
use clap::{Args, Subcommand};

/// `hold bench kv`.
#[derive(Clone, Debug, Args)]
pub(super) struct KvArgs {
    #[command(subcommand)]
    part: Part,
}

/// Which part.
#[derive(Clone, Debug, Subcommand)]
enum Part {
    /// redis-benchmark's SET and GET at the door and at a Redis
    Redis(RedisArgs),
    /// Half reads, half updates of YCSB's keys by 1 to 32 clients, at the door and at a Redis
    Ycsb(YcsbArgs),
    /// A version's predecessors in one request, and key after key of a Redis
    Scan(ScanArgs),
    /// Versions kept whole, and as differences to an ancestor: rate, and bytes on the disk
    Delta(DeltaArgs),
    /// Signed puts over the network that wait for 1, 2 and 3 of 3 copies, at four peers
    Copies(CopiesArgs),
}

#[derive(Clone, Debug, Args)]
struct RedisArgs {
    /// Requests of a round, in three turns of a second at least, as there is an fsync a second; six times as many in a pipeline of 16
    #[arg(long, value_name = "N", default_value_t = 300_000)]
    requests: usize,
    /// How often each has its turns; the median of what is measured side by side counts
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
}

#[derive(Clone, Debug, Args)]
struct YcsbArgs {
    /// Numbers of connections
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32")]
    clients: Vec<usize>,
    /// Sizes of values
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "100,1KiB,10KiB", value_parser = bench::parse_size)]
    values: Vec<u64>,
    /// Different keys, of all values together at most 256 MiB
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Seconds a point
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// How often each has its turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Of keys, and of which requests are reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Debug, Args)]
struct ScanArgs {
    /// Keys, of 65 versions each
    #[arg(long, value_name = "N", default_value_t = 100)]
    keys: usize,
    /// The size of a value
    #[arg(long, value_name = "BYTES", default_value = "1KiB", value_parser = bench::parse_size)]
    value: u64,
    /// Scans of each length
    #[arg(long, value_name = "N", default_value_t = 2000)]
    scans: usize,
    /// How often each has its turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
}

#[derive(Clone, Debug, Args)]
struct DeltaArgs {
    /// Versions
    #[arg(long, value_name = "N", default_value_t = 1_600_000)]
    versions: u64,
    /// Versions of an object
    #[arg(long, value_name = "N", default_value_t = 1000)]
    chain: u64,
    /// The size of a value
    #[arg(long, value_name = "BYTES", default_value = "1000", value_parser = bench::parse_size)]
    value: u64,
    /// How often whole ones and differences have their turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Of the values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Debug, Args)]
struct CopiesArgs {
    /// The size of a value
    #[arg(long, value_name = "BYTES", default_value = "1KiB", value_parser = bench::parse_size)]
    value: u64,
    /// Versions that are put one after the other
    #[arg(long, value_name = "N", default_value_t = 500)]
    alone: usize,
    /// Versions that are put together
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    together: usize,
    /// How often each has its turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
}

impl KvArgs {
    pub(super) fn run(self, bench: &bench::Bench) -> Result<Report, BenchError> {
        match self.part {
            Part::Redis(RedisArgs { requests, rounds }) => KvRedis { requests, rounds }.run(bench),
            Part::Ycsb(YcsbArgs { clients, values, keys, seconds, rounds, seed }) => {
                KvYcsb { clients, values, keys, seconds, rounds, seed }.run(bench)
            }
            Part::Copies(CopiesArgs { value, alone, together, rounds }) => {
                KvCopies { value, alone, together, rounds }.run(bench)
            }
            Part::Scan(ScanArgs { keys, value, scans, rounds }) => {
                KvScan { keys, value, scans, rounds }.run(bench)
            }
            Part::Delta(DeltaArgs { versions, chain, value, rounds, seed }) => {
                KvDelta { versions, chain, value, rounds, seed }.run(bench)
            }
        }
    }
}
