//! Who holds what: pure functions of a view of the network.
#![forbid(unsafe_code)]
