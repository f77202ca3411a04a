//! The asking side of signed requests: each message is hashed and signed on its way out.
//!
//! [`Line`] stands between the generated client and a connection: on one that proves this side's key
//! it passes requests on, on one that does not it signs them. So pooling, deadlines and retries are
//! the same for both, and a retried call gets a token of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use crypto::jwt::claims::{self, Claims};
use crypto::{NetworkId, PeerId, PublicKey, SecretKey};
use env::Env;
use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use http_body::{Body as _, Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Status, transport};

use crate::CredentialSource;
use crate::framing::PREFIX_BYTES;
use crate::limits::BATCH_MESSAGE_BYTES_MAX;

/// 32 random bytes.
pub(crate) const REQUEST_ID_HEADER: &str = "holdfast-request-id-bin";
/// The caller's compressed public key.
pub(crate) const KEY_HEADER: &str = "holdfast-public-key-bin";
/// The caller's pass, where it has one.
pub(crate) const PASS_HEADER: &str = "holdfast-pass-bin";
/// `Bearer` and the token.
pub(crate) const TOKEN_HEADER: &str = "authorization";
/// The longest pass in a header: in base64 it fits the 16 KiB of all headers.
pub(crate) const PASS_BYTES_MAX: usize = 8 << 10;
/// Larger messages are hashed away from the I/O threads.
pub(crate) const HASHED_INLINE_MAX: usize = 64 << 10;
/// How long our tokens live, in seconds: peers remember their ids for so long.
const TOKEN_SECONDS: u64 = 30;

/// A body of one frame.
#[derive(Debug)]
pub(crate) struct Whole(Option<Bytes>);

impl Whole {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Who signs, for which network.
pub(crate) struct Signer {
    secret: SecretKey,
    key: PublicKey,
    network: NetworkId,
    pass: CredentialSource,
    env: Env,
}

impl Signer {
    pub(crate) fn new(
        secret: SecretKey,
        network: NetworkId,
        pass: CredentialSource,
        env: Env,
    ) -> Arc<Self> {
        let key = secret.public();
        Arc::new(Self { secret, key, network, pass, env })
    }

    /// The headers of one request.
    fn headers(&self, hash: [u8; 32], method: &str, audience: PeerId, into: &mut MetadataMap) {
        let (id, issued) = (self.env.random::<32>(), self.env.clock.unix_s());
        let claims = Claims {
            hash,
            method: method.to_owned(),
            audience,
            network: self.network,
            issued,
            expires: issued + TOKEN_SECONDS,
            id,
        };
        let bearer = format!("Bearer {}", claims::sign_claims(&self.secret, &claims));
        // A token is base64url and dots: always a header's value.
        if let Ok(mut bearer) = MetadataValue::try_from(bearer) {
            bearer.set_sensitive(true);
            into.insert(TOKEN_HEADER, bearer);
        }
        into.insert_bin(REQUEST_ID_HEADER, MetadataValue::from_bytes(&id));
        into.insert_bin(KEY_HEADER, MetadataValue::from_bytes(self.key.as_bytes()));
        if let env::calls::Credential::Client(pass) = (self.pass)() {
            into.insert_bin(PASS_HEADER, MetadataValue::from_bytes(&pass));
        }
    }

    /// The request with its message signed.
    async fn signed(
        &self,
        request: Request<Body>,
        audience: PeerId,
    ) -> Result<Request<Body>, Status> {
        let (mut parts, mut body) = request.into_parts();
        let expected = usize::try_from(body.size_hint().lower()).unwrap_or_default();
        let mut all = BytesMut::with_capacity(expected.min(BATCH_MESSAGE_BYTES_MAX + PREFIX_BYTES));
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            if let Ok(data) = frame?.into_data() {
                all.extend_from_slice(&data);
            }
        }
        let framed = all.freeze();
        let hash = {
            let framed = framed.clone();
            let large = framed.len() > HASHED_INLINE_MAX;
            let hash = move || claims::message_hash(framed.get(PREFIX_BYTES..).unwrap_or_default());
            if large { self.env.cpu(hash).await } else { hash() }
        };
        let mut metadata = MetadataMap::from_headers(parts.headers);
        self.headers(hash, parts.uri.path(), audience, &mut metadata);
        parts.headers = metadata.into_headers();
        Ok(Request::from_parts(parts, Body::new(Whole::new(framed))))
    }
}

/// A connection as the generated client sees it.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) channel: Channel,
    /// Where each request is signed: by whom, for which peer.
    pub(crate) signing: Option<(Arc<Signer>, PeerId)>,
}

/// Why a request did not go out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The connection.
    #[error(transparent)]
    Transport(#[from] transport::Error),
    /// The message could not be made.
    #[error(transparent)]
    Message(#[from] Status),
}

type Sent = Result<Response<Body>, LineError>;

impl tower::Service<Request<Body>> for Line {
    type Response = Response<Body>;
    type Error = LineError;
    type Future = Either<
        futures::future::MapErr<
            <Channel as tower::Service<Request<Body>>>::Future,
            fn(transport::Error) -> LineError,
        >,
        BoxFuture<'static, Sent>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LineError>> {
        tower::Service::poll_ready(&mut self.channel, cx).map_err(LineError::from)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures::TryFutureExt;
        let Some((signer, audience)) = self.signing.clone() else {
            let sent = tower::Service::call(&mut self.channel, request);
            return Either::Left(sent.map_err(LineError::from as fn(_) -> _));
        };
        // The clone takes the place of the one that was polled ready.
        let clone = self.channel.clone();
        let mut ready = std::mem::replace(&mut self.channel, clone);
        let sent = async move {
            let request = signer.signed(request, audience).await?;
            Ok(tower::Service::call(&mut ready, request).await?)
        };
        Either::Right(sent.boxed())
    }
}
