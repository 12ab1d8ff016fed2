//! The OpenAPI document says what the server does, and what the README says.

mod answers;
mod requests;

use std::collections::BTreeMap;

use serde_json::Value;
use testbed::StorageServer;

use crate::{access::Guarded, database::get};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Where a path has the methods that OpenAPI 3.1 does not know.
const ADDITIONAL_OPERATIONS: &str = "x-additionalOperations";

const STATES: &str = "/v1/terraform/{name}";
const LOCK: &str = r#"{"ID":"a"}"#;

/// An operation of the document.
#[derive(Clone, Copy)]
struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    described: &'a Value,
}

struct Document(Value);

impl Document {
    async fn of(server: &StorageServer) -> Self {
        let answer = get(server, "/openapi.json").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        let document = answer.json();
        Self(with_parts(&document, &document))
    }

    fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.0["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
            let additional = item[ADDITIONAL_OPERATIONS].as_object().into_iter().flatten();
            let methods = item.as_object().unwrap().iter();
            let methods = methods.filter(|(method, _)| *method != ADDITIONAL_OPERATIONS);
            methods.chain(additional).map(move |(method, described)| Operation {
                method,
                path,
                described,
            })
        })
    }

    fn operation(&self, method: &str, path: &str) -> Operation<'_> {
        let found = self.operations().find(|it| it.method() == method && it.path == path);
        found.unwrap_or_else(|| panic!("{method} {path} is not in the document"))
    }

    /// Whether a value is as a schema says, as far as the document uses schemas of answers.
    fn allows(&self, schema: &Value, value: &Value) -> bool {
        if let Some(reference) = schema["$ref"].as_str() {
            let path = reference.strip_prefix('#').unwrap();
            return self.allows(self.0.pointer(path).unwrap(), value);
        }
        if let Some(alternatives) = schema["oneOf"].as_array() {
            return alternatives.iter().filter(|it| self.allows(it, value)).count() == 1;
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            Value::Null => return true,
            one => vec![one.clone()],
        };
        let is_of = |of: &Value| match of.as_str().unwrap() {
            "null" => value.is_null(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.as_u64().is_some_and(|number| {
                number >= schema["minimum"].as_u64().unwrap_or(0)
                    && number <= schema["maximum"].as_u64().unwrap_or(u64::MAX)
            }),
            "array" => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| self.allows(&schema["items"], item))),
            "object" => value.as_object().is_some_and(|members| {
                let required = schema["required"].as_array().into_iter().flatten();
                let mut required = required.map(|name| name.as_str().unwrap());
                required.all(|name| members.contains_key(name))
                    && members.iter().all(|(name, member)| {
                        let property = &schema["properties"][name];
                        !property.is_null() && self.allows(property, member)
                    })
            }),
            other => panic!("{other} is no type of this document"),
        };
        let is_listed = |values: &Vec<Value>| values.contains(value);
        types.iter().any(is_of) && schema["enum"].as_array().is_none_or(is_listed)
    }
}

/// A part of a document in which what it refers to takes the place of its references, except for schemas.
fn with_parts(document: &Value, part: &Value) -> Value {
    let reference = part["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    if let Some(path) = reference.filter(|path| !path.starts_with("/components/schemas/")) {
        return with_parts(document, document.pointer(path).unwrap());
    }
    match part {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), with_parts(document, member)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| with_parts(document, item)).collect(),
        other => other.clone(),
    }
}

impl Operation<'_> {
    fn method(&self) -> String {
        self.method.to_uppercase()
    }

    /// The path of one resource or problem.
    fn example(&self) -> String {
        self.path.replace("{name}", "r").replace("{slug}", "stale-token")
    }

    /// The same path, with the parameters of the query that are required.
    fn example_with_query(&self) -> String {
        let query = self.parameters("query").into_iter().filter(|(_, required)| *required);
        let query: Vec<_> = query.map(|(name, _)| format!("{name}=x")).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.example(), query.join("&"))
    }

    /// The headers and the body of a well-formed request, beside what its parameters describe.
    fn example_body(&self) -> (Vec<(&'static str, &'static str)>, &'static str) {
        match self.described["requestBody"]["required"] == true {
            true if self.path == STATES && self.method() == "POST" => (vec![JSON], "{}"),
            true if self.path == STATES => (vec![JSON], LOCK),
            true => (vec![JSON], r#"{"writes":[{"resource":"r","token":1,"value":null}]}"#),
            false => (vec![], ""),
        }
    }

    fn parameters(&self, place: &str) -> BTreeMap<&str, bool> {
        let all = self.described["parameters"].as_array().into_iter().flatten();
        all.filter(|parameter| parameter["in"] == place)
            .map(|it| (it["name"].as_str().unwrap(), it["required"] == true))
            .collect()
    }

    fn needs_identity(&self) -> bool {
        !self.described["responses"]["401"].is_null()
    }
}

#[tokio::test]
async fn document_and_page_need_no_identity() {
    let guarded = Guarded::new();
    guarded.identity("all", &["--prefix", "", "--allow", "read"]).await;
    let server = guarded.serve().await;
    assert_eq!(get(&server, "/v1/resources").await.status, 401, "the control");
    let document = Document::of(&server).await;
    assert!(document.0["openapi"].as_str().unwrap().starts_with("3.1"));
    let schemes = document.0["components"]["securitySchemes"].as_object().unwrap();
    assert_eq!(schemes["bearer"]["scheme"], "bearer");
    assert_eq!(schemes["certificate"]["type"], "mutualTLS");

    let page = get(&server, "/docs").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let page = page.text();
    for operation in document.operations() {
        let shown = format!("<h2><code>{} {}</code></h2>", operation.method(), operation.path);
        assert!(page.contains(&shown), "{shown}");
    }
    for (name, _) in document.0["components"]["schemas"].as_object().unwrap() {
        assert!(page.contains(&format!("<h3>{name}</h3>")), "{name}");
    }
    for foreign in ["<script", "src=", "http:", "https:", "@import", "style="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}
