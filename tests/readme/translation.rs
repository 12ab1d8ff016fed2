//! The README and its Chinese translation, compared line by line.

use std::fs;

use super::ROOT;

#[test]
fn chinese_readme_has_the_headings_code_and_links_of_the_english_one() {
    let read = |name: &str| fs::read_to_string(format!("{ROOT}/{name}")).unwrap();
    let (english, chinese) = (read("README.md"), read("README.zh-CN.md"));
    if let Some(difference) = first_difference(&english, &chinese) {
        panic!("{difference}");
    }
    let changes = [
        ("\n### ", "\n## "),
        ("\nmake demo ", "\nmake demos "),
        ("`setopt ", "`unsetopt "),
        ("(lab/README.md)", "(fence/README.md)"),
        ("(#亲眼看看)", "(#规则)"),
        ("\n- ", "\n"),
        (" | 判定 | ", " | "),
        ("\n\n", "\n"),
    ];
    for (from, to) in changes {
        let changed = chinese.replacen(from, to, 1);
        assert!(first_difference(&english, &changed).is_some(), "the control: {from} as {to}");
    }
}

/// The first line in which the two texts differ in more than their language.
fn first_difference(english: &str, chinese: &str) -> Option<String> {
    let (english, chinese) = (skeleton(english), skeleton(chinese));
    let lines = english.len().max(chinese.len());
    let index = (0..lines).find(|&index| english.get(index) != chinese.get(index))?;
    let show = |lines: &[String]| lines.get(index).cloned().unwrap_or_else(|| "the end".to_owned());
    Some(format!(
        "README.zh-CN.md differs from README.md in line {}:\nEnglish: {}\nChinese: {}",
        index + 1,
        show(&english),
        show(&chinese),
    ))
}

/// Each line of code as it is, and the kind, code spans and link targets of each other line.
fn skeleton(readme: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut lines = Vec::new();
    for line in readme.lines() {
        let is_border = line.starts_with("```");
        is_inside ^= is_border;
        lines.push((line, is_inside || is_border));
    }
    let headings: Vec<_> = lines
        .iter()
        .filter(|(line, is_code)| !is_code && line.starts_with('#'))
        .map(|(line, _)| anchor(line))
        .collect();
    let describe = |&(line, is_code): &(&str, bool)| {
        if is_code || line.is_empty() {
            return format!("{line:?}");
        }
        // Another language may have another order.
        let mut codes: Vec<_> = line.split('`').skip(1).step_by(2).collect();
        let mut links: Vec<_> = line
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
            .map(|target| match target.starts_with('#') {
                true => match headings.iter().position(|heading| heading == target) {
                    Some(index) => format!("heading {}", index + 1),
                    None => panic!("no heading has the link {target}"),
                },
                false => target.to_owned(),
            })
            .collect();
        codes.sort_unstable();
        links.sort_unstable();
        let kind = line.split(|letter: char| !"#-".contains(letter)).next().unwrap();
        let columns = line.matches('|').count();
        format!("{kind} text with {columns} bars, code {codes:?}, links to {links:?}")
    };
    lines.iter().map(describe).collect()
}

/// The link to a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    let kept = title.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter));
    format!("#{}", kept.collect::<String>())
}
