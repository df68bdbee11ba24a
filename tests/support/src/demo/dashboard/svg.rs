//! Panels as SVG.

use std::fmt::Write;

use podward_timeline::escaped;

use super::panels::{Dashboard, Panel};

/// The width of a column of the grid, and the height of a line of it, in pixels.
const COLUMN: f64 = 40.0;
const LINE: f64 = 25.0;
const TOP: f64 = 44.0;
const GAP: f64 = 6.0;
/// The space of the labels of an axis, and of the title, in pixels.
const AXIS: f64 = 46.0;
const TITLE: f64 = 26.0;
const LEGEND: f64 = 15.0;
/// The columns and lines of a legend. Panels with more series name the first ones.
const LEGEND_COLUMNS: usize = 2;
const LEGEND_LINES: usize = 3;
/// The width that a letter has at most in common fonts, as a part of their size.
const LETTER: f64 = 0.62;
const SIZE: f64 = 12.0;
const SMALL: f64 = 11.0;
/// The titles of single values are long, and their panels are narrow.
const STAT: f64 = 9.5;
const COLOURS: [&str; 8] =
    ["#0969da", "#1a7f37", "#bf8700", "#cf222e", "#8250df", "#1b7c83", "#bc4c00", "#6e7781"];
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600}.stat{font-weight:600;font-size:9.5px}.head{font-size:16px;font-weight:600}\
.value{font-size:22px;font-weight:600;text-anchor:middle}.small{fill:#57606a;font-size:11px}.axis{fill:#57606a;font-size:11px;\
text-anchor:end}.page{fill:#f6f8fa}.panel{fill:#fff;stroke:#d0d7de}.grid{stroke:#d0d7de}polyline{fill:none;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small,.axis{fill:#8b949e}.page{fill:#0d1117}\
.panel{fill:#161b22;stroke:#30363d}.grid{stroke:#30363d}}";

/// The values of a query over time: seconds since the Unix epoch, and values.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A panel and the results of its queries.
pub(super) type DrawnPanel<'d> = (&'d Panel, Vec<Series>);

/// Returns the picture of a dashboard, whose time range is `(start, end)` in seconds since the Unix epoch.
pub(super) fn svg(dashboard: &Dashboard, panels: &[DrawnPanel<'_>], range: (f64, f64)) -> String {
    let lowest = dashboard.panels.iter().map(|panel| panel.place.y + panel.place.h).max().unwrap_or_default();
    let (width, height) = (24.0 * COLUMN, TOP + f64::from(lowest) * LINE + 8.0);
    let mut body = String::new();
    let head = format!("{}, {:.0} s of the demo", dashboard.title, range.1 - range.0);
    text(&mut body, "head", (10.0, 28.0), &head);
    for (panel, series) in panels {
        let place = panel.place;
        let (left, top) = (f64::from(place.x) * COLUMN, TOP + f64::from(place.y) * LINE);
        let area = Area {
            left: left + GAP / 2.0,
            top: top + GAP / 2.0,
            width: f64::from(place.w) * COLUMN - GAP,
            height: f64::from(place.h) * LINE - GAP,
        };
        match panel.kind.as_str() {
            "row" => text(&mut body, "title", (left + 8.0, top + 18.0), &panel.title),
            "stat" => stat(&mut body, panel, series, area),
            _ => lines(&mut body, panel, series, area, range),
        }
    }
    let title = escaped(&dashboard.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\"><title>{title}</title><style>{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" \
         height=\"{height}\"/>\n{body}</svg>\n"
    )
}

/// A rectangle, in pixels.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

fn frame(body: &mut String, panel: &Panel, area: Area, (class, size): (&str, f64)) {
    let Area { left, top, width, height } = area;
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<rect class=\"panel\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>"
    );
    text(body, class, (left + 8.0, top + 17.0), &shortened(&panel.title, width - 10.0, size));
}

/// The last value.
fn stat(body: &mut String, panel: &Panel, series: &[Series], area: Area) {
    frame(body, panel, area, ("stat", STAT));
    let last = series.first().and_then(|series| series.points.last());
    let value = last.map_or("no data".to_owned(), |(_, value)| shown(*value, panel.unit()));
    text(body, "value", (area.left + area.width / 2.0, area.top + area.height * 0.68), &value);
}

/// The values over time.
fn lines(body: &mut String, panel: &Panel, series: &[Series], area: Area, (start, end): (f64, f64)) {
    frame(body, panel, area, ("title", SIZE));
    let legend = series.len().div_ceil(LEGEND_COLUMNS).min(LEGEND_LINES) as f64 * LEGEND;
    let (left, right) = (area.left + AXIS, area.left + area.width - 8.0);
    let (top, bottom) = (area.top + TITLE + 4.0, area.top + area.height - legend - 10.0);
    let values = series.iter().flat_map(|series| &series.points).map(|(_, value)| *value);
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    for part in [0.0, 0.5, 1.0] {
        let y = bottom - (bottom - top) * part;
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\"/>"
        );
        text(body, "axis", (left - 5.0, y + 4.0), &shown(most * part, panel.unit()));
    }
    if series.is_empty() {
        text(
            body,
            "small",
            (left + 8.0, f64::midpoint(top, bottom) - 4.0),
            "no data: nothing of this kind has happened",
        );
    }
    let at = |(time, value): (f64, f64)| {
        let x = left + (right - left) * (time - start) / (end - start).max(1.0);
        format!("{x:.1},{:.1}", bottom - (bottom - top) * value / most)
    };
    for (number, series) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        for run in runs(series) {
            let points: Vec<String> = run.into_iter().map(at).collect();
            let _ = writeln!(body, "<polyline stroke=\"{colour}\" points=\"{}\"/>", points.join(" "));
        }
    }
    let column = (area.width - 10.0) / LEGEND_COLUMNS as f64;
    for (number, series) in series.iter().take(LEGEND_COLUMNS * LEGEND_LINES).enumerate() {
        let x = area.left + 10.0 + column * (number % LEGEND_COLUMNS) as f64;
        let y = bottom + 8.0 + LEGEND * (number / LEGEND_COLUMNS + 1) as f64;
        let colour = COLOURS[number % COLOURS.len()];
        let square = y - 8.0;
        let _ = writeln!(
            body,
            "<rect x=\"{x:.1}\" y=\"{square:.1}\" width=\"9\" height=\"9\" fill=\"{colour}\"/>"
        );
        text(body, "small", (x + 15.0, y), &shortened(&series.name, column - 18.0, SMALL));
    }
}

/// Returns the parts of a series without gaps. A quantile of nothing is no number.
fn runs(series: &Series) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    for point in &series.points {
        match (point.1.is_finite(), runs.last_mut()) {
            (true, Some(run)) => run.push(*point),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn text(body: &mut String, class: &str, (x, y): (f64, f64), content: &str) {
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(content));
}

/// Returns the begin of a text that is not wider than `width` pixels in letters of `size` pixels.
fn shortened(text: &str, width: f64, size: f64) -> String {
    let most = (width / (size * LETTER)) as usize;
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Returns a value with its unit.
fn shown(value: f64, unit: &str) -> String {
    let number = |value: f64| match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 10.0 && small.fract() != 0.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    };
    match unit {
        "s" if value.abs() >= 2.0 * 86_400.0 => format!("{:.0} d", value / 86_400.0),
        "s" if value.abs() >= 7_200.0 => format!("{:.0} h", value / 3_600.0),
        "s" if value != 0.0 && value.abs() < 1.0 => format!("{:.0} ms", value * 1_000.0),
        "s" => format!("{} s", number(value)),
        "ops" | "reqps" => format!("{}/s", number(value)),
        _ => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_each_panel_and_no_markup_of_others() {
        let dashboard = Dashboard::until_row("Hooks").unwrap();
        let series =
            Series { name: "<b>&".to_owned(), points: vec![(0.0, 1.0), (5.0, f64::NAN), (10.0, 3.0)] };
        let panels: Vec<_> = dashboard.panels.iter().map(|panel| (panel, vec![series.clone()])).collect();
        let drawn = svg(&dashboard, &panels, (0.0, 10.0));
        let of_kind = |kind: &str| dashboard.panels.iter().filter(|panel| panel.kind == kind).count();
        assert_eq!(drawn.matches("<polyline").count(), 2 * of_kind("timeseries"), "a gap divides a line");
        assert_eq!(drawn.matches("class=\"value\"").count(), of_kind("stat"));
        assert!(
            drawn.contains("&lt;b&gt;&amp;") && !drawn.contains("<b>") && !drawn.contains("NaN"),
            "{drawn}"
        );
        assert_eq!(drawn.matches("<text").count(), drawn.matches("</text>").count());
    }

    #[test]
    fn values_have_units() {
        let shown =
            [(0.0, "s"), (0.25, "s"), (4.5, "s"), (31_536_000.0, "s"), (0.333, "ops"), (12.0, "short")]
                .map(|(value, unit)| shown(value, unit));
        assert_eq!(shown, ["0 s", "250 ms", "4.50 s", "365 d", "0.33/s", "12"]);
    }
}
