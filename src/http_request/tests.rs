use std::ffi::OsString;

use pretty_assertions::assert_eq;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use serde_json::{Value, json};
use test_case::test_case;

use super::error::HttpError;
use super::redirect::{Next, next};
use super::request::Prepared;
use super::*;
use crate::outbound::OutboundProxyPolicy;

fn settings(allowed: &[&str]) -> HttpSettings {
    let environment = [("TOKEN", "s3cret"), ("EMPTY", ""), ("LINES", "a\nb"), ("openai_api_key", "own")];
    HttpSettings {
        max_buffered: 1 << 20,
        allowed_variables: allowed.iter().map(ToString::to_string).collect(),
        deny: Vec::new(),
        outbound: HttpClientFactory::with_environment(
            OutboundProxyPolicy::ReqwestDefault,
            environment.map(|(name, value)| (OsString::from(name), OsString::from(value))).into(),
        ),
    }
}

fn prepare(extra: Value) -> Result<Prepared, HttpError> {
    prepare_with(&settings(&["*"]), extra)
}

fn prepare_with(settings: &HttpSettings, extra: Value) -> Result<Prepared, HttpError> {
    let mut params = json!({"method": "GET", "url": "http://h/", "requestId": ""});
    for (key, value) in extra.as_object().unwrap() {
        params[key] = value.clone();
    }
    Prepared::new(serde_json::from_value(params).unwrap(), settings)
}

fn refusal(extra: Value) -> String {
    let error = prepare(extra).unwrap_err();
    assert!(matches!(error, HttpError::Invalid(_)));
    error.to_string()
}

fn variable(name: &str) -> Value {
    json!({"headers": [{"name": "X", "value": "p", "valueEnvVar": name}]})
}

#[test_case(json!({"method": ""}), "http/request method is invalid: "; "no method")]
#[test_case(json!({"method": "B AD"}), "http/request method is invalid: "; "no token")]
#[test_case(json!({"url": ""}), "http/request url is invalid: "; "no URL")]
#[test_case(json!({"url": "/relative"}), "http/request url is invalid: "; "relative")]
#[test_case(json!({"url": "ftp://h/"}), "http/request only supports http and https URLs, got ftp"; "scheme")]
#[test_case(json!({"headers": [{"name": "B d", "value": ""}]}), "http/request header name is invalid: "; "header name")]
#[test_case(
    json!({"headers": [{"name": "X", "value": "a\r\nb"}]}), "http/request header value is invalid for X: ";
    "header value"
)]
#[test_case(variable("NONE"), "http/request header X requires executor environment variable NONE"; "unset")]
#[test_case(variable("A=B"), "http/request header X requires executor environment variable A=B"; "no name")]
#[test_case(
    variable("EMPTY"), "http/request header X requires a non-empty executor environment variable EMPTY"; "empty"
)]
#[test_case(variable("LINES"), "http/request header X gets no legal value from"; "illegal value")]
#[test_case(variable("OpenAI_API_key"), "http/request header X cannot use executor environment variable"; "protected")]
#[test_case(variable("EXEC_SERVER_URL"), "http/request header X cannot use executor environment variable"; "own")]
fn what_is_refused(extra: Value, text: &str) {
    let refusal = refusal(extra);
    assert!(refusal.starts_with(text), "{refusal}");
}

#[test]
fn only_listed_variables_can_be_read() {
    assert!(prepare_with(&settings(&["TOKEN"]), variable("TOKEN")).is_ok());
    for allowed in [&[][..], &["token"], &["openai_api_key"]] {
        assert!(prepare_with(&settings(allowed), variable("TOKEN")).is_err());
        assert!(prepare_with(&settings(allowed), variable("openai_api_key")).is_err());
    }
}

#[test]
fn a_request_as_it_is_sent() {
    let headers = json!([
        {"name": "X-A", "value": "1"},
        {"name": "x-a", "value": "2"},
        {"name": "Content-Length", "value": "99"},
        {"name": "X-Key", "value": "Bearer ", "valueEnvVar": "TOKEN"},
    ]);
    let url = "http://u%40:p@h:81/a b?q=ä#f";
    let request = prepare(json!({"method": "lower", "url": url, "headers": headers})).unwrap();
    assert_eq!(request.method.as_str(), "lower");
    assert_eq!(request.url.as_str(), "http://h:81/a%20b?q=%C3%A4");
    let values: Vec<&[u8]> = request.headers.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(values, [b"1", b"2"]);
    assert_eq!(request.headers["x-key"], "Bearer s3cret");
    assert_eq!(request.headers["authorization"], "Basic dUA6cA==");
    assert!(!request.headers.contains_key("content-length"));
}

#[test]
fn the_caller_decides_about_authorization() {
    let headers = json!([{"name": "Authorization", "value": "mine"}]);
    let request = prepare(json!({"url": "http://u:p@h/", "headers": headers})).unwrap();
    assert_eq!(request.headers["authorization"], "mine");
}

fn redirect(request: &mut Prepared, status: u16, location: &str, hops: usize) -> Result<Next, HttpError> {
    let mut headers = HeaderMap::new();
    headers.insert(LOCATION, HeaderValue::from_str(location).unwrap());
    next(request, StatusCode::from_u16(status).unwrap(), &headers, hops)
}

#[test_case(301, "POST", "GET", false; "301 of POST")]
#[test_case(302, "POST", "GET", false; "302 of POST")]
#[test_case(302, "PUT", "PUT", true; "302 of PUT")]
#[test_case(303, "POST", "GET", false; "303 of POST")]
#[test_case(303, "HEAD", "HEAD", false; "303 of HEAD")]
#[test_case(307, "POST", "POST", true; "307")]
#[test_case(308, "DELETE", "DELETE", true; "308")]
fn methods_and_bodies_of_redirects(status: u16, method: &str, then: &str, with_body: bool) {
    let headers = json!([{"name": "Content-Type", "value": "a/b"}]);
    let mut request = prepare(json!({"method": method, "bodyBase64": "aGk=", "headers": headers})).unwrap();
    assert_eq!(redirect(&mut request, status, "/x", 0).unwrap(), Next::Again);
    assert_eq!((request.method.as_str(), request.body.is_some()), (then, with_body));
    assert_eq!(request.headers.contains_key("content-type"), with_body);
    assert_eq!(
        (request.url.as_str(), &request.headers["referer"]),
        ("http://h/x", &"http://h/".parse::<HeaderValue>().unwrap())
    );
}

#[test]
fn what_is_not_followed() {
    let mut stopped = prepare(json!({"redirectPolicy": "stop"})).unwrap();
    assert_eq!(redirect(&mut stopped, 302, "/x", 0).unwrap(), Next::Final);
    let mut request = prepare(json!({})).unwrap();
    assert_eq!(redirect(&mut request, 300, "/x", 0).unwrap(), Next::Final);
    assert_eq!(next(&mut request, StatusCode::FOUND, &HeaderMap::new(), 0).unwrap(), Next::Final);
    for (location, hops) in [("file:///etc/passwd", 0), ("/x", 10)] {
        let error = redirect(&mut request, 302, location, hops).unwrap_err();
        assert!(matches!(error, HttpError::Failed { kind: HttpErrorKind::Redirect, .. }));
    }
}

#[test_case("/same", true; "same origin")]
#[test_case("http://h:80/same", true; "the port of the scheme")]
#[test_case("https://h/", false; "other scheme")]
#[test_case("http://h:81/", false; "other port")]
#[test_case("http://other/", false; "other host")]
fn secrets_stay_with_their_origin(location: &str, kept: bool) {
    let headers = json!([
        {"name": "Authorization", "value": "a"},
        {"name": "Cookie", "value": "c"},
        {"name": "Host", "value": "name"},
        {"name": "X-Key", "value": "", "valueEnvVar": "TOKEN"},
        {"name": "X-Plain", "value": "p"},
    ]);
    let mut request = prepare(json!({"headers": headers})).unwrap();
    redirect(&mut request, 307, location, 0).unwrap();
    for name in ["authorization", "cookie", "host", "x-key"] {
        assert_eq!(request.headers.contains_key(name), kept, "{name}");
    }
    assert!(request.headers.contains_key("x-plain"));
}

#[test]
fn a_referer_is_not_told_in_clear() {
    let mut request = prepare(json!({"url": "https://h/secret"})).unwrap();
    redirect(&mut request, 302, "http://h/", 0).unwrap();
    assert!(!request.headers.contains_key("referer"));
}
