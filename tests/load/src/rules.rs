//! Rules: what a PodTransitionRule over many pods costs when many of them ask at once, and whether rules that don't select a pod cost
//! anything when it changes.
//!
//! Everything but the kubelets is real, as in [`operations`](crate::operations), and a traffic loop holds each pod under the rule.

mod objects;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::TryFutureExt;
use kube::Api;
use podward_support::{Cluster, Kind, Options, Podward, TrafficLoop};
use podward_testbed::{Bed, Shape};
use serde::{Deserialize, Serialize};

use self::objects::Objects;
use crate::audit::{self, Writes};
use crate::fleet::{self, Fleet};
use crate::usage::Usage;

const NAMESPACE: &str = "load";
/// Where pods change that no rule selects; another one, so that the first count is of a namespace without any rule.
const STRANGERS: &str = "strangers";
const LOOP: &str = "load-traffic";
/// What [`Fleet`] calls the pods that are opted in.
const MEMBER: &str = "member";
/// A label that nobody asks for.
const TURN: &str = "load.podward.io/turn";
/// Room for a quarter of the pods; more can't ask, or they would wait for each other.
const MOST: &str = "25%";
const ONE_IN: usize = 4;
/// Changes that aren't measured: the first of their kind cost more.
const WARM_UP: usize = 1000;

/// What is measured.
#[derive(Clone, Debug)]
pub struct RulesOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// Pods under the rule, all opted in.
    pub pods: usize,
    /// How many of them begin an operation at once; at most a quarter.
    pub asking: usize,
    /// Pods that no rule selects, opted in.
    pub strangers: usize,
    /// Changes of their labels, for each number of rules.
    pub events: usize,
    /// Numbers of rules there are in their namespace, none of which selects them; from few to many. Pods of a namespace without any rule
    /// are not kept for rules at all: what must not grow is what comes from one rule on.
    pub others: Vec<usize>,
}

impl Default for RulesOptions {
    fn default() -> Self {
        RulesOptions {
            profile: "bench-lite".to_owned(),
            pods: 5000,
            asking: 500,
            strangers: 200,
            events: 5000,
            others: vec![0, 1, 100, 1000],
        }
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RulesReport {
    /// Pods under the rule.
    pub pods: usize,
    /// How many of them asked at once.
    pub asking: usize,
    /// The same operations before there was a rule.
    pub without_rule: Asked,
    /// With it.
    pub with_rule: Asked,
    /// The rule object's status as JSON at its largest, in bytes.
    pub status_bytes: usize,
    /// The controller's memory at rest with all pods there, before there was a rule, in MiB.
    pub rss_without_rule_mib: f64,
    /// The same after the operations under the rule.
    pub rss_with_rule_mib: f64,
    /// The most that it had until then.
    pub peak_rss_mib: f64,
    /// Changes of pods that no rule selects.
    pub events: Vec<Events>,
}

/// Operations that began at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// From the first begin until the last was stored: what the load generator itself takes.
    pub all_begun_seconds: f64,
    /// From the first begin until all had `pre-checked`.
    pub all_pre_checked_seconds: f64,
    /// Operations by the latter.
    pub decisions_per_second: f64,
    /// From the first begin until all had `operate`.
    pub all_operate_seconds: f64,
    /// From the first finish until all were available.
    pub all_available_seconds: f64,
    /// CPU time of the controller in all that, in milliseconds an operation.
    pub controller_cpu_ms: f64,
    /// Podward's writes for each operation, from begin to available.
    pub writes: Writes,
}

/// Changes of pods that no rule selects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Events {
    /// Rules in the namespace.
    pub rules: usize,
    /// Changes of labels.
    pub events: usize,
    /// CPU time of the controller, in microseconds an event.
    pub controller_cpu_us: f64,
    /// All that Podward wrote meanwhile; there is nothing to write.
    pub writes: Writes,
}

/// Brings a bed up, measures, takes it down. `say` is told how it goes.
///
/// # Errors
/// When the options don't fit together, the bed or Podward doesn't start, or an operation doesn't get through.
pub async fn run(options: &RulesOptions, say: impl Fn(&str)) -> Result<RulesReport> {
    options.check()?;
    say("starting a simulated cluster");
    let bed =
        Bed::builder(Shape::Simulated).name("rules").simulated_nodes(10).audit_log(true).start().await?;
    let bed = Arc::new(bed);
    let cluster = Cluster::of_bed(bed.clone());
    say("starting Podward");
    // The loop is the one consumer.
    let services = Options { profile: options.profile.clone(), traffic_controllers: 0, ..Options::default() };
    let podward = Podward::start(&cluster, services).await?;
    let controller = Usage::of(&podward, Kind::LifecycleController)?;
    let audit = bed.audit_log().context("the bed writes no audit log")?;
    let meter = Meter { controller, audit };

    say(&format!("making {} pods", options.pods));
    let fleet = Fleet::start(&cluster.client(), NAMESPACE, &TrafficLoop::finalizer_of(LOOP)).await?;
    let traffic = TrafficLoop::start(Api::namespaced(cluster.client(), NAMESPACE), fleet::OPTED_IN, LOOP);
    fleet.make(options.pods, 0).await?;
    fleet.settle().await;
    let mut names = fleet.names();
    names.truncate(options.asking);
    let rss_without_rule_mib = meter.controller.rss_mib()?;

    say(&format!("{} operations at once, without a rule", options.asking));
    let without_rule = meter.operations(&fleet, &names).await?;

    say(&format!("{} operations at once, under a rule", options.asking));
    let rules = Objects::start(&cluster.client(), NAMESPACE).await?;
    rules.make(&[(MEMBER.to_owned(), MEMBER.to_owned())], MOST).await?;
    rules.until_known(1, options.pods).await?;
    fleet.settle().await;
    let with_rule = meter.operations(&fleet, &names).await?;
    let (rss_with_rule_mib, peak_rss_mib) = (meter.controller.rss_mib()?, meter.controller.peak_rss_mib()?);
    let status_bytes = rules.largest_status();

    drop((traffic, rules, fleet));
    let events = strangers(&cluster, &meter, options, &say).await?;
    let report = RulesReport {
        pods: options.pods,
        asking: options.asking,
        without_rule,
        with_rule,
        status_bytes,
        rss_without_rule_mib,
        rss_with_rule_mib,
        peak_rss_mib,
        events,
    };
    drop(podward);
    bed.down().await?;
    Ok(report)
}

impl RulesOptions {
    fn check(&self) -> Result<()> {
        let RulesOptions { pods, asking, strangers, events, others, .. } = self;
        ensure!(
            *asking > 0 && *asking <= pods / ONE_IN,
            "{asking} of {pods} pods can't ask: at least 1 must, and at most a quarter, for which there is room"
        );
        ensure!(
            *strangers > 0 && events >= strangers,
            "{events} events of {strangers} pods: each pod needs one at least, and there must be a pod"
        );
        ensure!(others.is_sorted(), "the numbers of rules {others:?} must not fall: rules are only added");
        Ok(())
    }
}

/// Changes of pods that no rule selects, with each number of rules.
async fn strangers(
    cluster: &Cluster,
    meter: &Meter,
    options: &RulesOptions,
    say: &impl Fn(&str),
) -> Result<Vec<Events>> {
    say(&format!("making {} pods that no rule will select", options.strangers));
    let fleet = Fleet::start(&cluster.client(), STRANGERS, &TrafficLoop::finalizer_of(LOOP)).await?;
    let traffic = TrafficLoop::start(Api::namespaced(cluster.client(), STRANGERS), fleet::OPTED_IN, LOOP);
    let names = fleet.make_bare("stranger", options.strangers, true).await?;
    fleet.until_available(&names).await?;
    fleet.settle().await;
    // It has taken all in; what follows is none of its business.
    drop(traffic);

    let rules = Objects::start(&cluster.client(), STRANGERS).await?;
    let mut turns = Turns { fleet: &fleet, names: &names, next: 0 };
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
        // Until the controller is at rest, too.
        fleet.settle().await;
        let cpu = meter.controller.cpu_ms()? - cpu;
        found.push(Events {
            rules: there,
            events: options.events,
            controller_cpu_us: cpu * 1e3 / options.events as f64,
            writes: audit::since(&meter.audit, mark)?,
        });
    }
    Ok(found)
}

/// Changes labels of pods, one pod after the other, round and round.
struct Turns<'a> {
    fleet: &'a Fleet,
    names: &'a [String],
    next: usize,
}

impl Turns<'_> {
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

/// What is looked at while something goes on.
struct Meter {
    controller: Usage,
    audit: PathBuf,
}

impl Meter {
    async fn operations(&self, fleet: &Fleet, names: &[String]) -> Result<Asked> {
        let (cpu, mark) = (self.controller.cpu_ms()?, audit::mark(&self.audit)?);
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
        fleet.settle().await;
        let operations = names.len();
        Ok(Asked {
            all_begun_seconds,
            all_pre_checked_seconds,
            decisions_per_second: operations as f64 / all_pre_checked_seconds,
            all_operate_seconds,
            all_available_seconds,
            controller_cpu_ms: cpu / operations as f64,
            writes: audit::since(&self.audit, mark)?.per_operation(operations),
        })
    }
}
