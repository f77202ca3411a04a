//! `configuration.md`: every key of every configuration file.

use std::fmt::Write;

use librarian::{Limits, Rate, Rates};

use super::{Cell, MADE};
use crate::config::settings::{Default, Key};
use crate::config::{FileConfig, PeerConfig};
use crate::limits;
use crate::paying::LeasesConfig;
use crate::repair::RepairConfig;
use crate::upkeep::UpkeepConfig;

/// The page.
pub(super) fn page() -> String {
    let mut page = format!(
        "{MADE}\n# Configuration\n\nBoth files are TOML. A key that is not listed \
        here is an error that names the nearest one.\n\n\
        ## `holdfast.toml`\n\nIn a user's home (`~/.holdfast`, `HOLD_HOME`, `--home`). Flags come \
        before the environment, the environment before the file. A path that is not absolute \
        begins at the home. `hold keys init` writes it.\n"
    );
    keys(&mut page, FileConfig::KEYS);
    page.push_str(
        "\n## `peer.toml`\n\nIn a peer's directory. `hold peer init` writes it, `hold peer \
        set` changes it and keeps remarks.\n",
    );
    keys(&mut page, PeerConfig::KEYS);
    rates(&mut page);
    page.push_str(
        "\n### `[upkeep]`\n\n\
        ```toml\n[upkeep]\nscrub_bytes_s = 4194304\ncompact_dead_percent = 50\n```\n\n\
        It counts from the peer's next start.\n",
    );
    keys(&mut page, UpkeepConfig::KEYS);
    page.push_str(
        "\n### `[repair]`\n\n\
        ```toml\n[repair]\nabsent_after_s = 600\nbytes_s = 16777216\n```\n\n\
        It counts from the peer's next start.\n",
    );
    keys(&mut page, RepairConfig::KEYS);
    page.push_str(
        "\n### `[leases]`\n\n\
        ```toml\n[leases]\nquota = 1099511627776\nerase_within_s = 604800\n\n\
        [leases.quotas]\n02c6... = 5497558138880\n```\n\n\
        It counts from the peer's next start.\n",
    );
    keys(&mut page, LeasesConfig::KEYS);
    page
}

fn keys(page: &mut String, keys: &[Key]) {
    page.push_str("\n| key | type | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = match key.default {
            Default::Needed => "needed".to_owned(),
            Default::Value(value) => format!("`{value}`"),
            Default::Absent(words) => words.to_owned(),
        };
        let (kind, meaning) = (Cell(key.kind.words()), Cell(key.meaning));
        let _ = writeln!(page, "| `{}` | {kind} | {default} | {meaning} |", key.name);
    }
}

/// The tables below `[limits]`, with the defaults as the librarian has them.
fn rates(page: &mut String) {
    let list = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let _ = write!(
        page,
        "\n### `[limits]`\n\n\
        ```toml\n[limits.known]\nstore = {{ per_second = 500, bytes_per_day = 100000000000 }}\n\n\
        [limits.stranger]\nfind = {{ per_second = 5, callers_per_day = \"unlimited\" }}\n```\n\n\
        Tiers: {}. Endpoints: {}. Bounds: {}. The first three bounds hold for each caller, the \
        last two for all callers of the tier together; each record of a batch is one request. \
        What is not named keeps its default; 0 lets nobody in, `\"unlimited\"` everybody. What a \
        tier may not call is denied whatever its rate: `put` and `get` are for `own` alone, and \
        `verify`, `store` and `subscribe` not for `stranger` ([trust](../concepts/trust.md)). \
        The defaults:\n\n\
        | tier | endpoint |",
        list(&limits::TIERS),
        list(&limits::ENDPOINTS),
        list(&limits::BOUNDS)
    );
    for bound in limits::BOUNDS {
        let _ = write!(page, " `{bound}` |");
    }
    let _ = writeln!(page, "\n|{}", "---|".repeat(2 + limits::BOUNDS.len()));
    let defaults = Limits::default().rates;
    for (tier, rates) in
        limits::TIERS.iter().zip([&defaults.own, &defaults.known, &defaults.stranger])
    {
        for (endpoint, rate) in limits::ENDPOINTS.iter().zip(endpoints(rates)) {
            let _ = write!(page, "| `{tier}` | `{endpoint}` |");
            for bound in bounds(rate) {
                let bound = bound.map_or("unlimited".to_owned(), |bound| bound.to_string());
                let _ = write!(page, " {bound} |");
            }
            page.push('\n');
        }
    }
}

/// In the order of [`limits::ENDPOINTS`].
fn endpoints(rates: &Rates) -> [&Rate; 7] {
    let Rates { introduce, find, verify, store, put, get, subscribe } = rates;
    [introduce, find, verify, store, put, get, subscribe]
}

/// In the order of [`limits::BOUNDS`].
fn bounds(rate: &Rate) -> [Option<u64>; 5] {
    let Rate { per_second, per_day, bytes_per_day, callers_per_second, callers_per_day } = *rate;
    [per_second, per_day, bytes_per_day, callers_per_second, callers_per_day]
}
