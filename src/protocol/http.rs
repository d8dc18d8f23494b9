//! `http/request`: requests that the executor makes for the client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::base64::ByteChunk;
use super::failure::HttpErrorData;
use super::method::{Failures, methods, notifications};

methods! {
    from Client;
    /// Makes an HTTP request from the executor's network.
    Request = "http/request": RequestParams => Response, Failures::with::<HttpErrorData>(&[]);
}

notifications! {
    from Server;
    /// A piece of a streamed response body.
    BodyDelta = "http/request/bodyDelta": BodyDeltaParams;
}

/// The largest piece of a streamed body, in decoded bytes.
pub const MAX_DELTA_BYTES: usize = 1 << 20;

/// Params of `http/request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HttpRequestParams")]
pub struct RequestParams {
    /// Any HTTP token, sent as it is.
    pub method: String,
    /// Absolute, of `http` or `https`.
    pub url: String,
    /// In order, repeats kept.
    #[serde(default)]
    pub headers: Vec<RequestHeader>,
    /// The body, if any.
    #[serde(default, rename = "bodyBase64")]
    pub body: Option<ByteChunk>,
    /// Limit of the whole request; none if absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether redirects are followed.
    #[serde(default)]
    pub redirect_policy: RedirectPolicy,
    /// Names the stream of the response.
    pub request_id: String,
    /// The body comes in notifications, behind the response.
    #[serde(default)]
    pub stream_response: bool,
}

/// A header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestHeader {
    /// The name.
    pub name: String,
    /// The value, or what precedes that of the variable.
    pub value: String,
    /// A variable of the executor's environment whose value follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env_var: Option<String>,
}

/// What becomes of a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RedirectPolicy {
    /// It is followed.
    #[default]
    Follow,
    /// It is the response.
    Stop,
}

/// Result of `http/request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HttpResponse")]
pub struct Response {
    /// The status code, whatever it is.
    pub status: u16,
    /// Names in lower case, in order, repeats kept.
    pub headers: Vec<ResponseHeader>,
    /// The whole body; empty if it is streamed.
    #[serde(rename = "bodyBase64")]
    pub body: ByteChunk,
}

/// A header of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseHeader {
    /// The name, in lower case.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Params of `http/request/bodyDelta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BodyDeltaParams {
    /// The stream.
    pub request_id: String,
    /// Counts from 1 without gaps.
    pub seq: u64,
    /// The piece; empty in the last one.
    #[serde(rename = "deltaBase64")]
    pub delta: ByteChunk,
    /// Nothing follows.
    pub done: bool,
    /// Why the body is not complete.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;
    use test_case::test_case;

    fn decode(extra: serde_json::Value) -> serde_json::Result<RequestParams> {
        let mut params = json!({"method": "GET", "url": "http://h/", "requestId": ""});
        for (key, value) in extra.as_object().unwrap() {
            params[key] = value.clone();
        }
        serde_json::from_value(params)
    }

    #[test]
    fn absent_and_null_members_have_their_defaults() {
        let plain = decode(json!({})).unwrap();
        let nulls = json!({"bodyBase64": null, "timeoutMs": null, "unknown": 1});
        assert_eq!(decode(nulls).unwrap(), plain);
        assert_eq!((plain.redirect_policy, plain.stream_response), (RedirectPolicy::Follow, false));
    }

    #[test_case(json!({"streamResponse": null}); "null is no bool")]
    #[test_case(json!({"timeoutMs": -1}); "negative timeout")]
    #[test_case(json!({"redirectPolicy": "sometimes"}); "unknown policy")]
    #[test_case(json!({"bodyBase64": "@@"}); "no base64")]
    #[test_case(json!({"headers": [{"name": "X"}]}); "header without value")]
    fn what_does_not_decode(extra: serde_json::Value) {
        assert!(decode(extra).is_err());
    }

    #[test]
    fn every_member_of_a_delta_is_present() {
        let params = BodyDeltaParams {
            request_id: "r".into(),
            seq: 1,
            delta: Vec::new().into(),
            done: true,
            error: None,
        };
        let expected = json!({"requestId": "r", "seq": 1, "deltaBase64": "", "done": true, "error": null});
        assert_eq!(serde_json::to_value(params).unwrap(), expected);
    }
}
