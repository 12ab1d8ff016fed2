//! Goes through every sequence of choices.

/// The choices of one run. Each run replays those of the run before, except for the last one that has
/// another possibility.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// What was chosen, and of how many possibilities.
    made: Vec<(usize, usize)>,
    next: usize,
    has_diverged: bool,
}

impl Choices {
    /// Chooses one of these possibilities.
    pub(super) fn choose(&mut self, count: usize) -> usize {
        if self.next == self.made.len() {
            self.made.push((0, count));
        }
        let (chosen, of) = self.made[self.next];
        self.has_diverged |= of != count;
        self.next += 1;
        if self.has_diverged { 0 } else { chosen }
    }

    /// Whether the run had other possibilities than the run before, though it made the same choices.
    pub(super) fn have_diverged(&self) -> bool {
        self.has_diverged
    }

    /// Goes on to the next sequence, unless all were run.
    pub(super) fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((chosen, count)) = self.made.pop() {
            if chosen + 1 < count {
                self.made.push((chosen + 1, count));
                return true;
            }
        }
        false
    }
}

#[test]
fn every_sequence_is_run_once() {
    let mut choices = Choices::default();
    let mut runs = Vec::new();
    loop {
        let first = choices.choose(2);
        let second = if first == 0 { choices.choose(3) } else { 9 };
        runs.push((first, second));
        if !choices.advance() {
            break;
        }
    }
    assert_eq!(runs, [(0, 0), (0, 1), (0, 2), (1, 9)]);
}
