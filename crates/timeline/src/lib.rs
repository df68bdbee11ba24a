//! Timelines: bars over time, as text for a terminal, as SVG and as an HTML page. Pure: no clock, no I/O.
//!
//! ```
//! use podward_timeline::{Bar, Group, Timeline, text};
//!
//! let bars = vec![Bar::new("Preparing", 0, 8_000), Bar::new("Operating", 8_000, 20_000)];
//! let group = Group { title: "upgrade (update)".to_owned(), bars, notes: vec!["begun by jane".to_owned()] };
//! let timeline = Timeline { title: "pod shop/web-0".to_owned(), groups: vec![group] };
//! let shown = text(&timeline, 60);
//! assert_eq!(shown.lines().nth(3).unwrap(), "  Preparing             8.0 s  ===========");
//! ```
#![forbid(unsafe_code)]

mod duration;
mod html;
mod svg;
mod text;
mod wrapped;

pub use duration::duration;
pub use html::html;
pub use svg::svg;
pub use text::text;

/// Bars in groups. Each group has a time axis of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The title.
    pub title: String,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
}

/// Bars on one time axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The title.
    pub title: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
    /// Sentences below the bars.
    pub notes: Vec<String>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The name.
    pub name: String,
    /// The start, in milliseconds of the group's axis.
    pub start: u64,
    /// The end, in milliseconds of the group's axis; not before `start`.
    pub end: u64,
    /// True if the end is the present time, and the bar goes on.
    pub is_open: bool,
    /// True if it shows something that should not be.
    pub is_bad: bool,
    /// Times on the bar, before or after it, at which something was as it should not be: starts and ends, in milliseconds
    /// of the group's axis, no end before its start.
    pub bad_parts: Vec<(u64, u64)>,
}

impl Bar {
    /// Returns a bar that is over. An end before the start counts as the start.
    #[must_use]
    pub fn new(name: impl Into<String>, start: u64, end: u64) -> Self {
        let end = end.max(start);
        Bar { name: name.into(), start, end, is_open: false, is_bad: false, bad_parts: Vec::new() }
    }

    /// Returns the starts and ends of the bar and its bad parts.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bad_parts.iter().copied().chain([(self.start, self.end)])
    }

    /// Returns the duration as text, with `…` if the bar goes on.
    fn duration(&self) -> String {
        let text = duration(self.end - self.start);
        if self.is_open { format!("{text}…") } else { text }
    }
}

impl Group {
    /// Returns the first start and the last end of the bars and their bad parts.
    fn range(&self) -> (u64, u64) {
        let start = self.bars.iter().flat_map(Bar::ranges).map(|(start, _)| start).min().unwrap_or_default();
        let end = self.bars.iter().flat_map(Bar::ranges).map(|(_, end)| end).max().unwrap_or_default();
        (start, end)
    }
}

/// Escapes text for XML and HTML. Control characters, which XML cannot contain, become `?`.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
