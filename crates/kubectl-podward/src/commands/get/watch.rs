//! `kubectl podward get --watch`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use tokio::time::{Instant, sleep_until};

use super::row::PodRow;
use super::table::STYLE;
use super::table::{PodTable, cells};
use crate::api::is_denied_watch;
use crate::clock::now;
use crate::terminal::redraw;

/// Changes within this time are shown together.
const PAUSE: Duration = Duration::from_millis(200);
/// On a terminal, durations are drawn again after this time.
const TICK: Duration = Duration::from_secs(5);

/// The rows of pods, by namespace and name.
type Rows = BTreeMap<(String, String), PodRow>;

/// Shows changes of the pods with these labels until the process is interrupted, or the output is closed.
pub(super) async fn run(api: Api<DynamicObject>, labels: &str, all_namespaces: bool) -> Result<()> {
    let config = watcher::Config::default().labels(labels);
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    let mut output = WatchOutput { terminal: std::io::stdout().is_terminal(), all_namespaces, shown: None };
    let (mut rows, mut listed) = (Rows::new(), Rows::new());
    let mut draw_at = None;
    loop {
        let at = draw_at.unwrap_or_else(|| Instant::now() + TICK);
        tokio::select! {
            event = events.try_next() => match event {
                Ok(Some(event)) => {
                    if apply(event, &mut rows, &mut listed)? {
                        draw_at.get_or_insert_with(|| Instant::now() + PAUSE);
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) if is_denied_watch(&error) => return Err(error).context("watch the opted-in pods"),
                // It is tried again.
                Err(error) => eprintln!("the watch of pods failed, and begins again: {error}"),
            },
            () = sleep_until(at) => {
                draw_at = None;
                if output.draw(&rows).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns whether there is something to show. `listed` collects the pods of a list until it is complete.
fn apply(event: Event<DynamicObject>, rows: &mut Rows, listed: &mut Rows) -> Result<bool> {
    let entry = |pod: &DynamicObject| -> Result<_> {
        let row = PodRow::of(pod, now()).context("read a pod of the watch")?;
        Ok(((pod.namespace().unwrap_or_default(), pod.name_any()), row))
    };
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(pod) => listed.extend([entry(&pod)?]),
        Event::InitDone => {
            *rows = std::mem::take(listed);
            return Ok(true);
        }
        Event::Apply(pod) => {
            rows.extend([entry(&pod)?]);
            return Ok(true);
        }
        Event::Delete(pod) => {
            rows.remove(&(pod.namespace().unwrap_or_default(), pod.name_any()));
            return Ok(true);
        }
    }
    Ok(false)
}

/// The output, and what it has shown.
struct WatchOutput {
    terminal: bool,
    all_namespaces: bool,
    shown: Option<Rows>,
}

impl WatchOutput {
    fn draw(&mut self, rows: &Rows) -> std::io::Result<()> {
        if self.terminal {
            let table = PodTable::new(rows.values().cloned().collect(), self.all_namespaces);
            return redraw(&table.text(now()), STYLE);
        }
        let mut out = std::io::stdout().lock();
        let before = self.shown.replace(rows.clone()).unwrap_or_default();
        for (key, row) in rows {
            let old = before.get(key);
            // A pod that has stopped waiting is shown once more.
            let is_news = row.waiting || old.is_some_and(|old| old.waiting);
            if is_news && old != Some(row) {
                writeln!(out, "{}", cells(row, self.all_namespaces, now()).join("  "))?;
            }
        }
        let gone = before.iter().filter(|(key, old)| old.waiting && !rows.contains_key(*key));
        for ((namespace, name), _) in gone {
            writeln!(out, "{namespace}/{name} is gone")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use k8s_openapi::api::core::v1::Pod as ApiPod;
    use kube::api::ApiResource;
    use podward_support::api_answers::failure;
    use serde_json::json;

    use super::*;
    use crate::api_server;

    fn pod(name: &str) -> DynamicObject {
        let metadata =
            json!({"namespace": "shop", "name": name, "labels": {"kusionstack.io/control": "true"}});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})).unwrap()
    }

    #[tokio::test]
    async fn a_watch_that_is_denied_ends() {
        let client = api_server::client(|_| Some(failure(StatusCode::FORBIDDEN, "Forbidden")));
        let api = Api::default_namespaced_with(client, &ApiResource::erase::<ApiPod>(&()));
        let error = run(api, "", false).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("watch the opted-in pods: "), "{error:#}");
    }

    #[test]
    fn a_list_replaces_what_was_known_when_it_is_complete() {
        let (mut rows, mut listed) = (Rows::new(), Rows::new());
        let mut apply = |event| apply(event, &mut rows, &mut listed).unwrap().then_some(rows.len());
        assert_eq!(apply(Event::Apply(pod("old"))), Some(1));
        assert_eq!(apply(Event::Init), None);
        assert_eq!(apply(Event::InitApply(pod("a"))), None);
        assert_eq!(apply(Event::InitApply(pod("b"))), None);
        assert_eq!(apply(Event::InitDone), Some(2));
        assert_eq!(apply(Event::Delete(pod("b"))), Some(1));
        assert!(rows.contains_key(&("shop".to_owned(), "a".to_owned())));
    }
}
