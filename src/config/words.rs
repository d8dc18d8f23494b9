//! The types of keys that take one of a few words, or a word with a form.

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use crate::protocol::sandbox::{SandboxBackend, SandboxGap};

/// Declares an enum of words with `FromStr`, `Display` and `WORDS`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All words, in the order of the documentation.
            pub const WORDS: &[&str] = &[$($word),+];
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("expected one of {}", Self::WORDS.join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)+
                })
            }
        }
    };
}

/// Where the audit log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    /// Among the log lines.
    Stderr,
    /// To the end of a file.
    File(PathBuf),
}

impl FromStr for AuditTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "stderr" => Ok(Self::Stderr),
            "" => Err("expected a file or `stderr`"),
            path if path.contains('\0') => Err("expected a file or `stderr`"),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for AuditTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

words! {
    /// How clients prove who they are.
    AuthMode {
        /// Not at all.
        None = "none",
        /// By a shared token.
        CapabilityToken = "capability-token",
        /// By a JWT that a shared secret signed.
        SignedBearerToken = "signed-bearer-token",
    }
}

words! {
    /// The form of a log line.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

words! {
    /// What enforces policies.
    BackendChoice {
        /// The first backend that can enforce all of a policy.
        Auto = "auto",
        /// Namespaces, or nothing.
        Namespaces = "namespaces",
        /// Landlock, or nothing.
        Landlock = "landlock",
    }
}

impl BackendChoice {
    /// The only one that may be used, if it is one.
    #[must_use]
    pub const fn forced(self) -> Option<SandboxBackend> {
        match self {
            Self::Auto => None,
            Self::Namespaces => Some(SandboxBackend::Namespaces),
            Self::Landlock => Some(SandboxBackend::Landlock),
        }
    }
}

/// A gap that a policy may be run with all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedGap(pub SandboxGap);

impl FromStr for AcceptedGap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let gap = SandboxGap::ALL.into_iter().find(|gap| gap.name() == text);
        gap.map(Self)
            .ok_or_else(|| format!("expected one of {}", SandboxGap::ALL.map(SandboxGap::name).join(", ")))
    }
}

impl fmt::Display for AcceptedGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Directives that choose log events; always ones that parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The filter to install.
    #[must_use]
    pub fn to_filter(&self) -> EnvFilter {
        EnvFilter::new(&self.0)
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".into())
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match EnvFilter::builder().parse(text) {
            Ok(_) => Ok(Self(text.into())),
            Err(error) => {
                Err(format!("expected a level or directives such as info,exec_server=debug ({error})"))
            }
        }
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host name or address without a port, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// The name, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
        let address = text.parse::<std::net::IpAddr>().is_ok();
        if text.is_empty() || !plain || (text.contains(':') && !address) {
            return Err("expected a host name or an address, without scheme and port");
        }
        Ok(Self(text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The host, in lower case, an address of IPv6 without brackets.
    pub host: HostName,
    /// Not 0.
    pub port: NonZeroU16,
}

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "expected HOST:PORT, without a scheme";
        let (host, port) = text.rsplit_once(':').ok_or(wrong)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if inner.is_none() && host.contains(':') {
            return Err("expected [ADDRESS]:PORT for an address of IPv6");
        }
        let host = inner.unwrap_or(host).parse().map_err(|_| wrong)?;
        Ok(Self { host, port: port.parse().map_err(|_| wrong)? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str() {
            host if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

/// The name of an environment variable, or `*` for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableName(String);

impl VariableName {
    /// All of them.
    #[must_use]
    pub fn any() -> Self {
        Self("*".to_owned())
    }
}

impl FromStr for VariableName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.contains(['=', '\0', ' ', '$']) {
            return Err("expected the name of an environment variable, or `*`");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 digest of a capability token. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for TokenDigest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for TokenDigest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return Err("expected the 64 hex digits of a SHA-256 digest");
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16);
            let low = char::from(pair[1]).to_digit(16);
            *byte = high
                .zip(low)
                .and_then(|(high, low)| u8::try_from(high << 4 | low).ok())
                .ok_or("expected the 64 hex digits of a SHA-256 digest")?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(set)")
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_64_hex_digits_of_either_case() {
        let text = "00ff".repeat(16);
        let digest: TokenDigest = format!(" {}\n", text.to_uppercase()).parse().unwrap();
        assert_eq!(Ok(digest.clone()), text.parse());
        assert_eq!(digest.as_bytes()[..2], [0, 255]);
        for bad in ["", &text[1..], &text.replace('f', "g"), &format!("+{}", &text[1..]), &"ä".repeat(32)] {
            assert!(bad.parse::<TokenDigest>().is_err(), "{bad:?}");
        }
        assert_eq!(format!("{digest} {digest:?}"), "(set) TokenDigest(..)");
    }

    #[test]
    fn gaps_have_their_wire_names() {
        for gap in SandboxGap::ALL {
            assert_eq!(gap.name().parse(), Ok(AcceptedGap(gap)));
            assert_eq!(serde_json::to_value(gap).unwrap(), gap.name());
        }
        for backend in [SandboxBackend::Namespaces, SandboxBackend::Landlock, SandboxBackend::Seccomp] {
            assert_eq!(serde_json::to_value(backend).unwrap(), backend.name());
        }
        let error = "all".parse::<AcceptedGap>().unwrap_err();
        assert!(error.contains("outsideMetadata, protectedMetadata"), "{error}");
    }

    #[test]
    fn a_host_name_has_no_port() {
        assert_eq!("Box.Example.".parse::<HostName>().unwrap().as_str(), "box.example");
        assert_eq!("::1".parse::<HostName>().unwrap().as_str(), "::1");
        for bad in ["", "a:1", "http://a", "a/b", "a b", "*"] {
            assert!(bad.parse::<HostName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_host_and_a_port() {
        for text in ["proxy.test:3128", "[::1]:1", "10.0.0.1:65535"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        for bad in ["", "a", ":1", "a:", "a:0", "a:65536", "::1:1", "http://a:1", "a:1/", "[a:1"] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_filter_must_parse() {
        assert!("exec_server=debug,warn".parse::<LogFilter>().is_ok());
        assert!("a=b=c".parse::<LogFilter>().is_err());
    }
}
