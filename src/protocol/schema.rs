//! What the schemas of wire types cannot learn from serde's attributes.

use schemars::Schema;
use schemars::transform::transform_subschemas;
use serde_json::json;

/// Adds the older name that a value has by `#[serde(alias)]`.
pub(super) fn also(name: &'static str, alias: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| add(schema, name, alias)
}

fn add(schema: &mut Schema, name: &'static str, alias: &'static str) {
    if schema.get("const").is_some_and(|value| value == name) {
        schema.remove("const");
        schema.insert("enum".into(), json!([name, alias]));
    }
    transform_subschemas(&mut |schema: &mut Schema| add(schema, name, alias), schema);
}
