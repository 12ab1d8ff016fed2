//! Transactions as clients request them, in JSON.

use std::{collections::HashSet, fmt, marker::PhantomData};

use base64::{Engine, prelude::BASE64_STANDARD};
use fence::{Holder, ResourceName, Token};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    access::{Caller, identity::Permission},
    config::Enforcement,
    http::{
        problem::Problem,
        request::{Fencing, parse_content_type},
        service::Service,
    },
    operation::{Action, Condition, Content, Operation, Versions},
    transaction::{ResourceCondition, Transaction},
};

/// How many conditions and writes a transaction may have.
pub(in crate::http) const MAX_ITEMS: usize = 64;
/// How much of an error of the parser is shown. It may quote a whole value.
const MAX_ERROR_CHARS: usize = 200;

/// Parses the body, and checks what the caller may do with each resource. The transaction keeps the
/// body's memory until it is decided.
pub(super) fn parse(
    body: Vec<u8>,
    memory: OwnedSemaphorePermit,
    caller: &Caller,
    service: &Service,
) -> Result<Transaction, Problem> {
    let requested: Object<RequestedTransaction> =
        serde_json::from_slice(&body).map_err(|error| {
            let error: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
            Problem::malformed_request(format!("the body is not a transaction: {error}"))
        })?;
    drop(body);
    let Object(RequestedTransaction { conditions: Items(conditions), writes: Items(writes) }) =
        requested;
    if writes.is_empty() {
        return Err(Problem::malformed_request("a transaction has at least one write"));
    }
    if conditions.len() + writes.len() > MAX_ITEMS {
        return Err(Problem::malformed_request(format!(
            "a transaction has at most {MAX_ITEMS} conditions and writes"
        )));
    }
    let conditions = conditions.into_iter().map(|Object(it)| it.parse(caller, service));
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
    let writes = writes.into_iter().map(|Object(it)| it.parse(caller, service));
    let writes = writes.collect::<Result<Vec<_>, _>>()?;
    require_distinct(conditions.iter().map(|condition| &condition.resource), "compared")?;
    require_distinct(writes.iter().map(|write| &write.resource), "written")?;
    Ok(Transaction { conditions, writes, _memory: Some(memory) })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedTransaction {
    #[serde(default)]
    conditions: Items<RequestedCondition>,
    writes: Items<RequestedWrite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedCondition {
    resource: String,
    /// The version of the value; null or 0 if there must be none. It may not be left out.
    #[serde(deserialize_with = "Option::deserialize")]
    version: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedWrite {
    resource: String,
    token: Option<u64>,
    #[serde(default)]
    holder: String,
    /// The new value; null deletes. It may not be left out, so that no value is deleted by mistake.
    #[serde(deserialize_with = "Option::deserialize")]
    value: Option<Object<RequestedValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedValue {
    #[serde(default)]
    content_type: String,
    text: Option<String>,
    base64: Option<String>,
}

/// The conditions or writes of a transaction. If there are too many, only the first are kept, and one more:
/// small ones take more memory than in the body.
struct Items<T>(Vec<Object<T>>);

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemsVisitor<T> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Items<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() <= MAX_ITEMS {
            let Some(item) = elements.next_element()? else { return Ok(Items(items)) };
            items.push(item);
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Items(items))
    }
}

/// A JSON object. By itself, a derived type also takes an array of its members.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// Rejects a resource that comes twice: no order of its two writes, or versions, would be right.
fn require_distinct<'a>(
    resources: impl Iterator<Item = &'a ResourceName>,
    how: &str,
) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for resource in resources {
        if !seen.insert(resource) {
            return Err(Problem::malformed_request(format!("a resource is {how} twice"))
                .with("resource", resource.as_str()));
        }
    }
    Ok(())
}

impl RequestedCondition {
    fn parse(self, caller: &Caller, service: &Service) -> Result<ResourceCondition, Problem> {
        let resource = parse_name(self.resource)?;
        service.permit(caller, Permission::Read, resource.as_str())?;
        let condition = match self.version {
            None | Some(0) => {
                Condition { if_none_match: Some(Versions::Any), ..Condition::default() }
            }
            Some(version) => Condition {
                if_match: Some(Versions::Listed(vec![version])),
                ..Condition::default()
            },
        };
        Ok(ResourceCondition { resource, condition })
    }
}

impl RequestedWrite {
    fn parse(self, caller: &Caller, service: &Service) -> Result<Operation, Problem> {
        let resource = parse_name(self.resource)?;
        let of_resource = |problem: Problem| problem.with("resource", resource.as_str());
        let ceiling = service.permit(caller, Permission::Write, resource.as_str())?;
        let token = self.token.map(Token::new).transpose();
        let token = token.map_err(|error| of_resource(Problem::malformed_token(error)))?;
        let holder = Holder::try_from(self.holder);
        let holder = holder.map_err(|error| of_resource(Problem::malformed_holder(error)))?;
        if token.is_none() && service.config.enforcement == Enforcement::Enforce {
            return Err(of_resource(Problem::token_required("the member `token` of a write")));
        }
        let condition = Condition::default();
        let action = match self.value {
            Some(Object(value)) => {
                Action::Write { content: value.parse().map_err(of_resource)?, condition }
            }
            None => Action::Delete { condition },
        };
        Ok(Fencing { token, holder }.operation(&resource, ceiling, action))
    }
}

impl RequestedValue {
    fn parse(self) -> Result<Content, Problem> {
        let bytes = match (self.text, self.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(encoded)) => BASE64_STANDARD.decode(encoded).map_err(|error| {
                Problem::malformed_request(format!("a value is not base64: {error}"))
            })?,
            _ => return Err(Problem::malformed_request("a value has either text or base64")),
        };
        let content_type = parse_content_type(self.content_type.as_bytes())?;
        Ok(Content { content_type, bytes: bytes.into() })
    }
}

fn parse_name(name: String) -> Result<ResourceName, Problem> {
    ResourceName::try_from(name).map_err(Problem::malformed_name)
}
