//! The protocol as an [OpenRPC](https://open-rpc.org) document, from which clients in other languages are generated.
//!
//! It is made of the wire types, so it cannot say anything else than what is decoded. It says what either side accepts:
//! what every answer of this server has, but not that of an older one, is therefore not required.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::protocol::code::{self, ErrorCode};
use crate::protocol::{SchemaOf, Sender, Signature, signatures};

/// The version of the specification; from 1.3 on a method without a result is a notification.
const SPECIFICATION: &str = "1.3.2";

const DESCRIPTION: &str = "Runs processes and serves files for coding agents. Each message is one JSON object: a text \
message of a WebSocket, or a line of standard input and output. The envelope is that of JSON-RPC 2.0 without `jsonrpc` \
and without batches; `params` are an object. A method without a result is a notification. `x-direction` says who sends \
a request or notification, `x-params` names the whole of its params, `x-errorData` what `error.data` holds. Members \
that are not described are ignored.";

/// The document: methods of both directions with their params, results and errors; the types are in
/// `components.schemas`.
#[must_use]
pub fn document() -> Value {
    let mut generator = generator();
    let outlines: Vec<Outline> = signatures().map(|row| Outline::new(row, &mut generator)).collect();
    let schemas = generator.take_definitions(true);
    let methods: Vec<Value> = outlines.into_iter().map(|outline| outline.method(&schemas)).collect();
    json!({
        "openrpc": SPECIFICATION,
        "info": {
            "title": env!("CARGO_PKG_NAME"),
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": { "name": env!("CARGO_PKG_LICENSE") },
        },
        "methods": methods,
        "components": { "schemas": schemas, "errors": errors() },
    })
}

/// OpenRPC is about schemas of draft 7.
fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft07()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .for_deserialize()
        .with_transform(RecursiveTransform(without_links));
    settings.into_generator()
}

/// A description without the links that only rustdoc follows.
fn without_links(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("[`", "`").replace("`]", "`");
    }
}

fn errors() -> Map<String, Value> {
    let error = |code: &ErrorCode| {
        let object = json!({ "code": code.code, "message": code.meaning.trim() });
        (code.name.to_owned(), object)
    };
    code::ALL.iter().map(error).collect()
}

/// A method of which the schemas are references.
struct Outline {
    row: &'static Signature,
    params: Schema,
    result: Option<Schema>,
    error_data: Option<Schema>,
}

impl Outline {
    fn new(row: &'static Signature, generator: &mut SchemaGenerator) -> Self {
        let mut schema = |of: SchemaOf| of(generator);
        let (params, result) = (schema(row.params), row.result.map(&mut schema));
        Self { row, params, result, error_data: row.failures.data.map(schema) }
    }

    /// The method object.
    fn method(self, schemas: &Map<String, Value>) -> Value {
        let mut method = json!({
            "name": self.row.name,
            "summary": self.row.summary.trim(),
            "paramStructure": "by-name",
            "params": descriptors(&self.params, schemas),
            "x-params": self.params,
            "x-direction": match self.row.sender {
                Sender::Client => "clientToServer",
                Sender::Server => "serverToClient",
            },
        });
        if let Some(result) = self.result {
            method["result"] = json!({ "name": name(&result), "required": true, "schema": result });
            method["errors"] = error_references(self.row);
        }
        if let Some(data) = self.error_data {
            method["x-errorData"] = data.into();
        }
        method
    }
}

/// The name of what a schema refers to.
fn name(schema: &Schema) -> &str {
    let reference = schema.get("$ref").and_then(Value::as_str);
    reference.and_then(|path| path.rsplit('/').next()).unwrap_or("result")
}

/// A content descriptor for each member of the params.
fn descriptors(params: &Schema, schemas: &Map<String, Value>) -> Vec<Value> {
    let object = schemas.get(name(params)).unwrap_or(&Value::Null);
    let required = |member: &str| {
        object["required"].as_array().is_some_and(|names| names.iter().any(|name| name == member))
    };
    let descriptor = |(member, schema): (&String, &Value)| {
        let mut descriptor = json!({ "name": member, "required": required(member), "schema": schema });
        if let Some(text) = schema.get("description") {
            descriptor["description"] = text.clone();
        }
        descriptor
    };
    object["properties"].as_object().into_iter().flatten().map(descriptor).collect()
}

/// What a client answers with is up to it.
fn error_references(row: &Signature) -> Value {
    let codes = match row.sender {
        Sender::Client => [&code::OF_EVERY_METHOD, row.failures.codes].concat(),
        Sender::Server => Vec::new(),
    };
    let listed = code::ALL.iter().filter(|code| codes.contains(&code.code));
    listed.map(|code| json!({ "$ref": format!("#/components/errors/{}", code.name) })).collect()
}
