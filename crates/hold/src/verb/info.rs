//! `hold info`: what a content is, where each record of it is, and whether it is well there.

use std::fmt;

use author::{Fragment, Holder, Info, Payment, SchemaArtifact};
use clap::Args;
use crypto::Roster;
use serde::Serialize;

use crate::cli::Session;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::verb::put::artifact;
use crate::{address, connect};

/// `hold info`.
#[derive(Debug, Args)]
pub(crate) struct InfoVerb {
    /// What `put`, `share` or `inbox` printed
    address: String,
}

/// One record at one holder.
#[derive(Serialize)]
struct Row {
    /// The record's id.
    id: String,
    /// envelope, entry, page or parity.
    kind: &'static str,
    /// Which page, from 0.
    index: Option<u32>,
    /// Which stripe it is a fragment of, from 0.
    stripe: Option<u32>,
    /// Its number in that stripe: pages first, then parity.
    fragment: Option<u32>,
    /// The peer that should hold it.
    holder: String,
    /// The peer's organisation.
    organisation: String,
    /// Whether the peer answered.
    reachable: bool,
    /// Whether it holds the record.
    healthy: bool,
}

/// A lease of a content.
#[derive(Serialize)]
struct LeaseRow {
    /// Whether this user signed it.
    own: bool,
    /// Who pays: the organisation's name, or its key where the roster does not list it.
    organisation: String,
    /// When it ends, Unix seconds.
    until: u64,
}

/// `hold info`: what a content is, and each record of it at each holder.
#[derive(Serialize)]
struct InfoResult {
    /// The address of its envelope.
    address: String,
    /// Its entry's id.
    entry: String,
    /// Length of the content.
    size: u64,
    /// Its media type.
    #[serde(rename = "type")]
    media_type: String,
    /// The name sealed with it.
    name: Option<String>,
    /// Where its schema is found.
    schema: Option<String>,
    /// Where its data dictionary is found.
    data_dictionary: Option<String>,
    /// When the entry was made, Unix seconds.
    created: u32,
    /// How its pages are kept: K/N or copies:N; none where the content lies in the entry.
    profile: Option<String>,
    /// How many pages it has.
    pages: u64,
    /// How many stripes they are in.
    stripes: u64,
    /// Those of its stripes, or of its pages where it is not in stripes, whose holders were not asked: of a long content the
    /// first ones are told, and `hold check` asks about all.
    untold: u64,
    /// Each record at each of its holders.
    fragments: Vec<Row>,
    /// Who pays for its envelope and entry, and until when: each lease that a holder keeps.
    leases: Vec<LeaseRow>,
    /// Until when all of that is paid for, Unix seconds; none where a record of it has no lease.
    paid_until: Option<u64>,
    /// Whether a holder keeps a record of it without a lease.
    unleased: bool,
    /// Holders were not asked.
    #[serde(skip)]
    thin: bool,
}

impl Row {
    fn new(fragment: &Fragment, holder: &Holder, roster: &Roster) -> Self {
        let organisation = holder.organisation.and_then(|key| roster.organisation(&key));
        Self {
            id: fragment.id.to_string(),
            kind: fragment.kind.name(),
            index: fragment.index,
            stripe: fragment.stripe,
            fragment: fragment.number,
            holder: holder.peer.to_string(),
            organisation: organisation.map(|org| org.name.clone()).unwrap_or_default(),
            reachable: holder.reachable,
            healthy: holder.held,
        }
    }
}

impl InfoResult {
    fn new(info: &Info, payment: &Payment, roster: &Roster, thin: bool) -> Self {
        let leases = payment.leases.iter().map(|paid| {
            let listed = roster.organisation(&paid.organisation);
            let organisation = listed.map(|organisation| organisation.name.clone());
            let organisation = organisation.unwrap_or_else(|| paid.organisation.to_string());
            LeaseRow { own: paid.own, organisation, until: paid.until }
        });
        let rows = info.fragments.iter().flat_map(|fragment| {
            fragment.holders.iter().map(|holder| Row::new(fragment, holder, roster))
        });
        let text = |artifact: &Option<SchemaArtifact>| {
            artifact.as_ref().map(|artifact| artifact::Text(artifact).to_string())
        };
        Self {
            address: address::text(&info.envelope),
            entry: info.entry.to_string(),
            size: info.details.size,
            media_type: info.details.media_type.clone(),
            name: info.details.name.clone(),
            schema: text(&info.details.schema),
            data_dictionary: text(&info.details.data_dictionary),
            created: info.created_s,
            profile: info.profile.map(|profile| profile.to_string()),
            pages: info.pages,
            stripes: info.stripes,
            untold: info.untold,
            fragments: rows.collect(),
            leases: leases.collect(),
            paid_until: payment.until,
            unleased: payment.unleased,
            thin,
        }
    }
}

impl fmt::Display for InfoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self.name.iter().flat_map(|name| name.escape_debug()).collect();
        writeln!(f, "name     {name}")?;
        writeln!(f, "type     {}", self.media_type.escape_debug())?;
        let artifacts = [("schema  ", &self.schema), ("dictionary", &self.data_dictionary)];
        for (label, text) in artifacts {
            if let Some(text) = text {
                writeln!(f, "{label:8} {}", text.escape_debug())?;
            }
        }
        writeln!(f, "size     {} bytes, {} pages", self.size, self.pages)?;
        match (&self.profile, self.stripes) {
            (None, _) => writeln!(f, "kept     in its entry")?,
            (Some(profile), 0) => writeln!(f, "kept     {profile}")?,
            (Some(profile), 1) => writeln!(f, "kept     {profile}, one stripe")?,
            (Some(profile), stripes) => writeln!(f, "kept     {profile}, {stripes} stripes")?,
        }
        writeln!(f, "created  {} (Unix seconds)", self.created)?;
        write!(f, "entry    {}", self.entry)?;
        for lease in &self.leases {
            let LeaseRow { own, organisation, until } = lease;
            let by = if *own { ", by you" } else { "" };
            write!(f, "\npaid     until {until} (Unix seconds) by {organisation}{by}")?;
        }
        if self.unleased {
            write!(
                f,
                "\npaid     not at all for some of it: it was stored without a lease, and stays"
            )?;
        }
        if self.thin {
            write!(f, "\nholders  not asked (--thin)")?;
        }
        for row in &self.fragments {
            let id: String = row.id.chars().take(12).collect();
            let holder: String = row.holder.chars().take(10).collect();
            let state = match (row.healthy, row.reachable) {
                (true, _) => "healthy",
                (false, true) => "missing",
                (false, false) => "away",
            };
            let what = match (row.stripe, row.fragment, row.index) {
                (Some(stripe), Some(fragment), _) => format!("{} {stripe}.{fragment}", row.kind),
                (_, _, Some(index)) => format!("{} {index}", row.kind),
                _ => row.kind.to_owned(),
            };
            write!(f, "\n{state:8} {what:12} {id} at {holder} {}", row.organisation)?;
        }
        if self.untold > 0 {
            let what = if self.stripes > 0 { "stripes" } else { "pages" };
            write!(f, "\nand {} further {what}: hold check asks about all", self.untold)?;
        }
        Ok(())
    }
}

impl InfoVerb {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let address = address::parse(&self.address)?;
        let author = connect::author(session).await?;
        let info = author.info(address).await?;
        let roster = author.walker().directory().roster();
        let thin = author.walker().is_thin();
        let payment = match thin {
            true => Payment::default(),
            false => author.payment(address).await?,
        };
        session.out.result(&InfoResult::new(&info, &payment, &roster, thin))?;
        Ok(Exit::Done)
    }
}
