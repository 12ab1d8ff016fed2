//! The parts of the OpenAPI document: parameters, headers and schemas of answers.

use axum::http::header;
use fence::Token;
use utoipa::openapi::{
    ArrayBuilder, Header, HeaderBuilder, ObjectBuilder, Ref, RefOr, Required, Schema,
    path::{Parameter, ParameterBuilder, ParameterIn},
    schema::{AdditionalProperties, SchemaType, Type},
};

use crate::http::{
    list::{DEFAULT_LIMIT, MAX_LIMIT},
    problem,
    request::{FENCING_HOLDER, FENCING_TOKEN},
    request_id::X_REQUEST_ID,
};

/// A name, except that it has at most 512 bytes, of which a character may have several: segments
/// without control characters that are not empty, `.` or `..`.
const NAME: &str = concat!(
    r"^([^/.\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*",
    r"|\.{1,2}[^/.\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*|\.{3}[^/\x00-\x1f\x7f-\x9f]*)",
    r"(/([^/.\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*",
    r"|\.{1,2}[^/.\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*|\.{3}[^/\x00-\x1f\x7f-\x9f]*))*$",
);
const NAME_BYTES: usize = 512;
const NO_CONTROL_CHARACTERS: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
const HOLDER: &str = "^[!-~]{0,128}$";
const LOCK_ID: &str = "^[!-~]{1,128}$";
const CONTENT_TYPE: &str = "^[ -~]{0,256}$";

pub(super) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// The name of a resource.
pub(super) fn name_text() -> ObjectBuilder {
    text().pattern(Some(NAME)).min_length(Some(1)).max_length(Some(NAME_BYTES))
}

pub(super) fn lock_id_text() -> ObjectBuilder {
    text().pattern(Some(LOCK_ID))
}

pub(super) fn holder_text() -> ObjectBuilder {
    text().pattern(Some(HOLDER))
}

/// The type of a value. The empty one is the default.
pub(super) fn type_text() -> ObjectBuilder {
    text().pattern(Some(CONTENT_TYPE))
}

pub(super) fn token() -> ObjectBuilder {
    let highest = usize::try_from(Token::MAX.as_u64()).expect("it has less than 53 bits");
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(highest))
}

pub(super) fn version() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0))
}

pub(super) fn nullable(of: Type, schema: ObjectBuilder) -> ObjectBuilder {
    schema.schema_type(SchemaType::from_iter([of, Type::Null]))
}

/// An object with all of these members, and no others.
pub(super) fn object(
    members: impl IntoIterator<Item = (&'static str, RefOr<Schema>)>,
) -> ObjectBuilder {
    let object =
        ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(false)));
    members
        .into_iter()
        .fold(object, |object, (name, schema)| object.property(name, schema).required(name))
}

/// The schemas of answers, with their names.
pub(super) fn schemas() -> impl Iterator<Item = (String, RefOr<Schema>)> {
    let accepted = object([
        ("resource", text().into()),
        ("token", nullable(Type::Integer, token()).into()),
        ("holder", text().into()),
        ("version", version().into()),
    ]);
    let fence = object([
        ("resource", text().into()),
        ("token", token().into()),
        ("holder", text().description(Some("Whole only for the holder itself.")).into()),
        ("version", version().into()),
    ]);
    let listed = object([
        ("resource", text().into()),
        ("token", nullable(Type::Integer, token()).into()),
        ("version", version().into()),
        ("size", version().description(Some("In bytes.")).into()),
    ]);
    let next = nullable(Type::String, text());
    let next = next.description(Some("The parameter `after` of the next page; null on the last."));
    let resources = ArrayBuilder::new().items(Ref::from_schema_name("Listed"));
    let list = object([("resources", resources.into()), ("next", next.into())]);
    let ready = object([("status", text().enum_values(Some(["ready"])).into())]);
    [
        ("Accepted", accepted),
        ("Fence", fence),
        ("Listed", listed),
        ("List", list),
        ("Ready", with_readiness_details(ready)),
    ]
    .into_iter()
    .map(|(name, schema)| (name.to_owned(), schema.into()))
}

/// Adds the members of `/readyz` that only operators see.
pub(super) fn with_readiness_details(object: ObjectBuilder) -> ObjectBuilder {
    let waited = "How long the oldest operation without a decision has waited. For operators only.";
    let auth_file = "What is wrong with the auth file. For operators only.";
    let tls_files = "What is wrong with the files of TLS. For operators only.";
    object
        .property("oldest_operation_ms", version().description(Some(waited)))
        .property("auth_file", text().description(Some(auth_file)))
        .property("tls_files", text().description(Some(tls_files)))
}

/// The decisions on a transaction, in the order of the request.
pub(super) fn decisions() -> impl Iterator<Item = (&'static str, RefOr<Schema>)> {
    let decisions = [("conditions", "CheckedCondition"), ("writes", "DecidedWrite")];
    decisions.into_iter().map(|(name, schema)| {
        (name, ArrayBuilder::new().items(Ref::from_schema_name(schema)).into())
    })
}

/// A header of an answer.
pub(super) fn holds(schema: ObjectBuilder, description: &str) -> Header {
    HeaderBuilder::new().schema(schema).description(Some(description)).build()
}

/// The headers that every answer has.
pub(super) fn common_headers() -> [(&'static str, Header); 3] {
    let id = "The id of the request, as in the server's logs.";
    [
        (X_REQUEST_ID.as_str(), holds(text(), id)),
        (header::CACHE_CONTROL.as_str(), holds(text(), "`no-store`.")),
        (header::X_CONTENT_TYPE_OPTIONS.as_str(), holds(text(), "`nosniff`.")),
    ]
}

/// The headers of a value.
pub(super) fn value_headers() -> [(&'static str, Header); 4] {
    let fence = "Of the write, if it had a token.";
    let holder = format!("{fence} Whole only for the holder itself.");
    let policy = "A value that is a page runs no script.";
    [
        (header::CONTENT_SECURITY_POLICY.as_str(), holds(text(), policy)),
        (header::ETAG.as_str(), holds(text(), "The version of the value, in quotes.")),
        (FENCING_TOKEN.as_str(), holds(token(), fence)),
        (FENCING_HOLDER.as_str(), holds(text(), &holder)),
    ]
}

fn parameter(name: &str, place: ParameterIn, schema: ObjectBuilder, about: &str) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .schema(Some(schema))
        .description(Some(about))
        .build()
}

fn in_head(name: &str, schema: ObjectBuilder, about: &str) -> Parameter {
    parameter(name, ParameterIn::Header, schema, about)
}

pub(super) fn name() -> Parameter {
    let about = "The resource's name: up to 512 bytes of UTF-8. Slashes may stay as they are.";
    name_up_to(NAME_BYTES, about)
}

pub(super) fn name_up_to(bytes: usize, about: &str) -> Parameter {
    parameter("name", ParameterIn::Path, name_text().max_length(Some(bytes)), about)
}

pub(super) fn slug() -> Parameter {
    let schema = text().enum_values(Some(problem::slugs()));
    parameter("slug", ParameterIn::Path, schema, "The problem type.")
}

pub(super) fn required_token() -> Parameter {
    let mut token = in_head("Fencing-Token", token(), "The token that came with the lock.");
    token.required = Required::True;
    token
}

pub(super) fn optional_token(about: &str) -> Parameter {
    in_head("Fencing-Token", token(), about)
}

pub(super) fn holder() -> Parameter {
    let about = "The random identity of the grant's owner. Without it, the holder is empty.";
    in_head("Fencing-Holder", holder_text(), about)
}

pub(super) fn sequence() -> Parameter {
    let about = "The number of the write, with which it may be sent again.";
    in_head("Fencing-Sequence", token(), about)
}

pub(super) fn if_match(about: &str) -> Parameter {
    // schemathesis takes the quotes of a pattern away, and knows the form of these headers itself.
    in_head("If-Match", text(), &format!("`*`, or versions in quotes. {about}"))
}

pub(super) fn if_none_match(about: &str) -> Parameter {
    in_head("If-None-Match", text(), &format!("`*`, or versions in quotes. {about}"))
}

pub(super) fn if_version_at_least(about: &str) -> Parameter {
    let version = "The version that the value must have at least. A replica may answer then.";
    let schema = self::version().maximum(Some(u64::MAX));
    in_head("If-Version-At-Least", schema, &format!("{version} {about}"))
}

/// The headers that every request may have.
pub(super) fn common_parameters() -> [Parameter; 2] {
    let id = "The id of the request: 1 to 128 characters of visible ASCII. Otherwise, the server \
              makes one.";
    let trace = "The trace that the request belongs to (W3C Trace Context), for the server's logs.";
    [in_head("X-Request-Id", text(), id), in_head("traceparent", text(), trace)]
}

/// The id of the lock of a state.
pub(super) fn lock_id() -> Parameter {
    let about = "The ID of the lock. Terraform adds it to the address of an upload.";
    parameter("ID", ParameterIn::Query, lock_id_text(), about)
}

/// How long the lock of a state is held.
pub(super) fn ttl() -> Parameter {
    let about = "How long the lock is held from now on, such as `30m` or `12h`; at least `1s`.";
    parameter("ttl", ParameterIn::Query, text().pattern(Some("^[1-9][0-9]{0,3}(s|m|h|d)$")), about)
}

/// The parameters of a list.
pub(super) fn list_parameters() -> [Parameter; 3] {
    let in_query = |name, schema, about| parameter(name, ParameterIn::Query, schema, about);
    let names = || text().pattern(Some(NO_CONTROL_CHARACTERS));
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_LIMIT as usize))
        .default(Some(DEFAULT_LIMIT.into()));
    [
        in_query("prefix", names(), "The beginning of the names."),
        in_query("after", names(), "Only names after this one, in the order of their bytes."),
        in_query("limit", limit, "How many resources a page has at most."),
    ]
}
