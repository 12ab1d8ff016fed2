//! The legend below the panels. It explains only what the picture has.

use svg::node::element::Group;

use super::{
    rows::SIZE,
    shapes::{Area, line, rectangle, text},
    story::{Content, Story},
    text::width,
};

const ROW_HEIGHT: f64 = 20.0;
const SAMPLE_WIDTH: f64 = 30.0;
const SAMPLE_HEIGHT: f64 = 13.0;
/// Between a sample and its text.
const INDENT: f64 = 7.0;
/// Between a text and the next sample.
const GAP: f64 = 20.0;

/// What is explained, in rows.
#[derive(Debug)]
pub(super) struct Legend {
    rows: Vec<Vec<Entry>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Lease,
    Belief,
    Pause,
    Quiet,
}

impl Legend {
    /// Explains what the stories have, in rows that are at most this wide.
    pub(super) fn new<'a>(stories: impl Iterator<Item = &'a Story>, most: f64) -> Self {
        let tracks = stories.flat_map(|story| &story.tracks);
        let contents: Vec<Content> =
            tracks.flat_map(|track| &track.bars).map(|bar| bar.content).collect();
        let mut rows: Vec<Vec<Entry>> = Vec::new();
        let mut left = 0.0;
        for entry in [Entry::Lease, Entry::Belief, Entry::Pause, Entry::Quiet] {
            if !contents.iter().any(|content| entry.explains(*content)) && entry != Entry::Quiet {
                continue;
            }
            let space = entry.width();
            match rows.last_mut() {
                Some(row) if left + space <= most => {
                    row.push(entry);
                    left += space + GAP;
                }
                _ => {
                    rows.push(vec![entry]);
                    left = space + GAP;
                }
            }
        }
        Self { rows }
    }

    /// Its height.
    pub(super) fn height(&self) -> f64 {
        self.rows.iter().map(|_| ROW_HEIGHT).sum()
    }

    /// Draws it from this point on.
    pub(super) fn draw(&self, [left, top]: [f64; 2]) -> Group {
        let mut group = Group::new().set("class", "legend");
        let mut top = top;
        for row in &self.rows {
            let mut left = left;
            for entry in row {
                group = entry.draw(group, [left, top]);
                left += entry.width() + GAP;
            }
            top += ROW_HEIGHT;
        }
        group
    }
}

impl Entry {
    fn words(self) -> &'static str {
        match self {
            Self::Lease => "lease, coloured by its token",
            Self::Belief => "lease over, but unnoticed",
            Self::Pause => "process stopped",
            Self::Quiet => "quiet time, shortened",
        }
    }

    fn explains(self, content: Content) -> bool {
        match self {
            Self::Lease => matches!(content, Content::Lease(Some(_))),
            Self::Belief => matches!(content, Content::Belief(_)),
            Self::Pause => content == Content::Pause,
            Self::Quiet => false,
        }
    }

    fn width(self) -> f64 {
        SAMPLE_WIDTH + INDENT + width(self.words(), SIZE)
    }

    fn draw(self, group: Group, [left, top]: [f64; 2]) -> Group {
        let [right, bottom] = [left + SAMPLE_WIDTH, top + SAMPLE_HEIGHT];
        let [centre, middle] = [f64::midpoint(left, right), f64::midpoint(top, bottom)];
        let area = Area { left, top, width: SAMPLE_WIDTH, height: SAMPLE_HEIGHT };
        let group = match self {
            Self::Lease => group.add(rectangle("sample lease t0", area, 3.0)),
            Self::Belief => group.add(line("sample belief t0", [left, middle], [right, middle])),
            Self::Pause => group.add(rectangle("sample pause", area, 3.0)),
            Self::Quiet => {
                let group = group.add(rectangle("sample quiet", area, 3.0));
                [centre - 3.0, centre + 3.0].into_iter().fold(group, |group, x| {
                    group.add(line("line", [x - 2.5, bottom - 2.0], [x + 2.5, top + 2.0]))
                })
            }
        };
        group.add(text("foot", SIZE, [right + INDENT, middle + 4.0], self.words()))
    }
}
