//! One key, two names: our peer id and libp2p's, and addresses that carry the latter.
//!
//! libp2p writes a secp256k1 public key as 37 bytes of protobuf, short enough to stand in its peer
//! id as it is (an identity multihash). So the id proves the key and the key gives the id, and
//! neither needs a table.

use std::net::{IpAddr, SocketAddr};

use crypto::SecretKey;
use libp2p::core::multiaddr::Protocol;
use libp2p::identity::{Keypair, PublicKey, secp256k1};
use libp2p::{Multiaddr, PeerId};
use zeroize::Zeroizing;

/// The code of a multihash that is what it hashes.
const IDENTITY_MULTIHASH: u64 = 0;

/// libp2p's key pair of this secret.
pub(super) fn keypair(secret: &SecretKey) -> Keypair {
    let mut bytes = Zeroizing::new(*secret.to_bytes());
    let secret = secp256k1::SecretKey::try_from_bytes(&mut bytes[..])
        .expect("a checked secp256k1 scalar is one for libp2p too");
    secp256k1::Keypair::from(secret).into()
}

/// libp2p's id of this peer.
pub(super) fn to_libp2p(peer: &crypto::PeerId) -> PeerId {
    let key = secp256k1::PublicKey::try_from_bytes(peer.as_bytes())
        .expect("a checked secp256k1 point is one for libp2p too");
    PublicKey::from(key).to_peer_id()
}

/// Our id of this libp2p peer; `None` where its key is not a secp256k1 key.
pub(super) fn from_libp2p(peer: &PeerId) -> Option<crypto::PeerId> {
    let multihash = peer.as_ref();
    if multihash.code() != IDENTITY_MULTIHASH {
        return None;
    }
    let key = PublicKey::try_decode_protobuf(multihash.digest()).ok()?;
    let key = key.try_into_secp256k1().ok()?;
    crypto::PeerId::from_slice(&key.to_bytes()).ok()
}

/// The address a peer's overlay is dialled at: `/ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT`, and
/// `/p2p/ID` behind it where `text` has one, which must be the peer's. `None` for everything else.
pub(super) fn dialable(text: &str, peer: &PeerId) -> Option<Multiaddr> {
    let address: Multiaddr = text.parse().ok()?;
    let mut parts = address.iter();
    let host = parts.next()?;
    match &host {
        Protocol::Ip4(ip) if !ip.is_unspecified() => {}
        Protocol::Ip6(ip) if !ip.is_unspecified() => {}
        Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_) => {}
        _ => return None,
    }
    let port = parts.next()?;
    if !matches!(port, Protocol::Tcp(1..)) {
        return None;
    }
    match (parts.next(), parts.next()) {
        (None, _) => {}
        (Some(Protocol::P2p(id)), None) if id == *peer => {}
        _ => return None,
    }
    Some(Multiaddr::empty().with(host).with(port))
}

/// The name and port of an address that is a name, to be looked up.
pub(super) fn name_and_port(address: &Multiaddr) -> Option<(String, u16)> {
    let mut parts = address.iter();
    let name = match parts.next()? {
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => name.into_owned(),
        _ => return None,
    };
    match parts.next()? {
        Protocol::Tcp(port) => Some((name, port)),
        _ => None,
    }
}

/// `/ip4|ip6/HOST/tcp/PORT` of a socket address.
pub(super) fn of_socket(socket: SocketAddr) -> Multiaddr {
    Multiaddr::from(socket.ip()).with(Protocol::Tcp(socket.port()))
}

/// The address of a host that others use, an IP address or a name.
pub(super) fn of_host(host: &str, port: u16) -> Multiaddr {
    let host = match host.parse::<IpAddr>() {
        Ok(ip) => Multiaddr::from(ip),
        Err(_) => Multiaddr::empty().with(Protocol::Dns(host.to_owned().into())),
    };
    host.with(Protocol::Tcp(port))
}

/// The TCP port in an address.
pub(super) fn port_of(address: &Multiaddr) -> Option<u16> {
    address.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    })
}

/// Whether an address is good on this machine alone.
pub(super) fn is_loopback(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => ip.is_loopback(),
        Some(Protocol::Ip6(ip)) => ip.is_loopback(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SecretKey {
        SecretKey::from_bytes(&[byte; 32]).expect("a scalar")
    }

    #[test]
    fn the_two_ids_are_one_key() {
        let ours = crypto::PeerId::new(secret(1).public());
        let theirs = keypair(&secret(1)).public().to_peer_id();
        assert_eq!(to_libp2p(&ours), theirs);
        assert_eq!(from_libp2p(&theirs), Some(ours));
        assert_eq!(theirs.to_string(), "16Uiu2HAmEWQnHq2jLKJypwVnVoQeFCULuyop6atvq2eWjYSUjzNi");
    }

    #[test]
    fn a_peer_with_another_kind_of_key_has_no_id_of_ours() {
        let hashed = PeerId::random();
        assert_eq!(from_libp2p(&hashed), None);
        // The inlined key of an Ed25519 identity.
        let ed25519 = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        assert_eq!(from_libp2p(&ed25519.parse().expect("an id")), None);
    }

    #[test]
    fn only_tcp_addresses_of_the_peer_itself_are_dialled() {
        let peer = keypair(&secret(1)).public().to_peer_id();
        let other = keypair(&secret(2)).public().to_peer_id();
        let bare = "/ip4/127.0.0.1/tcp/7000";
        let dialled = |text: &str| dialable(text, &peer).map(|address| address.to_string());
        assert_eq!(dialled(bare).as_deref(), Some(bare));
        assert_eq!(dialled(&format!("{bare}/p2p/{peer}")).as_deref(), Some(bare));
        assert!(dialled("/dns/a.example/tcp/1").is_some());
        assert!(dialled("/ip6/::1/tcp/1").is_some());
        for refused in [
            "",
            "127.0.0.1:7000",
            "/ip4/0.0.0.0/tcp/7000",
            "/ip4/127.0.0.1/tcp/0",
            "/ip4/127.0.0.1/udp/7000/quic-v1",
            "/ip4/127.0.0.1/tcp/7000/ws",
            &format!("{bare}/p2p/{other}"),
            &format!("{bare}/p2p/{peer}/p2p-circuit"),
        ] {
            assert_eq!(dialled(refused), None, "{refused}");
        }
    }

    #[test]
    fn hosts_become_addresses() {
        assert_eq!(of_host("10.0.0.7", 5).to_string(), "/ip4/10.0.0.7/tcp/5");
        assert_eq!(of_host("::1", 5).to_string(), "/ip6/::1/tcp/5");
        let named = of_host("peer.example", 5);
        assert_eq!(named.to_string(), "/dns/peer.example/tcp/5");
        assert_eq!(name_and_port(&named), Some(("peer.example".to_owned(), 5)));
        assert_eq!(name_and_port(&of_host("::1", 5)), None);
    }
}
