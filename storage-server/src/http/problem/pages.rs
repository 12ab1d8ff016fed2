//! `/problems`: a page for each problem type.

use axum::{Router, extract::Path, response::Html, routing::get};

use super::{
    Problem,
    kind::{KINDS, Kind},
};

pub(in crate::http) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/problems", get(index)).route("/problems/{slug}", get(show))
}

async fn index() -> Html<String> {
    let items = KINDS.iter().map(|kind| {
        let Kind { slug, status, title, .. } = kind;
        format!("<li><a href=\"/problems/{slug}\">{slug}</a>: {status}. {title}.</li>\n")
    });
    html("Problems", &format!("<ul>\n{}</ul>", items.collect::<String>()))
}

async fn show(Path(slug): Path<String>) -> Result<Html<String>, Problem> {
    let kind = KINDS
        .iter()
        .find(|kind| kind.slug == slug)
        .ok_or_else(|| Problem::no_such_page(&format!("/problems/{slug}")))?;
    let Kind { slug, status, title, explanation, .. } = kind;
    Ok(html(title, &format!("<p><code>{slug}</code>, status {status}</p>\n<p>{explanation}</p>")))
}

fn html(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n{body}\n</html>\n"
    ))
}
