//! The signed requests of the original Libri: a JWT whose one claim is the hash of the request.
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

/// The longest token looked at, in bytes; a real one has 198.
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
    /// Another algorithm or type than the original's.
    #[error("the token's header is not {HEADER}")]
    Header,
    /// The claim is another request's.
    #[error("the token was made for another request")]
    Claim,
    /// The signature.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Classified for JwtError {
    fn class(&self) -> Class {
        match self {
            Self::Malformed | Self::Header => Class::Invalid,
            Self::Claim => Class::Denied,
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
    let signed =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims(request)));
    let signature = key.sign_digest(&sha256(signed.as_bytes()));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Checks that the owner of `key` signed `token` for `request` (the encoded message).
///
/// # Errors
/// [`JwtError`].
pub fn verify(token: &str, key: &PublicKey, request: &[u8]) -> Result<(), JwtError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(JwtError::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
    let (header, body) = signed.split_once('.').ok_or(JwtError::Malformed)?;
    let header = object(header)?;
    if header.get("alg").and_then(|alg| alg.as_str()) != Some("ES256")
        || header.get("typ").and_then(|typ| typ.as_str()) != Some("JWT")
    {
        return Err(JwtError::Header);
    }
    let body = object(body)?;
    let claim = body.get("hash").and_then(|hash| hash.as_str()).ok_or(JwtError::Malformed)?;
    let claim = URL_SAFE.decode(claim).map_err(|_| JwtError::Malformed)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
    // The original's signer does not care which half s is in.
    let signature = PublicKey::normalise(&signature)?;
    key.verify_digest(&sha256(signed.as_bytes()), &signature)?;
    if claim != sha256(request) { Err(JwtError::Claim) } else { Ok(()) }
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
