//! Conversations of other programs, recorded: the document is true of the protocol, not of this server alone.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::validator::{Conversation, Others, Protocol, Sender, document};

/// The messages of a file, each with its line and the number of its connection.
fn messages(file: &Path) -> Vec<(usize, i64, Sender, Value)> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).zip(1..);
    let texts = lines.filter(|(line, _)| line["kind"] == "text");
    let message = |(line, number): (Value, usize)| {
        let sender = if line["dir"] == "c>s" { Sender::Client } else { Sender::Server };
        (number, line["conn"].as_i64().unwrap(), sender, whole(line["body"].clone()))
    };
    texts.map(message).collect()
}

/// Long strings are cut in recordings, `begin...(N characters)`: what is left becomes base64 again.
fn whole(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            if let Some((begin, rest)) = text.split_once("...(")
                && rest.ends_with(" characters)")
            {
                *text = begin[..begin.len() / 4 * 4].to_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = whole(item.take())),
        Value::Object(members) => members.values_mut().for_each(|item| *item = whole(item.take())),
        _ => {}
    }
    value
}

#[test]
#[ignore = ".ci/run runs it: the recordings of other programs, whose directory EXEC_SERVER_TRANSCRIPTS names, are no part of this repository"]
fn recorded_conversations_fit() {
    let directory = PathBuf::from(std::env::var_os("EXEC_SERVER_TRANSCRIPTS").expect("a directory"));
    let protocol = Protocol::new(&document(), Others::Ignored);
    let mut wrong = Vec::new();
    let mut heard = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let file = entry.unwrap().path();
        let mut conversations = std::collections::HashMap::new();
        for (line, connection, sender, message) in messages(&file) {
            let conversation =
                conversations.entry(connection).or_insert_with(|| Conversation::new(&protocol, &protocol));
            heard += 1;
            if let Err(error) = conversation.hear(sender, &message) {
                wrong.push(format!("{}:{line}: {error} in {message}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(heard > 1000, "{heard} messages in {}", directory.display());
}
