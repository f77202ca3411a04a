//! Signed requests, for callers whose connection proves no key. What `holdfast-1` signs is in
//! [`claims`]; this is the form of the original Libri: a JWT whose one claim is the hash of the request.
//!
//! ```text
//! base64url({"alg":"ES256","typ":"JWT"}) . base64url({"hash":"<claim>"}) . base64url(r || s)
//! claim = base64url, padded, of SHA-256(request)
//! ```
//! The header says `ES256`, which would be P-256, but the signature is over secp256k1: the label is
//! the original's mistake and is checked as it stands. The token names no audience, method or time,
//! so it can be replayed by whoever sees it; it is taken in `libri-1` networks alone.

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};

use crate::{Class, Classified, KeyError, PublicKey, SecretKey};

pub mod claims;

/// The longest token looked at, in bytes; the original's has 198, ours about 620.
pub const TOKEN_BYTES_MAX: usize = 1024;
/// The header, as the original writes it.
pub const HEADER: &str = r#"{"alg":"ES256","typ":"JWT"}"#;

/// Why a token does not vouch for a request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwtError {
    /// Not three base64url parts of the expected JSON.
    #[error("not a signed request token")]
    Malformed,
    /// Another algorithm or type than is taken.
    #[error("the token's header names an algorithm or type that is not taken here")]
    Header,
    /// The hash is another message's.
    #[error("the token was made for another message")]
    Claim,
    /// Made for another network.
    #[error("the token was made for another network")]
    Network,
    /// Made for another peer.
    #[error("the token was made for another peer")]
    Audience,
    /// Made for another method.
    #[error("the token was made for another method")]
    Method,
    /// Made under another request id than came with it.
    #[error("the token was made under another request id")]
    Id,
    /// It lives too long, or ends before it begins.
    #[error("a token ends 1 to {} s after it was issued", claims::TOKEN_SECONDS_MAX)]
    Life,
    /// Not yet, or no longer, valid.
    #[error("the token counts from {issued} to {expires} (Unix seconds), and it is {now} here")]
    Time {
        /// Its `iat`.
        issued: u64,
        /// Its `exp`.
        expires: u64,
        /// The clock of whoever checked it.
        now: u64,
    },
    /// The signature.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Classified for JwtError {
    fn class(&self) -> Class {
        match self {
            Self::Malformed | Self::Header => Class::Invalid,
            Self::Claim
            | Self::Network
            | Self::Audience
            | Self::Method
            | Self::Id
            | Self::Life
            | Self::Time { .. } => Class::Denied,
            Self::Key(source) => source.class(),
        }
    }
}

/// The claims of a token for this request, as JSON.
pub fn claims(request: &[u8]) -> String {
    format!(r#"{{"hash":"{}"}}"#, URL_SAFE.encode(sha256(request)))
}

/// A token for this request.
pub fn sign(key: &SecretKey, request: &[u8]) -> String {
    signed(key, HEADER, &claims(request))
}

/// Checks that the owner of `key` signed `token` for `request` (the encoded message).
///
/// # Errors
/// [`JwtError`].
pub fn verify(token: &str, key: &PublicKey, request: &[u8]) -> Result<(), JwtError> {
    match is_hash(&verify_bare(token, key)?, request) {
        true => Ok(()),
        false => Err(JwtError::Claim),
    }
}

/// The first half of [`verify`], before the request is there: the hash that a token says, once the key signed it. The other is
/// [`is_hash`].
///
/// # Errors
/// As [`verify`].
pub fn verify_bare(token: &str, key: &PublicKey) -> Result<Vec<u8>, JwtError> {
    let parts = Parts::of(token)?;
    parts.check_header("ES256")?;
    let body = object(parts.claims)?;
    let claim = body.get("hash").and_then(|hash| hash.as_str()).ok_or(JwtError::Malformed)?;
    let claim = URL_SAFE.decode(claim).map_err(|_| JwtError::Malformed)?;
    parts.check_signature(key)?;
    Ok(claim)
}

/// Whether a request is the one that a token's hash is of.
pub fn is_hash(claim: &[u8], request: &[u8]) -> bool {
    claim == sha256(request)
}

/// A token of this header and these claims.
fn signed(key: &SecretKey, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = key.sign_digest(&sha256(signed.as_bytes()));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The three parts of a token, and what of it is signed.
struct Parts<'a> {
    signed: &'a str,
    header: &'a str,
    claims: &'a str,
    signature: &'a str,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        Ok(Self { signed, header, claims, signature })
    }

    /// The header names this algorithm, and nothing that would have to be understood.
    fn check_header(&self, algorithm: &str) -> Result<(), JwtError> {
        let header = object(self.header)?;
        let is = |name: &str, value: &str| header.get(name).and_then(|v| v.as_str()) == Some(value);
        match is("alg", algorithm) && is("typ", "JWT") && header.get("crit").is_none() {
            true => Ok(()),
            false => Err(JwtError::Header),
        }
    }

    fn check_signature(&self, key: &PublicKey) -> Result<(), JwtError> {
        let signature = URL_SAFE_NO_PAD.decode(self.signature).map_err(|_| JwtError::Malformed)?;
        // Foreign signers do not care which half s is in.
        let signature = PublicKey::normalise(&signature)?;
        Ok(key.verify_digest(&sha256(self.signed.as_bytes()), &signature)?)
    }
}

fn object(part: &str) -> Result<serde_json::Value, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| JwtError::Malformed)
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SecretKey {
        SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
    }

    #[test]
    fn a_token_holds_for_its_key_and_request_alone() {
        let token = sign(&key(1), b"request");
        assert_eq!(verify(&token, &key(1).public(), b"request"), Ok(()));
        assert_eq!(verify(&token, &key(1).public(), b"another"), Err(JwtError::Claim));
        let denied = Err(JwtError::Key(KeyError::Signature));
        assert_eq!(verify(&token, &key(2).public(), b"request"), denied);
    }

    #[test]
    fn every_changed_character_is_refused() {
        let token = sign(&key(1), b"request");
        for at in 0..token.len() {
            for other in [b'A', b'z', b'.', b'=', b'!'] {
                let mut bad = token.clone().into_bytes();
                if bad[at] == other {
                    continue;
                }
                bad[at] = other;
                let bad = String::from_utf8(bad).expect("ASCII");
                assert!(verify(&bad, &key(1).public(), b"request").is_err(), "{at} {other}");
            }
        }
    }

    #[test]
    fn hostile_tokens_are_refused() {
        let public = key(1).public();
        let none = format!(
            "{}.{}.",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#),
            URL_SAFE_NO_PAD.encode(claims(b"request"))
        );
        assert_eq!(verify(&none, &public, b"request"), Err(JwtError::Header));
        for bad in ["", ".", "..", "a.b.c", &"x".repeat(2000), &".".repeat(1000)] {
            assert_eq!(verify(bad, &public, b"request"), Err(JwtError::Malformed), "{bad}");
        }
    }
}
