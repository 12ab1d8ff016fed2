//! The OpenAPI document as a page, without any script.

use std::fmt::Write;

use serde_json::Value;

use super::ADDITIONAL_OPERATIONS;

/// The page loads nothing, runs nothing, and can't be framed. Its style is allowed by its hash.
pub(super) const POLICY: &str = "default-src 'none'; \
    style-src 'sha256-RivcXOlUfdL8618k/X4uJ7cOBKT5xeXFW/TvYwenakE='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = "\
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
code { font-family: ui-monospace, monospace }
section { border-top: 1px solid #888; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top }
";

/// Renders the document: its operations, with parameters and answers, and its schemas.
pub(super) fn render(document: &Value) -> String {
    let mut page = String::new();
    let title = escaped(&document["info"]["title"]);
    let description = escaped(&document["info"]["description"]);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n<p>{description}. The same as \
         <a href=\"/openapi.json\">OpenAPI</a>.</p>\n<ul>\n"
    );
    let operations = || {
        members(&document["paths"]).flat_map(|(path, item)| {
            let additional = members(&item[ADDITIONAL_OPERATIONS]);
            let methods = members(item).filter(|(method, _)| *method != ADDITIONAL_OPERATIONS);
            methods
                .chain(additional)
                .map(move |(method, operation)| (method.to_uppercase(), path, operation))
        })
    };
    for (method, path, operation) in operations() {
        let (id, summary) = (escaped(&operation["operationId"]), escaped(&operation["summary"]));
        let path = escape(path);
        let _ =
            writeln!(page, "<li><a href=\"#{id}\"><code>{method} {path}</code></a> {summary}</li>");
    }
    page += "</ul>\n";
    for (method, path, operation) in operations() {
        render_operation(&mut page, document, &method, path, operation);
    }
    page += "<h2>Schemas</h2>\n";
    for (name, schema) in members(&document["components"]["schemas"]) {
        render_schema(&mut page, name, schema);
    }
    page += "</html>\n";
    page
}

fn render_operation(
    page: &mut String,
    document: &Value,
    method: &str,
    path: &str,
    operation: &Value,
) {
    let (id, summary) = (escaped(&operation["operationId"]), escaped(&operation["summary"]));
    let (path, description) = (escape(path), escaped(&operation["description"]));
    let _ = write!(
        page,
        "<section id=\"{id}\">\n<h2><code>{method} {path}</code></h2>\n<p>{summary}. {description}</p>\n\
         <table>\n<tr><th>parameter<th>in<th>\n"
    );
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let parameter = target(document, parameter);
        let (name, place) = (escaped(&parameter["name"]), escaped(&parameter["in"]));
        let required = if parameter["required"] == true { "Required. " } else { "" };
        let (about, schema) = (escaped(&parameter["description"]), limits(&parameter["schema"]));
        let _ =
            writeln!(page, "<tr><td><code>{name}</code><td>{place}<td>{required}{about} {schema}");
    }
    let body = escaped(&operation["requestBody"]["description"]);
    if !body.is_empty() {
        let schemas = links(&operation["requestBody"]["content"]);
        let _ = writeln!(page, "<tr><td>body<td><td>{body} {schemas}");
    }
    *page += "</table>\n<table>\n<tr><th>status<th><th>schema<th>headers\n";
    for (status, response) in members(&operation["responses"]) {
        let response = target(document, response);
        let description = escaped(&response["description"]);
        let schemas = links(&response["content"]);
        let headers: Vec<_> = members(&response["headers"]).map(|(name, _)| escape(name)).collect();
        let headers = headers.join(", ");
        let _ = writeln!(page, "<tr><td>{status}<td>{description}<td>{schemas}<td>{headers}");
    }
    *page += "</table>\n</section>\n";
}

fn render_schema(page: &mut String, name: &str, schema: &Value) {
    let (name, description) = (escape(name), escaped(&schema["description"]));
    let _ = write!(
        page,
        "<section id=\"{name}\">\n<h3>{name}</h3>\n<p>{description}</p>\n<table>\n<tr><th>member<th>\n"
    );
    let required = schema["required"].as_array();
    for (member, schema) in members(&schema["properties"]) {
        let is_required = required.is_some_and(|names| names.iter().any(|name| name == member));
        let optional = if is_required { "" } else { "Optional. " };
        let (member, about, limits) =
            (escape(member), escaped(&schema["description"]), limits(schema));
        let _ = writeln!(page, "<tr><td><code>{member}</code><td>{optional}{about} {limits}");
    }
    *page += "</table>\n</section>\n";
}

/// The part of the document that another part refers to, or that part itself.
pub(super) fn target<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let reference = part["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    reference.and_then(|path| document.pointer(path)).unwrap_or(part)
}

/// Links to the schemas of a body.
fn links(content: &Value) -> String {
    let names = members(content).flat_map(|(_, content)| references(&content["schema"]));
    let links: Vec<_> = names.map(|name| format!("<a href=\"#{name}\">{name}</a>")).collect();
    links.join(", ")
}

/// The names of the schemas that a schema refers to.
pub(super) fn references(schema: &Value) -> Vec<String> {
    let alternatives = schema["oneOf"].as_array().into_iter().flatten();
    let references = [schema].into_iter().chain(alternatives).filter_map(|it| it["$ref"].as_str());
    references.filter_map(|path| path.rsplit('/').next()).map(escape).collect()
}

/// What a schema allows, except for its description and its members.
fn limits(schema: &Value) -> String {
    let shown = members(schema).filter(|(name, _)| *name != "description" && *name != "items");
    let shown: Vec<_> = shown.map(|(name, value)| format!("{name} {value}")).collect();
    let shown = shown.join(", ");
    if shown.is_empty() { shown } else { format!("<code>{}</code>", escape(&shown)) }
}

fn members(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn escaped(text: &Value) -> String {
    escape(text.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use serde_json::json;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn policy_allows_the_style_by_its_hash() {
        let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "the hash is {hash}");
    }

    #[test]
    fn text_is_escaped() {
        let document = json!({
            "info": {"title": "<b>", "description": "&"},
            "paths": {"/<i>": {"get": {"operationId": "\"", "summary": "<u>"}}},
        });
        let page = render(&document);
        for markup in ["<b>", "<i>", "<u>", "=\"#\"\""] {
            assert!(!page.contains(markup), "{markup}: {page}");
        }
        assert!(page.contains("&lt;b&gt;"));
    }
}
