//! Every bound of the transport, with its default.
//!
//! Memory: request messages over all connections are at most [`ServerLimits::request_bytes_in_flight`]
//! (one caller has no more of it than it leaves free), and a quarter of that besides for callers that nobody vouched for, as of calls and of
//! answers; what a connection's windows let in before that is at most
//! [`CONNECTION_WINDOW_BYTES`] for [`ServerLimits::wide_connections`] of callers that were vouched
//! for, and [`NARROW_CONNECTION_WINDOW_BYTES`] for each other connection. One whose caller sends and takes no answers may
//! hold 256 KiB besides, of what was read from its socket ([`crate::strides`]).

use std::time::Duration;

/// HTTP/2 window of one stream: measured, the default 64 KiB costs more than half of the throughput.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 16 << 20;
/// HTTP/2 window of one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// HTTP/2 window of one stream of a caller that nobody vouched for yet: a request without records.
pub(crate) const NARROW_STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// HTTP/2 window of its connection.
pub(crate) const NARROW_CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// Its frames: one is in memory whole before it is taken.
pub(crate) const NARROW_FRAME_BYTES_MAX: u32 = 16 << 10;
/// HTTP/2 frame size, both directions: 16 KiB frames halve the speed of downloads, and a record that
/// comes in one frame is not copied out of it.
pub(crate) const FRAME_BYTES_MAX: u32 = (2 << 20) + (16 << 10);
/// Request and response headers, decoded.
pub(crate) const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;
/// Streams of one connection at once.
pub(crate) const STREAMS_MAX: u32 = 256;
/// Streams the caller reset before they were taken: beyond it the connection ends (rapid reset).
pub(crate) const RESET_STREAMS_MAX: usize = 64;
/// A caller that waits for answers sends a ping when nothing came for this long,
pub(crate) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
/// a server, which also looks after connections without calls, for this long:
/// in a network of 64 each peer has some hundred of them, and their pings were most of what a peer
/// at rest did;
pub(crate) const KEEP_ALIVE_SERVER_EVERY: Duration = Duration::from_secs(60);
/// and the connection is dead when no answer came for this long.
pub(crate) const KEEP_ALIVE_WAIT: Duration = Duration::from_secs(10);

/// In the answer to an introduction: a new connection will have wide windows.
pub(crate) const RECONNECT_HEADER: &str = "holdfast-reconnect";

/// A record's bytes: a document of 2 MiB + 1 KiB.
pub const RECORD_BYTES_MAX: usize = (2 << 20) + 1024;
/// A message with one record.
pub const RECORD_MESSAGE_BYTES_MAX: usize = (2 << 20) + (16 << 10);
/// A message with a batch of records: 8 MiB of them, 256 bytes for what is around each, and their leases.
pub const BATCH_MESSAGE_BYTES_MAX: usize =
    env::calls::BATCH_BYTES_MAX + 256 * env::calls::BATCH_MAX + LEASES_BYTES_MAX;
/// Leases that come with records.
const LEASES_BYTES_MAX: usize = 768 << 10;
/// A request without records.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 256 << 10;
/// An encoded Bloom filter of a subscription.
pub(crate) const FILTER_BYTES_MAX: usize = 65 << 10;
/// An encoded publication.
pub(crate) const PUBLICATION_BYTES_MAX: usize = 16 << 10;

/// Requests of one stream in work at once.
pub(crate) const STREAM_CONCURRENCY: usize = 16;
/// A streaming call ends when the other side is silent for this long.
pub(crate) const STREAM_SILENCE_MAX: Duration = Duration::from_secs(60);

/// Bounds of the answering side.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections in all, those in the handshake included.
    pub connections: usize,
    /// Connections of one source (an IPv4 address, an IPv6 /64).
    pub connections_per_source: usize,
    /// Connections with windows wide enough for records, of keys that were vouched for.
    pub wide_connections: usize,
    /// Such connections of one key.
    pub wide_connections_per_key: usize,
    /// Handshakes at once, of one source no more than it leaves free; beyond it new connections wait, for `handshake` at most.
    pub handshakes: usize,
    /// For TLS; and from there until HTTP/2 begins.
    pub handshake: Duration,
    /// Calls in work at once; beyond it callers are told *busy*.
    pub calls: usize,
    /// Request message bytes in work at once, over all connections.
    pub request_bytes_in_flight: usize,
    /// Answers of 16 KiB and more that their callers have not read yet, in bytes over all connections.
    pub answer_bytes_in_flight: usize,
    /// How long a part of an answer may wait for its reader: then the connection ends.
    pub unread: Duration,
    /// How long a request waits for its bytes before the caller is told *busy*.
    pub admission_wait: Duration,
    /// A request message of which nothing more comes for this long is given up.
    pub stall: Duration,
    /// A call's deadline where the caller gave none or a later one. Not for `Subscribe` and `Watch`.
    pub call: Duration,
    /// How long calls in flight may take to finish after the stop.
    pub drain: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 2048,
            connections_per_source: 512,
            wide_connections: 512,
            wide_connections_per_key: 16,
            handshakes: 256,
            handshake: Duration::from_secs(5),
            calls: 4096,
            request_bytes_in_flight: 128 << 20,
            answer_bytes_in_flight: 512 << 20,
            unread: Duration::from_secs(120),
            admission_wait: Duration::from_secs(2),
            stall: Duration::from_secs(10),
            call: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

/// Bounds of the asking side.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections in all. The least recently used idle one makes room; where none is idle, calls
    /// to further peers are told *busy*.
    pub connections: usize,
    /// Connections to one endpoint that carry records, beside the one for small calls; opened when
    /// those there are in use.
    pub bulk_connections: usize,
    /// A connection with nothing in flight for this long is closed. What forwards connections forgets them where they rest: some
    /// after four minutes, and a call on one that is forgotten waits until it is late.
    pub idle: Duration,
    /// TCP, TLS and the introduction together; or a quarter of the call's limit that needs the connection, where that is more.
    pub dial: Duration,
    /// After a failed dial callers get its error at once for this long.
    pub dial_back_off: Duration,
    /// After *denied* a connection introduces itself again, once, if it did so longer ago than this.
    pub reintroduce_after: Duration,
    /// The same after *busy*, as strangers are told earlier than members.
    pub reintroduce_busy_after: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            bulk_connections: 2,
            idle: Duration::from_secs(225),
            dial: Duration::from_secs(5),
            dial_back_off: Duration::from_millis(200),
            reintroduce_after: Duration::from_secs(1),
            reintroduce_busy_after: Duration::from_secs(60),
        }
    }
}
