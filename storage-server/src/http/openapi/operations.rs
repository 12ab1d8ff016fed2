//! The operations of the OpenAPI document.

use axum::http::StatusCode;
use serde_json::{Map, Value};
use utoipa::openapi::{
    Content, ObjectBuilder, Paths, Ref, RefOr, Required, ResponseBuilder, Schema,
    extensions::Extensions,
    path::{HttpMethod, Parameter},
    request_body::RequestBodyBuilder,
};

use super::{ADDITIONAL_OPERATIONS, described::Described, parts, terraform};
use crate::{
    http::problem::kind::{
        CONDITION_NOT_MET, ENCODED_VALUE, HOLDER_CONFLICT, Kind, MALFORMED_HOLDER, MALFORMED_NAME,
        MALFORMED_REQUEST, MALFORMED_SEQUENCE, MALFORMED_TOKEN, NO_TRANSACTIONS, NOT_FOUND,
        NOT_JSON, SEQUENCE_REUSED, SEQUENCE_TOO_OLD, SLOW_BODY, STALE_TOKEN, TOKEN_REQUIRED,
        TOKEN_TOO_HIGH, TOO_MANY_REQUESTS, TRANSACTION_REJECTED, UNAUTHENTICATED, VALUE_TOO_LARGE,
        VERSION_MISMATCH, VERSION_NOT_REACHED,
    },
    metrics,
};

/// The problems of a malformed head.
const MALFORMED: [&Kind; 3] = [&MALFORMED_TOKEN, &MALFORMED_HOLDER, &MALFORMED_NAME];
/// The problems of a token that is not accepted.
const NOT_ACCEPTED: [&Kind; 3] = [&TOKEN_TOO_HIGH, &HOLDER_CONFLICT, &STALE_TOKEN];

/// The problems of a number that can't be used.
const UNUSABLE_SEQUENCE: [&Kind; 3] = [&MALFORMED_SEQUENCE, &SEQUENCE_TOO_OLD, &SEQUENCE_REUSED];

pub(super) fn paths() -> Paths {
    let mut paths = Paths::new();
    for described in [
        read(),
        head(),
        write(),
        delete(),
        list(),
        show_fence(),
        claim(),
        commit(),
        terraform::read(),
        terraform::upload(),
        terraform::delete(),
        alive(),
        ready(),
        show_metrics(),
        list_problems(),
        show_problem(),
        show_document(),
        show_page(),
    ] {
        let Described { method, path, operation, .. } = described.finish();
        paths.add_path_operation(path, vec![method], operation.build());
    }
    let additional = terraform::additional().map(|(method, described)| {
        let operation = described.finish().operation.build();
        (method, serde_json::to_value(operation).expect("it is JSON"))
    });
    let path = paths.paths.get_mut(terraform::PATH).expect("it has other operations");
    let additional: Value = Map::from_iter(additional).into();
    path.extensions = Some(Extensions::from_iter([(ADDITIONAL_OPERATIONS, additional)]));
    paths
}

fn read() -> Described {
    Described::new(HttpMethod::Get, "/v1/resources/{name}", "readValue", "Read a value")
        .about("With Fencing-Token, this is a fenced read: it claims first, in the same step.")
        .parameters([
            parts::name(),
            parts::optional_token("Claim with this token, and then read."),
            parts::holder(),
            parts::if_match("Is only checked for its form."),
            parts::if_none_match("Don't send the value if it has one of these versions: 304."),
            parts::if_version_at_least("With Fencing-Token, it is only checked for its form."),
        ])
        .answers(StatusCode::OK, value())
        .answers(StatusCode::NOT_MODIFIED, known_value())
        .problems(&MALFORMED)
        .problems(&[&MALFORMED_REQUEST, &NOT_FOUND, &VERSION_NOT_REACHED])
        .problems(&NOT_ACCEPTED)
        .for_known_clients()
}

fn head() -> Described {
    Described::new(
        HttpMethod::Head,
        "/v1/resources/{name}",
        "readHeaders",
        "Read a value's headers",
    )
    .about("This never claims.")
    .parameters([
        parts::name(),
        parts::optional_token("Is only checked for its form."),
        parts::holder(),
        parts::if_match("Is only checked for its form."),
        parts::if_none_match("As for GET."),
        parts::if_version_at_least("As for GET."),
    ])
    .answers(StatusCode::OK, ResponseBuilder::new().description("There is a value."))
    .answers(StatusCode::NOT_MODIFIED, known_value())
    .problems(&MALFORMED)
    .problems(&[&MALFORMED_REQUEST, &NOT_FOUND, &VERSION_NOT_REACHED])
    .for_known_clients()
}

fn write() -> Described {
    let value = Content::builder().build();
    let body = RequestBodyBuilder::new()
        .description(Some("The value: any bytes. They are stored with their Content-Type."))
        .required(Some(Required::False))
        .content("*/*", value);
    Described::new(HttpMethod::Put, "/v1/resources/{name}", "writeValue", "Write a value")
        .about("The token claims, whether a condition is met or not.")
        .parameters([parts::name(), parts::required_token(), parts::holder()])
        .parameters([parts::sequence()])
        .parameters(conditions())
        .answers(StatusCode::OK, json("It replaced a value.", "Accepted"))
        .answers(StatusCode::CREATED, json("It is the first value.", "Accepted"))
        .problems(&MALFORMED)
        .problems(&UNUSABLE_SEQUENCE)
        .problems(&[&MALFORMED_REQUEST, &TOKEN_REQUIRED, &VERSION_MISMATCH])
        .problems(&[&SLOW_BODY, &VALUE_TOO_LARGE, &ENCODED_VALUE])
        .problems(&NOT_ACCEPTED)
        .for_known_clients()
        .body(body)
}

fn delete() -> Described {
    let deleted = "There is no value now. The fence stays.";
    Described::new(HttpMethod::Delete, "/v1/resources/{name}", "deleteValue", "Delete a value")
        .about("The token claims, whether a condition is met or not.")
        .parameters([parts::name(), parts::required_token(), parts::holder()])
        .parameters([parts::sequence()])
        .parameters(conditions())
        .answers(StatusCode::NO_CONTENT, ResponseBuilder::new().description(deleted))
        .problems(&MALFORMED)
        .problems(&UNUSABLE_SEQUENCE)
        .problems(&[&MALFORMED_REQUEST, &TOKEN_REQUIRED, &VERSION_MISMATCH])
        .problems(&NOT_ACCEPTED)
        .for_known_clients()
}

fn list() -> Described {
    Described::new(HttpMethod::Get, "/v1/resources", "listResources", "List resources with a value")
        .about("They come in the byte order of their names.")
        .parameters(parts::list_parameters())
        .answers(StatusCode::OK, json("A page of the list.", "List"))
        .problems(&[&MALFORMED_REQUEST])
        .for_known_clients()
}

fn show_fence() -> Described {
    Described::new(HttpMethod::Get, "/v1/fences/{name}", "readFence", "Read a fence")
        .parameters([
            parts::name(),
            parts::optional_token("Is only checked for its form."),
            parts::holder(),
        ])
        .answers(StatusCode::OK, json("The fence.", "Fence"))
        .problems(&MALFORMED)
        .problems(&[&NOT_FOUND])
        .for_known_clients()
}

fn claim() -> Described {
    Described::new(HttpMethod::Put, "/v1/fences/{name}", "claim", "Claim a resource")
        .about("This advances the fence without writing.")
        .parameters([parts::name(), parts::required_token(), parts::holder()])
        .answers(StatusCode::OK, json("The claim was accepted.", "Accepted"))
        .problems(&MALFORMED)
        .problems(&[&TOKEN_REQUIRED])
        .problems(&NOT_ACCEPTED)
        .for_known_clients()
}

fn commit() -> Described {
    let transaction = Content::new(Some(Ref::from_schema_name("Transaction")));
    let body = RequestBodyBuilder::new()
        .description(Some("The conditions and the writes, each of which has its own token."))
        .required(Some(Required::True))
        .content("application/json", transaction);
    Described::new(
        HttpMethod::Post,
        "/v1/transactions",
        "commitTransaction",
        "Write several resources at once, all or none",
    )
    .about("Unless the answer is 200, nothing was changed, and no fence has advanced.")
    .answers(StatusCode::OK, json("All of it was accepted, and is durable.", "Decided"))
    .problems(&MALFORMED)
    .problems(&[&MALFORMED_REQUEST, &TOKEN_REQUIRED, &TOKEN_TOO_HIGH])
    .problems(&[&TRANSACTION_REJECTED, &CONDITION_NOT_MET, &NO_TRANSACTIONS])
    .problems(&[&SLOW_BODY, &VALUE_TOO_LARGE, &NOT_JSON, &ENCODED_VALUE])
    .for_known_clients()
    .body(body)
}

fn alive() -> Described {
    Described::new(HttpMethod::Get, "/livez", "isAlive", "See that the server runs")
        .answers(StatusCode::OK, plain("It runs.", "text/plain; charset=utf-8"))
}

fn ready() -> Described {
    Described::new(HttpMethod::Get, "/readyz", "isReady", "See whether the server can write")
        .about("With an auth file, only operators see more than the status.")
        .answers(StatusCode::OK, json("The database takes writes.", "Ready"))
        .identifies()
        .problems(&[&UNAUTHENTICATED, &TOO_MANY_REQUESTS])
}

fn show_metrics() -> Described {
    Described::new(HttpMethod::Get, "/metrics", "readMetrics", "Read the metrics for Prometheus")
        .about("With an auth file, for operators only. With --metrics-listen, they are not here.")
        .answers(StatusCode::OK, plain("The metrics.", metrics::CONTENT_TYPE))
        .problems(&[&NOT_FOUND])
        .for_known_clients()
}

fn list_problems() -> Described {
    Described::new(HttpMethod::Get, "/problems", "listProblems", "List the problem types")
        .answers(StatusCode::OK, plain("A page.", "text/html; charset=utf-8"))
}

fn show_problem() -> Described {
    Described::new(HttpMethod::Get, "/problems/{slug}", "readProblem", "Explain a problem type")
        .parameters([parts::slug()])
        .answers(StatusCode::OK, plain("A page.", "text/html; charset=utf-8"))
        .problems(&[&NOT_FOUND])
}

fn show_document() -> Described {
    let any = ObjectBuilder::new();
    let answer = ResponseBuilder::new()
        .description("OpenAPI 3.1.")
        .content("application/json", Content::new(Some(any)));
    Described::new(HttpMethod::Get, "/openapi.json", "readDocument", "Read this document")
        .answers(StatusCode::OK, answer)
}

fn show_page() -> Described {
    let policy = "No script, and no other site.";
    let policy = parts::holds(parts::text(), policy);
    let answer = plain("A page.", "text/html; charset=utf-8");
    Described::new(HttpMethod::Get, "/docs", "readPage", "Read this document as a page")
        .answers(StatusCode::OK, answer.header("content-security-policy", policy))
}

fn conditions() -> [Parameter; 2] {
    [
        parts::if_match("Only if there is a value, and its version is one of these."),
        parts::if_none_match("Only if there is no value, or its version is none of these."),
    ]
}

pub(super) fn value() -> ResponseBuilder {
    ResponseBuilder::new()
        .description("The value, with the Content-Type that it was written with.")
        .content("*/*", Content::builder().build())
}

fn known_value() -> ResponseBuilder {
    ResponseBuilder::new().description("The client has this version of the value.")
}

pub(super) fn json(description: &str, schema: &str) -> ResponseBuilder {
    let schema: RefOr<Schema> = Ref::from_schema_name(schema).into();
    ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(schema)))
}

fn plain(description: &str, content_type: &str) -> ResponseBuilder {
    ResponseBuilder::new()
        .description(description)
        .content(content_type, Content::new(Some(parts::text())))
}
