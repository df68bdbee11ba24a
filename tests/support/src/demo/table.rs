//! Prints the results of the demo.

use std::fmt::{Display, Write as _};

use super::{act::Act, clients::DemoClients, entry::DemoEntry};

/// Returns a table with one row for each result.
pub(super) fn render(entries: &[DemoEntry]) -> String {
    // A column for them only if they differ.
    let differ = entries.iter().any(|entry| entry.clients != DemoClients::InCluster);
    let of_registries = entries.iter().any(|entry| matches!(entry.clients, DemoClients::Registry(_)));
    let head = if of_registries { "registry" } else { "clients" };
    let clients = |cell: &dyn Display| if differ { format!("{cell:<13}  ") } else { String::new() };
    let mut text = format!(
        "{:<15}  {:<7}  {:<13}  {}{:<11}  {:>8}  {:>6}  {:>16}  {:>8}\n",
        "act",
        "podward",
        "server",
        clients(&head),
        "connections",
        "requests",
        "failed",
        "longest pause ms",
        "seconds"
    );
    for entry in entries {
        let _ = writeln!(
            text,
            "{:<15}  {:<7}  {:<13}  {}{:<11}  {:>8}  {:>6}  {:>16.0}  {:>8.1}{}",
            entry.act,
            if entry.podward { "yes" } else { "no" },
            entry.server,
            clients(&entry.clients),
            entry.connections,
            entry.requests,
            entry.failed,
            entry.longest_pause_ms,
            entry.seconds,
            reasons(entry),
        );
    }
    text.push('\n');
    for podward in [false, true] {
        let side = || entries.iter().filter(move |entry| entry.podward == podward);
        if side().next().is_some() {
            let (requests, failed) =
                side().fold((0, 0), |(a, b), entry| (a + entry.requests, b + entry.failed));
            let who = if podward { "With Podward" } else { "Without Podward" };
            let _ = writeln!(text, "{who} {failed} of {requests} requests were lost.");
        }
    }
    for act in Act::ALL {
        let mut stock = entries.iter().filter(|entry| entry.act == act && !entry.podward).peekable();
        if stock.peek().is_some() && stock.all(|entry| entry.failed == 0) {
            let _ =
                writeln!(text, "Without Podward {act} lost nothing this time: it shows no difference here.");
        }
    }
    text
}

fn reasons(entry: &DemoEntry) -> String {
    let reasons: Vec<String> =
        entry.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if reasons.is_empty() { String::new() } else { format!("  ({})", reasons.join(", ")) }
}
