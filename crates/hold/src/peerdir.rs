//! A peer's directory: its key, certificate, settings and where its store is.
//!
//! ```text
//! D/peer.toml      settings, edited by the operator
//! D/peer.key       private key in hex, 0600
//! D/peer.cert      the organisation's certificate (crypto::PeerCertificate)
//! D/peer.request   what `hold org sign-peer` signs, now or when the certificate is to be renewed
//! D/network        the genesis; D/network.rosters beside it, who takes part since
//! D/revoked/       the newest list of revoked keys of each organisation
//! D/quotas         bytes that each client with a quota has stored here
//! D/peers          peers known at the last look, so that losing the bootstrap address does no harm
//! D/store/         records
//! D/news/          publications
//! D/committee/     the member of a committee that the peer hosts (`hosting`)
//! D/left           there once the peer has handed over everything and left
//! D/lock           held by the running peer
//! D/.metrics       where the running peer's page of metrics is, and its key
//! ```

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use crypto::{NetworkId, PeerCertificate, PeerId, Roster, SecretKey};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config;
pub(crate) use crate::config::PeerConfig;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::network_file::{NetworkFile, check_listed};
use crate::organisation::OwnOrganisation;

/// What a peer offers where its operator says nothing, in bytes (100 GiB).
pub(crate) const CAPACITY_DEFAULT: u64 = 100 << 30;
/// How long a certificate is valid where nothing is said, in days.
pub(crate) const CERTIFICATE_DAYS: u64 = 365;
/// Seconds of a day.
pub(crate) const DAY_S: u64 = 24 * 3600;
/// How it is laid out, for snapshots.
pub(crate) const LAYOUT: store::snapshot::Layout = store::snapshot::Layout {
    log: "store",
    journal: "news",
    prefix: "news",
    key: "peer.key",
    // A copy of a member is a member that forgot its votes.
    never: &["committee"],
};
const REQUEST_DOMAIN: &str = "peer-request";
const INIT: &str = "hold peer init --dir D --network NET --org ORG";

/// A peer's directory, read and checked.
pub(crate) struct PeerDir {
    /// Where.
    pub(crate) path: PathBuf,
    /// Its settings.
    pub(crate) config: PeerConfig,
    /// Its private key.
    pub(crate) key: SecretKey,
    /// Its network, and who takes part as it was known last.
    pub(crate) network: NetworkFile,
    /// What its organisation certifies, which is what others go by.
    pub(crate) certificate: PeerCertificate,
    /// Its certificate, as its organisation signed it.
    pub(crate) certificate_bytes: Bytes,
}

impl PeerDir {
    /// Makes a new directory; with a request for a certificate, and with `org` the
    /// certificate.
    ///
    /// # Errors
    /// [`HoldError::Exists`] where a peer is there already; [`crypto::CertificateError::Organisation`]
    /// where the network does not list the organisation.
    pub(crate) fn create(
        path: &Path,
        network: &NetworkFile,
        config: &PeerConfig,
        org: Option<&OwnOrganisation>,
    ) -> Result<PeerId, HoldError> {
        if let Some(org) = org {
            check_listed(network.roster(), org.public.key)?;
        }
        // All that can be wrong is found before anything is written: a directory with a key in it is not made again.
        let key = files::fresh_key();
        let settings =
            config.text().map_err(|error| HoldError::argument("peer.toml", error.to_string()))?;
        let to = path.join(config::peer::FILE);
        config::settings::read::<PeerConfig>(&to, settings.as_bytes(), PeerConfig::KEYS)?;
        // Also where the organisation signs at once: it is what a later certificate is made from.
        let request = PeerRequest::new(&key, &network.genesis().network(), config);
        let certify = |org| request.certify(org, network.roster(), CERTIFICATE_DAYS);
        let certificate = org.map(certify).transpose()?;
        let request = serde_json::to_string_pretty(&request).map_err(HoldError::Json)?;
        let there = ["network", "peer.request", "peer.cert", "peer.key", config::peer::FILE];
        let there = there.map(|name| path.join(name));
        if let Some(there) = there.into_iter().find(|file| file.symlink_metadata().is_ok()) {
            return Err(HoldError::Exists(there));
        }
        files::make_private_folder(path)?;
        files::write_secret_key(&path.join("peer.key"), &key)?;
        network.copy_to(&path.join("network"))?;
        files::write_new(&to, settings.as_bytes(), Access::Public)?;
        files::write_new(&path.join("peer.request"), request.as_bytes(), Access::Public)?;
        if let Some(certificate) = certificate {
            files::write_new(&path.join("peer.cert"), &certificate, Access::Public)?;
        }
        Ok(PeerId::new(key.public()))
    }

    /// Writes the request for a certificate anew, from the settings as they are now; where it is.
    ///
    /// # Errors
    /// Where a part is missing, others cannot reach an address, or the file cannot be written.
    pub(crate) fn request(path: &Path) -> Result<PathBuf, HoldError> {
        let config = read_config(path)?;
        check_reachable("addresses", &config.addresses)?;
        let key = files::read_secret_key(&path.join("peer.key"), INIT)?;
        let genesis = crate::network_file::read_genesis(&path.join("network"))?;
        let request = PeerRequest::new(&key, &genesis.network(), &config);
        let text = serde_json::to_string_pretty(&request).map_err(HoldError::Json)?;
        let to = path.join("peer.request");
        files::replace(&to, text.as_bytes(), Access::Public)?;
        give(path, &to)?;
        Ok(to)
    }

    /// Reads a directory and checks that its parts belong together at `now`, Unix seconds.
    ///
    /// # Errors
    /// Where a part is missing, damaged, expired or of another peer.
    pub(crate) fn open(path: &Path, now: u64) -> Result<Self, HoldError> {
        let config = read_config(path)?;
        let key_path = path.join("peer.key");
        let key = files::read_secret_key(&key_path, INIT)?;
        warn_of_open_key(&key_path);
        let network = NetworkFile::read(&path.join("network"))?;
        let cert_path = path.join("peer.cert");
        let bytes = files::read_needed(
            &cert_path,
            "the peer's certificate",
            "hold org sign-peer --dir ORG --network NET --request D/peer.request -o D/peer.cert",
        )?;
        let certificate_bytes = Bytes::copy_from_slice(&bytes);
        let certificate = PeerCertificate::verify(&certificate_bytes, network.roster(), now)
            .map_err(|source| HoldError::CertificateFile { path: cert_path.clone(), source })?;
        if certificate.peer != PeerId::new(key.public()) {
            return Err(HoldError::NotA { what: "the certificate of this peer", path: cert_path });
        }
        let path = path.to_owned();
        Ok(Self { path, config, key, network, certificate, certificate_bytes })
    }

    /// Where others call the peer first: its certificate says it, whatever the settings say.
    pub(crate) fn address(&self) -> String {
        self.certificate.addresses.first().cloned().unwrap_or_default()
    }

    /// Which settings the certificate says otherwise: they do not count before another one is there.
    pub(crate) fn not_certified(&self) -> Vec<&'static str> {
        let Self { certificate, config, .. } = self;
        let otherwise = [
            ("addresses", certificate.addresses != config.addresses),
            ("capacity", certificate.capacity != config.capacity),
        ];
        otherwise.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }

    /// Whether its peer has left and is to stay away.
    pub(crate) fn has_left(&self) -> bool {
        self.config.leaving && has_left(&self.path)
    }

    /// Takes the directory for this process; another one that has it is [`HoldError::Locked`].
    ///
    /// # Errors
    /// Also where the lock's file cannot be made.
    pub(crate) fn lock(&self) -> Result<File, HoldError> {
        let path = self.path.join("lock");
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(HoldError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => Err(HoldError::Locked(self.path.clone())),
            Err(std::fs::TryLockError::Error(source)) => Err(HoldError::io("lock", &path)(source)),
        }
    }
}

/// What a peer asks its organisation to certify, as JSON signed by the peer's key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerRequest {
    network: String,
    peer: String,
    addresses: Vec<String>,
    capacity: u64,
    signature: String,
}

impl PeerRequest {
    fn new(key: &SecretKey, network: &NetworkId, config: &PeerConfig) -> Self {
        let mut request = Self {
            network: network.to_string(),
            peer: key.public().to_string(),
            addresses: config.addresses.clone(),
            capacity: config.capacity,
            signature: String::new(),
        };
        request.signature = hex::encode(key.sign(REQUEST_DOMAIN, network, &request.message()));
        request
    }

    /// Reads a request from a file.
    ///
    /// # Errors
    /// Where it is not one.
    pub(crate) fn read(path: &Path) -> Result<Self, HoldError> {
        let text = files::read_needed(path, "a peer's request", INIT)?;
        serde_json::from_slice(&text)
            .map_err(|_| HoldError::NotA { what: "a peer's request", path: path.to_owned() })
    }

    /// The organisation's certificate for it, from now on.
    ///
    /// # Errors
    /// Where the request is of another network, is not signed by its peer, names an address that others cannot reach, or its
    /// values do not make a certificate.
    pub(crate) fn certify(
        &self,
        org: &OwnOrganisation,
        roster: &Roster,
        days: u64,
    ) -> Result<Bytes, HoldError> {
        let network = roster.network();
        let asked: NetworkId =
            self.network.parse().map_err(HoldError::parse("a network id", &self.network))?;
        if asked != network {
            return Err(crypto::CertificateError::Network(asked).into());
        }
        let peer: PeerId = self.peer.parse().map_err(HoldError::parse("a peer", &self.peer))?;
        let signature = hex::decode(&self.signature).unwrap_or_default();
        peer.key().verify(REQUEST_DOMAIN, &network, &self.message(), &signature)?;
        check_reachable("addresses", &self.addresses)?;
        let from = now_s();
        let certificate = PeerCertificate {
            peer,
            organisation: org.public.key,
            addresses: self.addresses.clone(),
            capacity: self.capacity,
            from,
            until: from.saturating_add(days.saturating_mul(DAY_S)),
        };
        let bytes = certificate.sign(&org.key, &network);
        // What would be refused by others is refused here, with the reason.
        PeerCertificate::verify(&bytes, roster, from)?;
        Ok(bytes)
    }

    /// What the signature covers: capacity, then each address with its length.
    fn message(&self) -> Vec<u8> {
        let mut message = self.capacity.to_be_bytes().to_vec();
        for address in &self.addresses {
            message.extend((address.len() as u64).to_be_bytes());
            message.extend(address.as_bytes());
        }
        message
    }
}

/// The time, Unix seconds.
pub(crate) fn now_s() -> u64 {
    use env::Clock;
    env::SystemClock::new().unix_s()
}

/// Reads the settings in a peer's directory.
///
/// # Errors
/// Where they are missing or not valid.
pub(crate) fn read_config(dir: &Path) -> Result<PeerConfig, HoldError> {
    let path = dir.join(config::peer::FILE);
    let text = files::read_needed(&path, "a peer's settings", INIT)?;
    config::settings::read(&path, &text, PeerConfig::KEYS)
}

/// Changes settings in a peer's directory: what a person wrote around them stays, and the peer is to read it, whoever changes them.
///
/// # Errors
/// Where they are missing, or cannot be written.
pub(crate) fn change_config(dir: &Path, values: &toml::Table) -> Result<(), HoldError> {
    let path = dir.join(config::peer::FILE);
    let text = files::read_needed(&path, "a peer's settings", INIT)?;
    let wrong = |error: toml_edit::TomlError| HoldError::argument("peer.toml", error.to_string());
    let text = config::settings::changed(&String::from_utf8_lossy(&text), values).map_err(wrong)?;
    files::replace(&path, text.as_bytes(), Access::Public)?;
    give(dir, &path)
}

/// Gives what was made in a peer's directory to the user that has the peer's key, who alone can run it: root may set what another
/// user's peer is to read. No link is followed below the directory, so that nothing elsewhere is given away by one.
///
/// # Errors
/// Where the system does not let this user.
pub(crate) fn give(dir: &Path, made: &Path) -> Result<(), HoldError> {
    given(dir, made, |folder, name, user| {
        let told = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match told.st_uid == user.0.as_raw() {
            true => Ok(()),
            false => chown_at(folder, name, user),
        }
    })
}

/// As [`give`], of a file, or of a folder and all that is in it, where this user is root: whoever else writes there is the peer's
/// user.
///
/// # Errors
/// Where the system does not let this user.
pub(crate) fn give_all(dir: &Path, made: &Path) -> Result<(), HoldError> {
    match rustix::process::geteuid().is_root() {
        true => given(dir, made, give_below),
        false => Ok(()),
    }
}

/// A user and its group.
type User = (Uid, Gid);

/// Gives something in a peer's directory to the peer's user, in the folder that it is in, each folder on the way being one.
fn given(
    dir: &Path,
    made: &Path,
    give: impl FnOnce(BorrowedFd<'_>, &CStr, User) -> io::Result<()>,
) -> Result<(), HoldError> {
    let Ok(key) = std::fs::metadata(dir.join("peer.key")) else { return Ok(()) };
    let user = (Uid::from_raw(key.uid()), Gid::from_raw(key.gid()));
    let walk = || {
        let strange = || io::Error::other("it is not in the peer's directory");
        let way = made.strip_prefix(dir).map_err(|_| strange())?;
        let mut names = Vec::new();
        for part in way.components() {
            let Component::Normal(name) = part else { return Err(strange()) };
            names.push(CString::new(name.as_bytes())?);
        }
        let last = names.pop().ok_or_else(strange)?;
        let mut folder = rustix::fs::open(dir, FOLDER, Mode::empty())?;
        for name in &names {
            folder = rustix::fs::openat(&folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        }
        give(folder.as_fd(), &last, user)
    };
    match walk() {
        // The peer, which runs, was done with it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        walked => walked.map_err(HoldError::io("give to the peer's user", made)),
    }
}

/// How a folder is opened on the way.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn chown_at(folder: BorrowedFd<'_>, name: &CStr, user: User) -> io::Result<()> {
    let (uid, gid) = user;
    Ok(chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn give_below(folder: BorrowedFd<'_>, name: &CStr, user: User) -> io::Result<()> {
    let below = match rustix::fs::openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(below) => below,
        // A file; of a link the system says the one or the other.
        Err(Errno::NOTDIR | Errno::LOOP) => return chown_at(folder, name, user),
        Err(error) => return Err(error.into()),
    };
    chown_at(folder, name, user)?;
    for item in rustix::fs::Dir::read_from(&below)? {
        let item = item?;
        let name = item.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match give_below(below.as_fd(), name, user) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            given => given?,
        }
    }
    Ok(())
}

/// The file that says that a peer handed over everything and left, in its directory.
const LEFT: &str = "left";

/// Whether a peer has left.
pub(crate) fn has_left(dir: &Path) -> bool {
    dir.join(LEFT).exists()
}

/// Notes that a peer has left, or that it is one again.
///
/// # Errors
/// Where the file cannot be written or removed.
pub(crate) fn note_left(dir: &Path, left: bool) -> Result<(), HoldError> {
    let path = dir.join(LEFT);
    if left {
        let text = format!("handed over everything and left, Unix time {}\n", now_s());
        return files::replace(&path, text.as_bytes(), Access::Public);
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(HoldError::io("remove", &path)(error))
        }
        _ => Ok(()),
    }
}

/// The addresses a peer advertises for a listener: the listener itself, unless it is a wildcard.
///
/// # Errors
/// Where the listener is a wildcard and nothing is advertised, or what is advertised is a wildcard or has port 0.
pub(crate) fn advertised(listen: &str, advertise: &[String]) -> Result<Vec<String>, HoldError> {
    if !advertise.is_empty() {
        check_reachable("--advertise", advertise)?;
    }
    match advertise {
        [] if is_wildcard(listen) => Err(HoldError::argument(
            "--listen",
            "a wildcard address reaches nobody: add --advertise HOST:PORT",
        )),
        [] => Ok(vec![listen.to_owned()]),
        given => Ok(given.to_vec()),
    }
}

/// Refuses addresses at which others cannot call a peer.
fn check_reachable(name: &'static str, addresses: &[String]) -> Result<(), HoldError> {
    if addresses.is_empty() {
        return Err(HoldError::argument(name, "there is none: others reach a peer by HOST:PORT"));
    }
    for address in addresses {
        config::check_address(name, address)?;
        let port = config::split_address(address).map(|(_, port)| port);
        if is_wildcard(address) || port == Some(0) {
            let reason = format!("others cannot reach {address:?}: name a host and its port");
            return Err(HoldError::argument(name, reason));
        }
    }
    Ok(())
}

/// Warns where others than the peer's user can read or change its private key.
fn warn_of_open_key(path: &Path) {
    if path.metadata().is_ok_and(|key| key.permissions().mode() & 0o077 != 0) {
        let path = path.display();
        tracing::warn!("others can read or change the peer's private key: chmod 600 {path}");
    }
}

/// Whether an address `HOST:PORT` stands for all of a machine's.
fn is_wildcard(address: &str) -> bool {
    let host = config::split_address(address).map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.is_ok_and(|host| host.is_unspecified())
}

/// Ports for peers that were not told theirs: below those that systems hand out to outgoing
/// connections, one of which may have the port when the peer comes to listen there.
const PORTS: std::ops::Range<u16> = 10_240..32_768;
/// Ports that one process takes before it comes to those of the next.
const PORTS_A_PROCESS: u32 = 8;

/// A loopback address whose port is free, and is not told twice within some thousand processes: the
/// peers that are made first and started later must not meet at one.
///
/// # Errors
/// Where none is free.
pub(crate) fn free_loopback() -> Result<String, HoldError> {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let ports = u32::from(PORTS.end - PORTS.start);
    let mut last = None;
    for _ in PORTS {
        let told = TOLD.fetch_add(1, Ordering::Relaxed);
        let at = std::process::id().wrapping_mul(PORTS_A_PROCESS).wrapping_add(told) % ports;
        let port = PORTS.start + u16::try_from(at).unwrap_or(0);
        let address = format!("127.0.0.1:{port}");
        match TcpListener::bind(&address) {
            Ok(_) => return Ok(address),
            Err(source) => last = Some(HoldError::Listen { address, source }),
        }
    }
    Err(last.unwrap_or_else(|| HoldError::argument("--listen", "there are no ports".to_owned())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use crypto::Genesis;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn free_ports_are_told_once_and_not_those_of_outgoing_connections() {
        let mut told = std::collections::HashSet::new();
        for _ in 0..200 {
            let address: std::net::SocketAddr = free_loopback().unwrap().parse().unwrap();
            assert!(PORTS.contains(&address.port()) && told.insert(address), "{address}");
            let taken = TcpListener::bind(address).unwrap();
            assert_ne!(free_loopback().unwrap(), taken.local_addr().unwrap().to_string());
        }
    }

    fn config() -> PeerConfig {
        PeerConfig {
            listen: "127.0.0.1:4100".to_owned(),
            addresses: vec!["127.0.0.1:4100".to_owned()],
            p2p_listen: "127.0.0.1:0".to_owned(),
            metrics: "127.0.0.1:0".to_owned(),
            capacity: 1,
            ..PeerConfig::default()
        }
    }

    fn network(org: &OwnOrganisation) -> NetworkFile {
        let genesis = Genesis {
            name: "n".to_owned(),
            suite: crypto::Suite::Holdfast1,
            organisations: vec![org.public.clone()],
            copies: None,
            profile: None,
            created: 1,
            nonce: [1; 16],
        };
        NetworkFile::new(Path::new("NET"), genesis)
    }

    #[test]
    fn a_peer_is_made_signed_or_with_a_request() {
        let folder = tempfile::tempdir().unwrap();
        let org = OwnOrganisation::create(&folder.path().join("org"), "o").unwrap();
        let network = network(&org);
        let signed = folder.path().join("signed");
        let peer = PeerDir::create(&signed, &network, &config(), Some(&org)).unwrap();
        let opened = PeerDir::open(&signed, now_s()).unwrap();
        assert_eq!(PeerId::new(opened.key.public()), peer);

        let asked = folder.path().join("asked");
        PeerDir::create(&asked, &network, &config(), None).unwrap();
        let missing = PeerDir::open(&asked, now_s());
        assert!(matches!(missing, Err(HoldError::Missing { .. })));
        let mut request = PeerRequest::read(&asked.join("peer.request")).unwrap();
        let bytes = request.certify(&org, network.roster(), 1).unwrap();
        std::fs::write(asked.join("peer.cert"), &bytes).unwrap();
        PeerDir::open(&asked, now_s()).unwrap();
        std::fs::write(signed.join("peer.cert"), &bytes).unwrap();
        assert!(matches!(PeerDir::open(&signed, now_s()), Err(HoldError::NotA { .. })));

        // Whatever is wrong with it, the file is named, and what to do.
        let expired = now_s() + 2 * DAY_S;
        for (bytes, now) in [(&b"rotten"[..], now_s()), (b"", now_s()), (&bytes, expired)] {
            std::fs::write(asked.join("peer.cert"), bytes).unwrap();
            let refused = PeerDir::open(&asked, now).err().unwrap();
            assert!(refused.to_string().contains("asked/peer.cert"), "{refused}");
            assert!(refused.hint().is_some_and(|hint| hint.contains("sign-peer")), "{refused}");
        }
        std::fs::write(asked.join("peer.cert"), &bytes).unwrap();

        // After a change of the settings it is made anew, for the same key.
        let text = std::fs::read_to_string(asked.join("peer.toml")).unwrap();
        let text = text.replace("capacity = 1\n", "capacity = 5\n");
        std::fs::write(asked.join("peer.toml"), text).unwrap();
        let again = PeerRequest::read(&PeerDir::request(&asked).unwrap()).unwrap();
        assert_eq!((&again.peer, again.capacity), (&request.peer, 5));
        again.certify(&org, network.roster(), 1).unwrap();

        request.capacity += 1;
        assert!(matches!(request.certify(&org, network.roster(), 1), Err(HoldError::Key(_))));
    }

    #[test]
    fn what_others_cannot_reach_is_neither_asked_for_nor_certified() {
        let folder = tempfile::tempdir().unwrap();
        let org = OwnOrganisation::create(&folder.path().join("org"), "o").unwrap();
        let network = network(&org);
        let dir = folder.path().join("peer");
        PeerDir::create(&dir, &network, &config(), Some(&org)).unwrap();
        let peer = PeerDir::open(&dir, now_s()).unwrap();
        assert_eq!((peer.address(), peer.not_certified()), ("127.0.0.1:4100".to_owned(), vec![]));
        for addresses in [&[][..], &["0.0.0.0:4100"], &["[::]:4100"], &["a:0"], &["a:1", "b:00"]] {
            let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
            let config = PeerConfig { addresses, ..config() };
            std::fs::write(dir.join("peer.toml"), config.text().unwrap()).unwrap();
            let refused = PeerDir::request(&dir).unwrap_err();
            assert_eq!(refused.exit(), Exit::Invalid, "{refused}");
            let unreadable = matches!(refused, HoldError::Setting { .. });
            // What another program asks for.
            let asked = PeerRequest::new(&peer.key, &network.genesis().network(), &config);
            let refused = asked.certify(&org, network.roster(), 1).unwrap_err();
            assert!(matches!(refused, HoldError::Argument { .. }), "{refused}");
            if unreadable {
                continue;
            }
            // The certificate that is there counts.
            let opened = PeerDir::open(&dir, now_s()).unwrap();
            assert_eq!(opened.address(), "127.0.0.1:4100");
            assert_eq!(opened.not_certified(), ["addresses"]);
        }
        let config = PeerConfig { capacity: 2, ..config() };
        std::fs::write(dir.join("peer.toml"), config.text().unwrap()).unwrap();
        assert_eq!(PeerDir::open(&dir, now_s()).unwrap().not_certified(), ["capacity"]);
    }

    #[test]
    fn a_directory_is_locked_once() {
        let folder = tempfile::tempdir().unwrap();
        let org = OwnOrganisation::create(&folder.path().join("org"), "o").unwrap();
        let dir = folder.path().join("peer");
        PeerDir::create(&dir, &network(&org), &config(), Some(&org)).unwrap();
        let peer = PeerDir::open(&dir, now_s()).unwrap();
        let held = peer.lock().unwrap();
        assert!(matches!(peer.lock(), Err(HoldError::Locked(_))));
        drop(held);
        peer.lock().unwrap();
    }

    #[test]
    fn a_wildcard_needs_an_address_others_can_dial() {
        assert!(advertised("0.0.0.0:1", &[]).is_err());
        assert_eq!(advertised("0.0.0.0:1", &["a:2".to_owned()]).unwrap(), ["a:2"]);
        assert_eq!(advertised("127.0.0.1:1", &[]).unwrap(), ["127.0.0.1:1"]);
    }
}
