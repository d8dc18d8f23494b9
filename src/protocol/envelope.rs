//! The JSON-RPC envelope: one message, in either direction.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{code, strict};

/// The longest text id.
const ID_BYTES: usize = 64 << 10;

/// The id of a request: a string, or a signed 64-bit integer. It returns with its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum RequestId {
    /// An integer id.
    Integer(i64),
    /// A text id.
    Text(String),
}

impl RequestId {
    /// The id of answers to messages that had no readable one. Clients do not use it.
    pub const UNREADABLE: Self = Self::Integer(-1);

    fn from_value(value: Value) -> Result<Self, Malformed> {
        match value {
            Value::String(text) if text.len() > ID_BYTES => {
                Err(Malformed(format!("`id` has {} bytes; at most {ID_BYTES} are echoed", text.len())))
            }
            Value::String(text) => Ok(Self::Text(text)),
            Value::Number(number) => number
                .as_i64()
                .map(Self::Integer)
                .ok_or_else(|| Malformed("`id` must be a string or a signed 64-bit integer".into())),
            _ => Err(Malformed("`id` must be a string or a signed 64-bit integer".into())),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(id) => write!(f, "{id}"),
            Self::Text(id) => write!(f, "{id:?}"),
        }
    }
}

/// W3C trace context that a request may carry. Senseless text in it is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceContext {
    /// The `traceparent` header value.
    pub traceparent: Option<String>,
    /// The `tracestate` header value.
    pub tracestate: Option<String>,
}

/// One decoded message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer with the same id.
    Request {
        /// Echoed in the answer.
        id: RequestId,
        /// The method's wire name.
        method: String,
        /// The params; absent is null.
        params: Value,
        /// Trace context, if any.
        trace: Option<TraceContext>,
    },
    /// Wants no answer.
    Notification {
        /// The notification's wire name.
        method: String,
        /// The params; absent is null.
        params: Value,
    },
    /// Answers a request.
    Response {
        /// The id of the request.
        id: RequestId,
        /// Its outcome.
        outcome: Result<Value, ErrorObject>,
    },
}

/// Why a text is no message. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to parse message: {0}")]
pub struct Malformed(String);

impl Message {
    /// Decodes one message.
    ///
    /// # Errors
    /// [`Malformed`] when the text is not exactly one JSON object of the envelope's shape: bad JSON, a batch, a
    /// member of a wrong type, duplicate keys at any level, more than 127 levels of nesting.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        match strict::parse(text) {
            Ok(Value::Object(members)) => Self::from_members(members),
            Ok(_) => Err(Malformed("a message is one JSON object".into())),
            Err(error) => Err(Malformed(error.to_string())),
        }
    }

    fn from_members(mut members: Map<String, Value>) -> Result<Self, Malformed> {
        let id = members.remove("id").map(RequestId::from_value).transpose()?;
        let trace = members.remove("trace").map(trace_context).transpose()?.flatten();
        if let Some(method) = members.remove("method") {
            let Value::String(method) = method else {
                return Err(Malformed("`method` must be a string".into()));
            };
            let params = members.remove("params").unwrap_or(Value::Null);
            return Ok(match id {
                Some(id) => Self::Request { id, method, params, trace },
                None => Self::Notification { method, params },
            });
        }
        let Some(id) = id else {
            return Err(Malformed("a message needs `method`, or `id` with `result` or `error`".into()));
        };
        if let Some(error) = members.remove("error") {
            let error =
                serde_json::from_value(error).map_err(|error| Malformed(format!("`error`: {error}")))?;
            return Ok(Self::Response { id, outcome: Err(error) });
        }
        match members.remove("result") {
            Some(result) => Ok(Self::Response { id, outcome: Ok(result) }),
            None => Err(Malformed("a message needs `method`, `result` or `error`".into())),
        }
    }
}

/// An answer to a request of this side. Its result is not decoded, so that its size costs no more than its text.
#[derive(Debug)]
pub struct Answer {
    /// The id of the request.
    pub id: RequestId,
    /// Its outcome.
    pub outcome: Result<Box<RawValue>, ErrorObject>,
}

/// The members that tell an answer.
#[derive(Deserialize)]
struct AnswerMembers<'a> {
    id: Value,
    #[serde(default, borrow, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<ErrorObject>,
}

/// Null is a value here.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

impl Answer {
    /// The answer that a text is, if it is one. What is none is for [`Message::parse`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let members: AnswerMembers<'_> = serde_json::from_slice(text).ok()?;
        let id = RequestId::from_value(members.id).ok()?;
        let outcome = match (members.method, members.error, members.result) {
            (None, Some(error), _) => Err(error),
            (None, None, Some(result)) => Ok(result.to_owned()),
            _ => return None,
        };
        Some(Self { id, outcome })
    }
}

fn trace_context(value: Value) -> Result<Option<TraceContext>, Malformed> {
    let wrong = || Malformed("`trace` must be null or an object of strings".into());
    let text = |value: Option<Value>| match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong()),
    };
    match value {
        Value::Null => Ok(None),
        Value::Object(mut members) => Ok(Some(TraceContext {
            traceparent: text(members.remove("traceparent"))?,
            tracestate: text(members.remove("tracestate"))?,
        })),
        _ => Err(wrong()),
    }
}

/// The `error` member of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// One of [`code`].
    pub code: i64,
    /// One sentence for people.
    pub message: String,
    /// Facts for programs, such as `{"kind": "spawnNotFound"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The answer to a message that could not be read.
    #[must_use]
    pub fn malformed(why: &Malformed) -> Self {
        Self::new(code::INVALID_REQUEST, why.to_string())
    }
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

/// A request, ready to encode.
#[derive(Debug, Serialize)]
pub struct OutgoingRequest<'a, P> {
    /// Chosen by the sender.
    pub id: &'a RequestId,
    /// The method's wire name.
    pub method: &'a str,
    /// The params.
    pub params: P,
}

/// A notification, ready to encode.
#[derive(Debug, Serialize)]
pub struct OutgoingNotification<'a, P> {
    /// The notification's wire name.
    pub method: &'a str,
    /// The params.
    pub params: P,
}

/// A successful answer, ready to encode.
#[derive(Debug, Serialize)]
pub struct OutgoingResult<'a, R> {
    /// The id of the request.
    pub id: &'a RequestId,
    /// Its result.
    pub result: R,
}

/// A failed answer, ready to encode.
#[derive(Debug, Serialize)]
pub struct OutgoingError<'a> {
    /// The id of the request, or [`RequestId::UNREADABLE`].
    pub id: &'a RequestId,
    /// What went wrong.
    pub error: &'a ErrorObject,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn malformed(text: &str) -> bool {
        Message::parse(text.as_bytes()).is_err()
    }

    #[test]
    fn the_shapes_of_a_message() {
        let request =
            Message::parse(br#"{"jsonrpc":"1","id":"","method":"m","result":1,"extra":[]}"#).unwrap();
        let id = RequestId::Text(String::new());
        assert_eq!(request, Message::Request { id, method: "m".into(), params: Value::Null, trace: None });
        let note = Message::parse(br#"{"method":"m","params":[1]}"#).unwrap();
        assert_eq!(note, Message::Notification { method: "m".into(), params: serde_json::json!([1]) });
        let answer = Message::parse(br#"{"id":-9223372036854775808,"result":null}"#).unwrap();
        assert_eq!(answer, Message::Response { id: RequestId::Integer(i64::MIN), outcome: Ok(Value::Null) });
    }

    #[test]
    fn what_is_no_message() {
        for text in [
            "",
            "5",
            "null",
            "[]",
            "{}",
            r#"{"id":5}"#,
            r#"{"id":5,"method":7}"#,
            r#"{"id":1,"method":"x"} {}"#,
            r#"{"id":1.0,"method":"x"}"#,
            r#"{"id":1e3,"method":"x"}"#,
            r#"{"id":null,"method":"x"}"#,
            r#"{"id":9223372036854775808,"method":"x"}"#,
            r#"{"id":1,"id":1,"method":"x"}"#,
            r#"{"id":1,"method":"x","params":{"a":{"b":1,"b":2}}}"#,
            "\u{feff}{\"id\":1,\"method\":\"x\"}",
            r#"{"id":1,"method":"x","params":NaN}"#,
            r#"{"id":1,"method":"\ud800"}"#,
            r#"{"id":1,"method":"x","trace":5}"#,
            r#"{"id":1,"method":"x","trace":{"traceparent":5}}"#,
            r#"{"result":1}"#,
            r#"{"id":1,"error":5}"#,
        ] {
            assert!(malformed(text), "{text}");
        }
        assert!(Message::parse(b"\x00\xff\x01").is_err());
    }

    #[test]
    fn nesting_is_limited_to_127_levels() {
        let nested = |levels: usize| {
            let inner = levels - 1;
            format!(r#"{{"id":1,"method":"x","params":{}{}}}"#, "[".repeat(inner), "]".repeat(inner))
        };
        assert!(!malformed(&nested(127)));
        assert!(malformed(&nested(128)));
    }

    #[test]
    fn an_answer_is_told_from_other_messages() {
        let parse = |text: &str| Answer::parse(text.as_bytes());
        for (text, raw) in [
            (r#"{"id":7,"result":{"a": [1]},"extra":{}}"#, r#"{"a": [1]}"#),
            (r#"{"error":null,"result":null,"id":7}"#, "null"),
        ] {
            let answer = parse(text).unwrap();
            assert_eq!(answer.id, RequestId::Integer(7));
            assert_eq!(answer.outcome.unwrap().get(), raw);
        }
        let failed = parse(r#"{"id":"x","result":1,"error":{"code":-1,"message":"m"}}"#).unwrap();
        assert_eq!(failed.outcome.unwrap_err(), ErrorObject::new(-1, "m"));
        for text in [
            r#"{"id":1,"method":"m","result":1}"#,
            r#"{"id":1,"method":null,"result":1}"#,
            r#"{"id":1}"#,
            r#"{"result":1}"#,
            r#"{"id":null,"result":1}"#,
            r#"{"id":1,"result":1,"result":2}"#,
            r#"{"id":1,"result":{]}"#,
            r#"{"id":1,"result":1} {}"#,
            r#"{"id":1,"error":5}"#,
            "[]",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Message::parse(&bytes);
            assert!(Answer::parse(&bytes).is_none_or(|_| Message::parse(&bytes).is_ok()));
        }

        #[test]
        fn ids_come_back_unchanged(id: i64) {
            let message = Message::parse(format!(r#"{{"id":{id},"method":"m"}}"#).as_bytes()).unwrap();
            let Message::Request { id: parsed, .. } = message else { panic!("not a request") };
            prop_assert_eq!(serde_json::to_string(&parsed).unwrap(), id.to_string());
        }
    }
}
