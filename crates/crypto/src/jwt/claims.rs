//! The signed requests of `holdfast-1`: a JWT that says which message, which method, at which peer of
//! which network, from when until when, and under which request id.
//!
//! ```text
//! base64url({"alg":"ES256K","typ":"JWT"}) . base64url(claims) . base64url(r || s)
//! claims = {"hash":"..","method":"..","aud":"..","net":"..","iat":1,"exp":2,"jti":".."}
//! ```
//! `hash` is the padded base64url of SHA-256 of the message, `aud` and `net` are lowercase
//! hexadecimal, `jti` is the request id in lowercase hexadecimal, times are Unix seconds. A token is
//! good for one request at one peer; that it is used once is for the peer to remember until `exp`.
//!
//! Invariants: a token lives at most [`TOKEN_SECONDS_MAX`] and does not begin more than
//! [`ISSUED_AHEAD_S`] ahead, so what must be remembered is bounded by time.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::Value;

use super::{JwtError, object, sha256};
use crate::{NetworkId, PeerId, PublicKey, SecretKey};

/// The header of these tokens.
pub const HEADER_ES256K: &str = r#"{"alg":"ES256K","typ":"JWT"}"#;
/// The longest a token lives, from `iat` to `exp`.
pub const TOKEN_SECONDS_MAX: u64 = 60;
/// How far a caller's clock may be ahead. One that is behind loses as much of its tokens' life.
pub const ISSUED_AHEAD_S: u64 = 30;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// SHA-256 of the request's message, as it is sent.
    pub hash: [u8; 32],
    /// The gRPC path: `/package.Service/Method`.
    pub method: String,
    /// The peer that is asked.
    pub audience: PeerId,
    /// The network it belongs to.
    pub network: NetworkId,
    /// When it was made, Unix seconds.
    pub issued: u64,
    /// When it ends, Unix seconds, exclusive.
    pub expires: u64,
    /// The request's random id.
    pub id: [u8; 32],
}

/// What a peer knows of a request before it read its message.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The gRPC path that was called.
    pub method: &'a str,
    /// The peer itself.
    pub audience: &'a PeerId,
    /// Its network.
    pub network: &'a NetworkId,
    /// The request id that came beside the token.
    pub id: &'a [u8; 32],
    /// Now, Unix seconds.
    pub now: u64,
}

/// SHA-256 of a message, as tokens name it.
pub fn message_hash(message: &[u8]) -> [u8; 32] {
    sha256(message)
}

impl Claims {
    /// The claims as JSON, in the order and form that [`sign_claims`] signs.
    pub fn to_json(&self) -> String {
        let Self { method, audience, network, issued, expires, .. } = self;
        let (hash, id) = (URL_SAFE.encode(self.hash), hex::encode(self.id));
        // The one text that is free: quoted as JSON wants it.
        let method = Value::from(method.as_str());
        format!(
            r#"{{"hash":"{hash}","method":{method},"aud":"{audience}","net":"{network}","iat":{issued},"exp":{expires},"jti":"{id}"}}"#
        )
    }

    fn from_json(claims: &Value) -> Result<Self, JwtError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let time = |name: &str| claims.get(name).and_then(Value::as_u64);
        let hash = text("hash").and_then(|hash| URL_SAFE.decode(hash).ok());
        let id = text("jti").and_then(|id| hex::decode(id).ok());
        let read = || {
            Some(Self {
                hash: hash?.try_into().ok()?,
                method: text("method")?.to_owned(),
                audience: text("aud")?.parse().ok()?,
                network: text("net")?.parse().ok()?,
                issued: time("iat")?,
                expires: time("exp")?,
                id: id?.try_into().ok()?,
            })
        };
        read().ok_or(JwtError::Malformed)
    }

    /// Whether they are about this request, and count now.
    fn check(&self, expected: &Expected<'_>) -> Result<(), JwtError> {
        if self.network != *expected.network {
            return Err(JwtError::Network);
        }
        if self.audience != *expected.audience {
            return Err(JwtError::Audience);
        }
        if self.method != expected.method {
            return Err(JwtError::Method);
        }
        if self.id != *expected.id {
            return Err(JwtError::Id);
        }
        let (issued, expires, now) = (self.issued, self.expires, expected.now);
        let lives = expires.saturating_sub(issued);
        if !(1..=TOKEN_SECONDS_MAX).contains(&lives) {
            return Err(JwtError::Life);
        }
        if issued > now.saturating_add(ISSUED_AHEAD_S) || now >= expires {
            return Err(JwtError::Time { issued, expires, now });
        }
        Ok(())
    }
}

/// A token with these claims.
pub fn sign_claims(key: &SecretKey, claims: &Claims) -> String {
    super::signed(key, HEADER_ES256K, &claims.to_json())
}

/// Checks that the owner of `key` signed `token` for this request, all but its message: whoever
/// reads that compares [`Claims::hash`].
///
/// # Errors
/// [`JwtError`].
pub fn verify_claims(
    token: &str,
    key: &PublicKey,
    expected: &Expected<'_>,
) -> Result<Claims, JwtError> {
    let parts = super::Parts::of(token)?;
    parts.check_header("ES256K")?;
    let claims = Claims::from_json(&object(parts.claims)?)?;
    parts.check_signature(key)?;
    claims.check(expected)?;
    Ok(claims)
}

/// Whether a token's header is that of the original's bare form: to choose how it is checked.
///
/// # Errors
/// [`JwtError::Malformed`] where it has no header at all.
pub fn is_bare(token: &str) -> Result<bool, JwtError> {
    Ok(super::Parts::of(token)?.check_header("ES256").is_ok())
}

#[cfg(test)]
mod tests;
