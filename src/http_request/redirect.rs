//! From a redirect to the next request.

use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    LOCATION, PROXY_AUTHORIZATION, REFERER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use reqwest::{Method, StatusCode, Url};

use super::error::HttpError;
use super::request::{Prepared, is_http, strip};
use crate::protocol::failure::HttpErrorKind;

/// Redirects that are followed.
const MAX_HOPS: usize = 10;

/// What is told to the origin that was asked, and to no other.
static OF_ONE_ORIGIN: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("cookie2"),
    PROXY_AUTHORIZATION,
    WWW_AUTHENTICATE,
    // It would name the old one.
    HOST,
];

/// What a response leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is the result.
    Final,
    /// The request, changed, is sent again.
    Again,
}

/// Looks at a response, the `hops`-th redirect of this request if it is one, and changes the request accordingly.
pub(super) fn next(
    request: &mut Prepared,
    status: StatusCode,
    headers: &HeaderMap,
    hops: usize,
) -> Result<Next, HttpError> {
    let Some(target) = target(request, status, headers) else { return Ok(Next::Final) };
    if hops == MAX_HOPS {
        return Err(HttpError::failed(
            HttpErrorKind::Redirect,
            format!("too many redirects, {MAX_HOPS} at most"),
        ));
    }
    if !is_http(&target) {
        let message = format!("a redirect leads to a URL of {}, which is not followed", target.scheme());
        return Err(HttpError::failed(HttpErrorKind::Redirect, message));
    }
    if becomes_get(status, &request.method) {
        drop_body(request, status);
    }
    if target.origin() != request.url.origin() {
        drop_secrets(request);
    }
    set_referer(request, &target);
    request.url = target;
    Ok(Next::Again)
}

/// Where a redirect that is to be followed leads. One that does not say so readably is a result.
fn target(request: &Prepared, status: StatusCode, headers: &HeaderMap) -> Option<Url> {
    if !request.follow || !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = std::str::from_utf8(headers.get(LOCATION)?.as_bytes()).ok()?;
    let mut target = request.url.join(location).ok()?;
    strip(&mut target);
    Some(target)
}

fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        status => status == StatusCode::SEE_OTHER,
    }
}

fn drop_body(request: &mut Prepared, status: StatusCode) {
    if !(status == StatusCode::SEE_OTHER && request.method == Method::HEAD) {
        request.method = Method::GET;
    }
    request.body = None;
    for name in [CONTENT_TYPE, CONTENT_ENCODING, TRANSFER_ENCODING] {
        request.headers.remove(name);
    }
}

/// They stay away, also if a later redirect leads back.
fn drop_secrets(request: &mut Prepared) {
    for name in OF_ONE_ORIGIN.iter().chain(&request.secrets) {
        request.headers.remove(name);
    }
}

fn set_referer(request: &mut Prepared, target: &Url) {
    request.headers.remove(REFERER);
    if request.url.scheme() == "https" && target.scheme() == "http" {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(request.url.as_str()) {
        request.headers.insert(REFERER, value);
    }
}
