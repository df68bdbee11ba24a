//! Estimates the duration of steps, corrected by the duration of the earlier ones.

use std::time::Duration;

/// The time to link a program whose packages are compiled.
const LINK: Duration = Duration::from_secs(8);
/// The number of cores that the table of seconds was measured on.
const MEASURED_CORES: f64 = 2.0;

/// A step to come.
#[derive(Debug, Clone)]
pub(in crate::tools) struct Planned {
    name: String,
    /// The part that depends on the machine and the cache.
    variable: Duration,
    /// The part that does not.
    fixed: Duration,
}

impl Planned {
    /// Returns a step that takes `expected` on any machine.
    pub(in crate::tools) fn new(name: &str, expected: Duration) -> Self {
        Self { name: name.to_owned(), variable: Duration::ZERO, fixed: expected }
    }

    /// Returns the compilation of `program`, which takes `seconds` on the measured machine with empty caches. A warm
    /// cache saves all compiling, which is most of it, but not the linking.
    pub(in crate::tools) fn compile(program: &str, seconds: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(MEASURED_CORES, |n| n.get() as f64);
        let all = Duration::from_secs(seconds);
        let variable = all.saturating_sub(LINK).mul_f64((MEASURED_CORES / cores).min(1.0));
        Self { name: format!("build {program}"), variable, fixed: LINK.min(all) }
    }
}

/// The announced steps and the current position in them.
#[derive(Debug, Default)]
pub(super) struct BuildPlan {
    steps: Vec<Planned>,
    /// The number of announced steps that ended.
    ended: usize,
    /// The current step's name, its expected duration, and whether it was announced.
    present: Option<(String, Option<Duration>, bool)>,
    /// Sums over the announced steps that ended: the measured and the expected duration of the variable parts.
    took: Duration,
    should: Duration,
}

impl BuildPlan {
    pub(super) fn new(steps: Vec<Planned>) -> Self {
        Self { steps, ..Self::default() }
    }

    pub(super) fn begin(&mut self, name: &str, expected: Option<Duration>) {
        let announced = self.steps.get(self.ended).filter(|step| step.name == name);
        let expected = expected.or_else(|| announced.map(|step| self.expected(step)));
        let announced = announced.is_some();
        self.present = Some((name.to_owned(), expected, announced));
    }

    pub(super) fn end(&mut self, elapsed: Duration) {
        if let Some((_, _, true)) = self.present.take()
            && let Some(step) = self.steps.get(self.ended)
        {
            if !step.variable.is_zero() {
                self.took += elapsed.saturating_sub(step.fixed);
                self.should += step.variable;
            }
            self.ended += 1;
        }
    }

    /// Returns `[2/9] `, or an empty string for a step that was not announced.
    pub(super) fn prefix(&self) -> String {
        match &self.present {
            Some((_, _, true)) => format!("[{}/{}] ", self.ended + 1, self.steps.len()),
            _ => String::new(),
        }
    }

    /// Returns the line for the current step, which has run for `elapsed`.
    pub(super) fn line(&self, elapsed: Duration) -> String {
        let Some((name, expected, announced)) = &self.present else {
            return String::new();
        };
        let time = match expected {
            Some(expected) if elapsed.is_zero() => format!(", about {}", words(*expected)),
            Some(expected) if *expected < elapsed => {
                format!(", {}, longer than the expected {}", words(elapsed), words(*expected))
            }
            Some(expected) => format!(", {} of about {}", words(elapsed), words(*expected)),
            None if elapsed.is_zero() => String::new(),
            None => format!(", {}", words(elapsed)),
        };
        let left = if *announced {
            let rest: Duration = self.steps.iter().skip(self.ended + 1).map(|step| self.expected(step)).sum();
            let left = rest + expected.unwrap_or_default().saturating_sub(elapsed);
            format!(", about {} left", words(left))
        } else {
            String::new()
        };
        format!("{}{name}{time}{left}", self.prefix())
    }

    fn expected(&self, step: &Planned) -> Duration {
        let factor =
            if self.should.is_zero() { 1.0 } else { self.took.as_secs_f64() / self.should.as_secs_f64() };
        step.fixed + step.variable.mul_f64(factor)
    }
}

/// Returns a duration as `0.4 s`, `12 s` or `4 min 07 s`.
pub(super) fn words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 if duration.subsec_millis() >= 100 => format!("{:.1} s", duration.as_secs_f64()),
        0..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn step(name: &str, variable: u64, fixed: u64) -> Planned {
        Planned { name: name.to_owned(), variable: seconds(variable), fixed: seconds(fixed) }
    }

    #[test]
    fn a_slow_first_step_lengthens_the_rest() {
        let mut plan = BuildPlan::new(vec![step("a", 100, 10), step("b", 50, 10), step("c", 30, 10)]);
        plan.begin("a", None);
        assert_eq!(plan.line(seconds(10)), "[1/3] a, 10 s of about 1 min 50 s, about 3 min 20 s left");
        plan.end(seconds(210));
        plan.begin("b", None);
        assert_eq!(plan.line(seconds(0)), "[2/3] b, about 1 min 50 s, about 3 min 00 s left");
    }

    #[test]
    fn a_warm_cache_leaves_the_linking() {
        let mut plan = BuildPlan::new(vec![step("a", 240, 8), step("b", 80, 8)]);
        plan.begin("a", None);
        plan.end(seconds(8));
        plan.begin("b", None);
        assert_eq!(plan.line(seconds(2)), "[2/2] b, 2 s of about 8 s, about 6 s left");
    }

    #[test]
    fn a_late_step_is_reported_and_an_unannounced_one_has_no_number() {
        let mut plan = BuildPlan::new(vec![step("a", 0, 4)]);
        plan.begin("a", None);
        assert_eq!(plan.line(seconds(20)), "[1/1] a, 20 s, longer than the expected 4 s, about 0 s left");
        plan.begin("wait", None);
        assert_eq!(plan.line(seconds(75)), "wait, 1 min 15 s");
        plan.end(seconds(75));
        plan.begin("a", None);
        assert_eq!(plan.prefix(), "[1/1] ");
    }
}
