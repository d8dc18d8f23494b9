use serde::Deserialize;

use super::{collapse, from_yaml};
use crate::protocol::discovery::{SkillDependencies, SkillPolicy, SkillProduct, SkillTool};

/// The longest kind and transport of a tool, in characters.
const MAX_WORD: usize = 64;
/// The longest of its other texts.
const MAX_TEXT: usize = 1_024;

/// What `agents/openai.yaml` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::discovery) struct Metadata {
    pub(in crate::discovery) dependencies: Option<SkillDependencies>,
    pub(in crate::discovery) policy: Option<SkillPolicy>,
}

#[derive(Deserialize)]
struct Fields {
    /// Not told, but a file in which it is wrong says nothing.
    #[serde(rename = "interface")]
    _interface: Option<Interface>,
    dependencies: Option<Dependencies>,
    policy: Option<Policy>,
}

#[derive(Deserialize)]
struct Interface {
    #[serde(rename = "display_name")]
    _display_name: Option<String>,
    #[serde(rename = "short_description")]
    _short_description: Option<String>,
    #[serde(rename = "icon_small")]
    _icon_small: Option<String>,
    #[serde(rename = "icon_large")]
    _icon_large: Option<String>,
    #[serde(rename = "brand_color")]
    _brand_color: Option<String>,
    #[serde(rename = "default_prompt")]
    _default_prompt: Option<String>,
}

#[derive(Deserialize)]
struct Dependencies {
    #[serde(default)]
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    r#type: Option<String>,
    value: Option<String>,
    description: Option<String>,
    transport: Option<String>,
    command: Option<String>,
    url: Option<String>,
    oauth: Option<Login>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(alias = "callbackPort")]
    callback_port: Option<u16>,
}

#[derive(Deserialize)]
struct Policy {
    allow_implicit_invocation: Option<bool>,
    #[serde(default)]
    products: Vec<SkillProduct>,
}

impl Metadata {
    /// Reads the file. One with an error in it says nothing.
    pub(in crate::discovery) fn of(text: &str) -> Self {
        let Some(fields) = from_yaml::<Fields>(text) else { return Self::default() };
        let tools = fields.dependencies.map(|dependencies| dependencies.tools).unwrap_or_default();
        let tools: Vec<SkillTool> = tools.into_iter().filter_map(Tool::described).collect();
        Self {
            dependencies: (!tools.is_empty()).then_some(SkillDependencies { tools }),
            policy: fields.policy.map(|policy| SkillPolicy {
                allow_implicit_invocation: policy.allow_implicit_invocation,
                products: policy.products,
            }),
        }
    }
}

impl Tool {
    /// None for one without a kind or a name.
    fn described(self) -> Option<SkillTool> {
        Some(SkillTool {
            r#type: short(self.r#type, MAX_WORD)?,
            value: short(self.value, MAX_TEXT)?,
            description: short(self.description, MAX_TEXT),
            transport: short(self.transport, MAX_WORD),
            command: short(self.command, MAX_TEXT),
            url: short(self.url, MAX_TEXT),
            oauth_callback_port: self.oauth.and_then(|login| login.callback_port),
        })
    }
}

/// One line, if there is one that is not too long.
fn short(text: Option<String>, limit: usize) -> Option<String> {
    text.map(|text| collapse(&text)).filter(|text| !text.is_empty() && text.chars().count() <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use test_case::test_case;

    /// The members of the only tool that are not null.
    fn tool(text: &str) -> Value {
        let found = Metadata::of(&format!("dependencies:\n  tools:\n  - {text}\n")).dependencies;
        let Some(SkillDependencies { tools }) = found else { return Value::Null };
        assert_eq!(tools.len(), 1);
        let mut tool = serde_json::to_value(&tools[0]).unwrap();
        tool.as_object_mut().unwrap().retain(|_, member| !member.is_null());
        tool
    }

    #[test_case("{type: mcp, value: a, description: ' d  e ', transport: t, command: c, url: u}",
        json!({"type": "mcp", "value": "a", "description": "d e", "transport": "t", "command": "c", "url": "u"}); "all")]
    #[test_case("{type: ' m ', value: 5}", json!({"type": "m", "value": "5"}); "a number")]
    #[test_case("{type: m, value: a, oauth: {callback_port: 80}}",
        json!({"type": "m", "value": "a", "oauthCallbackPort": 80}); "a port")]
    #[test_case("{type: m, value: a, oauth: {callbackPort: 0}}",
        json!({"type": "m", "value": "a", "oauthCallbackPort": 0}); "a port by another name")]
    #[test_case("{type: m, value: a, description: '  ', url: ''}", json!({"type": "m", "value": "a"}); "blanks")]
    #[test_case("{type: '', value: a}", Value::Null; "no kind")]
    #[test_case("{type: m}", Value::Null; "no name")]
    #[test_case("foo", Value::Null; "a text")]
    #[test_case("~", Value::Null; "null")]
    #[test_case("{type: m, value: a, oauth: {callback_port: 70000}}", Value::Null; "no port")]
    fn tools(text: &str, expected: Value) {
        assert_eq!(tool(text), expected);
    }

    #[test]
    fn lengths() {
        let with = |key: &str, length: usize| {
            let mut fields = vec![("type", "m".to_owned()), ("value", "v".to_owned())];
            fields.retain(|(other, _)| *other != key);
            fields.push((key, "é".repeat(length)));
            let fields: Vec<_> = fields.iter().map(|(key, text)| format!("{key}: {text}")).collect();
            tool(&format!("{{{}}}", fields.join(", ")))
        };
        for (key, limit) in [("description", 1024), ("command", 1024), ("url", 1024), ("transport", 64)] {
            assert_eq!(with(key, limit)[key].as_str().map(|text| text.chars().count()), Some(limit));
            assert_eq!(with(key, limit + 1), json!({"type": "m", "value": "v"}));
        }
        for (key, limit) in [("type", 64), ("value", 1024)] {
            assert_ne!(with(key, limit), Value::Null);
            assert_eq!(with(key, limit + 1), Value::Null);
        }
    }

    #[test_case("policy: {}", json!({"allowImplicitInvocation": null, "products": []}); "empty")]
    #[test_case("policy: {allow_implicit_invocation: true, foo: 2}\nfoo: 1",
        json!({"allowImplicitInvocation": true, "products": []}); "other keys")]
    #[test_case("policy: {products: [chatgpt, CODEX, atlas]}",
        json!({"allowImplicitInvocation": null, "products": ["chatgpt", "codex", "atlas"]}); "products")]
    #[test_case("\u{feff}policy:\r\n  products: [codex]\r\n",
        json!({"allowImplicitInvocation": null, "products": ["codex"]}); "a file of another platform")]
    #[test_case("interface: {icon_small: 5, foo: [5]}\npolicy: {}",
        json!({"allowImplicitInvocation": null, "products": []}); "an interface")]
    #[test_case("policy:", Value::Null; "null")]
    #[test_case("policy: {products: [codex, zzz]}", Value::Null; "an unknown product")]
    #[test_case("policy: {products: ~}", Value::Null; "null products")]
    #[test_case("policy: {allow_implicit_invocation: yes}", Value::Null; "no truth")]
    #[test_case("interface: 5\npolicy: {}", Value::Null; "no interface")]
    #[test_case("interface: {display_name: [x]}\npolicy: {}", Value::Null; "a list as name")]
    #[test_case("dependencies: []\npolicy: {}", Value::Null; "a list as dependencies")]
    #[test_case("policy: {}\npolicy: {products: [codex]}", Value::Null; "a key twice")]
    #[test_case("broken: [", Value::Null; "no yaml")]
    #[test_case("[]", Value::Null; "a list")]
    #[test_case("", Value::Null; "nothing")]
    fn policies(text: &str, expected: Value) {
        assert_eq!(serde_json::to_value(Metadata::of(text).policy).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            let _ = Metadata::of(&text);
        }
    }
}
