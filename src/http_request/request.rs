//! From params to a request that can be sent. What can never be right is refused here, before anything is sent.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use base64_simd::STANDARD;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use tokio::time::Instant;

use super::HttpSettings;
use super::body::Deadline;
use super::error::HttpError;
use crate::protocol::http::{RedirectPolicy, RequestHeader, RequestParams};

/// Variables with credentials of this machine, which no header takes, in whatever case they are written.
const PROTECTED: &[&str] = &[
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// What begins so belongs to this server: where its tokens are, and their digests.
const OWN_PREFIX: &str = "EXEC_SERVER_";

/// A request, as the next hop gets it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) method: Method,
    /// Without user info and fragment.
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// Headers with a value of this machine's environment.
    pub(super) secrets: Vec<HeaderName>,
    pub(super) body: Option<Bytes>,
    pub(super) deadline: Deadline,
    pub(super) follow: bool,
}

impl Prepared {
    /// Checks everything.
    pub(super) fn new(params: RequestParams, settings: &HttpSettings) -> Result<Self, HttpError> {
        let method = Method::from_bytes(params.method.as_bytes())
            .map_err(|error| HttpError::Invalid(format!("method is invalid: {error}")))?;
        let (url, user_info) = target(&params.url)?;
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for header in &params.headers {
            let (name, value) = (name(header)?, value(header, settings)?);
            if header.value_env_var.is_some() {
                secrets.push(name.clone());
            }
            // The length of the body is what it is; any other would leave the server waiting.
            if name != CONTENT_LENGTH {
                let appended = headers.try_append(name, value);
                appended.map_err(|_| HttpError::Invalid("headers are too many".to_owned()))?;
            }
        }
        if let Some(value) = user_info
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self {
            method,
            url,
            headers,
            secrets,
            body: params.body.map(|body| body.into_inner().into()),
            deadline: deadline(params.timeout_ms),
            follow: params.redirect_policy == RedirectPolicy::Follow,
        })
    }

    /// One request of it.
    pub(super) fn to_client(&self) -> reqwest::Request {
        let mut request = reqwest::Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = self.headers.clone();
        *request.body_mut() = self.body.clone().map(Into::into);
        request
    }
}

/// A limit beyond the end of the clock is none.
fn deadline(timeout_ms: Option<u64>) -> Deadline {
    Deadline(timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms))))
}

/// The URL as it is sent, and its user info as a header.
fn target(url: &str) -> Result<(Url, Option<HeaderValue>), HttpError> {
    let invalid = |why: &dyn std::fmt::Display| HttpError::Invalid(format!("url is invalid: {why}"));
    let mut url = Url::parse(url).map_err(|error| invalid(&error))?;
    if !is_http(&url) {
        let scheme = url.scheme();
        return Err(HttpError::Invalid(format!("only supports http and https URLs, got {scheme}")));
    }
    let user_info = basic(&url);
    strip(&mut url);
    url.as_str().parse::<hyper::Uri>().map_err(|error| invalid(&error))?;
    Ok((url, user_info))
}

pub(super) fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Takes away what is not sent.
pub(super) fn strip(url: &mut Url) {
    url.set_fragment(None);
    // Neither fails where there is a host, as every URL of HTTP has one.
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

fn basic(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let mut pair = decoded(url.username());
    pair.push(b':');
    pair.extend(decoded(url.password().unwrap_or_default()));
    HeaderValue::try_from(format!("Basic {}", STANDARD.encode_to_string(&pair))).ok()
}

fn name(header: &RequestHeader) -> Result<HeaderName, HttpError> {
    HeaderName::from_bytes(header.name.as_bytes())
        .map_err(|error| HttpError::Invalid(format!("header name is invalid: {error}")))
}

fn value(header: &RequestHeader, settings: &HttpSettings) -> Result<HeaderValue, HttpError> {
    let name = &header.name;
    let Some(variable) = &header.value_env_var else {
        return HeaderValue::from_str(&header.value)
            .map_err(|error| HttpError::Invalid(format!("header value is invalid for {name}: {error}")));
    };
    let refused = |why: &str| HttpError::Invalid(format!("header {name} {why} {variable}"));
    if !settings.permits(variable) {
        return Err(refused("cannot use executor environment variable"));
    }
    let Some(secret) = settings.outbound.variable(variable) else {
        return Err(refused("requires executor environment variable"));
    };
    if secret.is_empty() {
        return Err(refused("requires a non-empty executor environment variable"));
    }
    let bytes = [header.value.as_bytes(), secret.as_bytes()].concat();
    HeaderValue::from_bytes(&bytes)
        .map_err(|_| refused("gets no legal value from executor environment variable"))
}

impl HttpSettings {
    fn permits(&self, variable: &str) -> bool {
        let upper = variable.to_ascii_uppercase();
        let protected = PROTECTED.contains(&upper.as_str()) || upper.starts_with(OWN_PREFIX);
        !protected && self.allowed_variables.iter().any(|allowed| allowed == "*" || allowed == variable)
    }
}
