//! A randomized simulation of controllers, webhooks and the API server over the functions of the core, with
//! the perturbations of Sieve (Sun et al., "Automatic Reliability Testing for Cluster Management
//! Controllers", OSDI 2022): stale caches, events that are lost, a view that goes back in time, and crashes
//! between two writes.
//!
//! A schedule is a list of [`steps::Step`]s that follows from a seed. After every step, [`properties`] are
//! checked over all versions that were stored; at the end, [`settle`] lets everybody act, and everything has
//! to come to rest.
//!
//! Not simulated: owners and replica counts, PodTransitionRules (`rule_interleavings` does), busy pods, hooks
//! that come and go (`hook_interleavings` does), and the milliseconds between the review of an eviction and
//! its delete.
//!
//! A failure prints its seed and the steps that are needed for it. `PODWARD_SIMULATION_SEED=<seed>` runs that
//! schedule alone, `PODWARD_SIMULATION_SCHEDULES=<number>` another number of schedules.

mod actors;
mod controller;
mod deletion;
mod fault;
mod hooks;
mod object;
mod properties;
mod random_steps;
mod schedule;
mod server;
mod settle;
mod steps;
mod watch;
mod webhooks;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fault::Fault;
use schedule::{Failure, Schedule};

/// The number of schedules in a run of the tests.
const SCHEDULES: u64 = 100_000;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable} is not a number: {text}: {error}")))
}

/// Runs the schedules of all seeds below `schedules`, on all processors. Returns the failure with the lowest seed.
fn first_failure(schedules: u64, fault: Option<Fault>) -> Option<Failure> {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= schedules.min(failed.load(Ordering::Relaxed)) {
                        return;
                    }
                    if Schedule::random(seed).run(fault).is_err() {
                        failed.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seed = failed.into_inner();
    (seed < schedules).then(|| Failure::of(seed, fault)).flatten()
}

/// No pod is deleted while it is held, gets stuck, or gets a permission twice, whatever is stale, lost or killed.
#[test]
fn simulated_schedules_are_safe_and_come_to_rest() {
    if let Some(seed) = number_from("PODWARD_SIMULATION_SEED") {
        if let Some(failure) = Failure::of(seed, None) {
            panic!("{failure}");
        }
        return;
    }
    let schedules = number_from("PODWARD_SIMULATION_SCHEDULES").unwrap_or(SCHEDULES);
    if let Some(failure) = first_failure(schedules, None) {
        panic!("{failure}");
    }
}

/// The simulation can fail: it finds each deliberate fault.
#[test]
fn simulation_finds_each_fault() {
    for fault in Fault::ALL {
        match first_failure(SCHEDULES, Some(fault)) {
            Some(Failure { seed, violation, .. }) => {
                let without = Schedule::random(seed).run(None);
                assert_eq!(without, Ok(()), "seed {seed} fails without {fault:?}, too");
                println!(
                    "{fault:?}: found with seed {seed}: {}",
                    violation.lines().next().unwrap_or_default()
                );
            }
            None => panic!("{fault:?} is not found"),
        }
    }
}
