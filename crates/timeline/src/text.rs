//! The timeline as text.

use super::wrapped::wrapped;
use super::{Bar, Timeline};

/// The columns of the names.
const NAME: usize = 16;
/// The columns of the durations.
const DURATION: usize = 11;
/// The fewest columns of the bars.
const MIN_BARS: usize = 10;

/// Returns the timeline as lines of at most `width` columns; long titles and notes are broken at spaces.
#[must_use]
pub fn text(timeline: &Timeline, width: usize) -> String {
    let mut lines = wrapped(&timeline.title, 0, width);
    for group in &timeline.groups {
        lines.push(String::new());
        lines.extend(wrapped(&group.title, 0, width));
        let columns = width.saturating_sub(NAME + DURATION + 4).max(MIN_BARS);
        let range = group.range();
        lines.extend(group.bars.iter().map(|bar| line(bar, range, columns)));
        lines.extend(group.notes.iter().flat_map(|note| wrapped(note, 2, width)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn line(bar: &Bar, (start, end): (u64, u64), columns: usize) -> String {
    let column = |at: u64| {
        let part = u128::from(at - start) * columns as u128 / u128::from((end - start).max(1));
        usize::try_from(part).unwrap_or(columns).min(columns)
    };
    let mut marks = vec![' '; columns];
    let mut fill = |(start, end): (u64, u64), mark| {
        // Every bar can be seen.
        let from = column(start).min(columns - 1);
        marks[from..column(end).max(from + 1)].fill(mark);
    };
    fill((bar.start, bar.end), if bar.is_bad { '!' } else { '=' });
    bar.bad_parts.iter().for_each(|part| fill(*part, '!'));
    let (name, duration, marks) = (&bar.name, bar.duration(), String::from_iter(marks));
    format!("  {name:<NAME$}{duration:>DURATION$}  {}", marks.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Group;

    #[test]
    fn bars_are_in_proportion_and_lines_fit() {
        let open = Bar { is_open: true, ..Bar::new("Operating", 10_000, 70_000) };
        let late = Bar { is_bad: true, ..Bar::new("WaitingForOthers", 70_000, 70_000) };
        let preparing = Bar { bad_parts: vec![(4_000, 5_000)], ..Bar::new("Preparing", 12, 10_000) };
        let bars = vec![Bar::new("PreChecking", 0, 12), preparing, open, late];
        let note = "a note that is longer than a line of eighty columns and is therefore broken at a space";
        let group = Group { title: "upgrade (update)".to_owned(), bars, notes: vec![note.to_owned()] };
        let shown = text(&Timeline { title: "pod shop/web-0".to_owned(), groups: vec![group] }, 80);
        assert_eq!(
            shown,
            "pod shop/web-0\n\nupgrade (update)\n\
             \x20 PreChecking           12 ms  =\n\
             \x20 Preparing             9.9 s  ==!====\n\
             \x20 Operating             60 s…         ==========================================\n\
             \x20 WaitingForOthers       0 ms                                                  !\n\
             \x20 a note that is longer than a line of eighty columns and is therefore broken at\n\
             \x20   a space\n"
        );
        assert!(shown.lines().all(|line| line.chars().count() <= 80));
    }
}
