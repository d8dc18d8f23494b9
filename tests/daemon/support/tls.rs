//! An authority, certificates that it signs, and clients that trust it.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::LIMIT;
use super::http::read_head;

/// Whoever signs certificates.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed");
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// The authority's own certificate.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn identity(&self, names: &[&str]) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).expect("params");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// A client that trusts nobody else, and shows this identity if it is asked.
    pub(crate) fn client(&self, identity: Option<&Identity>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificate =
                    CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(vec![certificate], key).expect("an identity")
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

impl Identity {
    /// Puts it where a server is told to look, each file at once.
    pub(crate) fn write(&self, certificate: &Path, key: &Path) {
        replace(certificate, self.certificate.as_bytes());
        replace(key, self.key.as_bytes());
    }
}

/// Replaces a file by another.
pub(crate) fn replace(path: &Path, content: &[u8]) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).expect("written");
    std::fs::rename(beside, path).expect("renamed");
}

/// Connects to the server of a `wss://` URL, as `localhost`.
pub(crate) async fn connect(connector: &TlsConnector, url: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(url.trim_start_matches("wss://")).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").expect("a name");
    timeout(LIMIT, connector.connect(name, socket)).await.expect("the handshake ends")
}

/// Sends a head and reads the head of the answer; empty where the connection ended without one.
pub(crate) async fn exchange(connector: &TlsConnector, url: &str, head: &str) -> String {
    let Ok(mut stream) = connect(connector, url).await else { return String::new() };
    // A server that has seen enough need not take the rest.
    stream.write_all(head.as_bytes()).await.ok();
    read_head(&mut stream).await
}
