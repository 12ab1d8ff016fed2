//! What is in the document is in the code, and the other way round.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use fence::Token;
use serde_json::{Value, json};

use super::*;
use crate::{
    http::{
        for_all_clients, for_known_clients,
        list::{DEFAULT_LIMIT, MAX_LIMIT},
        metrics,
        problem::{self, kind::KINDS},
        transactions::requested::MAX_ITEMS,
    },
    metrics::text_format::TextFormat,
};

const README: &str = include_str!("../../../README.md");
/// The members that all problems have.
const COMMON: [&str; 4] = ["type", "title", "status", "detail"];
/// In the answers of `/readyz` to operators.
const IN_READINESS: [&str; 3] = ["oldest_operation_ms", "auth_file", "tls_files"];

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The paths of a router, which it shows only for debugging.
fn paths(router: &Router<Arc<Service>>) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let quoted = shown.split('"').skip(1).step_by(2);
    // A path without a name is there only to be rejected. The fallback is axum's own.
    let is_path =
        |text: &&str| text.starts_with('/') && !text.ends_with('/') && !text.contains("__private");
    quoted.filter(is_path).map(|path| path.replace("{*", "{")).collect()
}

#[test]
fn every_route_is_in_the_document_and_nothing_else() {
    let routes = for_known_clients().merge(metrics::routes_for_operators());
    let routes = paths(&routes.merge(for_all_clients()));
    let document = document();
    let routes: BTreeSet<_> = routes.iter().map(String::as_str).collect();
    assert_eq!(names(&document["paths"]), routes);
    assert!(routes.contains("/v1/resources/{name}"), "{routes:?}");
}

#[test]
fn document_is_of_this_package() {
    let info = json!({
        "title": "storage-server",
        "description": env!("CARGO_PKG_DESCRIPTION"),
        "license": {"name": env!("CARGO_PKG_LICENSE")},
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(document()["info"], info);
}

#[test]
fn every_problem_type_is_in_the_document_as_it_is_sent_and_no_other() {
    let document = document();
    let mut described: BTreeMap<_, _> = document["components"]["schemas"]
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(name, schema)| Some((name.strip_prefix("problem-")?, schema)))
        .collect();
    for kind in KINDS {
        let slug = kind.slug;
        let schema = described.remove(slug).unwrap_or_else(|| panic!("{slug} is missing"));
        let only = |name: &str| &schema["properties"][name]["enum"];
        assert_eq!(schema["description"], kind.explanation, "{slug}");
        assert_eq!(only("type"), &json!([format!("/problems/{slug}")]));
        assert_eq!(only("title"), &json!([kind.title]), "{slug}");
        assert_eq!(only("status"), &json!([kind.status.as_u16()]), "{slug}");
        assert_eq!(schema["additionalProperties"], false, "{slug}");
        let required = schema["required"].as_array().unwrap();
        assert!(COMMON.iter().all(|name| required.contains(&json!(name))), "{slug}");
    }
    assert!(described.is_empty(), "{described:?}");
}

#[test]
fn each_answer_with_problems_has_their_status_and_titles() {
    let document = document();
    let mut checked = 0;
    for item in document["paths"].as_object().unwrap().values() {
        let additional = item[ADDITIONAL_OPERATIONS].as_object().into_iter().flatten();
        for (_, operation) in item.as_object().unwrap().iter().chain(additional) {
            for (status, response) in operation["responses"].as_object().into_iter().flatten() {
                let response = page::target(&document, response);
                let schema = &response["content"]["application/problem+json"]["schema"];
                let kinds = page::references(schema).into_iter().map(|name| {
                    let slug = name.strip_prefix("problem-").unwrap();
                    KINDS.iter().find(|kind| kind.slug == slug).unwrap()
                });
                let kinds: Vec<_> = kinds.collect();
                if kinds.is_empty() {
                    continue;
                }
                assert!(kinds.iter().all(|kind| kind.status.as_str() == status), "{kinds:?}");
                let titles: Vec<_> = kinds.iter().map(|kind| kind.title).collect();
                assert_eq!(response["description"], format!("{}.", titles.join(", or: ")));
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
}

/// Each row of the README's table of errors, as its status, its problem types and their further members.
fn rows() -> Vec<(&'static str, Vec<&'static str>, Vec<&'static str>)> {
    let begin = README.find("| error | further members | when |").expect("the table is there");
    let rows = README[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect();
        (&cells[1][..3], quoted(cells[1]), quoted(cells[2]))
    })
    .collect()
}

#[test]
fn readme_lists_every_problem_type_with_its_members() {
    let document = document();
    let mut listed = 0;
    for (status, slugs, members) in rows() {
        for slug in slugs {
            let kind = KINDS.iter().find(|kind| kind.slug == slug);
            let kind = kind.unwrap_or_else(|| panic!("there is no {slug}"));
            assert_eq!(kind.status.as_str(), status, "{slug}");
            let schema = &document["components"]["schemas"][format!("problem-{slug}")];
            let further = names(&schema["properties"])
                .into_iter()
                .filter(|name| !COMMON.contains(name) && !IN_READINESS.contains(name));
            let expected: BTreeSet<_> = members.iter().copied().collect();
            assert_eq!(further.collect::<BTreeSet<_>>(), expected, "{slug}");
            listed += 1;
        }
    }
    assert_eq!(listed, KINDS.len());
}

/// The sources in a folder.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}

#[test]
fn every_header_of_the_code_is_in_the_document_and_no_other() {
    let document = document();
    let mut described = BTreeSet::new();
    let mut find = |part: &Value| {
        // Elsewhere, headers have other names, by which answers refer to them.
        if part["description"].is_string() {
            let headers = part["headers"].as_object().into_iter().flatten();
            described.extend(headers.map(|(name, _)| name.clone()));
        }
        if part["in"] == "header" {
            described.insert(part["name"].as_str().unwrap().to_lowercase());
        }
    };
    each_part(&document, &mut find);

    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let named = sources.split("HeaderName::from_static(\"").skip(1);
    let named: BTreeSet<_> = named.map(|rest| rest.split('"').next().unwrap()).collect();
    let missing: Vec<_> = named.iter().filter(|name| !described.contains(**name)).collect();
    // They belong to the body, as Content-Type does.
    assert_eq!(missing, [&"content-digest", &"content-md5"]);
    for name in &described {
        let of_http = format!("header::{}", name.replace('-', "_").to_uppercase());
        assert!(named.contains(&**name) || sources.contains(&of_http), "{name}");
    }
    assert!(described.contains("fencing-token") && described.contains("etag"), "{described:?}");
}

/// Calls this with each object of a document.
fn each_part(part: &Value, call: &mut impl FnMut(&Value)) {
    match part {
        Value::Object(members) => {
            call(part);
            members.values().for_each(|member| each_part(member, call));
        }
        Value::Array(items) => items.iter().for_each(|item| each_part(item, call)),
        _ => {}
    }
}

#[test]
fn limits_are_those_of_the_code() {
    let document = document();
    let parameters = document["paths"]["/v1/resources"]["get"]["parameters"].as_array().unwrap();
    let limit = parameters.iter().find(|parameter| parameter["name"] == "limit").unwrap();
    let expected =
        json!({"type": "integer", "default": DEFAULT_LIMIT, "minimum": 1, "maximum": MAX_LIMIT});
    assert_eq!(limit["schema"], expected);
    let token = &document["components"]["parameters"]["required-token"]["schema"];
    assert_eq!(token, &json!({"type": "integer", "minimum": 1, "maximum": Token::MAX}));
    let transaction = &document["components"]["schemas"]["Transaction"];
    assert_eq!(transaction["properties"]["writes"]["maxItems"], MAX_ITEMS);
    assert_eq!(transaction["properties"]["conditions"]["maxItems"], MAX_ITEMS - 1);
    assert!(transaction["description"].as_str().unwrap().contains(&format!("{MAX_ITEMS} of both")));
    let slug = &document["paths"]["/problems/{slug}"]["get"]["parameters"][0];
    assert_eq!(slug["schema"]["enum"], json!(problem::slugs().collect::<Vec<_>>()));
    let shown = &document["paths"]["/metrics"]["get"]["responses"]["200"]["content"];
    let formats = [TextFormat::OpenMetrics, TextFormat::Prometheus];
    assert_eq!(names(shown), formats.map(TextFormat::content_type).into());
}
