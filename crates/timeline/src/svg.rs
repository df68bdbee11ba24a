//! The timeline as SVG.

use std::fmt::Write;

use super::wrapped::wrapped;
use super::{Bar, Timeline, duration, escaped};

const WIDTH: u64 = 960;
/// The left edge of the bars.
const LEFT: u64 = 206;
/// The right edge of the bars; durations are to the right of it.
const RIGHT: u64 = 850;
/// The characters of a line of a note: as many as fit, if each is 7 pixels wide.
const COLUMNS: usize = 130;
const ROW: u64 = 24;
const BAR: u64 = 14;
/// The distance of the ticks of an axis, in milliseconds. The first one with at most eight ticks is used.
const STEPS: [u64; 16] = [
    10,
    50,
    100,
    500,
    1_000,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    21_600_000,
    86_400_000,
    864_000_000,
];
const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:16px;font-weight:600}.group{font-weight:600}\
.note,.tick{fill:#57606a;font-size:12px}.tick{text-anchor:middle}.grid{stroke:#d0d7de}.page{fill:#fff}.bar{fill:#0969da}\
.open{fill:#8250df}.bad{fill:#cf222e}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note,.tick{fill:#8b949e}\
.grid{stroke:#30363d}.page{fill:#0d1117}.bar{fill:#4493f8}.open{fill:#a371f7}.bad{fill:#f85149}}";

/// Returns the timeline as an SVG document. Its texts can be selected, it needs no other file, and it follows the light
/// or dark theme of the reader.
#[must_use]
pub fn svg(timeline: &Timeline) -> String {
    let mut body = String::new();
    let mut y = 30;
    text(&mut body, "title", 16, y, &timeline.title);
    for group in &timeline.groups {
        y += 36;
        text(&mut body, "group", 16, y, &group.title);
        let (start, end) = group.range();
        let top = y + 10;
        let bottom = top + ROW * group.bars.len() as u64;
        axis(&mut body, (start, end), top, bottom);
        for (row, bar) in group.bars.iter().enumerate() {
            draw(&mut body, bar, (start, end), top + ROW * row as u64);
        }
        y = bottom + 16;
        for line in group.notes.iter().flat_map(|note| wrapped(note, 0, COLUMNS)) {
            y += 18;
            text(&mut body, "note", 16, y, line.trim_start());
        }
    }
    let height = y + 20;
    let title = escaped(&timeline.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\"><title>{title}</title><style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n"
    )
}

fn axis(body: &mut String, (start, end): (u64, u64), top: u64, bottom: u64) {
    let length = end - start;
    let step = STEPS.into_iter().find(|step| length / step <= 8).unwrap_or(length.max(1));
    for tick in (0..=length / step).map(|tick| tick * step) {
        let x = x(start + tick, (start, end));
        let label = if tick == 0 { "0".to_owned() } else { duration(tick) };
        // Writing to a String cannot fail.
        let _ = writeln!(body, "<line class=\"grid\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\"/>");
        text(body, "tick", x, bottom + 14, &label);
    }
}

fn draw(body: &mut String, bar: &Bar, range: (u64, u64), top: u64) {
    let (from, to) = (x(bar.start, range), x(bar.end, range));
    let class = match bar {
        Bar { is_bad: true, .. } => "bad",
        Bar { is_open: true, .. } => "open",
        _ => "bar",
    };
    let (y, baseline, width) = (top + (ROW - BAR) / 2, top + 17, (to - from).max(2));
    let (name, length) = (escaped(&bar.name), escaped(&bar.duration()));
    text(body, "name", 16, baseline, &bar.name);
    let _ = writeln!(
        body,
        "<rect class=\"{class}\" x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\" rx=\"3\"><title>{name}: \
         {length}</title></rect>"
    );
    for (start, end) in &bar.bad_parts {
        let (from, to) = (x(*start, range), x(*end, range));
        let width = (to - from).max(2);
        let _ =
            writeln!(body, "<rect class=\"bad\" x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\"/>");
    }
    text(body, "name", RIGHT + 14, baseline, &bar.duration());
}

fn text(body: &mut String, class: &str, x: u64, y: u64, content: &str) {
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(content));
}

fn x(at: u64, (start, end): (u64, u64)) -> u64 {
    let part = u128::from(at - start) * u128::from(RIGHT - LEFT) / u128::from((end - start).max(1));
    LEFT + u64::try_from(part).unwrap_or(RIGHT - LEFT).min(RIGHT - LEFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Group;

    #[test]
    fn a_picture_is_well_formed_and_contains_no_markup_of_others() {
        let open = Bar { is_open: true, ..Bar::new("<b>&\u{7}", 0, 90_000) };
        let bad_parts = vec![(1_000, 2_000), (8_000, 90_000)];
        let marked = Bar { bad_parts, ..Bar::new("act", 1_500, 9_000) };
        let bars = vec![open, Bar::new("Operating", 90_000, 90_000), marked];
        let group = Group { title: "a \"quote\"".to_owned(), bars, notes: vec!["a note ".repeat(30)] };
        let drawn = svg(&Timeline { title: "pod".to_owned(), groups: vec![group, Group::default()] });
        assert!(drawn.contains("&lt;b&gt;&amp;?") && !drawn.contains("<b>"), "{drawn}");
        let opened = drawn.matches("<text").count();
        assert_eq!(drawn.matches("</text>").count(), opened);
        assert_eq!(drawn.matches("class=\"note\"").count(), 2, "a long note is broken");
        assert_eq!(drawn.matches("class=\"bad\"").count(), 2);
        // 0, 30, 60 and 90 s.
        assert_eq!(drawn.matches("class=\"tick\"").count(), 4 + 1);
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    }
}
