//! Measures rules: the cost of a PodTransitionRule for many pods when many of them begin operations at once, and the
//! cost of changes of pods that no rule selects.
//!
//! Everything except the kubelets is real, as in [`operations`](crate::operations). A traffic loop holds each pod of
//! the rule.

mod objects;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures::TryFutureExt;
use kube::Api;
use podward_support::{PodwardOptions, ServiceKind, TrafficLoop};
use serde::{Deserialize, Serialize};

use self::objects::RuleObjects;
use crate::audit::{self, Writes};
use crate::bare_writes::BareWrites;
use crate::fleet::{self, PodFleet, nodes_for};
use crate::simulated::SimulatedPodward;
use crate::usage::Usage;

const NAMESPACE: &str = "load";
/// The namespace of pods that no rule selects. It is another namespace, so that the first measurement has no rule at
/// all.
const UNSELECTED: &str = "unselected";
const LOOP: &str = "load-traffic";
/// The name that [`PodFleet`] gives to pods that are opted in.
const MEMBER: &str = "member";
/// A label that nothing reads.
const TURN: &str = "load.podward.io/turn";
/// The rule allows a quarter of the pods. With more operations at once, they would wait for each other.
const MOST: &str = "25%";
const ONE_IN: usize = 4;
/// The number of pods that are not opted in, to which the bare writes go.
const BYSTANDERS: usize = 100;
/// The number of changes before the measurement. The first changes cost more.
const WARM_UP: usize = 1000;

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct RulesOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The number of pods of the rule. All are opted in.
    pub pods: usize,
    /// The number of pods that begin an operation at once. At most a quarter.
    pub check_request: usize,
    /// The number of pods that no rule selects. All are opted in.
    pub unselected_pods: usize,
    /// The number of changes of their labels, for each number of rules.
    pub events: usize,
    /// The numbers of rules in their namespace, ascending. None selects the pods. The controller does not keep pods
    /// of a namespace without rules for rules, so the cost must not grow from one rule on.
    pub others: Vec<usize>,
}

impl Default for RulesOptions {
    fn default() -> Self {
        RulesOptions {
            profile: "bench-lite".to_owned(),
            pods: 5000,
            check_request: 500,
            unselected_pods: 200,
            events: 5000,
            others: vec![0, 1, 100, 1000],
        }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RulesReport {
    /// The number of pods of the rule.
    pub pods: usize,
    /// The number of pods that began an operation at once.
    pub check_request: usize,
    /// The operations without the rule.
    pub without_rule: BulkOperations,
    /// The operations with the rule.
    pub with_rule: BulkOperations,
    /// The largest size of the rule's status as JSON, in bytes.
    pub status_bytes: usize,
    /// The memory of the controller at rest with all pods and without the rule, in MiB.
    pub rss_without_rule_mib: f64,
    /// The memory of the controller after the operations with the rule, in MiB.
    pub rss_with_rule_mib: f64,
    /// The peak memory of the controller until then, in MiB.
    pub peak_rss_mib: f64,
    /// Changes of pods that no rule selects.
    pub events: Vec<UnselectedChanges>,
    /// What the API server allows without Podward.
    pub bare: BareWrites,
}

/// Operations that began at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BulkOperations {
    /// The time from the first begin until the last one was stored, in seconds. The load generator needs it.
    pub all_begun_seconds: f64,
    /// The time from the first begin until all pods had `pre-checked`, in seconds.
    pub all_pre_checked_seconds: f64,
    /// The number of operations divided by the time until all pods had `pre-checked`.
    pub decisions_per_second: f64,
    /// The time from the first begin until all pods had `operate`, in seconds.
    pub all_operate_seconds: f64,
    /// The time from the first finish until all pods were available, in seconds.
    pub all_available_seconds: f64,
    /// The CPU time of the controller, in milliseconds per operation.
    pub controller_cpu_ms: f64,
    /// The CPU time of the API server, in milliseconds per operation.
    pub api_server_cpu_ms: f64,
    /// Podward's writes per operation, from begin to available.
    pub writes: Writes,
}

/// Changes of pods that no rule selects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnselectedChanges {
    /// The number of rules in the namespace.
    pub rules: usize,
    /// The number of changes of labels.
    pub events: usize,
    /// The CPU time of the controller, in microseconds per change.
    pub controller_cpu_us: f64,
    /// Podward's writes in this time. There is nothing to write.
    pub writes: Writes,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the options contradict each other, the test cluster or Podward does not start, or an operation does not
/// end.
pub async fn run(options: &RulesOptions, say: impl Fn(&str)) -> Result<RulesReport> {
    options.check()?;
    // The traffic loop is the only consumer.
    let services = PodwardOptions {
        profile: options.profile.clone(),
        traffic_controllers: 0,
        ..PodwardOptions::default()
    };
    let nodes = nodes_for(options.pods + options.unselected_pods + BYSTANDERS);
    let cluster = SimulatedPodward::start(SimulatedPodward::audited("rules", nodes), services, &say).await?;
    let controller = Usage::of(&cluster.podward, ServiceKind::LifecycleController)?;
    let audit = cluster.audit()?;
    let api_server = Usage::of_api_server(&cluster.test_cluster)?;
    let meter = RunMeter { controller, api_server, audit };

    say(&format!("making {} pods", options.pods));
    let fleet = PodFleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let traffic = TrafficLoop::start(Api::namespaced(cluster.client(), NAMESPACE), fleet::OPTED_IN, LOOP);
    fleet.make(options.pods, BYSTANDERS).await?;
    fleet.settle().await;
    say("bare writes");
    let bare =
        BareWrites::measure(&cluster.client(), NAMESPACE, fleet::BYSTANDERS, &meter.api_server).await?;
    let mut names = fleet.names();
    names.truncate(options.check_request);
    let rss_without_rule_mib = meter.controller.rss_mib()?;

    say(&format!("{} operations at once, without a rule", options.check_request));
    let without_rule = meter.operations(&fleet, &names).await?;

    say(&format!("{} operations at once, under a rule", options.check_request));
    let rules = RuleObjects::start(&cluster.client(), NAMESPACE).await?;
    rules.make(&[(MEMBER.to_owned(), MEMBER.to_owned())], MOST).await?;
    rules.until_known(1, options.pods).await?;
    fleet.settle().await;
    let with_rule = meter.operations(&fleet, &names).await?;
    let (rss_with_rule_mib, peak_rss_mib) = (meter.controller.rss_mib()?, meter.controller.peak_rss_mib()?);
    let status_bytes = rules.largest_status();

    drop((traffic, rules, fleet));
    let events = unselected_pods(&cluster, &meter, options, &say).await?;
    let report = RulesReport {
        pods: options.pods,
        check_request: options.check_request,
        without_rule,
        with_rule,
        status_bytes,
        rss_without_rule_mib,
        rss_with_rule_mib,
        peak_rss_mib,
        events,
        bare,
    };
    cluster.end().await?;
    Ok(report)
}

impl RulesOptions {
    fn check(&self) -> Result<()> {
        let RulesOptions { pods, check_request, unselected_pods, events, others, .. } = self;
        ensure!(
            *check_request > 0 && *check_request <= pods / ONE_IN,
            "{check_request} of {pods} pods can't ask: at least 1 must, and at most a quarter, for which there is room"
        );
        ensure!(
            *unselected_pods > 0 && events >= unselected_pods,
            "{events} events of {unselected_pods} pods: each pod needs one at least, and there must be a pod"
        );
        ensure!(others.is_sorted(), "the numbers of rules {others:?} must not fall: rules are only added");
        Ok(())
    }
}

/// Measures changes of pods that no rule selects, for each number of rules.
async fn unselected_pods(
    cluster: &SimulatedPodward,
    meter: &RunMeter,
    options: &RulesOptions,
    say: &impl Fn(&str),
) -> Result<Vec<UnselectedChanges>> {
    say(&format!("making {} pods that no rule will select", options.unselected_pods));
    let fleet = PodFleet::start(&cluster.client(), UNSELECTED, &TrafficLoop::finalizer_of(LOOP)).await?;
    let traffic = TrafficLoop::start(Api::namespaced(cluster.client(), UNSELECTED), fleet::OPTED_IN, LOOP);
    let names = fleet.make_bare("unselected", options.unselected_pods, true).await?;
    fleet.until_available(&names).await?;
    fleet.settle().await;
    // The traffic loop has added all pods. It has no part in the measurement.
    drop(traffic);

    let rules = RuleObjects::start(&cluster.client(), UNSELECTED).await?;
    let mut turns = LabelChanges { fleet: &fleet, names: &names, next: 0 };
    turns.take(options.events.min(WARM_UP)).await?;
    let mut there = 0;
    let mut found = Vec::new();
    for &wanted in &options.others {
        let more: Vec<(String, String)> =
            (there..wanted).map(|number| (format!("other-{number}"), format!("app-{number}"))).collect();
        rules.make(&more, MOST).await?;
        there = wanted;
        rules.until_known(there, 0).await?;
        fleet.settle().await;
        say(&format!("{} events of pods that none of {there} rules selects", options.events));
        let (cpu, mark) = (meter.controller.cpu_ms()?, audit::mark(&meter.audit)?);
        turns.take(options.events).await?;
        // Waits until the controller is at rest, too.
        fleet.settle().await;
        let cpu = meter.controller.cpu_ms()? - cpu;
        found.push(UnselectedChanges {
            rules: there,
            events: options.events,
            controller_cpu_us: cpu * 1e3 / options.events as f64,
            writes: audit::since(&meter.audit, mark)?,
        });
    }
    Ok(found)
}

/// Changes labels of pods, one pod after the other.
struct LabelChanges<'a> {
    fleet: &'a PodFleet,
    names: &'a [String],
    next: usize,
}

impl LabelChanges<'_> {
    async fn take(&mut self, events: usize) -> Result<()> {
        let mut left = events;
        while left > 0 {
            let pods = left.min(self.names.len());
            self.next += 1;
            self.fleet.touch_all(&self.names[..pods], TURN, &self.next.to_string()).await?;
            left -= pods;
        }
        Ok(())
    }
}

/// Measures the controller during a run.
struct RunMeter {
    controller: Usage,
    api_server: Usage,
    audit: PathBuf,
}

impl RunMeter {
    async fn operations(&self, fleet: &PodFleet, names: &[String]) -> Result<BulkOperations> {
        let (cpu, api_server_cpu) = (self.controller.cpu_ms()?, self.api_server.cpu_ms()?);
        let mark = audit::mark(&self.audit)?;
        let begun = Instant::now();
        let seconds = |()| begun.elapsed().as_secs_f64();
        let (all_begun_seconds, all_pre_checked_seconds, all_operate_seconds) = tokio::try_join!(
            fleet.begin_all(names).map_ok(seconds),
            fleet.until_pre_checked(names).map_ok(seconds),
            fleet.until_operate(names).map_ok(seconds),
        )?;
        let finished = Instant::now();
        fleet.finish_all(names).await?;
        fleet.until_available(names).await?;
        let all_available_seconds = finished.elapsed().as_secs_f64();
        let cpu = self.controller.cpu_ms()? - cpu;
        let api_server_cpu = self.api_server.cpu_ms()? - api_server_cpu;
        fleet.settle().await;
        let operations = names.len();
        Ok(BulkOperations {
            all_begun_seconds,
            all_pre_checked_seconds,
            decisions_per_second: operations as f64 / all_pre_checked_seconds,
            all_operate_seconds,
            all_available_seconds,
            controller_cpu_ms: cpu / operations as f64,
            api_server_cpu_ms: api_server_cpu / operations as f64,
            writes: audit::since(&self.audit, mark)?.per_operation(operations),
        })
    }
}
