//! What everybody needs of a page: axe-core's rules, space at each width, and all of it by keyboard.

use std::fs;

use serde_json::Value;

use super::{Browser, SHIFT, TAB};

/// Where `make node` puts the rules.
const AXE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../target/node/node_modules/axe-core/axe.min.js");
const SCHEMES: [&str; 2] = ["light", "dark"];
/// A small telephone, a page that is enlarged to four times its size, and a large screen.
const SIZES: [(u32, u32); 3] = [(320, 640), (320, 256), (2560, 1440)];

/// Each rule that the page breaks, with the elements that break it.
const RUN_AXE: &str = r#"
    const described = ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" ")}`;
    axe.run(document, { resultTypes: ["violations"] })
        .then(({ violations }) => done(violations.map(described)), (error) => done([String(error)]));
"#;

/// What is too wide for the page, or out of its reach. Tables have scroll bars of their own.
const FIND_OUTSIDE: &str = r#"
    const { scrollWidth, clientWidth } = document.scrollingElement;
    const found = scrollWidth > clientWidth ? [`the page is ${scrollWidth} wide`] : [];
    for (const element of document.querySelectorAll("a, button, input, select, summary, .state")) {
        const { left, right, width } = element.getBoundingClientRect();
        if (!width || element.closest(".wide")) continue;
        if (left < 0 || right > clientWidth) found.push(`${element.outerHTML}: ${left} to ${right}`);
    }
    return found;
"#;

/// Notes all that can have the focus, from the top.
const LIST_CONTROLS: &str = r#"
    const all = "a[href], button, input, select, summary, [tabindex='0']";
    const isThere = (element) => element.checkVisibility() && !element.disabled;
    window.controls = [...document.querySelectorAll(all)].filter(isThere);
    controls[0].focus();
    return controls.length;
"#;

/// The number of what has the focus, and what is wrong with how it is seen.
const FOCUSED: &str = r#"
    const element = document.activeElement;
    const { left, top, width, height } = element.getBoundingClientRect();
    const within = (at, end) => Math.min(end - 1, Math.max(0, at));
    const above = document.elementFromPoint(
        within(left + Math.min(width / 2, 100), innerWidth), within(top + height / 2, innerHeight));
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const isSeen = element.contains(above) || above?.contains(element);
    const isMarked = outlineStyle === "solid" && parseFloat(outlineWidth) >= 2;
    const wrong = isMarked ? (isSeen ? "" : `is under ${above?.outerHTML}`) : "is not marked";
    return [controls.indexOf(element), wrong && `${element.outerHTML.slice(0, 200)} ${wrong}`];
"#;

impl Browser {
    /// Checks all of it in both languages, with a window of 1280 × 900 in the end.
    pub(crate) async fn assert_everybody_can_use_it(&self) {
        self.assert_all_is_reached_by_keyboard().await;
        self.assert_fits().await;
        self.resize(1280, 900).await;
        for _ in 0..2 {
            self.assert_accessible().await;
            self.click("#language").await;
        }
    }

    /// The rules of axe-core that the page breaks as it is now.
    pub(crate) async fn violations(&self) -> Vec<String> {
        if self.value("typeof axe").await != "object" {
            let rules = fs::read_to_string(AXE);
            self.run(
                &rules.unwrap_or_else(|error| panic!("{AXE}: {error}; `make node` installs it")),
            )
            .await;
        }
        let violations = self.run_until_done(RUN_AXE).await;
        let violations = violations.as_array().unwrap().iter();
        violations.map(|violation| violation.as_str().unwrap().to_owned()).collect()
    }

    /// Checks that the page as it is now breaks no rule, in light and in dark.
    pub(crate) async fn assert_accessible(&self) {
        for scheme in SCHEMES {
            self.prefer("prefers-color-scheme", scheme).await;
            assert_eq!(self.violations().await, [""; 0], "in {scheme}");
        }
        self.prefer("prefers-color-scheme", SCHEMES[0]).await;
    }

    /// Checks that the page is never wider than its window, nor any control out of reach. When this
    /// returns, it is as wide as a telephone.
    pub(crate) async fn assert_fits(&self) {
        for (width, height) in SIZES.into_iter().rev() {
            self.resize(width, height).await;
            self.wait_for_frames().await;
            assert_eq!(self.value("innerWidth").await, width);
            assert_eq!(
                self.run(FIND_OUTSIDE).await,
                Value::Array(Vec::new()),
                "{width} × {height}"
            );
        }
    }

    /// Goes through all controls by keyboard, and back. Checks that each has the focus once, is marked, and
    /// is not covered, and that there is a way out.
    pub(crate) async fn assert_all_is_reached_by_keyboard(&self) {
        let count = self.run(LIST_CONTROLS).await.as_i64().unwrap();
        let mut reached = Vec::new();
        self.press_with(&[SHIFT], &[TAB]).await;
        for _ in 0..count {
            self.press(&[TAB]).await;
            let focused = self.run(FOCUSED).await;
            assert_eq!(focused[1], "", "forwards");
            reached.push(focused[0].as_i64().unwrap());
        }
        assert!(reached.iter().copied().eq(0..count), "{reached:?} of {count}");
        for expected in (0..count - 1).rev() {
            self.press_with(&[SHIFT], &[TAB]).await;
            let focused = self.run(FOCUSED).await;
            assert_eq!((&focused[0], &focused[1]), (&expected.into(), &"".into()), "backwards");
        }
        self.press_with(&[SHIFT], &[TAB]).await;
        assert_eq!(self.run(FOCUSED).await[0], -1, "the way out");
    }
}
