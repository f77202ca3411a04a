//! News as one peer tells it: some of it together, under the teller's signature.
//!
//! ```text
//! Told   news 1 (repeated bytes, each a News) · peer 2 (33) · signature 3 (64)
//! ```
//! The signature is over the canonical encoding of fields 1 and 2, for the domain [`DOMAIN`] and the network. It is ours and
//! not libp2p's, for two reasons. A mesh brings each message several times, and libp2p checks the signature of each, in
//! its slowest arithmetic: with 32 peers that was most of what publications cost. Here a message that was seen is
//! dropped by its hash first. And one signature serves all that a busy peer tells at a time.
//!
//! Limits: 1 to [`TOLD_NEWS_MAX`] news of together at most [`TOLD_BYTES_MAX`] bytes.

use bytes::Bytes;
use crypto::{NetworkId, PeerId, SecretKey, canonical};
use prost::Message;

use crate::wire::NEWS_OVERHEAD_BYTES_MAX;
use crate::{NEWS_BYTES_MAX, News, OverlayError};

/// The most news that is told together.
pub const TOLD_NEWS_MAX: usize = 128;
/// The most bytes of it: the largest news alone fits.
pub const TOLD_BYTES_MAX: usize = NEWS_BYTES_MAX + NEWS_OVERHEAD_BYTES_MAX;
/// Bytes of the wire form beyond the news' own: key, signature, and a tag and a length for each.
pub(crate) const TOLD_OVERHEAD_BYTES_MAX: usize = 35 + 66 + 4 * TOLD_NEWS_MAX;
/// Bytes of the peer and of the signature.
const PEER_BYTES: usize = 33;
const SIGNATURE_BYTES: usize = 64;
/// What the signature is for.
const DOMAIN: &str = "holdfast overlay news";

#[derive(Clone, PartialEq, Message)]
struct ToldWire {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    news: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "2")]
    peer: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    signature: Bytes,
}

/// News of one peer, in form; its signature is checked by [`Told::verify`].
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) from: PeerId,
    pub(crate) news: Vec<News>,
    wire: ToldWire,
}

impl Told {
    /// The news, signed, as bytes.
    ///
    /// # Errors
    /// As [`News::encode`]; [`OverlayError::TooLarge`] where it does not go into one message.
    pub(crate) fn encode(
        secret: &SecretKey,
        network: &NetworkId,
        news: &[News],
    ) -> Result<Vec<u8>, OverlayError> {
        let news = news.iter().map(|one| one.encode().map(Bytes::from));
        let news = news.collect::<Result<Vec<_>, _>>()?;
        check(&news)?;
        let peer = Bytes::copy_from_slice(secret.public().as_bytes());
        let mut wire = ToldWire { news, peer, signature: Bytes::new() };
        let signature = secret.sign(DOMAIN, network, &wire.encode_to_vec());
        wire.signature = Bytes::copy_from_slice(signature.as_ref());
        Ok(wire.encode_to_vec())
    }

    /// Whether these bytes look like what [`Self::decode`] takes, without the costly part of it: what the news are and
    /// whether the peer is a key is not looked at.
    pub(crate) fn has_form(bytes: &Bytes) -> bool {
        bytes.len() <= TOLD_BYTES_MAX + TOLD_OVERHEAD_BYTES_MAX
            && canonical::decode::<ToldWire>(bytes).is_ok_and(|wire| {
                let lengths = (wire.peer.len(), wire.signature.len());
                check(&wire.news).is_ok() && lengths == (PEER_BYTES, SIGNATURE_BYTES)
            })
    }

    /// What these bytes tell, unless their form is wrong. The news share `bytes`.
    ///
    /// # Errors
    /// [`OverlayError`].
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, OverlayError> {
        if bytes.len() > TOLD_BYTES_MAX + TOLD_OVERHEAD_BYTES_MAX {
            return Err(OverlayError::TooLarge(bytes.len()));
        }
        let wire: ToldWire = canonical::decode(bytes)?;
        check(&wire.news)?;
        let from = PeerId::from_slice(&wire.peer).map_err(|_| OverlayError::Signer)?;
        let news = wire.news.iter().map(News::decode).collect::<Result<_, _>>()?;
        Ok(Self { from, news, wire })
    }

    /// Whether the peer signed it, for this network.
    pub(crate) fn verify(&self, network: &NetworkId) -> bool {
        let unsigned = ToldWire { signature: Bytes::new(), ..self.wire.clone() }.encode_to_vec();
        self.from.key().verify(DOMAIN, network, &unsigned, &self.wire.signature).is_ok()
    }
}

fn check(news: &[Bytes]) -> Result<(), OverlayError> {
    let bytes = news.iter().map(Bytes::len).sum();
    match news.len() {
        0 => Err(OverlayError::Empty),
        1..=TOLD_NEWS_MAX if bytes <= TOLD_BYTES_MAX => Ok(()),
        _ => Err(OverlayError::TooLarge(bytes)),
    }
}

/// News in parts that each go into one message.
pub(crate) fn parts(news: Vec<News>) -> Vec<Vec<News>> {
    let mut parts: Vec<Vec<News>> = Vec::new();
    let mut room = 0;
    for one in news {
        let bytes = one.bytes().len() + NEWS_OVERHEAD_BYTES_MAX;
        match parts.last_mut() {
            Some(part) if bytes <= room && part.len() < TOLD_NEWS_MAX => part.push(one),
            _ => {
                room = TOLD_BYTES_MAX;
                parts.push(vec![one]);
            }
        }
        room = room.saturating_sub(bytes);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: NetworkId = NetworkId::new([0xab; 32]);

    fn secret(byte: u8) -> SecretKey {
        SecretKey::from_bytes(&[byte; 32]).expect("a scalar")
    }

    fn envelope(text: &'static str) -> News {
        News::Envelope(Bytes::from_static(text.as_bytes()))
    }

    fn told(news: &[News]) -> Bytes {
        Told::encode(&secret(1), &NETWORK, news).expect("small").into()
    }

    #[test]
    fn golden_bytes() {
        let bytes = told(&[envelope("abc"), envelope("d")]);
        assert_eq!(&bytes[..12], b"\x0a\x05\x12\x03abc\x0a\x03\x12\x01d");
        assert_eq!(&bytes[12..14], b"\x12\x21");
        assert_eq!(&bytes[14..47], secret(1).public().as_bytes());
        assert_eq!(&bytes[47..49], b"\x1a\x40");
        assert_eq!(bytes.len(), 49 + 64);
        // The signature is deterministic (RFC 6979), so all of it is golden.
        let hash = crypto::Suite::Holdfast1.hash(&bytes);
        assert_eq!(hash[..8], [0xb2, 0xf9, 0x8f, 0x89, 0x10, 0x6e, 0x85, 0x5e]);
    }

    #[test]
    fn what_is_told_is_the_tellers_and_of_its_network() {
        let found = Told::decode(&told(&[envelope("abc")])).expect("its own form");
        assert_eq!(
            (found.from, &found.news[..]),
            (PeerId::new(secret(1).public()), &[envelope("abc")][..])
        );
        assert!(found.verify(&NETWORK));
        assert!(!found.verify(&NetworkId::new([1; 32])));
    }

    #[test]
    fn a_byte_changed_anywhere_is_refused() {
        let good = told(&[envelope("abc"), envelope("d")]);
        for at in 0..good.len() {
            let mut bytes = good.to_vec();
            bytes[at] ^= 1;
            let counts = Told::decode(&bytes.into()).is_ok_and(|told| told.verify(&NETWORK));
            assert!(!counts, "byte {at}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        assert!(matches!(Told::encode(&secret(1), &NETWORK, &[]), Err(OverlayError::Empty)));
        let many = vec![envelope("x"); TOLD_NEWS_MAX + 1];
        assert!(matches!(
            Told::encode(&secret(1), &NETWORK, &many),
            Err(OverlayError::TooLarge(_))
        ));
        let none = ToldWire {
            news: Vec::new(),
            peer: Bytes::copy_from_slice(secret(1).public().as_bytes()),
            signature: Bytes::from_static(&[1; 64]),
        };
        assert!(Told::decode(&none.encode_to_vec().into()).is_err());
        assert!(!Told::has_form(&none.encode_to_vec().into()));
        let good = told(&[envelope("abc")]);
        assert!(Told::has_form(&good));
        assert!(!Told::has_form(&good.slice(..good.len() - 1)));
        assert!(!Told::has_form(&[&good[..], b"\x20\x01"].concat().into()));
        assert!(!Told::has_form(&Bytes::new()));
        assert!(Told::decode(&good.slice(..good.len() - 1)).is_err());
        assert!(Told::decode(&[&good[..], b"\x20\x01"].concat().into()).is_err());
        assert!(Told::decode(&Bytes::new()).is_err());
    }

    #[test]
    fn parts_hold_all_in_order_and_each_is_one_message() {
        let sizes = [1, NEWS_BYTES_MAX, NEWS_BYTES_MAX, 1, 300, NEWS_BYTES_MAX / 2, 20_000, 7];
        let mut news: Vec<News> = sizes
            .iter()
            .zip(0..)
            .map(|(size, byte)| News::Envelope(vec![byte; *size].into()))
            .collect();
        news.extend((0..300).map(|n: u32| News::Envelope(n.to_be_bytes().to_vec().into())));
        let parts = parts(news.clone());
        for part in &parts {
            let bytes = Bytes::from(Told::encode(&secret(1), &NETWORK, part).expect("one message"));
            assert!(Told::decode(&bytes).is_ok());
        }
        assert_eq!(parts.concat(), news);
    }
}
