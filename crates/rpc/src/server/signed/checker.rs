//! Checks one signed request: its token before its message, its message before its handler.
//!
//! ```text
//! headers -> token's signature and claims -> pass -> request id, once -> message -> its hash -> handler
//! ```
//! In this order what costs more comes after what is cheaper to refuse: nothing of a message is read
//! for a token that does not count, and only a good signature takes room among the remembered ids.
//! Tokens issued before the listener began are refused, because ids are not remembered across a
//! restart. So that this refuses all that the listener before took, it begins with a second that it did not see, and a token
//! from a clock that is ahead is looked at when its time has come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use crypto::jwt::{self, JwtError, claims};
use crypto::{Class, Classified, PublicKey, Suite};
use env::Env;
use env::calls::{CallError, Caller, Credential, IntroduceRequest, Service};
use http_body::Body as _;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::introduced::Introduced;
use super::remembered::{Refused, Remembered, Used, Whose};
use super::{SignedOptions, SignedTransport};
use crate::framing::PREFIX_BYTES;
use crate::server::connection::Peer;
use crate::server::gate::LIBRARIAN;
use crate::signing::{
    HASHED_INLINE_MAX, KEY_HEADER, PASS_BYTES_MAX, PASS_HEADER, REQUEST_ID_HEADER, TOKEN_HEADER,
    Whole,
};
use crate::status::to_status;

/// The forms in which the caller streams.
const CALLER_STREAMS: [&str; 3] = ["FindStream", "VerifyStream", "StoreStream"];

fn denied(reason: impl Into<String>) -> Status {
    to_status(&CallError::Denied { reason: reason.into() })
}

fn invalid(reason: impl Into<String>) -> Status {
    to_status(&CallError::Invalid { reason: reason.into() })
}

fn refused(error: &JwtError) -> Status {
    match error.class() {
        Class::Invalid => invalid(error.to_string()),
        _ => denied(error.to_string()),
    }
}

/// What the headers of a signed request say.
struct Shown {
    id: [u8; 32],
    key: PublicKey,
    token: String,
    pass: Option<Bytes>,
}

impl Shown {
    fn of(metadata: &MetadataMap) -> Result<Self, Status> {
        let binary = |name: &str| match metadata.get_bin(name) {
            None => Ok(None),
            Some(value) => match value.to_bytes() {
                Ok(bytes) => Ok(Some(bytes)),
                Err(_) => Err(invalid(format!("{name} is not base64"))),
            },
        };
        let needed = |name: &str| {
            binary(name)?.ok_or_else(|| denied(format!("a request here is signed: no {name}")))
        };
        let id = needed(REQUEST_ID_HEADER)?;
        let id = id.as_ref().try_into().map_err(|_| invalid("a request id is 32 bytes"))?;
        let key = PublicKey::from_slice(&needed(KEY_HEADER)?)
            .map_err(|error| invalid(error.to_string()))?;
        let token = metadata.get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer "));
        let token = token
            .ok_or_else(|| denied("a request here is signed: no authorization: Bearer"))?
            .to_owned();
        let pass = binary(PASS_HEADER)?;
        if pass.as_ref().is_some_and(|pass| pass.len() > PASS_BYTES_MAX) {
            return Err(invalid("a pass over 8 KiB"));
        }
        Ok(Self { id, key, token, pass })
    }
}

/// What a token says about the message.
enum Claimed {
    /// The hash it must have, and when the token was made and ends, Unix seconds.
    Full { hash: [u8; 32], issued: u64, expires: u64 },
    /// The original's bare form: the hash alone, in its writing.
    Bare(Vec<u8>),
}

/// Checks the requests of one listener.
pub(crate) struct Checker {
    options: SignedOptions,
    service: Arc<dyn Service>,
    env: Env,
    /// When the listener began, Unix seconds; where the calendar was set back since, [`claims::TOKEN_SECONDS_MAX`] behind that moment.
    began: AtomicU64,
    remembered: Remembered,
    introduced: Introduced,
}

impl Checker {
    pub(super) fn new(options: SignedOptions, service: Arc<dyn Service>, env: Env) -> Self {
        // In the clear all come from this machine.
        let is_tls = matches!(options.transport, SignedTransport::Tls(_));
        let remembered = Remembered::new(options.remembered_ids_max, is_tls);
        // In the clear a caller may have signed before its connection is taken; there, whoever listens is on this machine.
        let began = AtomicU64::new(env.clock.unix_s() + u64::from(is_tls));
        Self { options, service, env, began, remembered, introduced: Introduced::default() }
    }

    /// Done when it may be asked: within a second, whose tokens the listener before may have taken.
    pub(crate) async fn begun(&self) {
        self.until(self.began.load(Ordering::SeqCst)).await;
    }

    /// When it began as the calendar has it now, Unix seconds. One that was ahead at the start would refuse every token until that
    /// time, were it set right: it begins anew when all tokens have ended that whoever listened before may have taken.
    fn began(&self, now: u64) -> u64 {
        let latest = now.saturating_add(claims::TOKEN_SECONDS_MAX);
        let began = self.began.load(Ordering::SeqCst);
        if began <= latest {
            began
        } else {
            self.began.fetch_min(latest, Ordering::SeqCst).min(latest)
        }
    }

    /// Done when that second has begun, Unix seconds.
    async fn until(&self, second: u64) {
        let left = second.saturating_mul(1000).saturating_sub(self.env.clock.unix_ms());
        if left > 0 {
            self.env.clock.sleep(Duration::from_millis(left)).await;
        }
    }

    /// The key that a request shows with a pass that it showed lately; that it is its own the token has yet to prove.
    pub(crate) fn known(&self, headers: &HeaderMap) -> Option<PublicKey> {
        let metadata = MetadataMap::from_headers(headers.clone());
        let Ok(Shown { key, pass: Some(pass), .. }) = Shown::of(&metadata) else { return None };
        let hash = claims::message_hash(&pass);
        self.introduced.holds(&key, &hash, self.env.clock.elapsed()).then_some(key)
    }

    /// Passes a request on to `handler` with its caller proven, or refuses it.
    pub(crate) async fn handled<F>(
        &self,
        request: Request<Body>,
        handler: impl FnOnce(Request<Body>) -> F + Send,
    ) -> Result<Response<Body>, Infallible>
    where
        F: Future<Output = Result<Response<Body>, Infallible>> + Send,
    {
        let (key, request) = match self.check(request).await {
            Ok(checked) => checked,
            Err(status) => return Ok(status.into_http()),
        };
        let response = handler(request).await?;
        let status = Status::from_header_map(response.headers());
        if status.is_some_and(|status| status.code() == Code::PermissionDenied) {
            self.introduced.forget(&key);
        }
        Ok(response)
    }

    async fn check(&self, request: Request<Body>) -> Result<(PublicKey, Request<Body>), Status> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path();
        let method = path.strip_prefix(LIBRARIAN).unwrap_or_default();
        if CALLER_STREAMS.contains(&method) {
            let reason = "signed requests have one message: use the batch form";
            return Err(Status::unimplemented(reason));
        }
        let metadata = MetadataMap::from_headers(std::mem::take(&mut parts.headers));
        let shown = Shown::of(&metadata)?;
        parts.headers = metadata.into_headers();
        let claimed = self.claimed(&shown, path)?;
        if let Claimed::Full { issued, .. } = claimed {
            self.until(issued).await;
        }
        let vouched = self.introduce(&shown).await?;
        if let Claimed::Full { expires, .. } = claimed {
            let source = || parts.extensions.get::<Peer>().map(|peer| peer.source.clone());
            let whose = if vouched { Whose::Key(shown.key) } else { Whose::Source(source()) };
            self.take_id(Used { id: shown.id, expires, whose })?;
        }
        let message = whole(body).await?;
        self.check_message(claimed, message.clone()).await?;
        if let Some(peer) = parts.extensions.get_mut::<Peer>() {
            peer.caller = Some(Caller { key: shown.key });
        }
        Ok((shown.key, Request::from_parts(parts, Body::new(Whole::new(message)))))
    }

    /// Checks all of a token but the hash.
    fn claimed(&self, shown: &Shown, method: &str) -> Result<Claimed, Status> {
        if jwt::claims::is_bare(&shown.token).map_err(|error| refused(&error))? {
            if self.options.suite != Suite::Libri1 {
                return Err(denied(
                    "tokens with the hash alone are taken in libri-1 networks only",
                ));
            }
            let hash = jwt::verify_bare(&shown.token, &shown.key);
            return hash.map(Claimed::Bare).map_err(|error| refused(&error));
        }
        let now = self.env.clock.unix_s();
        let began = self.began(now);
        let expected = claims::Expected {
            method,
            audience: &self.options.peer,
            network: &self.options.network,
            id: &shown.id,
            now,
        };
        let claims = claims::verify_claims(&shown.token, &shown.key, &expected)
            .map_err(|error| refused(&error))?;
        if claims.issued < began {
            return Err(denied(
                "the token was issued before this peer began: sign the request anew",
            ));
        }
        let claims::Claims { hash, issued, expires, .. } = claims;
        Ok(Claimed::Full { hash, issued, expires })
    }

    /// Tells the librarian the caller's pass, unless it was told lately; whether there is one.
    async fn introduce(&self, shown: &Shown) -> Result<bool, Status> {
        let Some(pass) = &shown.pass else { return Ok(false) };
        let hash = claims::message_hash(pass);
        if self.introduced.holds(&shown.key, &hash, self.env.clock.elapsed()) {
            return Ok(true);
        }
        let credential = Credential::Client(pass.clone());
        let request = IntroduceRequest::new(credential, 0);
        let introduced = self.service.introduce(Caller { key: shown.key }, request).await;
        introduced.map_err(|error| to_status(&error))?;
        self.introduced.note(shown.key, hash, self.env.clock.elapsed());
        Ok(true)
    }

    fn take_id(&self, used: Used) -> Result<(), Status> {
        self.remembered.take(used, self.env.clock.unix_s()).map_err(|error| match error {
            Refused::Replayed => denied("the request id was used before: a replay"),
            Refused::Ended => denied("the token has ended"),
            Refused::Full(seconds) => {
                to_status(&CallError::Busy { retry_after: Duration::from_secs(seconds) })
            }
        })
    }

    /// The message is the one that was signed.
    async fn check_message(&self, claimed: Claimed, framed: Bytes) -> Result<(), Status> {
        let large = framed.len() > HASHED_INLINE_MAX;
        let check = move || {
            let message = &framed[PREFIX_BYTES..];
            match claimed {
                Claimed::Bare(hash) if jwt::is_hash(&hash, message) => Ok(()),
                Claimed::Bare(_) => Err(JwtError::Claim),
                Claimed::Full { hash, .. } if hash == claims::message_hash(message) => Ok(()),
                Claimed::Full { .. } => Err(JwtError::Claim),
            }
        };
        let checked = if large { self.env.cpu(check).await } else { check() };
        checked.map_err(|error| refused(&error))
    }
}

/// The one message of a body, with its prefix. The gate has counted it and knows its bound.
async fn whole(mut body: Body) -> Result<Bytes, Status> {
    let mut all = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if all.is_empty() && data.len() >= PREFIX_BYTES {
            // The gate has refused what is over the method's bound.
            all.reserve(framed_bytes(&data));
        }
        all.extend_from_slice(&data);
        if all.len() >= PREFIX_BYTES && all.len() > framed_bytes(&all) {
            return Err(invalid("a signed request has one message"));
        }
    }
    if all.len() < PREFIX_BYTES || all.len() != framed_bytes(&all) {
        return Err(invalid("a signed request has one message"));
    }
    Ok(all.freeze())
}

/// The length of the first message and its prefix.
fn framed_bytes(all: &[u8]) -> usize {
    let prefix = all.get(1..PREFIX_BYTES).unwrap_or_default();
    PREFIX_BYTES + prefix.iter().fold(0, |len: usize, byte| len << 8 | usize::from(*byte))
}
