//! Podward installed with Helm, from images of this workspace, on a test cluster with a real node and DNS: install,
//! upgrade, rotation of certificates, uninstall. The steps run one after the other on one cluster.
#![forbid(unsafe_code)]

mod accepted;
mod admission;
mod checked;
mod guard;
mod job_rights;
mod lives;
mod refused_rollback;
mod secret_paths;
mod site;
mod stuck;
mod under_way;

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use podward_support::within;
use tokio::runtime::Runtime;

use admission::AdmissionLoad;
use site::Site;
use under_way::UnderWay;

/// The deadline of each step.
const DEADLINE: Duration = Duration::from_secs(420);
/// Certificates with a short lifetime, which are renewed after a minute, and secret paths that are replaced more often.
const SHORT: [&str; 4] = [
    "global.certificates.lifetimeSeconds=120",
    "global.certificates.caLifetimeSeconds=360",
    "global.webhookPath.rotationSeconds=20",
    "global.webhookPath.overlapSeconds=6",
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each step continues where the one before it ended.
    arguments.test_threads = Some(1);
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("cannot start the async runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let site: Arc<OnceLock<Arc<Site>>> = Arc::default();
    let trials = vec![
        step("uninstall_releases_pods", &runtime, &site, installed),
        step("the_doctor_finds_nothing_but_what_is_broken", &runtime, &site, checked),
        step("what_the_chart_makes_is_accepted", &runtime, &site, accepted),
        step("an_upgrade_refuses_no_request", &runtime, &site, upgraded),
        step("a_rollback_that_loses_a_field_is_refused", &runtime, &site, rollback_refused),
        step("certificates_are_renewed_and_no_request_is_refused", &runtime, &site, renewed),
        step("a_rollback_refuses_no_request", &runtime, &site, rolled_back),
        step("an_uninstall_releases_every_pod", &runtime, &site, uninstalled),
        step("a_reinstall_takes_the_pods_in_again", &runtime, &site, guard::reinstalled),
        step("pods_of_a_skipped_guard_are_released_by_hand", &runtime, &site, guard::skipped),
    ];
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(site) = site.get()
        && let Err(error) = runtime.block_on(site.end(conclusion.has_failed()))
    {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn step<F, Fut>(name: &'static str, runtime: &Arc<Runtime>, site: &Arc<OnceLock<Arc<Site>>>, body: F) -> Trial
where
    F: FnOnce(Arc<Site>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let (runtime, site) = (runtime.clone(), site.clone());
    Trial::test(name, move || {
        let outcome = runtime.block_on(async {
            let site = match site.get() {
                Some(site) => site.clone(),
                None => {
                    let opened =
                        Arc::new(Site::open().await.context("open the test cluster and install Podward")?);
                    site.get_or_init(|| opened).clone()
                }
            };
            let outcome = within(DEADLINE, || format!("the end of {name}"), body(site.clone())).await;
            match outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(error.context(site.evidence().await)),
            }
        });
        outcome.map_err(|error: anyhow::Error| Failed::from(format!("{error:#}")))
    })
}

async fn installed(site: Arc<Site>) -> Result<()> {
    lives::a_deleted_pod_is_drained_first(&site).await
}

async fn checked(site: Arc<Site>) -> Result<()> {
    checked::broken_parts_are_reported(&site).await
}

async fn accepted(site: Arc<Site>) -> Result<()> {
    accepted::what_the_chart_makes_is_accepted(&site).await
}

async fn upgraded(site: Arc<Site>) -> Result<()> {
    let under_way = UnderWay::begin(&site).await?;
    let load = AdmissionLoad::start(&site);
    site.upgrade(&["global.defaults.log.level=debug"]).await?;
    let asked = load.stop().await?;
    ensure!(asked > 20, "only {asked} requests were made meanwhile");
    under_way.end(&site).await?;
    lives::a_deleted_pod_is_drained_first(&site).await
}

async fn rollback_refused(site: Arc<Site>) -> Result<()> {
    refused_rollback::a_rollback_that_loses_a_field_is_refused(&site).await
}

async fn renewed(site: Arc<Site>) -> Result<()> {
    let path = site.path().await?;
    let load = AdmissionLoad::start(&site);
    site.upgrade(&SHORT).await?;
    secret_paths::old_and_new_work_during_a_rotation(&site, path).await?;
    // Certificates with a longer lifetime are replaced at once, the next ones when they are due.
    let mut last = site.until_certificates_other_than(&[None, None]).await?;
    for _ in 0..2 {
        last = site.until_certificates_other_than(&last.map(Some)).await?;
    }
    // The last certificates are served, too.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = load.stop().await?;
    ensure!(asked > 200, "only {asked} requests were made meanwhile");
    lives::a_deleted_pod_is_drained_first(&site).await
}

async fn rolled_back(site: Arc<Site>) -> Result<()> {
    let under_way = UnderWay::begin(&site).await?;
    let load = AdmissionLoad::start(&site);
    site.helm(&["rollback", "podward", "1", "--wait", "--timeout", "3m"]).await?;
    let asked = load.stop().await?;
    ensure!(asked > 20, "only {asked} requests were made meanwhile");
    refused_rollback::nothing_is_left(&site).await?;
    under_way.end(&site).await?;
    lives::a_deleted_pod_is_drained_first(&site).await
}

async fn uninstalled(site: Arc<Site>) -> Result<()> {
    let pods = guard::GuardedPods::create(&site).await?;
    stuck::a_guard_that_fails(&site, guard::NAMESPACE, pods.in_service()).await?;
    site.helm(&["uninstall", "podward", "--wait", "--timeout", "5m"]).await?;
    job_rights::are_all_used(&site, job_rights::GUARD)?;
    // Resource definitions and their objects are kept.
    ensure!(site.kubectl(&["get", "lifecyclehook"]).await?.contains("traffic-controller"));
    pods.are_free().await?;
    stuck::external_consumers(&site, guard::NAMESPACE, pods.in_service()).await?;
    lives::a_pod_is_created_and_deleted_as_without_podward(&site).await
}
