//! Runs tests.

use std::{
    pin::Pin,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use podward_support::within;
use tokio::{runtime::Runtime, sync::Semaphore};

use crate::{
    environment::{Environment, Where, user_cluster},
    scene::Scene,
};

/// No test may take longer, waiting for its turn not counted.
const DEADLINE: Duration = Duration::from_secs(150);
/// Tests mostly wait: more at a time than there are processors.
const AT_A_TIME: usize = 8;
/// So many more may wait for their turn. At least as many as there are tests that run alone, so that those of another cluster go on.
const IN_LINE: usize = 48;

/// A permit for each test that runs.
static RUNNING: Semaphore = Semaphore::const_new(AT_A_TIME);

/// How many of the slowest tests are named at the end.
const SLOWEST: usize = 24;
/// How long each test took that has ended, waiting for its turn not counted, and whether it ran alone.
static TOOK: Mutex<Vec<(Duration, bool, String)>> = Mutex::new(Vec::new());

type Outcome = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
type Body = Box<dyn FnOnce(Arc<Scene>) -> Outcome + Send>;

/// A test.
pub struct Test {
    name: String,
    place: Where,
    alone: bool,
    body: Body,
}

impl Test {
    /// A test on a real node that leaves Podward as it is, so that others run at the same time.
    pub fn node<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, Where::Node, false, body)
    }

    /// A test on a real node that ends or starts services: no other runs there at the same time.
    pub fn alone<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, Where::Node, true, body)
    }

    /// A test on a real node where Podward looks after Services, too; it leaves Podward and kube-proxy as they are.
    pub fn serving<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, Where::Serving, false, body)
    }

    /// The same for a test that disturbs others, or that others would disturb.
    pub fn serving_alone<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, Where::Serving, true, body)
    }

    /// A test on simulated nodes, where Podward is strict.
    pub fn simulated<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, Where::Simulated, false, body)
    }

    /// A test on simulated nodes that ends or starts services.
    pub fn simulated_alone<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, Where::Simulated, true, body)
    }

    fn new<F, Fut>(name: &str, place: Where, alone: bool, body: F) -> Self
    where
        F: FnOnce(Arc<Scene>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self { name: name.to_owned(), place, alone, body: Box::new(move |scene| Box::pin(body(scene))) }
    }

    /// Tests with a lower one are begun before others. Those that want a cluster for themselves come after those that share it, so that
    /// it is waited only once until all are gone; meanwhile other clusters have their turn.
    fn turn(&self) -> (u8, bool) {
        let place = match self.place {
            // Half of these want it for themselves, and take longest.
            Where::Serving => 0,
            Where::Node => 1,
            Where::Simulated => 2,
        };
        (place, self.alone)
    }

    async fn run(self) -> Result<()> {
        let environment = Environment::get(self.place).await?;
        // One of the two is taken.
        let (_shared, _alone);
        if self.alone {
            _alone = environment.access.write().await;
        } else {
            _shared = environment.access.read().await;
        }
        let _running = RUNNING.acquire().await.context("nobody closes it")?;
        let began = Instant::now();
        let scene = Arc::new(
            Scene::open(environment.clone(), &self.name).await.context("open the test's namespace")?,
        );
        let (name, body) = (self.name, (self.body)(scene.clone()));
        // A panic must not leave the others waiting for a lock, nor the namespace behind.
        let body = async { tokio::spawn(body).await.context("the test panicked")? };
        let outcome = match within(DEADLINE, || format!("the end of the test {name}"), body).await {
            Ok(()) => scene.verify().await,
            failed => failed,
        };
        let outcome = match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(scene.evidence().await)),
        };
        let closed = scene.close().await;
        TOOK.lock().unwrap_or_else(PoisonError::into_inner).push((began.elapsed(), self.alone, name));
        // What went wrong first says more.
        outcome.and(closed)
    }
}

/// Runs the tests that the command line asks for, as the standard harness does, and ends the beds.
#[must_use]
pub fn run(mut tests: Vec<Test>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME + IN_LINE);
    tests.sort_by_key(Test::turn);
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("cannot start the runtime of the tests: {error}");
            return ExitCode::FAILURE;
        }
    };
    let trials = tests.into_iter().map(|test| {
        // Different ways to run Podward can't be on one cluster at a time.
        let is_left_out = test.place != Where::Node && user_cluster().is_some();
        let (runtime, name) = (runtime.clone(), test.name.clone());
        let trial = Trial::test(name, move || {
            runtime.block_on(test.run()).map_err(|error| Failed::from(format!("{error:#}")))
        });
        trial.with_ignored_flag(is_left_out)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    tell_slowest();
    let mut code = conclusion.exit_code();
    for environment in Environment::started() {
        if let Err(error) = runtime.block_on(environment.end(conclusion.has_failed())) {
            eprintln!("{error:#}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Where the time went, for who wants to shorten the suite.
fn tell_slowest() {
    let mut took = TOOK.lock().unwrap_or_else(PoisonError::into_inner);
    took.sort_unstable_by(|a, b| b.cmp(a));
    if !took.is_empty() {
        eprintln!("slowest tests:");
    }
    for (time, alone, name) in took.iter().take(SLOWEST) {
        eprintln!("{:7.1} s {name}{}", time.as_secs_f64(), if *alone { " (alone)" } else { "" });
    }
}
