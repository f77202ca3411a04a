//! The member of a committee that a peer on this machine hosts, as its page tells.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::Page;

/// The member of a committee that a peer hosts.
#[derive(Serialize)]
pub(super) struct OwnMember {
    /// Its key, hex.
    member: String,
    /// The committee's key, hex.
    committee: String,
    /// Whether it answers.
    running: bool,
    /// Whether it is one of the members; else it follows, to become one or because it was removed.
    seated: bool,
    /// Whether it votes; else it follows.
    votes: bool,
    /// The height of the newest certified header that it knows.
    height: u64,
    /// The epoch.
    epoch: u64,
    /// How many members must agree.
    needed: u64,
    /// How many it hears, itself among them.
    heard: u64,
    /// Members.
    members: u64,
    /// Submissions that wait.
    waiting: u64,
    /// Entries of the state.
    entries: u64,
    /// Bytes of them.
    state_bytes: u64,
}

impl OwnMember {
    /// From the page; `None` of a peer that hosts none.
    pub(super) fn new(page: &Page) -> Option<Self> {
        page.0.pointer("/committee").filter(|value| Value::is_object(value))?;
        let number = |name: &str| page.number(&format!("/committee/{name}"));
        let text = |name: &str| page.text(&format!("/committee/{name}")).unwrap_or_default();
        Some(Self {
            member: text("member"),
            committee: text("committee"),
            running: page.is("/committee/running"),
            seated: page.is("/committee/seated"),
            votes: page.is("/committee/votes"),
            height: number("height"),
            epoch: number("epoch"),
            needed: number("needed"),
            heard: number("heard"),
            members: number("members"),
            waiting: number("waiting"),
            entries: number("entries"),
            state_bytes: number("state_bytes"),
        })
    }
}

impl fmt::Display for OwnMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committee, height, heard, members, needed, .. } = self;
        let state = match (self.running, self.seated, self.votes) {
            (false, ..) => "does NOT run",
            (true, _, true) => "votes",
            (true, true, false) => "follows",
            (true, false, false) => "follows and is none of its members",
        };
        write!(f, "committee {committee:.16}: the member here {state}, height {height}")?;
        write!(f, ", hears {heard} of {members} members, {needed} must agree")?;
        if heard < needed {
            write!(f, "\nNOT ENOUGH MEMBERS: updates wait until {needed} are heard")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_member_that_hears_too_few_says_so() {
        let page = |text: &str| Page(serde_json::from_str(text).unwrap());
        assert!(OwnMember::new(&page("{}")).is_none());
        let few = r#"{"committee":{"running":true,"seated":true,"votes":true,"heard":2,"needed":3,"members":4}}"#;
        let few = OwnMember::new(&page(few)).unwrap().to_string();
        assert!(few.contains("votes") && few.contains("NOT ENOUGH"), "{few}");
        let none = r#"{"committee":{"running":true,"seated":false,"votes":false}}"#;
        let none = OwnMember::new(&page(none)).unwrap().to_string();
        assert!(none.contains("none of its members"), "{none}");
        let stopped = OwnMember::new(&page(r#"{"committee":{}}"#)).unwrap().to_string();
        assert!(stopped.contains("NOT run"), "{stopped}");
    }
}
