//! `file:` URIs and the native paths that they name.
//!
//! A URI is parsed like a URL of the web. Its `.` and `..` go lexically, before any link is looked at, and again after
//! percent-decoding. A path of another platform (a host, a drive) parses, and is refused only when it is used.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base64_simd::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use url::Url;

/// What a returned URI encodes, beside every byte that is not ASCII. Clients compare URIs as text.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'#')
    .add(b'?')
    .add(b'%')
    .add(b'\\');

/// Spells paths that no other URI can: base64url of the native bytes follows.
const OPAQUE: &str = "/%00/bad/path/";

/// A `file:` URI, normalised.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[Ff][Ii][Ll][Ee]:", "examples" = ["file:///dir/name"]))]
pub struct PathUri(String);

/// Why a text or a path makes no [`PathUri`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathUriError {
    /// It is no URI at all.
    #[error("invalid URI: {0}; a path is written like `file:///dir/name`")]
    Syntax(#[from] url::ParseError),
    /// It has another scheme than `file`.
    #[error("unsupported path URI scheme `{0}`; a path is written like `file:///dir/name`")]
    Scheme(String),
    /// It has a query.
    #[error("a path URI has no query; a question mark in a name is written `%3F`")]
    Query,
    /// It has a fragment.
    #[error("a path URI has no fragment; a number sign in a name is written `%23`")]
    Fragment,
    /// It has a user, a password or a port.
    #[error("a path URI has neither user nor port; a path is written like `file:///dir/name`")]
    Authority,
    /// A path cannot contain NUL.
    #[error("a path cannot contain a NUL byte")]
    Nul,
    /// A native path that is not absolute.
    #[error("`{}` is not an absolute path", .0.display())]
    NotAbsolute(PathBuf),
    /// A native path is needed and the URI names none.
    #[error(transparent)]
    Foreign(#[from] ForeignPath),
}

/// A URI that names nothing on this platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{uri}' is invalid on '{}'", std::env::consts::OS)]
pub struct ForeignPath {
    uri: String,
}

impl PathUri {
    /// Parses and normalises a URI.
    ///
    /// # Errors
    ///
    /// The text is no `file:` URI, or one with parts that a path has not.
    pub fn parse(text: &str) -> Result<Self, PathUriError> {
        let (url, bars_encoded) = parse_url(text)?;
        if url.scheme() != "file" {
            return Err(PathUriError::Scheme(url.scheme().to_owned()));
        }
        if url.query().is_some() {
            return Err(PathUriError::Query);
        }
        if url.fragment().is_some() {
            return Err(PathUriError::Fragment);
        }
        if !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
            return Err(PathUriError::Authority);
        }
        let has_nul = percent_decode_str(url.path()).any(|byte| byte == 0);
        if has_nul && (url.has_host() || opaque_part(url.path()).is_none()) {
            return Err(PathUriError::Nul);
        }
        let uri = String::from(url);
        Ok(Self(if bars_encoded { uri.replace("%7C", "|") } else { uri }))
    }

    /// The path that the URI names on this platform, absolute and lexically normalised.
    ///
    /// # Errors
    ///
    /// The URI names a host, a drive, or is an opaque form that holds no absolute path.
    pub fn to_native_path(&self) -> Result<PathBuf, ForeignPath> {
        let foreign = || ForeignPath { uri: self.0.clone() };
        let path = self.0.strip_prefix("file://").filter(|rest| rest.starts_with('/')).ok_or_else(foreign)?;
        if let Some(encoded) = opaque_part(path) {
            let bytes = URL_SAFE_NO_PAD.decode_to_vec(encoded).map_err(|_| foreign())?;
            return native(&bytes).ok_or_else(foreign);
        }
        let path = normalise(&percent_decode_str(path).collect::<Vec<u8>>());
        if is_drive(&path) { Err(foreign()) } else { Ok(to_path_buf(&path)) }
    }

    /// The URI of an absolute native path, lexically normalised.
    ///
    /// # Errors
    ///
    /// The path is relative, or contains NUL.
    pub fn from_native_path(path: &Path) -> Result<Self, PathUriError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&0) {
            return Err(PathUriError::Nul);
        }
        if !path.is_absolute() {
            return Err(PathUriError::NotAbsolute(path.to_owned()));
        }
        let bytes = normalise(bytes);
        if is_drive(&bytes) {
            return Ok(Self(format!("file://{OPAQUE}{}", URL_SAFE_NO_PAD.encode_to_string(&bytes))));
        }
        Ok(Self(format!("file://{}", percent_encode(&bytes, ENCODED))))
    }

    /// The same as [`PathUri::from_native_path`], by the name that clients know.
    ///
    /// # Errors
    ///
    /// The path is relative, or contains NUL.
    pub fn from_host_native_path(path: impl AsRef<Path>) -> Result<Self, PathUriError> {
        Self::from_native_path(path.as_ref())
    }

    /// The same as [`PathUri::from_native_path`], by the name that clients know.
    ///
    /// # Errors
    ///
    /// The path is relative, or contains NUL.
    pub fn from_abs_path(path: impl AsRef<Path>) -> Result<Self, PathUriError> {
        Self::from_native_path(path.as_ref())
    }

    /// The URI of a native path relative to this one; an absolute one takes its place.
    ///
    /// # Errors
    ///
    /// This URI is foreign, or the path contains NUL.
    pub fn join(&self, path: &str) -> Result<Self, PathUriError> {
        Self::from_native_path(&self.to_native_path()?.join(path))
    }

    /// The URI of an entry of the directory that this URI names; everything before the name stays as it is spelled. The
    /// name is a single one that is neither empty nor `.` nor `..`, as directories list them.
    #[must_use]
    pub fn child(&self, name: &OsStr) -> Self {
        let spelled =
            format!("{}/{}", self.0.trim_end_matches('/'), percent_encode(name.as_bytes(), ENCODED));
        let is_plain = spelled
            .strip_prefix("file://")
            .is_some_and(|path| !is_drive(path.as_bytes()) && !path.starts_with(OPAQUE));
        let exact = || Self::from_native_path(&self.to_native_path().ok()?.join(name)).ok();
        if is_plain { Self(spelled) } else { exact().unwrap_or(Self(spelled)) }
    }

    /// The URI as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for PathUri {
    type Err = PathUriError;

    fn from_str(text: &str) -> Result<Self, PathUriError> {
        Self::parse(text)
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Parses a URL, without the rule that reads a first segment `C|` as the drive `C:`. Says whether that rule was avoided
/// by encoding the bars.
fn parse_url(text: &str) -> Result<(Url, bool), url::ParseError> {
    // The parser drops these too, but looks for drives before it does.
    let text = text.replace(['\t', '\n', '\r'], "");
    let url = Url::parse(&text)?;
    if !text.contains('|') || !is_drive(url.path().as_bytes()) {
        return Ok((url, false));
    }
    match Url::parse(&text.replace('|', "%7C")) {
        Ok(literal) if !is_drive(literal.path().as_bytes()) => Ok((literal, true)),
        _ => Ok((url, false)),
    }
}

/// The base64url text of the opaque form.
fn opaque_part(path: &str) -> Option<&str> {
    path.strip_prefix(OPAQUE).filter(|rest| !rest.contains('/'))
}

/// An absolute path from the bytes of an opaque form.
fn native(bytes: &[u8]) -> Option<PathBuf> {
    (bytes.starts_with(b"/") && !bytes.contains(&0)).then(|| to_path_buf(&normalise(bytes)))
}

/// Resolves `.` and `..`, and drops doubled and trailing separators.
fn normalise(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            name => segments.push(name),
        }
    }
    let mut path = Vec::with_capacity(path.len().max(1));
    for segment in segments {
        path.push(b'/');
        path.extend_from_slice(segment);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

/// Whether the first segment is a drive, which makes it a path of another platform.
fn is_drive(path: &[u8]) -> bool {
    matches!(path, [b'/', letter, b':', rest @ ..]
        if letter.is_ascii_alphabetic() && matches!(rest, [] | [b'/', ..]))
}

fn to_path_buf(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    fn native_of(uri: &str) -> PathBuf {
        PathUri::parse(uri).unwrap().to_native_path().unwrap()
    }

    #[test_case("file:///a/b", "/a/b"; "plain")]
    #[test_case("file:/a/b", "/a/b"; "one slash")]
    #[test_case("FILE:///a/b", "/a/b"; "scheme in capitals")]
    #[test_case("file://LocalHost/a/b", "/a/b"; "localhost")]
    #[test_case("  file:///a/b \n", "/a/b"; "spaces around")]
    #[test_case("file:///a\t/\r\nb", "/a/b"; "tab and newline inside")]
    #[test_case("file:///a%0Ab", "/a\nb"; "a real newline")]
    #[test_case("file:///a b/\u{e9}/%zz%", "/a b/\u{e9}/%zz%"; "unencoded characters")]
    #[test_case("file:///a\\b", "/a/b"; "backslash")]
    #[test_case("file:///a%5Cb", "/a\\b"; "a real backslash")]
    #[test_case("file:///a/./b/../c", "/a/c"; "dot segments")]
    #[test_case("file:///a/%2e/b/%2E./c/.%2e", "/a"; "encoded dot segments")]
    #[test_case("file:///../../a", "/a"; "above the root")]
    #[test_case("file:///a%2Fb", "/a/b"; "encoded separator")]
    #[test_case("file:///a/..%2F..%2Fb", "/b"; "dot segments behind encoded separators")]
    #[test_case("file:///a//b///", "/a/b"; "doubled and trailing slashes")]
    #[test_case("file:////a", "/a"; "four slashes")]
    #[test_case("file:", "/"; "scheme only")]
    #[test_case("file://", "/"; "two slashes only")]
    #[test_case("file:///", "/"; "root")]
    #[test_case("file:rel", "/rel"; "relative")]
    #[test_case("file:///dir/C:", "/dir/C:"; "drive later")]
    #[test_case("file:///C|/x|y", "/C|/x|y"; "drive letter with a bar")]
    #[test_case("file:///C:x", "/C:x"; "longer than a drive")]
    #[test_case("file:///%00/bad/path/L0M6L3g", "/C:/x"; "opaque")]
    fn names(uri: &str, path: &str) {
        assert_eq!(native_of(uri), Path::new(path));
    }

    #[test_case("file:///a%20b/", "c d", "file:///a%20b/c%20d"; "encodes the name alone")]
    #[test_case("file:///%61", "%61", "file:///%61/%2561"; "keeps the spelling before it")]
    #[test_case("file:///", "x", "file:///x"; "of the root directory")]
    #[test_case("file:///", "C:", "file:///%00/bad/path/L0M6"; "that looks like a drive")]
    #[test_case("file:///%00/bad/path/L0M6", "x", "file:///%00/bad/path/L0M6L3g"; "below one that does")]
    fn children_are_spelled_behind_their_directory(directory: &str, name: &str, child: &str) {
        let directory = PathUri::parse(directory).unwrap();
        let found = directory.child(OsStr::new(name));
        assert_eq!(found.as_str(), child);
        assert_eq!(found.to_native_path().unwrap(), directory.to_native_path().unwrap().join(name));
        assert_eq!(PathUri::parse(child).unwrap(), found);
    }

    #[test]
    fn raw_bytes_are_kept() {
        assert_eq!(native_of("file:///n%ff%FE").as_os_str().as_bytes(), b"/n\xff\xfe");
    }

    #[test_case("http://h/x", "unsupported path URI scheme `http`"; "scheme")]
    #[test_case("c:\\x", "unsupported path URI scheme `c`"; "windows path")]
    #[test_case("", "invalid URI: relative URL without a base"; "empty")]
    #[test_case("a/b", "invalid URI: relative URL without a base"; "relative")]
    #[test_case("/a/b", "invalid URI: relative URL without a base"; "native")]
    #[test_case("file:///x?", "has no query"; "query")]
    #[test_case("file:///x#y", "has no fragment"; "fragment")]
    #[test_case("file:///a%00b", "NUL"; "nul")]
    #[test_case("file:///%00/bad/path/a/b", "NUL"; "nul in almost the opaque form")]
    #[test_case("file://h/%00/bad/path/L2E", "NUL"; "opaque form with a host")]
    #[test_case("file://user@localhost/x", "invalid URI"; "user")]
    #[test_case("file://user:secret@localhost/x", "invalid URI"; "password")]
    #[test_case("file://localhost:80/x", "invalid URI"; "port")]
    fn malformed(uri: &str, message: &str) {
        let error = PathUri::parse(uri).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(!error.contains("secret"), "{error}");
        let decoded = serde_json::from_value::<PathUri>(uri.into()).unwrap_err();
        assert_eq!(decoded.to_string(), error);
    }

    #[test_case("file://h/x"; "host")]
    #[test_case("file://127.0.0.1/x"; "ipv4")]
    #[test_case("file://[::1]/x"; "ipv6")]
    #[test_case("file:///C:/x"; "drive")]
    #[test_case("file:///c%3A/x"; "encoded drive")]
    #[test_case("file:///C:"; "drive only")]
    #[test_case("file://C:/x"; "drive as host")]
    #[test_case("file:///%00/bad/path/"; "empty opaque")]
    #[test_case("file:///%00/bad/path/!!"; "opaque that is no base64")]
    #[test_case("file:///%00/bad/path/YQ"; "opaque relative path")]
    #[test_case("file:///%00/bad/path/LwAv"; "opaque with nul")]
    fn foreign(uri: &str) {
        let parsed = PathUri::parse(uri).unwrap();
        let message = parsed.to_native_path().unwrap_err().to_string();
        assert_eq!(message, format!("'{parsed}' is invalid on '{}'", std::env::consts::OS));
    }

    #[test]
    fn the_canonical_form_keeps_escapes_and_the_trailing_slash() {
        for (uri, canonical) in [
            ("FILE://localhost/a/%2e%2e/%41%2f%ff/", "file:///%41%2f%ff/"),
            ("file:/a b\u{e9}", "file:///a%20b%C3%A9"),
            ("file:///C|/a|b", "file:///C|/a|b"),
        ] {
            let parsed = PathUri::parse(uri).unwrap();
            assert_eq!(parsed.as_str(), canonical);
            assert_eq!(serde_json::to_value(&parsed).unwrap(), canonical);
        }
    }

    #[test]
    fn returned_uris_encode_only_what_they_must() {
        let uri = |path: &str| PathUri::from_native_path(Path::new(path)).unwrap().to_string();
        assert_eq!(uri("/|^~[]!$&'()*+,;=:@-_."), "file:///|^~[]!$&'()*+,;=:@-_.");
        let encoded = "file:///%20%22%3C%3E%60%7B%7D%23%3F%25%5C%0A%7F%C3%A9";
        assert_eq!(uri("/ \"<>`{}#?%\\\n\u{7f}\u{e9}"), encoded);
        assert_eq!(uri("//a/./b/../c/"), "file:///a/c");
        assert_eq!(uri("/"), "file:///");
        assert_eq!(uri("/C:/x"), "file:///%00/bad/path/L0M6L3g");
    }

    #[test]
    fn only_absolute_paths_without_nul_have_a_uri() {
        assert!(matches!(PathUri::from_host_native_path("a"), Err(PathUriError::NotAbsolute(_))));
        assert_eq!(PathUri::from_abs_path("/a\0"), Err(PathUriError::Nul));
    }

    #[test]
    fn joining_takes_native_text() {
        let base = PathUri::parse("file:///w/").unwrap();
        assert_eq!(base.join("a b/../c%").unwrap().as_str(), "file:///w/c%25");
        assert_eq!(base.join("/x").unwrap().as_str(), "file:///x");
        assert!(matches!(PathUri::parse("file://h/x").unwrap().join("a"), Err(PathUriError::Foreign(_))));
    }

    fn segments() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let odd = prop::sample::select(vec![
            &b"C:"[..],
            b"C|",
            b".",
            b"..",
            b"%2e",
            b"",
            b"\\",
            b"%00",
            b"a\tb",
            b"\x80",
        ]);
        prop::collection::vec(
            prop_oneof![prop::collection::vec(1u8..=255, 0..8), odd.prop_map(<[u8]>::to_vec)],
            0..6,
        )
    }

    proptest! {
        #[test]
        fn every_native_path_round_trips(segments in segments()) {
            let path = to_path_buf(&[b"/".to_vec(), segments.join(&b'/')].concat());
            let uri = PathUri::from_native_path(&path).unwrap();
            let parsed = PathUri::parse(uri.as_str()).unwrap();
            prop_assert_eq!(&parsed, &uri);
            let native = parsed.to_native_path().unwrap();
            let expected = normalise(path.as_os_str().as_bytes());
            prop_assert_eq!(native.as_os_str().as_bytes(), expected);
        }

        #[test]
        fn parsing_is_idempotent_and_never_panics(text in "(file:|FILE:/|file://|file:///)?([a-zA-Z|:./\\\\%@?# \t]|%2[eEfF]|%00|\\PC){0,24}") {
            if let Ok(uri) = PathUri::parse(&text) {
                let parsed = PathUri::parse(uri.as_str()).unwrap();
                prop_assert_eq!(parsed.to_native_path().is_ok(), uri.to_native_path().is_ok());
                if let Ok(path) = uri.to_native_path() {
                    prop_assert_eq!(&parsed, &uri);
                    let again = PathUri::from_native_path(&path).unwrap().to_native_path().unwrap();
                    prop_assert_eq!(again, path);
                }
            }
        }
    }
}
