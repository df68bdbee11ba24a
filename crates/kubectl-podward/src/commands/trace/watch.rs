//! `kubectl podward trace --watch`.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::TryStreamExt;
use podward_core::history::OperationRecord;
use podward_timeline::duration;

use super::traced::STYLE;
use super::traced::Traced;
use crate::clock::now;
use crate::operation::PodClient;
use crate::terminal::{redraw, safe_line};

/// On a terminal, the bars are drawn again after this time.
const TICK: Duration = Duration::from_secs(1);

/// Shows changes until the pod is gone or the output is closed.
pub(super) async fn run(pod: &PodClient, id: Option<&str>) -> Result<ExitCode> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut states = pin!(pod.states());
    let mut traced: Option<Traced> = None;
    let mut told = BTreeSet::new();
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            state = states.try_next() => {
                let Some(Some(state)) = state? else {
                    eprintln!("pod {} does not exist", pod.full_name());
                    return Ok(if traced.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
                };
                traced = Some(Traced::of_pod(&state, id));
            }
            _ = ticks.tick(), if is_terminal => {}
        }
        let Some(traced) = &traced else { continue };
        let drawn = if is_terminal { redraw(&traced.text(now()), STYLE) } else { append(traced, &mut told) };
        if drawn.is_err() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Writes a line for each phase and end that was not written before.
fn append(traced: &Traced, told: &mut BTreeSet<String>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in traced.operations.iter().flat_map(|operation| lines(&operation.record)) {
        if told.insert(line.clone()) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}

fn lines(record: &OperationRecord) -> Vec<String> {
    let line = |at: u64, what: &str| {
        let id = safe_line(&record.id);
        format!("{} {id} {what} (after {})", record.at(at).to_rfc3339_millis(), duration(at))
    };
    let phases = record.phases.iter().map(|(phase, at)| line(*at, phase.as_str()));
    let end = record.ended.zip(record.outcome).map(|(at, outcome)| line(at, outcome.as_str()));
    phases.chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_for_each_phase_and_the_end() {
        let record = serde_json::from_str(
            r#"{"id":"a","type":"update","began":"2026-01-01T10:00:00.250Z","phases":[["PreChecking",0],["Preparing",20]],
            "ended":1500,"outcome":"Cancelled"}"#,
        )
        .unwrap();
        let expected = [
            "2026-01-01T10:00:00.250Z a PreChecking (after 0 ms)",
            "2026-01-01T10:00:00.270Z a Preparing (after 20 ms)",
            "2026-01-01T10:00:01.750Z a Cancelled (after 1.5 s)",
        ];
        assert_eq!(lines(&record), expected);
    }

    #[test]
    fn an_id_in_an_annotation_does_not_control_the_terminal() {
        let record = serde_json::from_value(serde_json::json!({
            "id": "a\u{1b}[2J\nb", "type": "update", "began": "2026-01-01T10:00:00.250Z",
            "phases": [["PreChecking", 0]],
        }))
        .unwrap();
        assert_eq!(lines(&record), ["2026-01-01T10:00:00.250Z a\\u{1b}[2J b PreChecking (after 0 ms)"]);
    }
}
