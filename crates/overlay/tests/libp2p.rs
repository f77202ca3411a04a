//! What libp2p alone can get wrong: other networks, hostile connections, addresses, restarts.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{NetworkId, OrgId, PeerId, SecretKey};
use env::{Clock, Env};
use futures::future::{BoxFuture, poll_fn};
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use libp2p::core::Endpoint;
use libp2p::core::multiaddr::Protocol;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt};
use libp2p::core::transport::{DialOpts, PortUse};
use libp2p::core::upgrade::Version;
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode};
use libp2p::identity::Keypair;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, Transport, noise, tcp, yamux};
use overlay::{Heard, Libp2p, Libp2pOptions, Members, NEWS_BYTES_MAX, News, Overlay, OverlayError};
use testkit::overlay::{PATIENCE, QUIET, eventually};
use tokio_util::sync::CancellationToken;

const NETWORK: NetworkId = NetworkId::new([5; 32]);

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

fn id(byte: u8) -> PeerId {
    PeerId::new(secret(byte).public())
}

fn options(byte: u8, network: NetworkId, listen: &str, members: Members) -> Libp2pOptions {
    let (secret, listen) = (secret(byte), listen.to_owned());
    Libp2pOptions { secret, network, listen, announce: None, members, env: Env::real() }
}

async fn start(byte: u8) -> Arc<Libp2p> {
    Libp2p::start(options(byte, NETWORK, "127.0.0.1:0", overlay::everybody())).await.unwrap()
}

fn envelope(text: &str) -> News {
    News::Envelope(Bytes::copy_from_slice(text.as_bytes()))
}

async fn linked_pair() -> (Arc<Libp2p>, Arc<Libp2p>) {
    let (a, b) = (start(1).await, start(2).await);
    b.learn(id(1), &a.addresses());
    eventually("a link", || a.links() == 1 && b.links() == 1).await;
    (a, b)
}

/// `b` hears of `a` and nothing else: neither before nor for a while after.
async fn only_this_passes(a: &Arc<Libp2p>, b: &Arc<Libp2p>) {
    let mut stream = b.news();
    a.publish(envelope("genuine")).await.unwrap();
    let heard = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
    assert_eq!(heard, Some(Heard { from: id(1), news: envelope("genuine") }));
    assert!(tokio::time::timeout(QUIET, stream.next()).await.is_err());
}

#[tokio::test]
async fn addresses_carry_the_peers_id_and_the_announced_hosts() {
    let plain = start(1).await;
    let addresses = plain.addresses();
    assert_eq!(addresses.len(), 1);
    let peer = "16Uiu2HAmEWQnHq2jLKJypwVnVoQeFCULuyop6atvq2eWjYSUjzNi";
    assert!(addresses[0].starts_with("/ip4/127.0.0.1/tcp/"));
    assert!(addresses[0].ends_with(&format!("/p2p/{peer}")));
    assert!(!addresses[0].contains("/tcp/0/"));
    let mut announced = options(1, NETWORK, "127.0.0.1:0", overlay::everybody());
    announced.announce = Some(vec!["peer.example".to_owned(), "192.0.2.7".to_owned()]);
    let announced = Libp2p::start(announced).await.unwrap();
    let addresses = announced.addresses();
    assert!(addresses[0].starts_with("/dns/peer.example/tcp/"));
    assert!(addresses[1].starts_with("/ip4/192.0.2.7/tcp/"));
    plain.close().await;
    announced.close().await;
}

#[tokio::test]
async fn what_cannot_be_listened_on_is_a_clear_error() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    // 192.0.2.1 is no address of this machine.
    for listen in ["nonsense", "192.0.2.1:0", "127.0.0.1:99999", &taken] {
        match Libp2p::start(options(1, NETWORK, listen, overlay::everybody())).await {
            Err(OverlayError::Listen { address, reason, in_use }) => {
                assert_eq!((&*address, in_use), (listen, listen == taken));
                assert!(!reason.is_empty());
            }
            _ => panic!("{listen}"),
        }
    }
    drop(held);
    let first = Libp2p::start(options(1, NETWORK, &taken, overlay::everybody())).await.unwrap();
    let second = Libp2p::start(options(2, NETWORK, &taken, overlay::everybody())).await;
    assert!(matches!(second, Err(OverlayError::Listen { .. })), "a port belongs to one peer");
    first.close().await;
}

#[tokio::test]
async fn peers_of_two_networks_do_not_link() {
    let ours = start(1).await;
    let other = options(2, NetworkId::new([6; 32]), "127.0.0.1:0", overlay::everybody());
    let other = Libp2p::start(other).await.unwrap();
    other.learn(id(1), &ours.addresses());
    ours.learn(id(2), &other.addresses());
    // A third one links to ours meanwhile, so there was time enough.
    let third = start(3).await;
    third.learn(id(1), &ours.addresses());
    eventually("a link within the network", || third.links() == 1).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!((ours.links(), other.links()), (1, 0));
    for overlay in [ours, other, third] {
        overlay.close().await;
    }
}

#[tokio::test]
async fn a_name_is_looked_up_before_it_is_dialled() {
    let (a, b) = (start(1).await, start(2).await);
    let named = a.addresses()[0].replace("/ip4/127.0.0.1/", "/dns/localhost/");
    b.learn(id(1), &[named]);
    eventually("a link", || b.links() == 1).await;
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_peer_that_comes_back_is_linked_again() {
    let (a, b) = linked_pair().await;
    let address = a.addresses()[0].clone();
    let port = address.split('/').nth(4).unwrap().to_owned();
    a.close().await;
    eventually("the link is lost", || b.links() == 0).await;
    // It knows nobody any more: the other one must find it by the address it had.
    let listen = format!("127.0.0.1:{port}");
    let again = Libp2p::start(options(1, NETWORK, &listen, overlay::everybody())).await.unwrap();
    eventually("the link stands again", || b.links() == 1 && again.links() == 1).await;
    only_this_passes(&again, &b).await;
    again.close().await;
    b.close().await;
}

#[tokio::test]
async fn what_is_published_before_the_first_link_is_not_lost() {
    let (a, b) = (start(1).await, start(2).await);
    let mut stream = b.news();
    a.publish(envelope("early")).await.unwrap();
    b.learn(id(1), &a.addresses());
    let heard = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
    assert_eq!(heard, Some(Heard { from: id(1), news: envelope("early") }));
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn news_right_before_closing_still_arrives() {
    let (a, b) = linked_pair().await;
    let mut stream = b.news();
    // Until the topic is known to both, news waits; so one is sent and seen first.
    a.publish(envelope("first")).await.unwrap();
    assert!(tokio::time::timeout(PATIENCE, stream.next()).await.is_ok());
    a.publish(envelope("farewell")).await.unwrap();
    a.close().await;
    let heard = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
    assert_eq!(heard, Some(Heard { from: id(1), news: envelope("farewell") }));
    b.close().await;
}

#[tokio::test]
async fn garbage_on_the_port_does_no_harm() {
    let (a, b) = linked_pair().await;
    let address: Multiaddr = a.addresses()[0].parse().unwrap();
    let port = address.to_string().split('/').nth(4).unwrap().parse::<u16>().unwrap();
    let mut open = Vec::new();
    for length in [0, 1, 100, 70_000] {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        // The other side may have closed already.
        let _ = stream.write_all(&vec![0xff; length]);
        open.push(stream);
    }
    only_this_passes(&a, &b).await;
    a.close().await;
    b.close().await;
}

/// Gossipsub alone on a connection as an overlay of the network makes it, in anybody's hands.
fn rogue(keypair: Keypair) -> Swarm<gossipsub::Behaviour> {
    let prologue = format!("holdfast overlay v1 {NETWORK}").into_bytes();
    let security = move |keypair: &Keypair| {
        noise::Config::new(keypair).map(|config| config.with_prologue(prologue.clone()))
    };
    let mut swarm = SwarmBuilder::with_existing_identity(keypair)
        .with_tokio()
        .with_tcp(tcp::Config::default(), security, yamux::Config::default)
        .unwrap()
        .with_behaviour(|_| {
            let config = gossipsub::ConfigBuilder::default()
                .max_transmit_size(1 << 20)
                .validation_mode(ValidationMode::Anonymous)
                .message_id_fn(|message| {
                    MessageId::new(&crypto::Suite::Holdfast1.hash(&message.data))
                })
                .heartbeat_initial_delay(Duration::from_millis(50))
                .build()?;
            Ok(gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config)?)
        })
        .unwrap()
        .with_swarm_config(|config| config.with_idle_connection_timeout(PATIENCE))
        .build();
    swarm.behaviour_mut().subscribe(&topic()).unwrap();
    swarm
}

fn keypair(byte: u8) -> Keypair {
    let secret = libp2p::identity::secp256k1::SecretKey::try_from_bytes([byte; 32]).unwrap();
    libp2p::identity::secp256k1::Keypair::from(secret).into()
}

/// An envelope told in the name of one peer and signed by another, written by hand: `Told` of docs/formats/news.md.
fn told(name: u8, signer: u8, text: &str) -> Vec<u8> {
    let news = envelope(text).encode().unwrap();
    let mut bytes = vec![0x0a];
    prost::encoding::encode_varint(news.len() as u64, &mut bytes);
    bytes.extend(news);
    bytes.extend([0x12, 33]);
    bytes.extend(id(name).as_bytes());
    let signer = SecretKey::from_bytes(&[signer; 32]).unwrap();
    let signature = signer.sign("holdfast overlay news", &NETWORK, &bytes);
    bytes.extend([0x1a, 64]);
    bytes.extend(signature.as_ref() as &[u8]);
    bytes
}

fn topic() -> IdentTopic {
    IdentTopic::new(format!("holdfast/{NETWORK}/news/2"))
}

async fn until_subscribed(swarm: &mut Swarm<gossipsub::Behaviour>) {
    let subscribed = async {
        loop {
            let event = swarm.select_next_some().await;
            if matches!(event, SwarmEvent::Behaviour(gossipsub::Event::Subscribed { .. })) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, subscribed).await.unwrap();
}

#[tokio::test]
async fn malformed_news_goes_no_further_and_silences_its_sender() {
    let (a, b) = linked_pair().await;
    let (mut at_a, mut at_b) = (a.news(), b.news());
    let mut swarm = rogue(keypair(9));
    swarm.dial(a.addresses()[0].parse::<Multiaddr>().unwrap()).unwrap();
    until_subscribed(&mut swarm).await;
    // Well-formed and signed by a member: heard, and it shows that the way is open.
    // Before it, the same in the name of a member that did not sign it: not heard, and it hides nothing.
    let forged = told(9, 8, "well-formed");
    swarm.behaviour_mut().publish(topic(), forged).unwrap();
    swarm.behaviour_mut().publish(topic(), told(9, 9, "well-formed")).unwrap();
    let unsigned = envelope("well-formed").encode().unwrap();
    let mut malformed: Vec<Vec<u8>> = vec![b"".to_vec(), unsigned, vec![0x12; 40_000]];
    malformed.extend((0..10_u8).map(|n| vec![0xff, n]));
    let drive = async {
        while at_a.next().await != Some(Heard { from: id(9), news: envelope("well-formed") }) {}
    };
    tokio::pin!(drive);
    let passed = tokio::time::timeout(PATIENCE, async {
        loop {
            tokio::select! {
                _ = swarm.select_next_some() => {}
                () = &mut drive => return,
            }
        }
    });
    assert!(passed.await.is_ok());
    for bytes in malformed {
        let _ = swarm.behaviour_mut().publish(topic(), bytes);
    }
    // Once it has sent enough of that, nothing it sends is looked at.
    let last = told(9, 9, "after the garbage");
    let _ = swarm.behaviour_mut().publish(topic(), last);
    let sending = tokio::time::timeout(QUIET, async {
        loop {
            swarm.select_next_some().await;
        }
    });
    assert!(sending.await.is_err());
    let heard = tokio::time::timeout(PATIENCE, at_b.next()).await.unwrap();
    assert_eq!(heard.map(|heard| heard.news), Some(envelope("well-formed")));
    assert!(tokio::time::timeout(QUIET, at_b.next()).await.is_err());
    only_this_passes(&a, &b).await;
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_peer_with_another_kind_of_key_gets_no_link() {
    let a = start(1).await;
    // An Ed25519 identity: libp2p knows it, this network does not.
    let mut swarm = rogue(Keypair::ed25519_from_bytes([3; 32]).unwrap());
    swarm.dial(a.addresses()[0].parse::<Multiaddr>().unwrap()).unwrap();
    let refused = async {
        loop {
            let event = swarm.select_next_some().await;
            if matches!(event, SwarmEvent::ConnectionClosed { .. }) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert_eq!(a.links(), 0);
    a.close().await;
}

/// This one alone is a member.
fn only(member: u8) -> Members {
    Arc::new(move |peer| (*peer == id(member)).then(|| OrgId::new(*peer.key())))
}

/// The link to the peer of whoever has this key.
async fn linked(a: &Arc<Libp2p>, byte: u8) -> Swarm<gossipsub::Behaviour> {
    let mut swarm = rogue(keypair(byte));
    swarm.dial(a.addresses()[0].parse::<Multiaddr>().unwrap()).unwrap();
    until_subscribed(&mut swarm).await;
    swarm
}

/// A peer alone that knows only this one as a member, and a stranger's link to it.
async fn with_stranger(member: u8) -> (Arc<Libp2p>, Swarm<gossipsub::Behaviour>) {
    let a = Libp2p::start(options(1, NETWORK, "127.0.0.1:0", only(member))).await.unwrap();
    let swarm = linked(&a, 9).await;
    (a, swarm)
}

#[tokio::test]
async fn a_stranger_over_its_budget_loses_its_link() {
    let (a, mut swarm) = with_stranger(2).await;
    for number in 0..1_100 {
        let message = told(9, 9, &format!("{number}"));
        swarm.behaviour_mut().publish(topic(), message).unwrap();
    }
    let closed = async {
        loop {
            if matches!(swarm.select_next_some().await, SwarmEvent::ConnectionClosed { .. }) {
                return;
            }
        }
    };
    // Long before a stranger's time is up.
    tokio::time::timeout(overlay::STRANGER_FOR / 2, closed).await.unwrap();
    a.close().await;
}

/// A connection of the network in the hands of whoever has this key, on which nothing speaks.
async fn bare(a: &Arc<Libp2p>, byte: u8) -> std::io::Result<StreamMuxerBox> {
    let prologue = format!("holdfast overlay v1 {NETWORK}").into_bytes();
    let security = noise::Config::new(&keypair(byte)).unwrap().with_prologue(prologue);
    let tcp = tcp::tokio::Transport::new(tcp::Config::default());
    let secured = tcp.upgrade(Version::V1).authenticate(security);
    let mut transport = secured.multiplex(yamux::Config::default()).boxed();
    let address = a.addresses()[0].parse::<Multiaddr>().unwrap();
    let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
    let (_, connection) = transport.dial(address, options).unwrap().await?;
    Ok(connection)
}

/// Opens a stream, waits until the peer negotiates on it, and drops it.
async fn open(connection: &mut StreamMuxerBox) -> std::io::Result<()> {
    const HEADER: &[u8] = b"\x13/multistream/1.0.0\n";
    let mut stream = poll_fn(|context| connection.poll_outbound_unpin(context)).await?;
    let negotiated = async {
        stream.write_all(HEADER).await?;
        stream.flush().await?;
        stream.read_exact(&mut [0; HEADER.len()]).await
    };
    tokio::select! {
        negotiated = negotiated => negotiated,
        ended = poll_fn(|context| connection.poll_unpin(context)) => ended.map(drop),
    }
}

#[tokio::test]
async fn who_opens_streams_without_end_loses_its_link_and_has_no_other_for_a_while() {
    let mut options = options(1, NETWORK, "127.0.0.1:0", only(2));
    // No time is over, of strangers' links or of refusals.
    options.env.clock = Arc::new(Standing);
    let a = Libp2p::start(options).await.unwrap();
    let mut flood = bare(&a, 9).await.unwrap();
    let mut opened = 0;
    while opened < 10_000 && open(&mut flood).await.is_ok() {
        opened += 1;
    }
    // 64 at once, and a few while it lasted.
    assert!((64..1_000).contains(&opened), "{opened}");
    let with_another_key = match bare(&a, 8).await {
        Ok(mut connection) => open(&mut connection).await,
        Err(refused) => Err(refused),
    };
    assert!(with_another_key.is_err());
    // A member at the same address is none of it.
    let _member = linked(&a, 2).await;
    eventually("a member's link", || a.links() == 1).await;
    a.close().await;
}

/// Passes on what the rogue sends and what it is sent, until it is `stalled`: then nothing is read any more. The port that the
/// peer sees.
async fn through(
    listener: tokio::net::TcpListener,
    peer: SocketAddr,
    stalled: CancellationToken,
) -> (u16, [tokio::net::TcpStream; 2]) {
    let (mut rogue, _) = listener.accept().await.unwrap();
    let mut peer = tokio::net::TcpStream::connect(peer).await.unwrap();
    let port = peer.local_addr().unwrap().port();
    tokio::select! {
        () = stalled.cancelled() => {}
        passed = tokio::io::copy_bidirectional(&mut rogue, &mut peer) => drop(passed.unwrap()),
    }
    (port, [rogue, peer])
}

/// Whether the system has a connection of this process between two of its ports that was not closed at the first of them.
#[cfg(target_os = "linux")]
fn stands(here: u16, there: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let ends_with = |address: &str, port: u16| address.ends_with(&format!(":{port:04X}"));
    table.lines().skip(1).any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        ends_with(columns[1], here) && ends_with(columns[2], there) && columns[3] == ESTABLISHED
    })
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stranger_that_reads_nothing_does_not_keep_its_connection() {
    let nobody: Members = Arc::new(|_| None);
    let a = Libp2p::start(options(1, NETWORK, "127.0.0.1:0", nobody)).await.unwrap();
    let address = a.addresses()[0].parse::<Multiaddr>().unwrap();
    let Some(Protocol::Tcp(here)) = address.iter().nth(1) else { panic!("{address}") };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().port();
    let stalled = CancellationToken::new();
    let peer = SocketAddr::from(([127, 0, 0, 1], here));
    let stall = tokio::spawn(through(listener, peer, stalled.clone()));
    let mut swarm = rogue(keypair(9));
    swarm.dial(format!("/ip4/127.0.0.1/tcp/{at}").parse::<Multiaddr>().unwrap()).unwrap();
    until_subscribed(&mut swarm).await;
    stalled.cancel();
    let (there, _held) = stall.await.unwrap();
    // More than the system takes for a socket that nobody reads.
    for number in 0..400_u32 {
        let mut content = vec![7; NEWS_BYTES_MAX];
        content[..4].copy_from_slice(&number.to_be_bytes());
        let _ = a.publish(News::Envelope(content.into())).await;
    }
    assert!(stands(here, there));
    let gone = async {
        while stands(here, there) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(3 * overlay::STRANGER_FOR, gone).await.unwrap();
    a.close().await;
}

#[tokio::test]
async fn what_a_member_told_goes_no_further_where_a_stranger_brings_it() {
    let (a, mut swarm) = with_stranger(2).await;
    // The peer tells on to whoever is linked: a second stranger would hear it.
    let mut other = rogue(keypair(8));
    other.dial(a.addresses()[0].parse::<Multiaddr>().unwrap()).unwrap();
    until_subscribed(&mut other).await;
    let mut at_a = a.news();
    swarm.behaviour_mut().publish(topic(), told(2, 2, "of long ago")).unwrap();
    let mut heard = false;
    let passed_on = async {
        loop {
            tokio::select! {
                event = other.select_next_some() => if matches!(
                    event,
                    SwarmEvent::Behaviour(gossipsub::Event::Message { .. })
                ) {
                    return;
                },
                _ = swarm.select_next_some() => {}
                news = at_a.next() => {
                    heard |= news == Some(Heard { from: id(2), news: envelope("of long ago") });
                }
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(4), passed_on).await.is_err());
    assert!(heard, "it is news to the peer itself");
    // Nor does it count as told: where it is this peer's turn to tell it, it does.
    assert_eq!(a.publish_all(vec![envelope("of long ago")]).await.unwrap(), 1);
    a.close().await;
}

/// A clock that stands: no budget grows again meanwhile. Waiting takes as long as ever.
struct Standing;

impl Clock for Standing {
    fn unix_ms(&self) -> u64 {
        0
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

#[tokio::test]
async fn a_stranger_that_brings_old_messages_silences_nobody() {
    let mut options = options(1, NETWORK, "127.0.0.1:0", only(2));
    options.env.clock = Arc::new(Standing);
    let a = Libp2p::start(options).await.unwrap();
    let mut stranger = linked(&a, 9).await;
    let mut at_a = a.news();
    let large = |number: usize| told(2, 2, &format!("{number} {}", " ".repeat(32_000)));
    // What the members of one organisation may tell at once; one after the other, as a frame has few messages.
    let all = overlay::LINK_BYTES_BURST / 2 / large(0).len();
    for number in 0..all {
        stranger.behaviour_mut().publish(topic(), large(number)).unwrap();
        let replayed = async {
            loop {
                tokio::select! {
                    _ = stranger.select_next_some() => {}
                    news = at_a.next() => return news.unwrap(),
                }
            }
        };
        tokio::time::timeout(PATIENCE, replayed).await.unwrap();
    }
    let mut member = linked(&a, 2).await;
    let new = format!("new {}", " ".repeat(32_000));
    member.behaviour_mut().publish(topic(), told(2, 2, &new)).unwrap();
    let heard = async {
        loop {
            tokio::select! {
                _ = member.select_next_some() => {}
                news = at_a.next() => {
                    if news == Some(Heard { from: id(2), news: envelope(&new) }) {
                        return;
                    }
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
    a.close().await;
}

#[tokio::test]
async fn where_a_stranger_has_no_room_its_signature_is_not_checked() {
    let (a, mut swarm) = with_stranger(2).await;
    let mut at_a = a.news();
    for number in 0..overlay::WAITING_OF_LINK_MAX {
        let message = told(9, 9, &format!("{number}"));
        swarm.behaviour_mut().publish(topic(), message).unwrap();
    }
    // Checked, these would be refused, and nothing of the link be looked at from then on.
    for number in 0..8 {
        let message = told(9, 8, &format!("forged {number}"));
        swarm.behaviour_mut().publish(topic(), message).unwrap();
    }
    swarm.behaviour_mut().publish(topic(), told(2, 2, "after them")).unwrap();
    let heard = async {
        loop {
            tokio::select! {
                _ = swarm.select_next_some() => {}
                news = at_a.next() => {
                    return news;
                }
            }
        }
    };
    let heard = tokio::time::timeout(overlay::STRANGER_FOR / 2, heard).await.unwrap();
    assert_eq!(heard, Some(Heard { from: id(2), news: envelope("after them") }));
    a.close().await;
}
