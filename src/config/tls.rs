//! What the keys of `tls` add up to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Config, ListenAddress, Origin, Problem};

/// The files of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, and what is between it and its root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates.
    pub client_ca: Option<PathBuf>,
}

const CERT: &str = "tls.cert (--tls-cert)";
const KEY: &str = "tls.key (--tls-key)";

/// Decides, or names what is missing: no combination of keys serves in clear what was meant to be encrypted.
pub(super) fn resolve(
    config: &Config,
    origins: &BTreeMap<&'static str, Origin>,
) -> Result<Option<TlsSettings>, Problem> {
    let without = |key: &'static str, missing| {
        let origin = origins.get(key).cloned().unwrap_or(Origin::Default);
        Err(Problem::Without { key, origin, missing })
    };
    let tls = &config.tls;
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            Ok(Some(TlsSettings { cert: cert.clone(), key: key.clone(), client_ca: tls.client_ca.clone() }))
        }
        (Some(_), None) => without("tls.cert", KEY),
        (None, Some(_)) => without("tls.key", CERT),
        (None, None) if tls.client_ca.is_some() => without("tls.client_ca", CERT),
        (None, None) if config.server.listen.iter().any(is_secure) => without("server.listen", CERT),
        (None, None) if config.metrics.listen.iter().any(is_secure) => without("metrics.listen", CERT),
        (None, None) => Ok(None),
    }
}

fn is_secure(address: &ListenAddress) -> bool {
    matches!(address, ListenAddress::Tcp { secure: true, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flag, load};
    use test_case::test_case;

    fn outcome(keys: &[(&str, &str)]) -> Result<Option<TlsSettings>, String> {
        let flags: Vec<Flag> = keys.iter().map(|(key, value)| Flag::set(key, value)).collect();
        load(&flags, [], None).map(|settings| settings.tls).map_err(|error| error.to_string())
    }

    #[test]
    fn certificate_and_key_are_tls() {
        let tls = outcome(&[("tls.cert", "c"), ("tls.key", "k"), ("server.listen", "wss://127.0.0.1:0")]);
        assert_eq!(tls, Ok(Some(TlsSettings { cert: "c".into(), key: "k".into(), client_ca: None })));
        assert_eq!(outcome(&[]), Ok(None));
    }

    #[test_case(&[("tls.cert", "c")], "tls.cert (flag --set tls.cert) needs tls.key (--tls-key)"; "no key")]
    #[test_case(&[("tls.key", "k")], "tls.key (flag --set tls.key) needs tls.cert (--tls-cert)"; "no certificate")]
    #[test_case(&[("tls.client_ca", "a")], "tls.client_ca (flag --set tls.client_ca) needs tls.cert"; "clients only")]
    #[test_case(&[("server.listen", "127.0.0.1:0,wss://127.0.0.1:0")], "server.listen (flag --set server.listen) needs tls.cert"; "an address")]
    fn half_of_it_is_refused(keys: &[(&str, &str)], message: &str) {
        let error = outcome(keys).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}
