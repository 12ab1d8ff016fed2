//! The requests of the OpenAPI document are those that the server takes, and that the README lists.

use std::collections::{BTreeMap, BTreeSet};

use super::Document;
use crate::{database::Database, wire};

const README: &str = include_str!("../../README.md");
/// What a header can't have, whichever of ours it is.
const MALFORMED: &str = "a b";

/// The rows of a table of the README, by the first line of its head.
fn rows(head: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let begin = README.find(head).unwrap_or_else(|| panic!("{head} is there"));
    let rows = README[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').map(str::trim).collect())
}

/// The texts in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The headers that the README lists as a part of requests.
fn fencing_headers() -> Vec<&'static str> {
    rows("| part | format |").flat_map(|row| quoted(row[1]).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn methods_are_those_of_the_server() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let document = Document::of(&server).await;
    let mut methods: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for operation in document.operations() {
        methods.entry(operation.example()).or_default().insert(operation.method());
    }
    assert!(methods["/v1/resources/r"].contains("DELETE"));
    for (path, mut methods) in methods {
        // HEAD is the same as GET without the body.
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        let answer = wire::request(server.url(), "PATCH", &path, &[], "").await;
        assert_eq!(answer.problem(), "405 method-not-allowed", "{path}");
        let allowed = answer.header("allow").unwrap().split(',').map(|it| it.trim().to_owned());
        assert_eq!(allowed.collect::<BTreeSet<_>>(), methods, "{path}");
    }
}

#[tokio::test]
async fn readme_lists_every_operation_and_nothing_else() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let document = Document::of(&server).await;
    let mut described = BTreeSet::new();
    for operation in document.operations() {
        let query = operation.parameters("query");
        let query: Vec<_> = query.keys().map(|name| format!("{name}=")).collect();
        described.insert((operation.method(), operation.path.to_owned(), {
            query.into_iter().collect::<BTreeSet<_>>()
        }));
    }
    let listed = rows("| request | meaning |").flat_map(|row| quoted(row[1]).collect::<Vec<_>>());
    let listed = listed.map(|request| {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter(|name| !name.is_empty()).map(str::to_owned);
        (method.to_owned(), path.to_owned(), query.collect())
    });
    assert_eq!(described, listed.collect());
}

#[tokio::test]
async fn headers_of_requests_are_those_that_the_server_parses() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let document = Document::of(&server).await;
    let headers = fencing_headers();
    assert!(headers.contains(&"Fencing-Token") && headers.contains(&"If-Match"), "{headers:?}");
    let mut parsed = BTreeSet::new();
    for operation in document.operations() {
        let (method, path) = (operation.method(), operation.example_with_query());
        let parameters = operation.parameters("header");
        let known =
            |name: &&str| headers.contains(name) || ["X-Request-Id", "traceparent"].contains(name);
        assert!(parameters.keys().all(known), "{method} {path}: {parameters:?}");
        let required = parameters.iter().filter(|(_, required)| **required);
        let required: Vec<_> = required.map(|(name, _)| *name).collect();
        for header in &headers {
            // Without the header itself, all that is required has a value that is well formed.
            let others = required.iter().filter(|name| *name != header);
            let (mut sent, body) = operation.example_body();
            sent.extend(others.map(|name| (*name, "1")));
            let without = wire::request(server.url(), &method, &path, &sent, body).await;
            let is_required = without.status == 428;
            assert_eq!(is_required, required.contains(header), "{method} {path} {header}");
            sent.push((header, MALFORMED));
            let answer = wire::request(server.url(), &method, &path, &sent, body).await;
            let is_parsed = answer.status == 400;
            assert_eq!(is_parsed, parameters.contains_key(header), "{method} {path} {header}");
            parsed.extend(is_parsed.then_some(*header));
        }
    }
    assert_eq!(parsed, headers.iter().copied().collect());
}
