//! The document of the program, as checks of messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

use crate::support::work_dir;

/// Who has sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    Client,
    Server,
}

/// What `exec-server schema` prints.
pub(super) fn document() -> Value {
    let home = work_dir();
    let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
    let output = command.env_clear().env("HOME", home.path()).arg("schema").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether members that are not described are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    Ignored,
    Wrong,
}

struct Method {
    sender: Sender,
    params: Validator,
    result: Option<Validator>,
    error_data: Option<Validator>,
    codes: BTreeSet<i64>,
}

/// All methods, by name.
pub(super) struct Protocol(BTreeMap<String, Method>);

impl Protocol {
    pub(super) fn new(document: &Value, others: Others) -> Self {
        let mut document = document.clone();
        if others == Others::Wrong {
            document["components"]["schemas"].as_object_mut().unwrap().values_mut().for_each(close);
        }
        let methods = document["methods"].as_array().unwrap().iter();
        Self(methods.map(|method| (text(&method["name"]).to_owned(), compile(method, &document))).collect())
    }

    pub(super) fn params_fit(&self, method: &str, params: &Value) -> Result<(), String> {
        check(&self.method(method)?.params, params)
    }

    /// The names of what one side may send: requests, and notifications.
    pub(super) fn names(&self, sender: Sender) -> [BTreeSet<&str>; 2] {
        [true, false].map(|request| {
            let wanted = |method: &Method| method.sender == sender && method.result.is_some() == request;
            self.0.iter().filter(|(_, method)| wanted(method)).map(|(name, _)| name.as_str()).collect()
        })
    }

    fn method(&self, name: &str) -> Result<&Method, String> {
        self.0.get(name).ok_or_else(|| format!("no method {name:?} in the document"))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Forbids members that are not described, in every object below.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            if members.get("properties").is_some_and(Value::is_object) && members.contains_key("type") {
                members.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

fn compile(method: &Value, document: &Value) -> Method {
    let validator = |schema: &Value| {
        let whole = json!({ "allOf": [schema], "components": document["components"] });
        // Draft 7 has no format for it.
        let is_uuid = |text: &str| uuid::Uuid::parse_str(text).is_ok();
        let options = jsonschema::options().with_draft(Draft::Draft7).should_validate_formats(true);
        options.with_format("uuid", is_uuid).build(&whole).unwrap()
    };
    let sender = match text(&method["x-direction"]) {
        "clientToServer" => Sender::Client,
        "serverToClient" => Sender::Server,
        other => panic!("direction {other:?}"),
    };
    let codes = method["errors"].as_array().into_iter().flatten().map(|error| {
        let path = text(&error["$ref"]).strip_prefix('#').unwrap();
        document.pointer(path).unwrap()["code"].as_i64().unwrap()
    });
    Method {
        sender,
        // What OpenRPC says of the params, and what the type says.
        params: validator(&json!({ "allOf": [by_name(method), method["x-params"]] })),
        result: method.get("result").map(|result| validator(&result["schema"])),
        error_data: method.get("x-errorData").map(validator),
        codes: codes.collect(),
    }
}

/// The object that params by name are.
fn by_name(method: &Value) -> Value {
    assert_eq!(method["paramStructure"], "by-name");
    let descriptors = method["params"].as_array().unwrap();
    let member = |one: &Value| (text(&one["name"]).to_owned(), one["schema"].clone());
    let required = descriptors.iter().filter(|one| one["required"] == true).map(|one| &one["name"]);
    let required: Vec<&Value> = required.collect();
    let properties: Map<String, Value> = descriptors.iter().map(member).collect();
    json!({ "properties": properties, "required": required })
}

fn check(validator: &Validator, value: &Value) -> Result<(), String> {
    let errors = validator.iter_errors(value);
    let errors: Vec<String> = errors.map(|error| format!("{error} at {:?}", error.instance_path())).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

/// Follows the messages of one connection, so that answers are checked as what they answer.
pub(super) struct Conversation<'a> {
    /// What clients send has members of later versions; what the server sends may not.
    client: &'a Protocol,
    server: &'a Protocol,
    open: HashMap<(Sender, String), String>,
    /// What fitted: names of methods, with `result`, `error` or `error.data` behind those of answers.
    pub(super) seen: BTreeSet<String>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(client: &'a Protocol, server: &'a Protocol) -> Self {
        Self { client, server, open: HashMap::new(), seen: BTreeSet::new() }
    }

    /// Checks the next message.
    pub(super) fn hear(&mut self, sender: Sender, message: &Value) -> Result<(), String> {
        let protocol = if sender == Sender::Client { self.client } else { self.server };
        match message["method"].as_str() {
            Some(method) => self.call(protocol, sender, method, message),
            None => self.answer(protocol, sender, message),
        }
    }

    fn call(
        &mut self,
        protocol: &Protocol,
        sender: Sender,
        name: &str,
        message: &Value,
    ) -> Result<(), String> {
        let method = protocol.method(name)?;
        if method.sender != sender || method.result.is_some() != message.get("id").is_some() {
            return Err(format!("{name} is not sent by {sender:?} in this way"));
        }
        check(&method.params, message.get("params").unwrap_or(&json!({})))?;
        if let Some(id) = message.get("id") {
            self.open.insert((sender, id.to_string()), name.to_owned());
        }
        self.seen.insert(name.to_owned());
        Ok(())
    }

    fn answer(&mut self, protocol: &Protocol, sender: Sender, message: &Value) -> Result<(), String> {
        let asked = if sender == Sender::Client { Sender::Server } else { Sender::Client };
        let id = message["id"].to_string();
        let name = self.open.remove(&(asked, id.clone())).ok_or_else(|| format!("nobody has asked {id}"))?;
        let method = protocol.method(&name)?;
        let Some(error) = message.get("error") else {
            self.seen.insert(format!("{name} result"));
            return check(method.result.as_ref().unwrap(), &message["result"]);
        };
        let code = error["code"].as_i64().ok_or("an error has a code")?;
        if !method.codes.contains(&code) {
            return Err(format!("{name} has no error {code}"));
        }
        self.seen.insert(format!("{name} error"));
        let Some(data) = error.get("data") else { return Ok(()) };
        self.seen.insert(format!("{name} error.data"));
        let described = method.error_data.as_ref().ok_or_else(|| format!("{name} has no data of errors"))?;
        check(described, data)
    }
}
