//! The timeline as an HTML page.

use std::fmt::Write;

use super::{Timeline, escaped, svg};

const STYLE: &str = "\
body{font:15px system-ui,sans-serif;margin:2em auto;max-width:960px;padding:0 1em;color-scheme:light dark}\
svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em 1em .3em 0;text-align:left}\
td:nth-child(n+2){font-variant-numeric:tabular-nums}";

/// Returns an HTML page with the picture and the same facts as tables. It needs no other file and runs no script.
#[must_use]
pub fn html(timeline: &Timeline) -> String {
    let title = escaped(&timeline.title);
    let mut tables = String::new();
    for group in &timeline.groups {
        // Writing to a String cannot fail.
        let _ = writeln!(tables, "<h2>{}</h2>", escaped(&group.title));
        let _ = writeln!(tables, "<table><tr><th>what</th><th>begins after</th><th>lasts</th></tr>");
        let (start, _) = group.range();
        for bar in &group.bars {
            let (name, begins) = (escaped(&bar.name), super::duration(bar.start - start));
            let _ = writeln!(tables, "<tr><td>{name}</td><td>{begins}</td><td>{}</td></tr>", bar.duration());
        }
        let _ = writeln!(tables, "</table>");
        for note in &group.notes {
            let _ = writeln!(tables, "<p>{}</p>", escaped(note));
        }
    }
    let picture = svg(timeline);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n{picture}{tables}</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bar, Group};

    #[test]
    fn a_page_has_the_picture_and_the_facts() {
        let group =
            Group { title: "<a>".to_owned(), bars: vec![Bar::new("Operating", 5, 7_005)], notes: Vec::new() };
        let page = html(&Timeline { title: "pod".to_owned(), groups: vec![group] });
        assert!(page.contains("<tr><td>Operating</td><td>0 ms</td><td>7.0 s</td></tr>"), "{page}");
        assert!(page.contains("<svg ") && !page.contains("<a>"));
    }
}
