//! tonic and prost as they come: the same messages, TLS, windows and frames, no gate, no codec, no
//! pool and no deadlines.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use rpc::proto;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::measure::{Kind, LARGE_BYTES, SMALL_BYTES, Way};
use crate::raw::tls;

const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
const FRAME_BYTES: u32 = 1 << 20;
const MESSAGE_BYTES_MAX: usize = 4 << 20;

fn record(large: bool) -> proto::Record {
    let (first, len) = if large { (1, LARGE_BYTES) } else { (0, SMALL_BYTES) };
    let id = Bytes::from(vec![first; 32]);
    proto::Record { kind: 3, id, place: Bytes::new(), bytes: vec![7; len].into() }
}

struct Store;

impl UnaryService<proto::StoreRequest> for Store {
    type Response = proto::StoreResponse;
    type Future = BoxFuture<'static, Result<Response<Self::Response>, Status>>;

    fn call(&mut self, _: Request<proto::StoreRequest>) -> Self::Future {
        std::future::ready(Ok(Response::new(proto::StoreResponse { outcome: 1 }))).boxed()
    }
}

struct Find(Arc<[proto::Record; 2]>);

impl UnaryService<proto::FindRequest> for Find {
    type Response = proto::FindResponse;
    type Future = BoxFuture<'static, Result<Response<Self::Response>, Status>>;

    fn call(&mut self, request: Request<proto::FindRequest>) -> Self::Future {
        let record = self.0[usize::from(request.get_ref().id[0])].clone();
        let result = Some(proto::find_response::Result::Record(record));
        std::future::ready(Ok(Response::new(proto::FindResponse { result }))).boxed()
    }
}

#[derive(Clone)]
struct Service(Arc<[proto::Record; 2]>);

impl NamedService for Service {
    const NAME: &'static str = "bare.Librarian";
}

impl tower::Service<HttpRequest<Body>> for Service {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let records = self.0.clone();
        async move {
            Ok(match request.uri().path() {
                "/bare.Librarian/Store" => {
                    tonic::server::Grpc::new(ProstCodec::default())
                        .max_decoding_message_size(MESSAGE_BYTES_MAX)
                        .unary(Store, request)
                        .await
                }
                _ => {
                    tonic::server::Grpc::new(ProstCodec::default())
                        .unary(Find(records), request)
                        .await
                }
            })
        }
        .boxed()
    }
}

/// A TLS stream that tonic serves.
struct Accepted(TlsStream<TcpStream>);

impl Connected for Accepted {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bytes)
    }
    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

pub(crate) struct Bare {
    channel: Channel,
    records: [proto::Record; 2],
}

impl Bare {
    pub(crate) async fn start() -> Arc<Self> {
        let (acceptor, connector) = tls(b"h2");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let incoming = futures::stream::unfold(listener, move |listener| {
            let acceptor = acceptor.clone();
            async move {
                let (tcp, _) = listener.accept().await.ok()?;
                tcp.set_nodelay(true).ok()?;
                let tls = acceptor.accept(tcp).await.map(Accepted);
                Some((tls, listener))
            }
        });
        let records = Arc::new([record(false), record(true)]);
        tokio::spawn(
            Server::builder()
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_frame_size(FRAME_BYTES)
                .add_service(Service(records))
                .serve_with_incoming(incoming),
        );
        let connect = tower::service_fn(move |_| {
            let connector = connector.clone();
            async move {
                let tcp = TcpStream::connect(address).await?;
                tcp.set_nodelay(true)?;
                let name = ServerName::try_from("holdfast").expect("a name");
                connector.connect(name, tcp).await.map(TokioIo::new)
            }
        });
        let channel = Endpoint::from_static("http://bare")
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .connect_with_connector(connect)
            .await
            .expect("a connection");
        Arc::new(Self { channel, records: [record(false), record(true)] })
    }
}

#[async_trait]
impl Way for Bare {
    async fn call(&self, kind: Kind, _: usize) {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.expect("a connection");
        let large = matches!(kind, Kind::StoreLarge | Kind::FindLarge);
        let record = &self.records[usize::from(large)];
        match kind {
            Kind::StoreLarge | Kind::StoreSmall => {
                let request = proto::StoreRequest { record: Some(record.clone()) };
                let codec: ProstCodec<_, proto::StoreResponse> = ProstCodec::default();
                let path = PathAndQuery::from_static("/bare.Librarian/Store");
                grpc.unary(Request::new(request), path, codec).await.expect("stored");
            }
            Kind::FindLarge | Kind::FindSmall => {
                let request = proto::FindRequest { id: record.id.clone(), place: Bytes::new() };
                let codec: ProstCodec<_, proto::FindResponse> = ProstCodec::default();
                let path = PathAndQuery::from_static("/bare.Librarian/Find");
                grpc.unary(Request::new(request), path, codec).await.expect("found");
            }
        }
    }
}
