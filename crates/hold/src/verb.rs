//! The verbs, one file each.

pub(crate) mod doctor;
pub(crate) mod document;
pub(crate) mod keys;
pub(crate) mod network;
pub(crate) mod org;
pub(crate) mod peer;
