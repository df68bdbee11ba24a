//! A campaign: many inputs for one target, in one process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::corpus::Corpus;
use crate::input::Input;
use crate::memory;
use crate::mutate::{Dictionary, mutate};
use crate::record::InputRecord;
use crate::target::{Format, Target};

/// The longest time for one input. Most take less than a millisecond; a machine with other work needs room.
pub const SLOW: Duration = Duration::from_secs(10);
/// The stack of the thread that handles inputs, in bytes: that of the threads of services.
const STACK: usize = 2 * 1024 * 1024;
/// Time and memory are checked after so many inputs,
const CHECK_EVERY: u64 = 512;
/// and after each input with more bytes than this.
const LARGE: usize = 16 * 1024;

/// The extent of a campaign. It ends at the first limit that is reached.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The number of inputs.
    pub inputs: u64,
    /// The time; `None` for no limit.
    pub time: Option<Duration>,
    /// Begins the random numbers. The same seed gives the same inputs.
    pub seed: u64,
    /// The largest resident memory of the process, in bytes.
    pub memory: u64,
    /// The folder of the file with the present input, and of inputs that fail.
    pub folder: PathBuf,
}

/// What a campaign did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignReport {
    /// The number of inputs.
    pub inputs: u64,
    /// The duration.
    pub took: Duration,
    /// The number of different outcomes.
    pub outcomes: usize,
    /// The longest time for one input.
    pub slowest: Duration,
    /// The largest resident memory of the process, in bytes.
    pub memory: u64,
    /// The failure that ended the campaign.
    pub failure: Option<Failure>,
}

/// An input that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub what: String,
    /// The input.
    pub input: Input,
    /// The file with the input.
    pub file: PathBuf,
}

/// Returns the file of the input that a process handles.
#[must_use]
pub fn present_input(folder: &Path, target: &str) -> PathBuf {
    folder.join(format!("{target}.present"))
}

/// Stores an input that fails, and returns the file. Its name depends on the content.
///
/// # Errors
/// When the file cannot be written.
pub fn store(folder: &Path, target: &str, input: &Input) -> Result<PathBuf> {
    let mut outcome = crate::Outcome::default();
    outcome.add(input.to_file());
    let file = folder.join(format!("{target}-{:016x}.input", outcome.signature()));
    std::fs::write(&file, input.to_file()).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// Handles one input.
///
/// # Errors
/// Says what is wrong: a panic, or a guarantee that does not hold.
pub fn try_input(target: &Target, input: &Input) -> Result<crate::Outcome, String> {
    // A target that has failed is not used again, so that a broken state does no harm.
    match catch_unwind(AssertUnwindSafe(|| target.run(input))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panic: {}", text.unwrap_or("without a message")))
        }
    }
}

/// Runs a campaign on a thread with the stack of a service's threads.
///
/// # Errors
/// When files cannot be written, or the thread cannot be started. An input that fails is no error: see
/// [`CampaignReport::failure`].
pub fn run(target: Target, campaign: Campaign) -> Result<CampaignReport> {
    let thread = std::thread::Builder::new().name(target.name.to_owned()).stack_size(STACK);
    let running =
        thread.spawn(move || Running::begin(&target, &campaign)?.run()).context("start a thread")?;
    match running.join() {
        Ok(report) => report,
        Err(_) => anyhow::bail!("the fuzzer itself has panicked; its message is above"),
    }
}

struct Running<'a> {
    target: &'a Target,
    campaign: &'a Campaign,
    rng: Rng,
    corpus: Corpus,
    dictionary: Dictionary,
    record: InputRecord,
    report: CampaignReport,
    start: Instant,
}

impl<'a> Running<'a> {
    fn begin(target: &'a Target, campaign: &'a Campaign) -> Result<Self> {
        let mut dictionary = Dictionary::default();
        for seed in &target.seeds {
            match target.format {
                Format::Json => {
                    let document = serde_json::from_slice(&seed.body);
                    dictionary.read(&document.with_context(|| format!("read a seed of {}", target.name))?);
                }
                Format::Protobuf => texts(&seed.body).for_each(|text| dictionary.add(text)),
            }
        }
        std::fs::create_dir_all(&campaign.folder)
            .with_context(|| format!("make the folder {}", campaign.folder.display()))?;
        let file = present_input(&campaign.folder, target.name);
        let record = InputRecord::create(&file).with_context(|| format!("make {}", file.display()))?;
        Ok(Self {
            target,
            campaign,
            rng: Rng::with_seed(campaign.seed),
            corpus: Corpus::new(target.format, &target.seeds),
            dictionary,
            record,
            report: CampaignReport {
                inputs: 0,
                took: Duration::ZERO,
                outcomes: 0,
                slowest: Duration::ZERO,
                memory: 0,
                failure: None,
            },
            start: Instant::now(),
        })
    }

    fn run(mut self) -> Result<CampaignReport> {
        let seeds = self.target.seeds.iter().cloned();
        for input in seeds {
            if !self.handle(&input)? {
                return Ok(self.end());
            }
        }
        while self.report.inputs < self.campaign.inputs {
            let input = mutate(&self.corpus, &self.dictionary, &mut self.rng);
            if !self.handle(&input)? {
                break;
            }
            let is_due = self.report.inputs.is_multiple_of(CHECK_EVERY) || input.body.len() > LARGE;
            if is_due && !self.has_room(&input)? {
                break;
            }
        }
        Ok(self.end())
    }

    /// Handles one input. Returns false if it fails.
    fn handle(&mut self, input: &Input) -> Result<bool> {
        self.record.write(input).context("write the present input")?;
        let start = Instant::now();
        let result = try_input(self.target, input);
        let took = start.elapsed();
        self.report.inputs += 1;
        self.report.slowest = self.report.slowest.max(took);
        match result {
            Ok(_) if took > SLOW => self.fail(input, format!("took {} s", took.as_secs())),
            Ok(outcome) => {
                self.corpus.learn(input, &outcome, &mut self.rng);
                Ok(true)
            }
            Err(what) => self.fail(input, what),
        }
    }

    /// Returns false if the campaign is to end.
    fn has_room(&mut self, input: &Input) -> Result<bool> {
        let peak = memory::peak();
        if peak > self.campaign.memory {
            let mib = |bytes: u64| bytes / (1024 * 1024);
            let what = format!(
                "the process needed {} MiB, more than {} MiB, for this input or one of the last {CHECK_EVERY}",
                mib(peak),
                mib(self.campaign.memory)
            );
            return self.fail(input, what);
        }
        Ok(self.campaign.time.is_none_or(|time| self.start.elapsed() < time))
    }

    fn fail(&mut self, input: &Input, what: String) -> Result<bool> {
        let file = store(&self.campaign.folder, self.target.name, input)?;
        self.report.failure = Some(Failure { what, input: input.clone(), file });
        Ok(false)
    }

    fn end(mut self) -> CampaignReport {
        self.report.took = self.start.elapsed();
        self.report.outcomes = self.corpus.outcomes();
        self.report.memory = memory::peak();
        self.report
    }
}

/// Returns the readable parts of a message.
fn texts(body: &[u8]) -> impl Iterator<Item = &str> {
    let parts = body.split(|byte| byte.is_ascii_control());
    parts.filter_map(|part| std::str::from_utf8(part).ok()).filter(|text| text.len() > 1)
}

#[cfg(test)]
mod tests;
