//! A schedule: what is set up, and what happens. It follows from its seed.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use podward_core::PostCheckRejection;
use podward_core::hooks::{DeadlinePolicy, GateTiming, Hook, HookPhase};

use super::fault::Fault;
use super::random_steps::random_steps;
use super::steps::Step;
use super::world::{Setup, World};
use crate::hook_model::hook;

#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) setup: Setup,
    pub(crate) steps: Vec<Step>,
}

impl Schedule {
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let names = ["mesh", "registry"];
        let count = random.usize(0..=names.len());
        let setup = Setup {
            hooks: names[..count].iter().map(|name| random_hook(name, &mut random)).collect(),
            has_gate: random.u8(0..20) > 0,
            has_traffic: random.u8(0..5) > 1,
            is_fast: random.bool(),
            restarts_at_end: random.bool(),
        };
        Schedule { setup, steps: random_steps(&mut random) }
    }

    /// Runs the schedule. A panic is a failure, too.
    pub(crate) fn run(&self, fault: Option<Fault>) -> Result<(), String> {
        let run = || self.run_in(&mut World::new(self.setup.clone(), fault));
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it panics".to_owned()))
    }

    fn run_in(&self, world: &mut World) -> Result<(), String> {
        world.check()?;
        for step in &self.steps {
            world.perform(step)?;
        }
        world.settle()
    }

    /// Leaves out steps, as long as the schedule fails.
    fn shrunk(mut self, fault: Option<Fault>) -> Self {
        let mut length = self.steps.len().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < self.steps.len() {
                let end = (start + length).min(self.steps.len());
                let mut fewer = self.clone();
                fewer.steps.drain(start..end);
                if fewer.run(fault).is_err() {
                    self = fewer;
                } else {
                    start = end;
                }
            }
            length /= 2;
        }
        self
    }
}

fn random_hook(name: &str, random: &mut fastrand::Rng) -> Hook {
    let mut phases = vec![HookPhase::Prepare, HookPhase::Complete];
    let others = [(HookPhase::Release, 9), (HookPhase::PreCheck, 3), (HookPhase::PostCheck, 3)];
    phases.extend(others.iter().filter(|(_, of_ten)| random.u8(0..10) < *of_ten).map(|(phase, _)| *phase));
    let timing = |is_before| if is_before { GateTiming::BeforeGate } else { GateTiming::AfterGate };
    Hook {
        phases,
        order: random.i32(0..2),
        deadline_nanoseconds: random.i64(10..90) * 1_000_000_000,
        deadline_policy: match random.u8(0..6) {
            0 => DeadlinePolicy::Proceed,
            1 => DeadlinePolicy::Cancel,
            _ => DeadlinePolicy::Hold,
        },
        post_check_rejection: match random.bool() {
            true => PostCheckRejection::Rollback,
            false => PostCheckRejection::Hold,
        },
        prepare_timing: timing(random.bool()),
        complete_timing: timing(random.bool()),
        ..hook(name)
    }
}

/// A schedule that fails.
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) violation: String,
    schedule: Schedule,
    /// The versions that were stored, in the order of the steps.
    versions: Vec<String>,
}

impl Failure {
    /// Runs the schedule of `seed`, and returns its failure with as few steps as possible.
    pub(crate) fn of(seed: u64, fault: Option<Fault>) -> Option<Self> {
        let schedule = Schedule::random(seed);
        schedule.run(fault).err()?;
        let schedule = schedule.shrunk(fault);
        let violation = schedule.run(fault).err()?;
        let mut world = World::new(schedule.setup.clone(), fault);
        let _ = catch_unwind(AssertUnwindSafe(|| schedule.run_in(&mut world)));
        let versions = world.server.history.iter().map(|event| match &event.stored {
            Some(stored) => stored.words(),
            None => format!("{} is gone", event.name),
        });
        let versions = versions.collect();
        Some(Failure { seed, violation, schedule, versions })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, violation, schedule, versions } = self;
        writeln!(f, "the schedule with PODWARD_SIMULATION_SEED={seed} fails: {violation}")?;
        writeln!(f, "{:?}", schedule.setup)?;
        writeln!(f, "the steps that are needed for it:")?;
        schedule.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))?;
        writeln!(f, "the stored versions:")?;
        versions.iter().try_for_each(|version| writeln!(f, "  {version}"))
    }
}
