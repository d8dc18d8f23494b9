//! What the keys of `auth` add up to, and which of them contradict each other.
//!
//! A contradiction counts only between layers that could not know better: a mode given by a higher layer silences the
//! keys of other modes in lower layers, so that a flag can overrule a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{AuthMode, Config, Layer, ListenAddress, Origin, Problem, TokenDigest, keys};

/// How clients are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthSettings {
    /// Nothing is configured: open on loopback addresses and unix sockets, a generated token elsewhere.
    Automatic,
    /// Explicitly open.
    Open,
    /// Tokens in a file, one a line.
    TokenFile(PathBuf),
    /// Digests of tokens.
    TokenDigests(Vec<TokenDigest>),
    /// Signed tokens.
    Signed(SignedSettings),
}

/// Rules for signed tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedSettings {
    /// File of the secret.
    pub secret_file: PathBuf,
    /// The issuer to demand.
    pub issuer: Option<String>,
    /// The audience to demand.
    pub audience: Option<String>,
    /// At most 2^63 − 1.
    pub max_clock_skew_seconds: u64,
}

const TOKEN_FILE: &str = "auth.token_file";
const TOKEN_SHA256: &str = "auth.token_sha256";
const CAPABILITY_KEYS: &[&str] = &[TOKEN_FILE, TOKEN_SHA256];
const SIGNED_KEYS: &[&str] =
    &["auth.shared_secret_file", "auth.issuer", "auth.audience", "auth.max_clock_skew_seconds"];

/// Decides, or names the contradiction.
pub(super) fn resolve(
    config: &Config,
    origins: &BTreeMap<&'static str, Origin>,
) -> Result<AuthSettings, Problem> {
    let given = Given { config, defaults: Config::default(), origins };
    given.refuse_foreign()?;
    let Some(mode) = config.auth.mode else { return Ok(AuthSettings::Automatic) };
    if mode == AuthMode::None {
        return Ok(AuthSettings::Open);
    }
    if config.server.listen.contains(&ListenAddress::Stdio) {
        return given.stdio(mode);
    }
    match mode {
        AuthMode::None => Ok(AuthSettings::Open),
        AuthMode::CapabilityToken => given.capability(),
        AuthMode::SignedBearerToken => given.signed(),
    }
}

struct Given<'a> {
    config: &'a Config,
    defaults: Config,
    origins: &'a BTreeMap<&'static str, Origin>,
}

impl Given<'_> {
    fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// A flag always says something; elsewhere, writing the default out does not.
    fn is_given(&self, key: &str) -> bool {
        self.origin(key).layer() == Layer::Flag
            || keys()
                .iter()
                .filter(|row| row.path == key)
                .any(|row| (row.show)(self.config) != (row.show)(&self.defaults))
    }

    fn refuse_foreign(&self) -> Result<(), Problem> {
        let mode = self.config.auth.mode;
        let foreign: &[&[&'static str]] = match mode {
            None | Some(AuthMode::None) => &[CAPABILITY_KEYS, SIGNED_KEYS],
            Some(AuthMode::CapabilityToken) => &[SIGNED_KEYS],
            Some(AuthMode::SignedBearerToken) => &[CAPABILITY_KEYS],
        };
        let decided = self.origin("auth.mode").layer();
        for key in foreign.iter().copied().flatten() {
            let origin = self.origin(key);
            if self.is_given(key) && origin.layer() >= decided {
                return Err(match mode {
                    Some(mode) => Problem::OtherMode { key, origin, mode },
                    None => Problem::NoMode { key, origin },
                });
            }
        }
        Ok(())
    }

    fn stdio(&self, mode: AuthMode) -> Result<AuthSettings, Problem> {
        let origin = self.origin("auth.mode");
        if origin.layer() < self.origin("server.listen").layer() {
            return Ok(AuthSettings::Open);
        }
        Err(Problem::StdioWithAuth { mode, origin })
    }

    fn capability(&self) -> Result<AuthSettings, Problem> {
        let (file, digest) = (self.origin(TOKEN_FILE), self.origin(TOKEN_SHA256));
        let mut tokens = Some(&self.config.auth.token_sha256).filter(|tokens| !tokens.is_empty());
        let mut path = self.config.auth.token_file.clone();
        if path.is_some() && tokens.is_some() {
            match file.layer().cmp(&digest.layer()) {
                std::cmp::Ordering::Less => path = None,
                std::cmp::Ordering::Greater => tokens = None,
                std::cmp::Ordering::Equal => return Err(Problem::TwoTokens { file, digest }),
            }
        }
        match (path, tokens) {
            (Some(path), _) => Ok(AuthSettings::TokenFile(path)),
            (None, Some(tokens)) => Ok(AuthSettings::TokenDigests(tokens.clone())),
            (None, None) => Err(Problem::NoToken),
        }
    }

    fn signed(&self) -> Result<AuthSettings, Problem> {
        let auth = &self.config.auth;
        let demanded = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
        Ok(AuthSettings::Signed(SignedSettings {
            secret_file: auth.shared_secret_file.clone().ok_or(Problem::NoSecret)?,
            issuer: demanded(&auth.issuer),
            audience: demanded(&auth.audience),
            max_clock_skew_seconds: auth.max_clock_skew_seconds,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, Flag, load};
    use test_case::test_case;

    const DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn flags(words: &[(&str, &str)]) -> Vec<Flag> {
        words
            .iter()
            .map(|(key, value)| {
                Flag::named(&format!("--{key}"), &format!("auth.{key}"), vec![(*value).into()])
            })
            .collect()
    }

    fn message(flags: &[Flag], file: &str) -> Result<AuthSettings, String> {
        let file = ConfigFile { path: "f".into(), text: file.into() };
        load(flags, [], Some(&file)).map(|settings| settings.auth).map_err(|error| error.to_string())
    }

    #[test_case(&[("mode", "capability-token")], "needs auth.token_file"; "no source")]
    #[test_case(&[("mode", "capability-token"), ("token_file", "")], "needs auth.token_file"; "empty path")]
    #[test_case(&[("mode", "capability-token"), ("token_file", "f"), ("token_sha256", DIGEST)], "both set"; "two sources")]
    #[test_case(&[("mode", "capability-token"), ("token_file", "f"), ("issuer", "x")], "auth.issuer (flag --issuer) does not belong"; "other mode")]
    #[test_case(&[("mode", "capability-token"), ("token_file", "f"), ("max_clock_skew_seconds", "30")], "does not belong"; "default skew of the other mode")]
    #[test_case(&[("mode", "signed-bearer-token")], "needs auth.shared_secret_file"; "no secret")]
    #[test_case(&[("mode", "signed-bearer-token"), ("shared_secret_file", "f"), ("token_file", "f")], "does not belong"; "token with secret")]
    #[test_case(&[("mode", "signed-bearer-token"), ("max_clock_skew_seconds", "9223372036854775808")], "from 0 to 9223372036854775807"; "large skew")]
    #[test_case(&[("token_file", "f")], "auth.token_file (flag --token_file) needs auth.mode"; "no mode")]
    #[test_case(&[("issuer", "")], "needs auth.mode"; "blank flag without mode")]
    #[test_case(&[("mode", "none"), ("token_file", "f")], "does not belong"; "none with a token")]
    fn contradicting_flags_stop(words: &[(&str, &str)], expected: &str) {
        let error = message(&flags(words), "").unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_short_digest_is_refused_without_showing_it() {
        let error =
            message(&flags(&[("mode", "capability-token"), ("token_sha256", "s3cret")]), "").unwrap_err();
        assert_eq!(
            error,
            "bad value for auth.token_sha256 (flag --token_sha256): expected the 64 hex digits of a SHA-256 digest"
        );
    }

    #[test]
    fn stdio_takes_no_authentication() {
        let mut stdio = vec![Flag::named("--listen", "server.listen", vec!["stdio".into()])];
        let file = "auth = { mode = \"capability-token\", token_file = \"f\" }";
        assert_eq!(message(&stdio, file), Ok(AuthSettings::Open));
        stdio.extend(flags(&[("mode", "capability-token"), ("token_file", "f")]));
        assert!(message(&stdio, "").unwrap_err().contains("cannot be combined with stdio"));
    }

    #[test]
    fn a_higher_layer_silences_a_lower_one() {
        let file = "[auth]\nmode = \"capability-token\"\ntoken_file = \"f\"";
        assert_eq!(message(&flags(&[("mode", "none")]), file), Ok(AuthSettings::Open));
        assert_eq!(message(&[], file), Ok(AuthSettings::TokenFile("f".into())));
        assert_eq!(
            message(&flags(&[("token_sha256", DIGEST)]), file),
            Ok(AuthSettings::TokenDigests(vec![TokenDigest::from([0; 32])]))
        );
        let signed = flags(&[("mode", "signed-bearer-token"), ("shared_secret_file", "s"), ("issuer", " ")]);
        let expected = SignedSettings {
            secret_file: "s".into(),
            issuer: None,
            audience: None,
            max_clock_skew_seconds: 30,
        };
        assert_eq!(message(&signed, file), Ok(AuthSettings::Signed(expected)));
    }
}
