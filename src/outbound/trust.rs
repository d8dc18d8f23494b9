//! Which certificates are trusted: those of the system, and those of one file that the environment names.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The trusted certificates cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct TrustError(pub(super) String);

/// Variables that name a file of further certificates; the first that is set counts.
const VARIABLES: &[&str] = &["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"];

/// Where distributions keep the certificates of the system; the first that is there counts. The environment has no say
/// here: the file that it names comes on top.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The TLS settings. It blocks on the disk.
///
/// # Errors
/// The file of the environment is no readable PEM file with certificates.
pub fn tls(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    match SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()) {
        // Distributions carry a few that are not to the taste of the library.
        Some(bundle) => {
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
        }
        None => tracing::warn!("the system has no file of trusted certificates"),
    }
    let named =
        VARIABLES.iter().find_map(|name| Some((*name, variable(name).filter(|path| !path.is_empty())?)));
    if let Some((name, path)) = named {
        let path = Path::new(&path);
        add_file(&mut roots, path).map_err(|why| {
            TrustError(format!("the certificates of {name} ('{}') cannot be used: {why}", path.display()))
        })?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    if count == 0 { Err("it has no certificate".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn with(name: &str, path: &Path) -> Result<ClientConfig, TrustError> {
        tls(&|variable| (variable == name).then(|| path.into()))
    }

    #[test_case("CODEX_CA_CERTIFICATE")]
    #[test_case("SSL_CERT_FILE")]
    fn a_file_that_is_not_usable_is_named(name: &str) {
        let directory = tempfile::tempdir().unwrap();
        let empty = directory.path().join("empty.pem");
        std::fs::write(&empty, "no certificate here").unwrap();
        for path in [&empty, &directory.path().join("missing.pem")] {
            let error = with(name, path).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn other_variables_have_no_say() {
        let missing = Path::new("/nonexistent");
        for name in ["SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"] {
            assert!(with(name, missing).is_ok());
        }
    }
}
