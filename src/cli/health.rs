//! `exec-server health`: asks a server on this machine whether it is ready.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::args::HealthArgs;
use super::settings;
use crate::config::{Host, ListenAddress};

/// How long the answer may take.
const LIMIT: Duration = Duration::from_secs(2);
/// More than the head of the answer has.
const HEAD_BYTES: u64 = 4096;

const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Exits 0 when the server answers in time that it is ready.
pub(super) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let (address, is_tls) = address(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let asked = runtime.block_on(async { timeout(LIMIT, ask(&address, is_tls)).await });
    let status = match asked {
        Ok(status) => status.with_context(|| format!("{address} does not answer"))?,
        Err(_) => bail!("{address} has not answered within 2 s"),
    };
    ensure!(status == "200", "{address} is not ready: /readyz has answered {status}");
    Ok(ExitCode::SUCCESS)
}

/// Where to ask, and whether in TLS: the URL, or else the first address that a server with these settings has.
fn address(args: &HealthArgs) -> anyhow::Result<(ListenAddress, bool)> {
    if let Some(url) = &args.url {
        let address: ListenAddress = url.parse().with_context(|| format!("bad value for --url: {url:?}"))?;
        let is_tls = matches!(address, ListenAddress::Tcp { secure: true, .. });
        return Ok((address, is_tls));
    }
    let settings = settings::load(&args.serve)?;
    let first = settings.config.server.listen.into_iter().next();
    let first = first.context("server.listen names no address")?;
    Ok((first, settings.tls.is_some()))
}

async fn ask(address: &ListenAddress, is_tls: bool) -> anyhow::Result<String> {
    match address {
        ListenAddress::Unix(path) => exchange(UnixStream::connect(path).await?).await,
        ListenAddress::Tcp { port: 0, .. } => {
            bail!("the port is chosen by the kernel; name the real one with --url")
        }
        ListenAddress::Tcp { host, port, .. } => {
            let stream = match host {
                Host::Ip(ip) => TcpStream::connect((reachable(*ip), *port)).await?,
                Host::Name(name) => TcpStream::connect((name.as_str(), *port)).await?,
            };
            if is_tls { exchange(encrypted(stream).await?).await } else { exchange(stream).await }
        }
        ListenAddress::Stdio => bail!("a server on stdio has no address that could be asked"),
    }
}

/// Of a server that listens everywhere, the address on this machine.
const fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        other => other,
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<String> {
    stream.write_all(REQUEST).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    // A peer need not end TLS properly for its answer to be whole.
    let read = stream.take(HEAD_BYTES).read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    match text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) {
        Some(status) => Ok(status.to_owned()),
        None => {
            read?;
            bail!("what it says is not HTTP")
        }
    }
}

async fn encrypted(stream: TcpStream) -> anyhow::Result<impl AsyncRead + AsyncWrite + Unpin> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost")?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// Trusts everybody. Nothing but the status of the answer is taken from the peer and nothing secret is sent, and the
/// certificate need not be for the address by which this machine reaches itself.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
