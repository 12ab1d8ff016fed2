//! The schemas of `/v1/transactions`: requests and answers.

use utoipa::openapi::{
    ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, schema::Type,
};

use super::parts::{
    decisions, holder_text, name_text, nullable, object, text, token, type_text, version,
};
use crate::http::transactions::requested::MAX_ITEMS;

/// Base64 with padding. The bits that it leaves over are 0.
const BASE64: &str = concat!(
    "^([A-Za-z0-9+/]{4})*",
    "([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$",
);

pub(super) fn schemas() -> impl Iterator<Item = (String, RefOr<Schema>)> {
    let base64 = text().pattern(Some(BASE64));
    [
        ("Transaction", transaction()),
        ("Condition", condition()),
        ("Write", write()),
        ("TextValue", value("text", text(), "base64")),
        ("Base64Value", value("base64", base64, "text")),
        ("Decided", object(decisions())),
        ("CheckedCondition", checked_condition()),
        ("DecidedWrite", decided_write()),
    ]
    .into_iter()
    .map(|(name, schema)| (name.to_owned(), schema.into()))
}

fn transaction() -> ObjectBuilder {
    let about = format!(
        "A resource has at most one condition and one write. There are at most {MAX_ITEMS} of both \
         together."
    );
    let conditions = ArrayBuilder::new().items(Ref::from_schema_name("Condition"));
    let conditions = conditions.max_items(Some(MAX_ITEMS - 1));
    let writes = ArrayBuilder::new().items(Ref::from_schema_name("Write"));
    let writes = writes.min_items(Some(1)).max_items(Some(MAX_ITEMS));
    object([("writes", writes.into())]).property("conditions", conditions).description(Some(about))
}

fn condition() -> ObjectBuilder {
    let about = "The version that the value must have; null or 0 if there must be no value.";
    let version = nullable(Type::Integer, version().maximum(Some(u64::MAX)));
    object([("resource", name_text().into()), ("version", version.description(Some(about)).into())])
}

fn write() -> ObjectBuilder {
    let value = OneOfBuilder::new()
        .item(Ref::from_schema_name("TextValue"))
        .item(Ref::from_schema_name("Base64Value"))
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .description(Some("The new value; null deletes."));
    let token = token().description(Some("The token that came with the lock of the resource."));
    object([("resource", name_text().into()), ("token", token.into()), ("value", value.into())])
        .property("holder", holder_text())
}

/// A value with one of two members.
fn value(given: &'static str, schema: ObjectBuilder, absent: &str) -> ObjectBuilder {
    object([(given, schema.into())])
        .property(absent, ObjectBuilder::new().schema_type(Type::Null))
        .property("content_type", type_text())
}

fn checked_condition() -> ObjectBuilder {
    let about = "The version that the value has; null if there is none.";
    let version = nullable(Type::Integer, version()).description(Some(about));
    object([
        ("resource", text().into()),
        ("version", version.into()),
        ("met", ObjectBuilder::new().schema_type(Type::Boolean).into()),
    ])
}

fn decided_write() -> ObjectBuilder {
    let decisions = ["accepted", "stale-token", "holder-conflict", "token-too-high"];
    let took_effect = "Only of a transaction that took effect.";
    object([
        ("resource", text().into()),
        ("decision", text().enum_values(Some(decisions)).into()),
        ("token", nullable(Type::Integer, token()).into()),
    ])
    .property("holder", text().description(Some(took_effect)))
    .property("version", version().description(Some(took_effect)))
    .property("highest_token", token().description(Some("Of a token that was rejected.")))
    .property("ceiling", token().description(Some("Of a token that is too high.")))
}
