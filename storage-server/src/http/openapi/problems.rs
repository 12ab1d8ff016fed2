//! Problem documents in the OpenAPI document: a schema for each problem type.

use axum::http::header;
use utoipa::openapi::{
    Content, Header, ObjectBuilder, OneOfBuilder, Ref, RefOr, Response, ResponseBuilder, Schema,
    schema::{AdditionalProperties, Type},
};

use super::{
    parts::{self, holds, text, token, version},
    terraform,
};
use crate::http::problem::kind::{KINDS, Kind, Member};

/// The schemas of all problem types, with their names.
pub(super) fn schemas() -> impl Iterator<Item = (String, RefOr<Schema>)> {
    KINDS.iter().map(|kind| (name(kind), schema(kind)))
}

/// A response that is one of these problems, which have the same status.
pub(super) fn response(kinds: &[&Kind]) -> Response {
    let refs = kinds.iter().map(|kind| Ref::from_schema_name(name(kind)));
    let schema: RefOr<Schema> = match refs.clone().next() {
        Some(one) if kinds.len() == 1 => one.into(),
        _ => refs.fold(OneOfBuilder::new(), OneOfBuilder::item).into(),
    };
    let titles: Vec<_> = kinds.iter().map(|kind| kind.title).collect();
    let response = ResponseBuilder::new()
        .description(format!("{}.", titles.join(", or: ")))
        .content("application/problem+json", Content::new(Some(schema)));
    headers(kinds[0])
        .into_iter()
        .fold(response, |it, (name, header)| it.header(name, header))
        .build()
}

/// The headers of a problem, beside those of all answers.
pub(super) fn headers(kind: &Kind) -> Vec<(&'static str, Header)> {
    match kind.status.as_u16() {
        401 => vec![(header::WWW_AUTHENTICATE.as_str(), holds(text(), "`Bearer`."))],
        429 | 503 => {
            let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
            vec![(header::RETRY_AFTER.as_str(), holds(seconds, "In seconds."))]
        }
        _ => Vec::new(),
    }
}

fn name(kind: &Kind) -> String {
    format!("problem-{}", kind.slug)
}

fn schema(kind: &Kind) -> RefOr<Schema> {
    let path = format!("/problems/{}", kind.slug);
    let status =
        ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([kind.status.as_u16()]));
    let mut document = ObjectBuilder::new()
        .description(Some(kind.explanation))
        .property("type", text().enum_values(Some([path])))
        .property("title", text().enum_values(Some([kind.title])))
        .property("status", status)
        .property("detail", text().description(Some("What exactly is wrong.")))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)));
    for required in ["type", "title", "status", "detail"] {
        document = document.required(required);
    }
    for member in kind.members {
        document = with_member(document, *member);
    }
    document.into()
}

fn with_member(document: ObjectBuilder, member: Member) -> ObjectBuilder {
    let (name, schema) = match member {
        Member::Resource => ("resource", text()),
        Member::OptionalResource => return document.property("resource", text()),
        Member::Token => ("token", token()),
        Member::HighestToken => ("highest_token", token()),
        Member::Ceiling => ("ceiling", token()),
        Member::Version => ("version", version()),
        Member::Sequence => ("sequence", token()),
        Member::HighestSequence => ("highest_sequence", token()),
        Member::Limit => ("limit", version().description(Some("In bytes."))),
        Member::Identity => ("identity", text()),
        Member::Permission => ("permission", text()),
        Member::Outcome => ("outcome", text().enum_values(Some(["none", "unknown"]))),
        Member::LockInfo => return terraform::with_lock_info(document),
        Member::Decisions => {
            return parts::decisions().fold(document, |document, (name, schema)| {
                document.property(name, schema).required(name)
            });
        }
        Member::OptionalDecisions => {
            return parts::decisions()
                .fold(document, |document, (name, schema)| document.property(name, schema));
        }
        Member::ReadinessDetails => return parts::with_readiness_details(document),
    };
    document.property(name, schema).required(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = include_str!("../../../README.md");

    /// Each row of the table of errors, as its problem types and their further members.
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
        let mut listed = 0;
        for (status, slugs, members) in rows() {
            for slug in slugs {
                let kind = KINDS.iter().find(|kind| kind.slug == slug);
                let kind = kind.unwrap_or_else(|| panic!("there is no {slug}"));
                assert_eq!(kind.status.as_str(), status, "{slug}");
                let schema = serde_json::to_value(schema(kind)).unwrap();
                let all = schema["properties"].as_object().unwrap().keys();
                let common = ["type", "title", "status", "detail"];
                let in_readiness = ["oldest_operation_ms", "auth_file", "tls_files"];
                let further = all
                    .map(String::as_str)
                    .filter(|name| !common.contains(name) && !in_readiness.contains(name));
                let mut expected = members.clone();
                expected.sort_unstable();
                assert_eq!(further.collect::<Vec<_>>(), expected, "{slug}");
                listed += 1;
            }
        }
        assert_eq!(listed, KINDS.len());
    }
}
