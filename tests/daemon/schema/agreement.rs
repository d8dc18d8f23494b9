//! The schemas of params and the decoder of the server agree, also about what is wrong.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::session;
use super::validator::{Others, Protocol, Sender, document};

/// The places of all values within one.
fn places(value: &Value, place: &str, all: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => (0..).map(|number: usize| number.to_string()).zip(items).collect(),
        _ => Vec::new(),
    };
    for (name, value) in members {
        let place = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
        all.push(place.clone());
        places(value, &place, all);
    }
}

/// What takes the place of a value. No small number: serde takes variants of a tagged enum also by their index.
fn others() -> [Value; 8] {
    [json!(null), json!(true), json!(99), json!(-1), json!(7.5), json!("x"), json!("file:///x"), json!({})]
}

/// The same params with one value replaced or left out, and the place of that.
fn variants(params: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut found = Vec::new();
    places(params, "", &mut found);
    for place in found {
        for other in others() {
            let mut variant = params.clone();
            *variant.pointer_mut(&place).unwrap() = other;
            all.push((place.clone(), variant));
        }
        let (parent, name) = place.rsplit_once('/').unwrap();
        let mut variant = params.clone();
        if let Some(Value::Object(members)) = variant.pointer_mut(parent) {
            members.remove(name);
            all.push((place.clone(), variant));
        }
    }
    all
}

/// What decodes and is refused then, with an error of its own.
const REFUSED_LATER: (&str, &str) = ("fs/writeFile", "/dataBase64");

#[tokio::test]
async fn the_document_allows_what_the_server_decodes() {
    let protocol = Protocol::new(&document(), Others::Ignored);
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for (sender, message) in session::record().await {
        let Some(method) = message["method"].as_str() else { continue };
        if sender != Sender::Client || message.get("id").is_none() {
            continue;
        }
        for (place, params) in variants(&message["params"]) {
            if (method, place.as_str()) == REFUSED_LATER {
                continue;
            }
            let allowed = protocol.params_fit(method, &params);
            let decoded = exec_server::fuzzing::recode(method, params.clone());
            *counts.entry((allowed.is_ok(), decoded.is_ok())).or_insert(0) += 1;
            if allowed.is_ok() != decoded.is_ok() {
                wrong.push(format!(
                    "{method} {params}: {allowed:?}, {:?}",
                    decoded.map_err(|error| error.message)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(counts[&(true, true)] > 100 && counts[&(false, false)] > 100, "{counts:?}");
}
