//! `hold doctor`: what could be wrong, looked at one by one, each with the command that mends it.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use author::Home;
use crypto::{Announcement, CertificateError, ClientKey, Roster};
use env::Env;
use env::calls::{CallError, Calls, Credential, Endpoint, IntroduceRequest};
use serde::Serialize;
use walk::{Directory, Walker};

use crate::cli::Session;
use crate::config::Config;
use crate::error::HoldError;
use crate::exit::Exit;
use crate::organisation::OwnOrganisation;
use crate::out::one_line;
use crate::verb::peer::status::Status;
use crate::{client, connect, environment, network_file, peerdir};

/// Clocks may differ by this much before passes and certificates fail, in seconds; a quarter of
/// what is allowed, so that the warning comes first.
const CLOCK_WARN_S: u64 = crypto::certificate::CLOCK_SKEW_S / 4;
/// What mends a clock.
const SET_CLOCK: &str = "set the clock, say by NTP";
/// What helps a client whose organisation revoked its key.
const REVOKED: &str = "its operator, where that was a mistake: hold org revoke --undo, and hold peer set --revocations; else a \
                       keyring of its own in another home, and a pass for that: hold keys init --network NET";
/// How long a librarian that was refused is waited for once more.
const ASKED_AGAIN_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    /// What: home, keyring, network, roster, pass, certificate, librarians, librarian or clock.
    check: &'static str,
    /// ok, warn or fail.
    verdict: Verdict,
    /// What was seen.
    text: String,
    /// What mends it.
    hint: Option<String>,
}

/// `hold doctor`: what was looked at.
#[derive(Serialize)]
struct Report {
    /// Whether no check failed.
    ok: bool,
    /// The program's version.
    version: &'static str,
    /// Each check, in order.
    checks: Vec<Check>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold {}", self.version)?;
        for Check { check, verdict, text, hint } in &self.checks {
            let verdict = match verdict {
                Verdict::Ok => "ok  ",
                Verdict::Warn => "warn",
                Verdict::Fail => "fail",
            };
            write!(f, "\n{verdict} {check}: {text}")?;
            if let Some(hint) = hint {
                write!(f, "\n     hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl Check {
    fn new(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { check, verdict, text: text.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn failed(check: &'static str, error: &HoldError) -> Self {
        let failed = Self::new(check, Verdict::Fail, one_line(error));
        Self { hint: error.hint(), ..failed }
    }
}

/// Runs every check; 1 where one failed.
pub(crate) async fn run(session: &Session) -> Result<Exit, HoldError> {
    let config = session.config()?;
    let mut checks = vec![home(&config.home)];
    let client = keyring(session, config, &mut checks).await;
    match connect::network(session) {
        Ok(network) => {
            let genesis = network.genesis();
            let text = format!("{} ({}), {}", genesis.name, genesis.suite, genesis.network());
            checks.push(Check::new("network", Verdict::Ok, text));
            // First, since they tell who takes part now.
            let walker = connect::stranger(&network)?;
            let calls = connect::stranger_calls(genesis.network(), Env::real())?;
            let librarians = librarians(config, &walker, &*calls).await;
            checks.push(takes_part(config, walker.directory()));
            if let Some(client) = client {
                checks.push(pass(config, walker.directory(), client));
            }
            checks.extend(librarians);
        }
        Err(error) => checks.push(Check::failed("network", &error)),
    }
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    let (ok, all) = (failed == 0, checks.len());
    session.out.result(&Report { ok, version: env!("CARGO_PKG_VERSION"), checks })?;
    match ok {
        true => Ok(Exit::Done),
        false => {
            let why = format!("{failed} of {all} checks failed");
            Err(HoldError::NotWell { why, exit: Exit::Failed })
        }
    }
}

fn home(home: &Path) -> Check {
    let Ok(folder) = home.metadata() else {
        return Check::new("home", Verdict::Fail, format!("{} is not there", home.display()))
            .hint("hold keys init --network NET --org ORG");
    };
    let open = |path: &Path| path.metadata().is_ok_and(|m| m.permissions().mode() & 0o077 != 0);
    // A pass is bound to the client's key: no secret.
    let secrets = ["keyring", "issued"].map(|name| home.join(name));
    if let Some(secret) = secrets.iter().find(|path| open(path)) {
        return Check::new("home", Verdict::Fail, format!("others can read {}", secret.display()))
            .hint(format!("chmod 600 {}", secret.display()));
    }
    if folder.permissions().mode() & 0o077 != 0 {
        return Check::new(
            "home",
            Verdict::Warn,
            format!("others can look into {}", home.display()),
        )
        .hint(format!("chmod 700 {}", home.display()));
    }
    Check::new("home", Verdict::Ok, home.display().to_string())
}

/// Opens the keyring where a passphrase is at hand; it is never asked for here.
async fn keyring(session: &Session, config: &Config, checks: &mut Vec<Check>) -> Option<ClientKey> {
    let given = config.passphrase_file.is_some();
    let given = given || environment::value("HOLD_PASSPHRASE").is_some();
    if Home::exists(&config.home) && !given {
        checks.push(
            Check::new("keyring", Verdict::Warn, "there, and not opened: no passphrase was given")
                .hint("set HOLD_PASSPHRASE to have it opened"),
        );
        return None;
    }
    match client::open_home(session).await {
        Ok(home) => {
            checks.push(Check::new("keyring", Verdict::Ok, "opens"));
            Some(home.keyring().client_key())
        }
        Err(error) => {
            checks.push(Check::failed("keyring", &error));
            None
        }
    }
}

fn pass(config: &Config, directory: &Directory, key: ClientKey) -> Check {
    let (roster, now) = (&*directory.roster(), peerdir::now_s());
    let renewed = client::credential(config, roster, key);
    let path = config.home.join(client::PASS_FILE);
    let held = renewed.and_then(|_| client::held_pass(&path, roster, key, now));
    match held {
        // The librarians told whom their organisations disown.
        Ok(Some((_, pass))) if directory.is_revoked(&pass.organisation, key.key()) => {
            let revoked = crypto::CertificateError::Revoked(pass.organisation);
            Check::failed("pass", &revoked.into()).hint(REVOKED)
        }
        Ok(Some((_, pass))) => {
            let name = network_file::name_of(roster, &pass.organisation);
            let hours = pass.until.saturating_sub(now) / 3600;
            Check::new("pass", Verdict::Ok, format!("of {name}, {hours} h left"))
        }
        Ok(None) => Check::new("pass", Verdict::Warn, "none: this client may read and not store")
            .hint(format!(
                "an organisation's operator: hold org pass --dir ORG --network NET --client {key} -o PASS; \
                 then copy it to {}",
                path.display()
            )),
        Err(error) => Check::failed("pass", &error),
    }
}

/// The newest roster that the network file and the librarians tell, and this user's organisation in it.
fn takes_part(config: &Config, directory: &Directory) -> Check {
    let roster = directory.roster();
    if let (Some(conflict), _) = directory.roster_conflict() {
        let both = conflict.signed_both.iter().map(|org| network_file::name_of(&roster, org));
        let both: Vec<String> = both.collect();
        let text = format!(
            "two rosters numbered {} were signed by more than half; both by {}",
            conflict.number,
            both.join(", ")
        );
        return Check::new("roster", Verdict::Fail, text)
            .hint("docs/operating/who-takes-part.md says which of them counts, and what to do");
    }
    let text = format!("{}, {} organisations", roster.number(), roster.organisations().len());
    let own = config.org.as_deref().and_then(|dir| OwnOrganisation::open(dir).ok());
    match own.filter(|own| roster.organisation(&own.public.key).is_none()) {
        None => Check::new("roster", Verdict::Ok, text),
        Some(own) => {
            let text = format!("{text}; {} is none of them", own.public.name);
            Check::new("roster", Verdict::Warn, text).hint(
                "ask the others to list it: hold network add-org, and keep HOLD_ORG up to date",
            )
        }
    }
}

async fn librarians(config: &Config, walker: &Walker, calls: &dyn Calls) -> Vec<Check> {
    let mut checks = Vec::new();
    if config.via.is_empty() {
        checks.push(Check::failed("librarians", &HoldError::NoVia));
    }
    let ours = walker.directory().roster();
    for address in &config.via {
        match walker.introduce(&Endpoint::at(address)).await {
            Ok(answer) => {
                let status = Status::new(address, &walker.directory().roster(), &answer);
                checks.push(reached(&status));
                checks.push(clock(&status));
                checks.extend(certificate(&status));
                checks.extend(behind(&status, &ours));
            }
            Err(source) => {
                if matches!(source, CallError::WrongPeer { .. }) {
                    let ahead_s = told_ahead(address, calls, &ours).await;
                    checks.extend(ahead_s.map(|ahead_s| wrong_clock(address, ahead_s)));
                }
                let error = HoldError::Call { address: address.clone(), source };
                checks.push(Check::new("librarian", Verdict::Fail, one_line(&error)).hint(
                    "is `hold peer run` going there, of this network, and does a firewall let it through?",
                ));
            }
        }
    }
    checks
}

/// By how many seconds a librarian's clock is ahead, where what it announces does not count for that.
async fn told_ahead(address: &str, calls: &dyn Calls, roster: &Roster) -> Option<u64> {
    let request = IntroduceRequest::new(Credential::None, 0);
    let answer = calls.introduce(&Endpoint::at(address), request, ASKED_AGAIN_FOR).await.ok()?;
    let now = peerdir::now_s();
    match Announcement::verify(&answer.announcement, roster, now) {
        // It may have been signed a while ago.
        Err(CertificateError::Ahead { ahead_s }) => {
            Some(ahead_s.max((answer.unix_ms / 1000).saturating_sub(now)))
        }
        _ => None,
    }
}

fn wrong_clock(via: &str, ahead_s: impl fmt::Display) -> Check {
    let text = format!("{via} is {ahead_s} s ahead of this machine");
    Check::new("clock", Verdict::Fail, text).hint(SET_CLOCK)
}

/// A warning where a librarian does not know the roster that is kept here.
fn behind(status: &Status, ours: &Roster) -> Option<Check> {
    let (via, theirs, number) = (&status.via, status.roster, ours.number());
    (theirs < number).then(|| {
        let text = format!("{via} knows roster {theirs}, and here {number} is known");
        let hint = format!("hold network apply --network NET --via {via} hands it over");
        Check::new("roster", Verdict::Warn, text).hint(hint)
    })
}

fn reached(status: &Status) -> Check {
    let well = status.peers.iter().filter(|line| line.health == "healthy").count();
    let (all, via) = (status.peers.len(), &status.via);
    let text = format!("{via} answers; {well} of the {all} peers it knows are healthy");
    let verdict = if well == all { Verdict::Ok } else { Verdict::Warn };
    let check = Check::new("librarian", verdict, text);
    if well == all { check } else { check.hint(format!("hold peer status --via {via}")) }
}

/// A warning where the certificate of the peer that was asked ends soon.
fn certificate(status: &Status) -> Option<Check> {
    let asked = status.peers.iter().find(|line| line.peer == status.peer)?;
    let text = format!("that of {} ends in {} days", status.via, asked.days_left()?);
    let hint = "its operator: hold org sign-peer --dir ORG --network NET --request D/peer.request \
                -o NEW, NEW to D/peer.cert, and start the peer again";
    Some(Check::new("certificate", Verdict::Warn, text).hint(hint))
}

fn clock(status: &Status) -> Check {
    let (ahead, via) = (status.clock_ahead_s, &status.via);
    let apart = ahead.unsigned_abs();
    if apart >= crypto::certificate::CLOCK_SKEW_S {
        return wrong_clock(via, ahead);
    }
    if apart >= CLOCK_WARN_S {
        let text = format!("{via} is {ahead} s ahead of this machine");
        return Check::new("clock", Verdict::Warn, text).hint(SET_CLOCK);
    }
    Check::new("clock", Verdict::Ok, format!("within {CLOCK_WARN_S} s of {via}"))
}

#[cfg(test)]
mod tests {
    use crypto::PeerState;
    use testkit::network::{community, key};
    use walk::WalkOptions;

    use super::*;

    #[tokio::test]
    async fn a_clock_that_is_far_ahead_is_named_though_nothing_of_that_librarian_counts() {
        let (env, community) = (Env::real(), community(2, 2));
        let (network, peers) = community.network(&env);
        let ahead_ms = env.clock.unix_ms() + 600_000;
        peers[0].announce(community.announce(0, PeerState::Serving, ahead_ms));
        let calls = network.calls(key("client", 0).public());
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        let walker = Walker::new(env, calls.clone(), directory, WalkOptions::default());
        let config = Config {
            home: "none".into(),
            via: community.members.iter().map(|member| member.address.clone()).collect(),
            thin: false,
            network: "none".into(),
            org: None,
            passphrase_file: None,
            lease_s: 0,
        };
        let checks = librarians(&config, &walker, &*calls).await;
        let of = |number: usize, check: &str| {
            let mut all = checks.iter().filter(|one| one.check == check);
            let found = all.find(|one| one.text.contains(&community.members[number].address));
            found.map(|one| (one.verdict, one.text.clone()))
        };
        let (verdict, text) = of(0, "clock").expect("a look at the clock");
        assert!(verdict == Verdict::Fail && text.contains(" s ahead"), "{text}");
        let (verdict, text) = of(0, "librarian").expect("a look at the librarian");
        assert!(verdict == Verdict::Fail && text.contains("set the clocks"), "{text}");
        assert_eq!(of(1, "clock").map(|(verdict, _)| verdict), Some(Verdict::Ok));
    }

    #[test]
    fn what_failed_is_told_with_its_cause() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = HoldError::io("read", "pass")(denied);
        assert_eq!(Check::failed("pass", &error).text, "cannot read pass: permission denied");
    }
}
