//! Librarians on a network without wires, in virtual time: what callers get, what peers tell each
//! other, and what is left after faults, stops and restarts.
#![allow(clippy::unwrap_used, reason = "tests")]

mod agreement;
mod audit;
mod callers;
mod committee;
mod cut_off;
mod endings;
mod joining;
mod leases;
mod liars;
mod lines;
mod news;
mod objects;
mod organisations;
mod records;
mod repair;
mod rosters;
mod strain;
mod stripes;
mod subscribers;
mod town;
mod upkeep;
