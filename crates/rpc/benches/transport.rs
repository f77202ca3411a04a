//! MB/s and calls/s of the transport.
fn main() {}
