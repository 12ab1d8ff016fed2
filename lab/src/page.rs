//! A run as a page: a viewer of HTML, CSS and JavaScript without a build step.
//!
//! The modules in `page/` depend on each other one way, in the order of `MODULES`. `record.mjs`
//! reads a record, `story.mjs` finds what its events mean, `panel.mjs` draws that, and `main.mjs`
//! brings them together. All texts are in `texts.mjs`. `standing.mjs` finds how things stand in a
//! sandbox, `answers.mjs` says it, and `fork.mjs` finds the steps that lead there. `wire.mjs` shows
//! what went over the wire. `live.mjs` and `sandbox.mjs` are used only where the lab serves the page.

#[cfg(test)]
mod tests;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{record::RunRecord, sandbox, scenario};

pub(crate) const STYLE: &str = include_str!("page/page.css");
const BODY: &str = include_str!("page/body.html");
/// In the order in which they are needed.
const MODULES: [&str; 16] = [
    include_str!("page/standing.mjs"),
    include_str!("page/fork.mjs"),
    include_str!("page/texts.mjs"),
    include_str!("page/words.mjs"),
    include_str!("page/wire.mjs"),
    include_str!("page/record.mjs"),
    include_str!("page/scale.mjs"),
    include_str!("page/story.mjs"),
    include_str!("page/panel.mjs"),
    include_str!("page/player.mjs"),
    include_str!("page/share.mjs"),
    include_str!("page/table.mjs"),
    include_str!("page/answers.mjs"),
    include_str!("page/live.mjs"),
    include_str!("page/sandbox.mjs"),
    include_str!("page/main.mjs"),
];

/// The content security policy of the page that the lab serves.
pub(crate) const SERVED_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The viewer with a record, as one file that needs nothing else. Without one, it opens those that are
/// dropped onto it.
pub fn file(record: Option<&RunRecord>) -> String {
    let script = script();
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'",
        hash(&script),
        hash(STYLE)
    );
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n");
    let data = json!({"scenarios": descriptions(), "record": record});
    let style = format!("<style>{STYLE}</style>");
    document(&policy, &style, &data, &format!("<script type=\"module\">{script}</script>"))
}

/// The page that the lab serves. Its style and its script are files of their own.
pub(crate) fn served() -> String {
    let data = json!({"scenarios": descriptions(), "record": null, "serves": true});
    let style = "<link rel=\"stylesheet\" href=\"page.css\">";
    document("", style, &data, "<script type=\"module\" src=\"page.mjs\"></script>")
}

/// What the page knows of all scenarios, and of sandboxes.
pub fn descriptions() -> Vec<Value> {
    let groups = scenario::GROUPS.iter().flat_map(|group| {
        group.scenarios.iter().map(move |scenario| {
            let mut description = json!(scenario);
            description["group"] = json!(group.title);
            description
        })
    });
    groups.chain([json!(sandbox::DESCRIPTION)]).collect()
}

fn document(policy: &str, style: &str, data: &Value, script: &str) -> String {
    format!(
        "<!doctype html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         {policy}\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>lab replay</title>\n\
         {style}\n\
         </head>\n\
         <body>\n\
         {BODY}\
         <script type=\"application/json\" id=\"data\">{}</script>\n\
         {script}\n\
         </body>\n\
         </html>\n",
        embedded(data)
    )
}

/// All modules as one. They import only each other, so that needs no import.
pub(crate) fn script() -> String {
    let lines = MODULES.into_iter().flat_map(str::lines);
    let lines = lines.filter(|line| !line.starts_with("import "));
    lines.fold(String::new(), |script, line| {
        script + line.strip_prefix("export ").unwrap_or(line) + "\n"
    })
}

/// JSON for an element `script`, which no value in it ends: in JSON, `\u003c` is a `<`.
fn embedded(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c")
}

/// A source of a content security policy that allows exactly this text.
fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}
