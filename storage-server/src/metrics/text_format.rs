//! The two text formats of metrics: OpenMetrics, and the older one of Prometheus, which some programs read only.

use std::fmt::Write;

use axum::http::{HeaderMap, header};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    OpenMetrics,
    Prometheus,
}

impl TextFormat {
    /// The format that a request's `Accept` prefers. OpenMetrics, unless it prefers plain text.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::ACCEPT).iter();
        let accept: Vec<_> = lines.filter_map(|line| line.to_str().ok()).collect();
        let weight = |format: &str| {
            let ranges = accept.iter().flat_map(|line| line.split(','));
            ranges.filter_map(|range| weight_of(format, range)).fold(0.0, f32::max)
        };
        match weight("text/plain") > weight("application/openmetrics-text") {
            true => Self::Prometheus,
            false => Self::OpenMetrics,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Writes OpenMetrics in this format.
    pub(crate) fn translate(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Prometheus => to_prometheus(&open_metrics),
        }
    }
}

/// The weight that a media range gives a format, if it names it.
fn weight_of(format: &str, range: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    parts.next().filter(|named| named.eq_ignore_ascii_case(format))?;
    let weight = parts.find_map(|parameter| parameter.strip_prefix("q="));
    Some(weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
}

/// In the format of Prometheus, a family of counters is named as its series are, and units have no line.
fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some((_, words)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' '))
        {
            help = words;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let _ = writeln!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn format_is_the_one_that_is_accepted() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (prometheus, TextFormat::OpenMetrics),
            ("*/*", TextFormat::OpenMetrics),
            ("", TextFormat::OpenMetrics),
            ("text/plain", TextFormat::Prometheus),
            ("text/plain;version=0.0.4", TextFormat::Prometheus),
            ("Text/Plain; q=0.9, application/openmetrics-text; q=0.1", TextFormat::Prometheus),
            ("text/plain;q=0, */*", TextFormat::OpenMetrics),
            ("text/plain;q=x", TextFormat::OpenMetrics),
        ] {
            let headers = [(header::ACCEPT, HeaderValue::from_static(accept))];
            assert_eq!(
                TextFormat::from_headers(&HeaderMap::from_iter(headers)),
                format,
                "{accept}"
            );
        }
        assert_eq!(TextFormat::from_headers(&HeaderMap::new()), TextFormat::OpenMetrics);
    }

    #[test]
    fn families_of_counters_have_the_names_of_their_series() {
        let open_metrics = "# HELP a Ones.\n# TYPE a counter\na_total{b=\"# c\"} 1\n\
            # HELP d_seconds Twos.\n# TYPE d_seconds gauge\n# UNIT d_seconds seconds\nd_seconds 2\n# EOF\n";
        assert_eq!(
            to_prometheus(open_metrics),
            "# HELP a_total Ones.\n# TYPE a_total counter\na_total{b=\"# c\"} 1\n\
             # HELP d_seconds Twos.\n# TYPE d_seconds gauge\nd_seconds 2\n"
        );
    }
}
