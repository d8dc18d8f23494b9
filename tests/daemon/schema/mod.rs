//! What `exec-server schema` prints is true: of what is said in a session, and of what the server understands.

mod agreement;
mod session;
mod transcripts;
mod validator;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::validator::{Conversation, Others, Protocol, Sender, document};

#[test]
fn the_document_is_openrpc() {
    let meta: Value = serde_json::from_str(include_str!("openrpc.json")).unwrap();
    let meta = jsonschema::draft7::new(&meta).unwrap();
    let document = document();
    let errors: Vec<String> = meta.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut broken = document;
    broken["methods"][0]["params"][0].as_object_mut().unwrap().remove("schema");
    assert!(!meta.is_valid(&broken));
}

#[test]
fn every_type_is_described_under_a_name_of_its_own() {
    let document = document();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(schema["description"].is_string(), "{name}");
        // Two types of one name are told apart by a number.
        assert!(!name.ends_with(|last: char| last.is_ascii_digit()), "{name}");
    }
    for method in document["methods"].as_array().unwrap() {
        assert!(!method["summary"].as_str().unwrap().is_empty(), "{method}");
    }
}

#[test]
fn every_request_that_the_server_understands_is_in_it() {
    let protocol = Protocol::new(&document(), Others::Ignored);
    let [requests, _] = protocol.names(Sender::Client);
    assert_eq!(requests, exec_server::fuzzing::METHODS.iter().copied().collect::<BTreeSet<_>>());
}

#[tokio::test]
async fn what_is_said_in_a_session_fits_and_every_method_is_said() {
    let document = document();
    let protocol = Protocol::new(&document, Others::Wrong);
    let mut conversation = Conversation::new(&protocol, &protocol);
    for (sender, message) in session::record().await {
        conversation.hear(sender, &message).unwrap_or_else(|error| panic!("{error} in {message}"));
    }
    for sender in [Sender::Client, Sender::Server] {
        let [requests, notifications] = protocol.names(sender);
        let results = requests.iter().map(|name| format!("{name} result"));
        for wanted in results.chain(notifications.into_iter().map(str::to_owned)) {
            assert!(conversation.seen.contains(&wanted), "{wanted} was not seen");
        }
    }
    for wanted in ["process/start", "fs/rename", "http/request"] {
        assert!(conversation.seen.contains(&format!("{wanted} error.data")), "{wanted}");
    }
}

/// A conversation fits; with its last message changed it does not.
fn assert_refused(protocol: &Protocol, talk: &[(Sender, Value)], change: impl FnOnce(&mut Value)) {
    let hear = |talk: &[(Sender, Value)]| {
        let mut conversation = Conversation::new(protocol, protocol);
        talk.iter().try_for_each(|(sender, message)| conversation.hear(*sender, message))
    };
    hear(talk).unwrap();
    let mut changed = talk.to_vec();
    change(&mut changed.last_mut().unwrap().1);
    assert!(hear(&changed).is_err(), "{changed:?}");
}

#[test]
fn wrong_messages_do_not_fit() {
    let protocol = Protocol::new(&document(), Others::Wrong);
    let assert_refused = |talk: &[_], change: &dyn Fn(&mut Value)| assert_refused(&protocol, talk, change);
    let resize =
        json!({"id": 1, "method": "process/resize", "params": {"processId": "p", "rows": 1, "cols": 2}});
    let call = [(Sender::Client, resize.clone())];
    assert_refused(&call, &|message| message["method"] = json!("process/shrink"));
    assert_refused(&call, &|message| drop(message["params"].as_object_mut().unwrap().remove("rows")));
    assert_refused(&call, &|message| message["params"]["rows"] = json!("1"));
    assert_refused(&call, &|message| message["params"]["rows"] = json!(65_536));
    assert_refused(&call, &|message| message["params"] = json!(["p", 1, 2]));
    assert_refused(&call, &|message| drop(message.as_object_mut().unwrap().remove("id")));
    let failed = json!({"id": 1, "error": {"code": -32600, "message": "m"}});
    let answer = [(Sender::Client, resize), (Sender::Server, failed)];
    assert_refused(&answer, &|message| message["error"]["code"] = json!(-32004));
    assert_refused(&answer, &|message| message["error"]["data"] = json!({"kind": "new"}));
    let list = json!({"id": 2, "method": "process/list", "params": {}});
    let listed = json!({"id": 2, "result": {"processes": []}});
    let answer = [(Sender::Client, list), (Sender::Server, listed)];
    assert_refused(&answer, &|message| message["result"]["processes"] = json!([{}]));
    assert_refused(&answer, &|message| message["result"]["more"] = json!(1));
    let closed = json!({"method": "process/closed", "params": {"processId": "p", "seq": 3}});
    assert_refused(&[(Sender::Server, closed)], &|message| message["params"]["seq"] = json!(-1));
}
