//! What stands between a client and a server on a network: HTTP and SOCKS proxies, and an end of TLS.

use std::sync::{Arc, LazyLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::soon;

/// The certificate that tests trust, as a file.
pub(crate) const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/tls/ca.pem");

static TLS: LazyLock<TlsAcceptor> = LazyLock::new(|| {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
});

/// How a gateway talks to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `CONNECT`, answered with this status.
    Http(u16),
    /// The same within TLS.
    Https,
    /// SOCKS 5, with user and password if it asks for them.
    Socks { asks: bool },
    /// Just TLS.
    Tls,
}

/// Whatever destination is asked for, it leads to one server.
pub(crate) struct Gateway {
    pub(crate) port: u16,
    asked: mpsc::UnboundedReceiver<String>,
    _task: AbortOnDropHandle<()>,
}

impl Gateway {
    pub(crate) async fn start(kind: Kind, server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = server.trim_start_matches("ws://").trim_end_matches('/').to_owned();
        let (sender, asked) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(kind, client, server.clone(), sender.clone()));
            }
        });
        Self { port, asked, _task: AbortOnDropHandle::new(task) }
    }

    /// What the next client asked for: the head of its request, or `USER:PASSWORD HOST:PORT` of SOCKS.
    pub(crate) async fn asked(&mut self) -> String {
        soon(self.asked.recv()).await.unwrap()
    }

    /// Whether anybody has come.
    pub(crate) fn was_asked(&mut self) -> bool {
        self.asked.try_recv().is_ok()
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

async fn serve(
    kind: Kind,
    client: TcpStream,
    server: String,
    asked: mpsc::UnboundedSender<String>,
) -> std::io::Result<()> {
    let mut client: Box<dyn Duplex> = match kind {
        Kind::Https | Kind::Tls => Box::new(TLS.accept(client).await?),
        Kind::Http(_) | Kind::Socks { .. } => Box::new(client),
    };
    let goes_on = match kind {
        Kind::Http(status) => connect(&mut client, status, &asked).await?,
        Kind::Https => connect(&mut client, 200, &asked).await?,
        Kind::Socks { asks } => socks(&mut client, asks, &asked).await?,
        Kind::Tls => true,
    };
    if goes_on {
        copy_bidirectional(&mut client, &mut TcpStream::connect(server).await?).await?;
    }
    Ok(())
}

async fn connect(
    client: &mut (impl Duplex + ?Sized),
    status: u16,
    asked: &mpsc::UnboundedSender<String>,
) -> std::io::Result<bool> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    asked.send(String::from_utf8(head).unwrap()).unwrap();
    client.write_all(format!("HTTP/1.1 {status} So\r\n\r\n").as_bytes()).await?;
    Ok(status == 200)
}

async fn socks(
    client: &mut (impl Duplex + ?Sized),
    asks: bool,
    asked: &mpsc::UnboundedSender<String>,
) -> std::io::Result<bool> {
    let methods = text(client, 1).await?;
    let method = if asks { 2 } else { 0 };
    assert!(methods.as_bytes().contains(&method));
    client.write_all(&[5, method]).await?;
    let mut said = String::new();
    if asks {
        let (user, password) = (text(client, 1).await?, text(client, 0).await?);
        client.write_all(&[1, 0]).await?;
        said = format!("{user}:{password} ");
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    assert_eq!(request, [5, 1, 0, 3], "a connection to a name");
    let name = text(client, 0).await?;
    let port = client.read_u16().await?;
    asked.send(format!("{said}{name}:{port}")).unwrap();
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(true)
}

/// Bytes behind their length, behind this many others.
async fn text(client: &mut (impl Duplex + ?Sized), before: usize) -> std::io::Result<String> {
    for _ in 0..before {
        client.read_u8().await?;
    }
    let mut text = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}
