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
    environment::{Environment, TestPlace, user_cluster},
    fixture::Fixture,
};

/// The time that a test may take by default, without the time it waits to start.
const DEADLINE: Duration = Duration::from_secs(150);
/// The number of tests that run at a time. Tests mostly wait, so it is more than the number of processors.
const AT_A_TIME: usize = 8;
/// The number of tests that may wait to start. It is at least the number of tests that need their cluster alone, so
/// that the tests of other clusters go on.
const IN_LINE: usize = 48;

/// Permits for running tests, one for most of them.
static RUNNING: Semaphore = Semaphore::const_new(AT_A_TIME);

/// The number of slowest tests in the report.
const SLOWEST: usize = 24;
/// The duration of each finished test, without the time it waited to start, and whether it ran alone.
static TOOK: Mutex<Vec<(Duration, bool, String)>> = Mutex::new(Vec::new());

type TestFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
type TestBody = Box<dyn FnOnce(Arc<Fixture>) -> TestFuture + Send>;

/// A test.
pub struct Test {
    name: String,
    place: TestPlace,
    alone: bool,
    /// The number of permits that the test needs.
    weight: u32,
    deadline: Duration,
    body: TestBody,
}

impl Test {
    /// Returns a test on a real node that does not change Podward. Others run at the same time.
    pub fn node<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Node, false, body)
    }

    /// Returns a test on a real node that stops or starts services. No other test runs there at the same time.
    pub fn alone<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Node, true, body)
    }

    /// Returns a test on a real node where Podward is responsible for Services. It changes neither Podward nor
    /// kube-proxy.
    pub fn serving<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Serving, false, body)
    }

    /// Returns a test like [`serving`](Self::serving) that disturbs others or is disturbed by them.
    pub fn serving_alone<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Serving, true, body)
    }

    /// Returns a test on three real nodes, which it may disturb.
    pub fn nodes<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Nodes, true, body)
    }

    /// Returns a test on simulated nodes, where Podward is strict.
    pub fn simulated<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Simulated, false, body)
    }

    /// Returns a test on simulated nodes that stops or starts services.
    pub fn simulated_alone<F, Fut>(name: &str, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::new(name, TestPlace::Simulated, true, body)
    }

    fn new<F, Fut>(name: &str, place: TestPlace, alone: bool, body: F) -> Self
    where
        F: FnOnce(Arc<Fixture>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let body: TestBody = Box::new(move |fixture| Box::pin(body(fixture)));
        Self { name: name.to_owned(), place, alone, weight: 1, deadline: DEADLINE, body }
    }

    /// Returns the same test with another time that it may take.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the same test as one that keeps the processors as busy as `weight` other tests do. So many fewer run at
    /// the same time.
    #[must_use]
    pub fn of_weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// Returns the order of the test: tests with a lower value start first. Tests that need their cluster alone come
    /// after the tests that share it, so that the others have to be waited for only once. Meanwhile the tests of
    /// other clusters run.
    fn turn(&self) -> (u8, bool) {
        let place = match self.place {
            // Half of these tests need the cluster alone, and they take longest.
            TestPlace::Serving | TestPlace::Nodes => 0,
            TestPlace::Node => 1,
            TestPlace::Simulated => 2,
        };
        (place, self.alone)
    }

    async fn run(self) -> Result<()> {
        let environment = Environment::get(self.place).await?;
        // Exactly one of the two is set.
        let (_shared, _alone);
        if self.alone {
            _alone = environment.access.write().await;
        } else {
            _shared = environment.access.read().await;
        }
        let _running = RUNNING.acquire_many(self.weight).await.context("the semaphore is closed")?;
        let began = Instant::now();
        let fixture = Arc::new(
            Fixture::open(environment.clone(), &self.name).await.context("open the test's namespace")?,
        );
        let (name, body) = (self.name, (self.body)(fixture.clone()));
        // After a panic, the lock must be released and the namespace deleted.
        let body = async { tokio::spawn(body).await.context("the test panicked")? };
        let outcome = match within(self.deadline, || format!("the end of the test {name}"), body).await {
            Ok(()) => fixture.verify().await,
            failed => failed,
        };
        let outcome = match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(fixture.evidence().await)),
        };
        let closed = fixture.close().await;
        TOOK.lock().unwrap_or_else(PoisonError::into_inner).push((began.elapsed(), self.alone, name));
        // The first failure is more informative.
        outcome.and(closed)
    }
}

/// Runs the tests that the command line selects, like the standard harness, and ends the test clusters.
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
        // Podward cannot run in different ways on one cluster.
        let is_left_out = test.place != TestPlace::Node && user_cluster().is_some();
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

/// Prints the slowest tests, which helps to shorten the suite.
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
