//! Traces, as a collector receives them.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use podward_core::trace::{parse_traceparent, root_of, run_label, trace_of};
use podward_e2e::{Collected, Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::{WAIT, within};
use serde_json::json;

use crate::hooks::{reports::until_counted, script::HookReply, server::HookServer};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("tracing_of_a_whole_operation", whole_operation)]
}

const PHASES: [&str; 5] = ["PreChecking", "Preparing", "Operating", "PostChecking", "Completing"];
const QUESTIONS: [&str; 4] = ["hook PRE_CHECK", "hook PREPARE", "hook POST_CHECK", "hook COMPLETE"];

/// One operation with a hook in every phase gives one root span, with its phases one after the other, and the calls
/// in them.
async fn whole_operation(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "traced").await?;
    hook.put_reachable(json!({"phases": ["PreCheck", "Prepare", "PostCheck", "Complete"]})).await?;
    let pod = fixture.create("web").await?;
    let uid = pod.metadata.uid.context("a pod has a UID")?;
    fixture.until_available("web").await?;
    let before = hook.log().traceparents.len();
    ensure!(before == 0, "what is asked of a pod without operations is a part of no trace");

    let operator = fixture.operator("traced", "update");
    hook.answer(Phase::Prepare, HookReply::Pending);
    operator.begin("web").await?;
    hook.until_called_again("web", Phase::Prepare, 2).await?;
    hook.answer(Phase::Prepare, HookReply::Done);
    let working = operator.await_operate("web").await?;
    let label = run_label("traced");
    let labels = working.metadata.labels.as_ref();
    let run = labels.and_then(|labels| labels.get(&label)).context("it is operating")?;
    operator.finish("web").await?;
    operator.await_end("web").await?;

    let (trace, root_id) = (trace_of(&uid, "traced"), root_of(&uid, "traced", run));
    let has_root = |spans: &[Collected]| spans.iter().any(|span| span.span.span_id == root_id.0);
    let collected = fixture.collector()?.until(trace.0, has_root);
    let spans = within(WAIT, || "the operation's root span to come".to_owned(), collected).await?;
    check(&spans, &root_id.0)?;

    // The durations of its phases lead to the trace.
    let exemplar = format!("trace_id=\"{trace}\"");
    until_counted(&fixture, "podward_operation_phase_seconds_bucket", &[&exemplar]).await?;

    // The call contains the trace context, so that the hook's own spans are part of the trace.
    let calls: BTreeSet<Vec<u8>> = named(&spans, &QUESTIONS).map(|call| call.span.span_id.clone()).collect();
    let told = hook.log().traceparents;
    ensure!(told.len() == calls.len(), "{} calls, {told:?}", calls.len());
    for text in told {
        let (of, within) = parse_traceparent(&text).with_context(|| format!("{text:?} is none"))?;
        ensure!(of == trace && calls.contains(within.0.as_slice()), "{text} is none of the calls");
    }

    // The spans of the webhook are part of the same trace, without receiving its context.
    let admitted = |spans: &[Collected]| {
        spans.iter().any(|span| span.service == "mutating-webhook" && span.span.parent_span_id == root_id.0)
    };
    let collected = fixture.collector()?.until(trace.0, admitted);
    within(WAIT, || "a span of the mutating-webhook to come".to_owned(), collected).await.map(drop)
}

fn named<'a>(spans: &'a [Collected], names: &'a [&str]) -> impl Iterator<Item = &'a Collected> {
    spans.iter().filter(|span| names.contains(&span.span.name.as_str()))
}

fn check(spans: &[Collected], root_id: &[u8]) -> Result<()> {
    let roots: Vec<&Collected> = spans.iter().filter(|span| span.span.parent_span_id.is_empty()).collect();
    let [root] = roots[..] else { anyhow::bail!("not one root: {roots:#?}") };
    ensure!(root.span.span_id == root_id && root.span.name == "operation update", "{root:#?}");
    for (key, value) in [
        ("k8s.pod.name", "web"),
        ("podward.operation.id", "traced"),
        ("podward.operation.type", "update"),
        ("podward.operation.outcome", "Completed"),
        ("podward.operation.first_phase", "PreChecking"),
        ("podward.evidence", "PROVEN"),
    ] {
        ensure!(root.attribute(key) == value, "{key} is not {value}: {root:#?}");
    }

    let phases: Vec<&Collected> = named(spans, &PHASES).collect();
    let names: Vec<&str> = phases.iter().map(|phase| phase.span.name.as_str()).collect();
    ensure!(names == PHASES, "each phase once, in order, not {names:?}");
    let mut at = root.span.start_time_unix_nano;
    for phase in &phases {
        let span = &phase.span;
        ensure!(span.parent_span_id == root_id, "{phase:#?}");
        ensure!(span.start_time_unix_nano == at, "a gap before {}", span.name);
        at = span.end_time_unix_nano;
        let heard = span.events.iter().filter(|event| event.name == "hook done").count();
        let expected = usize::from(span.name != "Operating");
        ensure!(heard == expected, "{heard} answers in {}: {phase:#?}", span.name);
    }
    ensure!(at == root.span.end_time_unix_nano, "a gap before the end");

    for (question, phase) in QUESTIONS.into_iter().zip([0, 1, 3, 4]) {
        let calls: Vec<&Collected> = spans.iter().filter(|call| call.span.name == question).collect();
        let within = &phases[phase].span.span_id;
        ensure!(!calls.is_empty(), "no call {question}");
        ensure!(calls.iter().all(|call| call.span.parent_span_id == *within), "{question}: {calls:#?}");
    }
    let pending =
        named(spans, &["hook PREPARE"]).filter(|call| call.attribute("podward.hook.outcome") == "PENDING");
    ensure!(pending.count() >= 2, "a call each time that it was asked");
    Ok(())
}
