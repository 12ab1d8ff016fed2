//! The pictures of the README: the panels of a run of 33 and 34, as the page draws them at its end.
//! `make screenshots` draws them, and copies them into `docs`.

use std::{fs, path::Path};

use super::{browser::saved, replayed};
use crate::browser::Browser;

const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");
/// So wide that two panels are beside each other, and so high that nothing scrolls.
const SIZE: (u32, u32) = (1200, 2400);
const MOST_BYTES: u64 = 250_000;

#[tokio::test]
async fn screenshots_of_33_and_34_are_drawn_in_light_and_in_dark() {
    let record = replayed("token-33-34").await;
    let end = record["events"].as_array().unwrap().len();
    let browser = Browser::start().await;
    browser.resize(SIZE.0, SIZE.1).await;
    browser.open_file("run.html", &saved(record), &format!("event={end}&lang=en")).await;
    browser.run("document.querySelectorAll('.ring').forEach((ring) => ring.remove())").await;
    for scheme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", scheme).await;
        let path = Path::new(FOLDER).join(format!("page-33-34-{scheme}.png"));
        browser.draw(&path, "#worlds").await;
        let bytes = fs::metadata(&path).unwrap().len();
        println!("{}: {bytes} bytes", path.display());
        assert!(bytes < MOST_BYTES, "{bytes} bytes");
    }
}
