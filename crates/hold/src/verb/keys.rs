//! `hold keys`: this user's keyring.

mod recover;

use std::fmt;
use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use author::Home;
use clap::{Args, Subcommand};
use env::SystemEntropy;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::cli::Session;
use crate::client;
use crate::config::{self, FileConfig};
use crate::error::HoldError;
use crate::exit::Exit;
use crate::network_file::NetworkFile;
use crate::organisation::{KEY_FILE, OwnOrganisation};
use crate::out::PathText;
use crate::passphrase::{self, Purpose};

/// The longest text that 24 words may come in, in bytes.
const WORDS_BYTES_MAX: u64 = 4096;

/// How the line below the words begins that tells the next counter.
const NEXT_LINE: &str = "next counter: ";

/// What to do with the keyring.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make this user's keyring, and keep the network file and the way to a pass beside it
    Init(Init),
    /// List the public reader keys: others share with any of them
    List,
    /// Show the first public reader key, to give to others
    Show(Show),
    /// Print the keyring as 24 words and its next counter; whoever reads the words has every key
    Export(Export),
    /// Make the keyring of what `export` printed, or of the 24 words alone, from standard input
    Import(Import),
    /// Make the keyring of the 24 words from standard input, and list what the network has for it; in a home
    /// that has a keyring, list again
    Recover(recover::Recover),
}

/// `hold keys init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    place: NetworkPlace,
}

/// The network this home is for.
#[derive(Debug, Args)]
struct NetworkPlace {
    /// The network file; a copy is kept in the home
    #[arg(long, value_name = "NET")]
    network: Option<PathBuf>,
    /// The organisation's directory: its key mints this client's passes
    #[arg(long, value_name = "ORG", requires = "network")]
    org: Option<PathBuf>,
}

/// `hold keys show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// As a QR code too
    #[arg(long)]
    qr: bool,
    /// The key of this client's connections instead: what `hold org pass` signs for
    #[arg(long, conflicts_with = "qr")]
    client: bool,
    /// The key that owns this user's objects instead: what others list in their policies
    #[arg(long, conflicts_with_all = ["qr", "client"])]
    owner: bool,
}

/// `hold keys export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Do not ask before the secret words are printed
    #[arg(long)]
    yes: bool,
}

/// `hold keys import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(flatten)]
    place: NetworkPlace,
    /// The next counter that `hold keys export` told, where it is not below the words; without either
    /// the keyring goes on after 1,024 counters
    #[arg(long, value_name = "N")]
    next: Option<u64>,
}

/// `hold keys init`, `hold keys import`: the keyring that was made.
#[derive(Serialize)]
struct Made {
    /// Where it is.
    home: PathText,
    /// Its first public reader key.
    reader_key: String,
    /// The key of this client's connections.
    client_key: String,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reader_key)
    }
}

/// `hold keys list`: the public keys.
#[derive(Serialize)]
struct Listed {
    /// Reader keys: others share with any of them.
    reader_keys: Vec<String>,
    /// The key of this client's connections.
    client_key: String,
    /// The key that owns this user's objects, and under which others list it in their policies.
    owner_key: String,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reader_keys.join("\n"))
    }
}

/// `hold keys show`: the first public keys.
#[derive(Serialize)]
struct Shown {
    /// The first reader key.
    reader_key: String,
    /// The key of this client's connections.
    client_key: String,
    /// The key that owns this user's objects.
    owner_key: String,
    #[serde(skip)]
    text: String,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `hold keys export`: the keyring itself. Secret.
#[derive(Serialize)]
struct Exported<'a> {
    /// Its 24 words.
    words: &'a str,
    /// The counter of the next author key.
    next: u64,
}

impl fmt::Display for Exported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{NEXT_LINE}{}", self.words, self.next)
    }
}

impl Keys {
    /// Runs it.
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        match self {
            Self::Init(args) => init(session, args.place).await,
            Self::List => list(session).await,
            Self::Show(args) => args.run(session).await,
            Self::Export(args) => args.run(session).await,
            Self::Import(args) => args.run(session).await,
            Self::Recover(args) => args.run(session).await,
        }
    }
}

async fn init(session: &Session, place: NetworkPlace) -> Result<Exit, HoldError> {
    refuse_second(session)?;
    place.check(&session.config()?.home)?;
    let passphrase = passphrase::ask(session, Purpose::Choose).await?;
    create(session, &place, &passphrase).await.map(|()| Exit::Done)
}

/// Makes a keyring in the session's home and prints it.
async fn create(
    session: &Session,
    place: &NetworkPlace,
    passphrase: &Zeroizing<String>,
) -> Result<(), HoldError> {
    let (dir, passphrase) = (session.config()?.home.clone(), passphrase.clone());
    let home =
        client::blocking(move || Ok(Home::create(&dir, passphrase.as_bytes(), &SystemEntropy)?));
    let home = home.await?;
    place.keep(session, &home)?;
    made(session, &home)
}

fn refuse_second(session: &Session) -> Result<(), HoldError> {
    let dir = &session.config()?.home;
    if Home::exists(dir) {
        return Err(author::AuthorError::KeyringExists(dir.clone()).into());
    }
    Ok(())
}

fn made(session: &Session, home: &Home) -> Result<(), HoldError> {
    session.out.note(format_args!(
        "keyring in {}; its words (hold keys export) are its only backup",
        home.dir().display()
    ));
    session.out.result(&Made {
        home: home.dir().into(),
        reader_key: first_reader(home),
        client_key: home.keyring().client_key().to_string(),
    })
}

fn first_reader(home: &Home) -> String {
    home.readers().first().map(ToString::to_string).unwrap_or_default()
}

async fn list(session: &Session) -> Result<Exit, HoldError> {
    let home = client::open_home(session).await?;
    session.out.result(&Listed {
        reader_keys: home.readers().iter().map(ToString::to_string).collect(),
        client_key: home.keyring().client_key().to_string(),
        owner_key: home.keyring().owner().public().to_string(),
    })?;
    Ok(Exit::Done)
}

impl Show {
    async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let home = client::open_home(session).await?;
        let reader_key = first_reader(&home);
        let client_key = home.keyring().client_key().to_string();
        let owner_key = home.keyring().owner().public().to_string();
        let shown = match (self.client, self.owner) {
            (true, _) => &client_key,
            (_, true) => &owner_key,
            _ => &reader_key,
        };
        let mut text = shown.clone();
        if self.qr
            && let Ok(code) = qrcode::QrCode::new(reader_key.as_bytes())
        {
            let picture = code.render::<qrcode::render::unicode::Dense1x2>().build();
            text = format!("{reader_key}\n{}", readable(&picture));
        }
        session.out.result(&Shown { reader_key, client_key, owner_key, text })?;
        Ok(Exit::Done)
    }
}

/// A picture that a camera reads, dark on light whatever the terminal's colours are.
fn readable(picture: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return picture.to_owned();
    }
    let lines = picture.lines().map(|line| format!("\u{1b}[30;107m{line}\u{1b}[0m"));
    lines.collect::<Vec<_>>().join("\n")
}

impl Export {
    async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        if !self.yes && !client::blocking(confirm).await? {
            return Err(HoldError::argument("--yes", "the words are printed only when confirmed"));
        }
        let home = client::open_home(session).await?;
        let next = home.next_counter()?;
        session.out.result(&Exported { words: &home.words(), next })?;
        Ok(Exit::Done)
    }
}

/// Asks at the terminal; no terminal is a no.
fn confirm() -> Result<bool, HoldError> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Whoever reads the words has every key of this keyring. Print them? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(HoldError::io("read", "the terminal"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

impl Import {
    async fn run(self, session: &Session) -> Result<Exit, HoldError> {
        let (home, _) = import(session, &self.place, self.next).await?;
        made(session, &home)?;
        Ok(Exit::Done)
    }
}

/// Makes the keyring of the words on standard input; also the next counter that was told.
async fn import(
    session: &Session,
    place: &NetworkPlace,
    next: Option<u64>,
) -> Result<(Home, Option<u64>), HoldError> {
    refuse_second(session)?;
    place.check(&session.config()?.home)?;
    let text = client::blocking(read_words).await?;
    let (words, told) = words_and_next(&text)?;
    // Looked at before a passphrase is chosen for them.
    crypto::Keyring::from_words(&words).map_err(author::AuthorError::Keyring)?;
    let passphrase = passphrase::ask(session, Purpose::Choose).await?;
    let (dir, next) = (session.config()?.home.clone(), next.or(told));
    let home = client::blocking(move || {
        Ok(Home::import(&dir, &words, next, passphrase.as_bytes(), &SystemEntropy)?)
    });
    let home = home.await?;
    place.keep(session, &home)?;
    Ok((home, next))
}

/// What `export` printed, or the words alone. At a terminal the line below the words is asked for, also where a flag says it: what is
/// pasted there comes as two lines.
fn read_words() -> Result<Zeroizing<String>, HoldError> {
    let mut words = Zeroizing::new(String::new());
    if std::io::stdin().is_terminal() {
        let failed = || HoldError::io("read", "the terminal");
        *words = rpassword::prompt_password("The 24 words: ").map_err(failed())?;
        if !words.contains(NEXT_LINE.trim_end()) {
            eprint!("Next counter (empty where unknown): ");
            let mut next = String::new();
            let mut stdin = std::io::stdin().lock().take(WORDS_BYTES_MAX);
            stdin.read_line(&mut next).map_err(failed())?;
            let next = next.trim();
            let next = next.strip_prefix(NEXT_LINE.trim_end()).unwrap_or(next).trim();
            if !next.is_empty() {
                words.push_str(&format!("\n{NEXT_LINE}{next}"));
            }
        }
    } else {
        let mut stdin = std::io::stdin().lock().take(WORDS_BYTES_MAX);
        stdin.read_to_string(&mut words).map_err(HoldError::io("read", "standard input"))?;
    }
    Ok(words)
}

/// The words, and the next counter where the line below them tells it.
fn words_and_next(text: &str) -> Result<(Zeroizing<String>, Option<u64>), HoldError> {
    let Some((words, rest)) = text.split_once(NEXT_LINE.trim_end()) else {
        return Ok((Zeroizing::new(text.to_owned()), None));
    };
    let next = rest.trim().parse();
    let wrong = |_| HoldError::argument("next counter", "what is below the words is no number");
    Ok((Zeroizing::new(words.to_owned()), Some(next.map_err(wrong)?)))
}

impl NetworkPlace {
    /// Looks at the files before anything is made.
    ///
    /// # Errors
    /// Where one is damaged or missing; [`HoldError::Argument`] where the home is of another network.
    fn check(&self, home: &Path) -> Result<(), HoldError> {
        self.newest(home)?;
        self.org
            .as_deref()
            .filter(|org| org.join(KEY_FILE).exists())
            .map_or(Ok(()), |org| OwnOrganisation::open(org).map(drop))
    }

    /// The network file that is named, or the home's where that knows later rosters; none where none is named.
    fn newest(&self, home: &Path) -> Result<Option<NetworkFile>, HoldError> {
        let Some(given) = self.network.as_deref().map(NetworkFile::read).transpose()? else {
            return Ok(None);
        };
        let kept = home.join("network");
        if !kept.exists() {
            return Ok(Some(given));
        }
        let own = NetworkFile::read(&kept)?;
        if own.genesis() != given.genesis() {
            let (own, home) = (own.genesis().network(), home.display());
            let reason = format!("{home} is a home in another network, {own}: name another --home");
            return Err(HoldError::argument("--network", reason));
        }
        let is_older = own.roster().number() < given.roster().number();
        Ok(Some(if is_older { given } else { own }))
    }

    /// Keeps the network file and the settings in the home, and mints the first pass. What the home knows already and is not
    /// said here stays.
    ///
    /// # Errors
    /// As [`NetworkPlace::check`].
    fn keep(&self, session: &Session, home: &Home) -> Result<(), HoldError> {
        let Some(network) = self.newest(home.dir())? else { return Ok(()) };
        network.copy_to(&home.dir().join("network"))?;
        let mut file: FileConfig = config::read_file(home.dir())?;
        let via = session.settings.via()?;
        if !via.is_empty() {
            via.clone_into(&mut file.via);
        }
        if let Some(org) = &self.org {
            file.org = usable(session, org, network.roster());
        }
        config::write_file(home.dir(), &file)?;
        let mut config = session.config()?.clone();
        config.org = config::in_home(home.dir(), file.org);
        client::credential(&config, network.roster(), home.keyring().client_key()).map(drop)
    }
}

/// The organisation's directory made absolute, where its key is there and the network lists it;
/// else a warning.
fn usable(session: &Session, org: &Path, roster: &crypto::Roster) -> Option<PathBuf> {
    let stranger = "this client is a stranger, its puts will be denied";
    if !org.join(KEY_FILE).exists() {
        session.out.warn(format_args!(
            "{} holds no organisation's key; until its operator signs a pass \
             (hold org pass --dir ORG --network NET --client KEY -o PASS, KEY as hold keys show \
             --client prints it) and it is in the home as `{}`, {stranger}",
            org.display(),
            client::PASS_FILE
        ));
        return None;
    }
    let listed = OwnOrganisation::open(org).ok()?;
    if roster.organisation(&listed.public.key).is_none() {
        session.out.warn(format_args!(
            "the network does not list organisation {}: {stranger}",
            listed.public.name
        ));
        return None;
    }
    std::path::absolute(org).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_export_prints_is_what_import_reads() {
        let printed = Exported { words: "a b c", next: 7 }.to_string();
        let (words, next) = words_and_next(&printed).expect("our own");
        assert_eq!((words.trim(), next), ("a b c", Some(7)));
        let (words, next) = words_and_next("a b c\n").expect("words alone");
        assert_eq!((words.trim(), next), ("a b c", None));
        assert!(words_and_next("a b c\nnext counter: x").is_err());
        assert!(words_and_next("a b c\nnext counter: -1").is_err());
    }
}
