//! TLS of the TCP listeners: what their files mean, and the handshake.
//!
//! All listeners share one configuration, which is looked at before each handshake. A connection keeps the one that it
//! began with.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::time::timeout;

use super::followed::{Followed, Source};
use super::stream::ServerStream;
use crate::config::TlsSettings;

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TlsError {
    #[error("cannot use {key} {path}: {reason}")]
    File { key: &'static str, path: PathBuf, reason: String },
    #[error("tls.cert {cert} and tls.key {key} cannot be used together: {reason}")]
    Pair { cert: PathBuf, key: PathBuf, reason: rustls::Error },
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Tls {
    files: Arc<Followed<TlsSettings>>,
    demands_certificate: bool,
}

impl Tls {
    /// Reads the files. It blocks on the disk.
    pub(super) fn open(settings: &TlsSettings) -> Result<Self, TlsError> {
        let files = Arc::new(Followed::open(settings.clone())?);
        Ok(Self { files, demands_certificate: settings.client_ca.is_some() })
    }

    /// Whether clients must show a certificate.
    pub(super) const fn demands_certificate(&self) -> bool {
        self.demands_certificate
    }

    /// Makes a connection private, within the limit.
    ///
    /// # Errors
    /// The peer does not speak TLS, not ours, not in time, or shows a certificate that is not good.
    pub(super) async fn handshake(&self, stream: ServerStream, limit: Duration) -> io::Result<ServerStream> {
        let files = Arc::clone(&self.files);
        let handshake = async {
            let config = tokio::task::spawn_blocking(move || files.current()).await?;
            stream.encrypted(config).await
        };
        timeout(limit, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Whether a handshake failed because of the certificate that the client has shown.
pub(super) fn is_refused_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// Reads what the files hold now; for `config check` too.
impl Source for TlsSettings {
    type Value = ServerConfig;
    type Error = TlsError;

    const NAME: &str = "TLS";

    fn files(&self) -> Vec<&Path> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).map(PathBuf::as_path).collect()
    }

    fn read(&self) -> Result<ServerConfig, TlsError> {
        let certificates = certificates("tls.cert", &self.cert)?;
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unusable("tls.key", &self.key, error))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            Some(path) => builder.with_client_cert_verifier(verifier(path)?),
            None => builder.with_no_client_auth(),
        };
        let pair = |reason| TlsError::Pair { cert: self.cert.clone(), key: self.key.clone(), reason };
        let mut config = builder.with_single_cert(certificates, key).map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificate is not demanded by the handshake, but by the answer to the upgrade: health checks have none.
fn verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let failed = |reason: String| TlsError::File { key: "tls.client_ca", path: path.into(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.client_ca", path)? {
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| failed(error.to_string()))
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |error| unusable(key, path, error);
    let found = CertificateDer::pem_file_iter(path).map_err(unusable)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(unusable)?;
    if found.is_empty() {
        return Err(unusable(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn unusable(key: &'static str, path: &Path, error: pem::Error) -> TlsError {
    TlsError::File { key, path: path.into(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// A certificate file and its key file.
    fn pair(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.into()]).unwrap().self_signed(&key).unwrap();
        let paths = (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")));
        std::fs::write(&paths.0, certificate.pem()).unwrap();
        std::fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    #[test]
    fn what_is_wrong_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let ((cert, key), (_, other)) = (pair(directory.path(), "a"), pair(directory.path(), "b"));
        let missing = directory.path().join("missing");
        let settings = |cert: &Path, key: &Path, ca: Option<&Path>| {
            let client_ca = ca.map(Path::to_owned);
            TlsSettings { cert: cert.into(), key: key.into(), client_ca }
                .read()
                .map_err(|error| error.to_string())
        };
        assert!(settings(&cert, &key, Some(&cert)).is_ok());
        for (outcome, expected) in [
            (settings(&missing, &key, None), "cannot use tls.cert"),
            (settings(&key, &key, None), "cannot use tls.cert"),
            (settings(&cert, &cert, None), "cannot use tls.key"),
            (settings(&cert, &other, None), "cannot be used together"),
            (settings(&cert, &key, Some(&key)), "cannot use tls.client_ca"),
        ] {
            let error = outcome.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn changes_are_followed_and_bad_ones_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let ((cert, key), (next_cert, next_key)) = (pair(directory.path(), "a"), pair(directory.path(), "b"));
        let settings = TlsSettings { cert: cert.clone(), key: key.clone(), client_ca: None };
        let files = Followed::open(settings).unwrap();
        let first = files.current();
        assert!(Arc::ptr_eq(&first, &files.current()), "nothing has changed");
        std::fs::rename(next_cert, &cert).unwrap();
        assert!(Arc::ptr_eq(&first, &files.current()), "half of a change is none");
        std::fs::rename(next_key, &key).unwrap();
        let second = files.current();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(&cert, "no certificate").unwrap();
        assert!(Arc::ptr_eq(&second, &files.current()));
        std::fs::remove_file(&cert).unwrap();
        assert!(Arc::ptr_eq(&second, &files.current()));
    }
}
