//! The pictures of the README: a run of 33 and 34 on the page. `make screenshots` draws them,
//! and copies them into `docs`.

use std::{fs, path::Path};

use super::{
    browser::{number, saved},
    replayed,
};
use crate::browser::Browser;

const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");
const SIZE: (u32, u32) = (1200, 800);
const MOST_BYTES: u64 = 150_000;

#[tokio::test]
async fn screenshots_of_33_and_34_are_drawn_in_light_and_in_dark() {
    let record = replayed("token-33-34").await;
    let page = saved(record.clone());
    let rejected = number(&record, "rejected");
    let browser = Browser::start().await;
    browser.resize(SIZE.0, SIZE.1).await;
    browser.open_file("run.html", &page, &format!("event={rejected}&lang=en")).await;
    // Not every machine has Chinese letters.
    browser.run("document.getElementById('language').hidden = true").await;
    for scheme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", scheme).await;
        let path = Path::new(FOLDER).join(format!("page-33-34-{scheme}.png"));
        browser.draw(&path, SIZE.0, SIZE.1).await;
        let bytes = fs::metadata(&path).unwrap().len();
        println!("{}: {bytes} bytes", path.display());
        assert!(bytes < MOST_BYTES, "{bytes} bytes");
    }
}
