//! Encodes what goes out: answers and notifications.

use base64_simd::STANDARD;
use serde::Serialize;

use super::ticket::Ticket;
use crate::process::log::{Chunk, Event, Exit};
use crate::protocol::envelope::{
    ErrorObject, OutgoingError, OutgoingNotification, OutgoingRequest, OutgoingResult, RequestId,
};
use crate::protocol::fs::{MissingChanged, MissingChangedParams, ReadBlockResponse, ReadFileResponse};
use crate::protocol::network::{PolicyDecision, PolicyDecisionParams, PolicyRequest, PolicyRequestParams};
use crate::protocol::process::{ClosedParams, ExitedParams, LostOutput, ProcessId};
use crate::protocol::{MAX_MESSAGE_BYTES, Method, NotificationMethod, code, http, process};
use crate::session::ReadOutcome;

/// What goes out of an error's text.
const MESSAGE_CHARS: usize = 2000;

/// Encodes a successful answer, or the error that says it is too large.
pub(super) fn success<R: Serialize>(ticket: &Ticket, result: &R) -> String {
    match serde_json::to_string(&OutgoingResult { id: ticket.id(), result }) {
        Ok(text) => fitting(ticket, text),
        Err(error) => failure(
            ticket,
            &ErrorObject::new(code::INTERNAL, format!("the answer cannot be encoded: {error}")),
        ),
    }
}

/// Encodes a failed answer.
pub(super) fn failure(ticket: &Ticket, error: &ErrorObject) -> String {
    ticket.answered(Some(error));
    // A message may quote what the client sent, however much that was.
    let cut = error
        .message
        .char_indices()
        .nth(MESSAGE_CHARS)
        .map(|(end, _)| ErrorObject { message: format!("{}…", &error.message[..end]), ..error.clone() });
    let answer = OutgoingError { id: ticket.id(), error: cut.as_ref().unwrap_or(error) };
    // An error object holds nothing that JSON cannot.
    serde_json::to_string(&answer).unwrap_or_default()
}

/// Encodes any answer.
pub(super) fn answer<R: Serialize>(ticket: &Ticket, outcome: Result<R, ErrorObject>) -> String {
    match outcome {
        Ok(result) => success(ticket, &result),
        Err(error) => failure(ticket, &error),
    }
}

/// Encodes the answer to `fs/readFile`.
pub(super) fn file(ticket: &Ticket, result: &ReadFileResponse) -> String {
    bytes(ticket, "dataBase64", result.data_base64.as_slice(), END_OF_BYTES)
}

/// What goes around the base64 of a file in the answer to `fs/readFile`.
pub(super) fn around_file(ticket: &Ticket) -> (String, &'static str) {
    (before_bytes(ticket, "dataBase64", 0), END_OF_BYTES)
}

/// Encodes the answer to `fs/readBlock`.
pub(super) fn block(ticket: &Ticket, result: &ReadBlockResponse) -> String {
    let eof = if result.eof { r#"","eof":true}}"# } else { r#"","eof":false}}"# };
    bytes(ticket, "chunk", result.chunk.as_slice(), eof)
}

/// What follows bytes that are the last member of a result.
const END_OF_BYTES: &str = r#""}}"#;

/// Bytes go straight into the message: base64 holds nothing that JSON would have to escape.
fn bytes(ticket: &Ticket, member: &str, bytes: &[u8], rest: &str) -> String {
    let mut text = before_bytes(ticket, member, STANDARD.encoded_length(bytes.len()) + rest.len());
    STANDARD.encode_append(bytes, &mut text);
    text.push_str(rest);
    fitting(ticket, text)
}

/// The beginning of an answer up to its bytes, with room for them.
fn before_bytes(ticket: &Ticket, member: &str, room: usize) -> String {
    let id_text = serde_json::to_string(ticket.id()).unwrap_or_default();
    let mut text = String::with_capacity(64 + id_text.len() + room);
    text.push_str(r#"{"id":"#);
    text.push_str(&id_text);
    text.push_str(r#","result":{""#);
    text.push_str(member);
    text.push_str(r#"":""#);
    text
}

fn fitting(ticket: &Ticket, text: String) -> String {
    refuse_above_limit(ticket, text.len() as u64).unwrap_or_else(|| {
        ticket.answered(None);
        text
    })
}

/// The error in place of an answer that has more bytes than a message may.
pub(super) fn refuse_above_limit(ticket: &Ticket, bytes: u64) -> Option<String> {
    if bytes <= MAX_MESSAGE_BYTES as u64 {
        return None;
    }
    let message = format!(
        "the answer has {bytes} bytes and a message at most {MAX_MESSAGE_BYTES}: ask for it in parts \
         (`fs/open` and `fs/readBlock`, `process/read` with `maxBytes`, `fs/walk` with smaller limits)"
    );
    Some(failure(ticket, &ErrorObject::new(code::INVALID_REQUEST, message)))
}

fn json(text: &str) -> String {
    // A string can always be encoded.
    serde_json::to_string(text).unwrap_or_default()
}

/// Encodes an event as its notification.
pub(super) fn notification(process: &ProcessId, event: &Event) -> String {
    match event {
        Event::Output(chunk) => output(process, chunk),
        Event::Exited(exit) => note::<process::Exited>(&exited(process, exit)),
        Event::Closed { seq, totals } => note::<process::Closed>(&ClosedParams {
            process_id: process.clone(),
            seq: *seq,
            output_bytes: Some(*totals),
        }),
    }
}

/// Encodes that a watch has seen a change.
pub(super) fn missing_changed(watch_id: u64) -> String {
    note::<MissingChanged>(&MissingChangedParams { watch_id })
}

/// Encodes a question to the client.
pub(super) fn policy_request(id: i64, params: &PolicyRequestParams) -> String {
    let id = RequestId::Integer(id);
    let request = OutgoingRequest { id: &id, method: PolicyRequest::NAME, params };
    serde_json::to_string(&request).unwrap_or_default()
}

/// Encodes what a proxy has decided.
pub(super) fn policy_decision(report: &PolicyDecisionParams) -> String {
    note::<PolicyDecision>(report)
}

/// Encodes a piece of a streamed body, or its end with the error, if there is one.
pub(super) fn body_delta(stream: &str, seq: u64, piece: &[u8], end: Option<Option<&str>>) -> String {
    note::<http::BodyDelta>(&http::BodyDeltaParams {
        request_id: stream.to_owned(),
        seq,
        delta: piece.to_vec().into(),
        done: end.is_some(),
        error: end.flatten().map(str::to_owned),
    })
}

fn note<N: NotificationMethod>(params: &N::Params) -> String {
    serde_json::to_string(&OutgoingNotification { method: N::NAME, params }).unwrap_or_default()
}

fn exited(process: &ProcessId, exit: &Exit) -> ExitedParams {
    ExitedParams {
        process_id: process.clone(),
        seq: exit.seq,
        exit_code: exit.code,
        sandbox_denied: Some(exit.sandbox_denied),
        signal: exit.signal.map(str::to_owned),
        reason: Some(exit.reason),
        limit: exit.limit,
    }
}

/// Output is most of what a server sends, so it is encoded straight into the message.
fn output(process: &ProcessId, chunk: &Chunk) -> String {
    let id = json(process.as_str());
    let mut text = String::with_capacity(128 + id.len() + chunk.bytes.len().div_ceil(3) * 4);
    text.push_str(r#"{"method":""#);
    text.push_str(process::Output::NAME);
    text.push_str(r#"","params":{"processId":"#);
    text.push_str(&id);
    text.push(',');
    push_chunk(&mut text, chunk);
    text.push_str("}}");
    text
}

fn push_chunk(text: &mut String, chunk: &Chunk) {
    text.push_str(r#""seq":"#);
    text.push_str(&chunk.seq.to_string());
    text.push_str(r#","stream":""#);
    text.push_str(chunk.stream.as_str());
    text.push_str(r#"","chunk":""#);
    STANDARD.encode_append(&chunk.bytes, text);
    text.push('"');
}

/// Encodes the answer to `process/read`.
pub(super) fn read(ticket: &Ticket, outcome: &ReadOutcome) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Rest<'a> {
        next_seq: u64,
        exited: bool,
        exit_code: Option<i32>,
        closed: bool,
        failure: Option<&'a str>,
        sandbox_denied: bool,
        lost: Option<LostOutput>,
    }
    let rest = Rest {
        next_seq: outcome.next_seq,
        exited: outcome.exit.is_some(),
        exit_code: outcome.exit.as_ref().map(|exit| exit.code),
        closed: outcome.closed,
        failure: None,
        sandbox_denied: outcome.exit.as_ref().is_some_and(|exit| exit.sandbox_denied),
        lost: outcome.lost,
    };
    let output: usize = outcome.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    let mut text = String::with_capacity(256 + output.div_ceil(3) * 4 + outcome.chunks.len() * 64);
    text.push_str(r#"{"id":"#);
    text.push_str(&serde_json::to_string(ticket.id()).unwrap_or_default());
    text.push_str(r#","result":{"chunks":["#);
    for (index, chunk) in outcome.chunks.iter().enumerate() {
        text.push_str(if index == 0 { "{" } else { ",{" });
        push_chunk(&mut text, chunk);
        text.push('}');
    }
    text.push_str("],");
    // The rest is an object of its own; its members follow the chunks without its opening brace.
    text.push_str(&serde_json::to_string(&rest).unwrap_or_default()[1..]);
    text.push('}');
    fitting(ticket, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::envelope::RequestId;
    use crate::server::connection::calls::MethodLabel;

    fn ticket(id: RequestId) -> Ticket {
        Ticket::new(id, MethodLabel::Unknown, &std::sync::Arc::default())
    }

    #[test]
    fn bytes_are_encoded_as_the_wire_types_say() {
        for id in [RequestId::Integer(7), RequestId::Text("a\"b".to_owned())].map(ticket) {
            for content in [vec![], vec![0], vec![0xff; 1000], b"text".to_vec()] {
                let read = ReadFileResponse { data_base64: content.clone().into() };
                assert_eq!(file(&id, &read), success(&id, &read));
                for eof in [false, true] {
                    let read = ReadBlockResponse { chunk: content.clone().into(), eof };
                    assert_eq!(block(&id, &read), success(&id, &read));
                }
            }
        }
    }
    use crate::protocol::envelope::Message;
    use crate::protocol::process::{AccountedRead, ExecOutputStream, OutputParams};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hand_made_messages_are_what_the_types_say(id in ".*", seq: u64, bytes: Vec<u8>, other: Vec<u8>) {
            let chunk = Chunk { seq, stream: ExecOutputStream::Pty, bytes: bytes.clone().into() };
            let text = notification(&ProcessId::from(id.as_str()), &Event::Output(chunk.clone()));
            let Ok(Message::Notification { params, .. }) = Message::parse(text.as_bytes()) else { panic!("{text}") };
            let params: OutputParams = serde_json::from_value(params).unwrap();
            prop_assert_eq!(params.process_id.as_str(), id.as_str());
            prop_assert_eq!((params.chunk.seq, params.chunk.chunk.into_inner()), (seq, bytes));

            let second = Chunk { seq, stream: ExecOutputStream::Stderr, bytes: other.into() };
            let outcome =
                ReadOutcome { chunks: vec![chunk, second], next_seq: 9, exit: None, closed: true, lost: None };
            let text = read(&ticket(RequestId::Text(id)), &outcome);
            let Ok(Message::Response { outcome: Ok(result), .. }) = Message::parse(text.as_bytes()) else { panic!("{text}") };
            let read: AccountedRead = serde_json::from_value(result).unwrap();
            prop_assert_eq!(read, AccountedRead::from(outcome));
        }
    }
}
