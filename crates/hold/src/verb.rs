//! The verbs, one file each.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod committee;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod document;
pub(crate) mod forget;
pub(crate) mod get;
pub(crate) mod head;
pub(crate) mod inbox;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod man;
pub(crate) mod network;
pub(crate) mod object;
pub(crate) mod org;
pub(crate) mod peer;
pub(crate) mod put;
pub(crate) mod reference;
pub(crate) mod renew;
pub(crate) mod repair;
pub(crate) mod serve;
pub(crate) mod share;
pub(crate) mod up;
