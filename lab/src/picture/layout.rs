//! Where the moments and the flags of a picture are.

use super::{
    needs::{self, Need},
    rows::{self, PlacedFlag},
    scale::{Scale, least_gap},
    story::Story,
};

/// The horizontal coordinates of a story.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) scale: Scale,
    /// For each track, where its flags are.
    pub(super) flags: Vec<Vec<PlacedFlag>>,
}

impl Layout {
    /// Gives the stories axes of equal length, which is at least this. Stories with equally many
    /// moments have them at the same places.
    pub(super) fn of_stories(stories: &[Story], least_width: f64) -> Vec<Self> {
        // 1. The needed flags get their rows, and every gap the space for all texts.
        let mut all_flags = Vec::new();
        let mut all_gaps = Vec::new();
        let mut all_least = Vec::new();
        for story in stories {
            let mut needs = needs::bar_needs(story);
            let flags = rows::place_needed(story, &needs);
            needs.extend(rows::flag_needs(story, &flags));
            let least: Vec<f64> =
                (0..story.moments.len()).map(|moment| least_gap(story, moment)).collect();
            all_gaps.push(widened(least.clone(), needs));
            all_least.push(least);
            all_flags.push(flags);
        }
        // 2. All axes become as long as the longest.
        align(&mut all_gaps);
        align(&mut all_least);
        let widths = all_gaps.iter().map(|gaps| gaps.iter().sum::<f64>());
        let width = widths.fold(least_width, f64::max);
        // 3. The optional flags take the space that is left.
        let scales =
            all_gaps.iter().zip(&all_least).map(|(gaps, least)| Scale::new(gaps, least, width));
        let layouts = scales.zip(all_flags).zip(stories).map(|((scale, needed), story)| {
            let flags = rows::add_optional(story, &scale, needed);
            Self { scale, flags }
        });
        layouts.collect()
    }
}

/// Widens gaps so that all needs are met. A need that spans several gaps widens all of them.
fn widened(mut gaps: Vec<f64>, mut needs: Vec<Need>) -> Vec<f64> {
    // The short ones first: the space that they get serves the long ones too.
    needs.sort_by_key(|need| need.to - need.from);
    for need in needs {
        let spanned = &mut gaps[need.from..need.to];
        let space: f64 = spanned.iter().sum();
        if space < need.space {
            spanned.iter_mut().for_each(|gap| *gap *= need.space / space);
        }
    }
    gaps
}

/// Makes gaps equal where there are equally many.
fn align(all_gaps: &mut [Vec<f64>]) {
    let Some(count) = all_gaps.first().map(Vec::len) else { return };
    if all_gaps.iter().any(|gaps| gaps.len() != count) {
        return;
    }
    for number in 0..count {
        let widest = all_gaps.iter().map(|gaps| gaps[number]).fold(0.0, f64::max);
        all_gaps.iter_mut().for_each(|gaps| gaps[number] = widest);
    }
}
