//! Podward on real clusters, from end to end. See `podward_e2e` for how tests are run.

mod attacks;
mod cancel;
mod chaos;
mod checks;
mod clonesets;
mod controllers;
mod creation;
mod deletion;
mod examples;
mod hooks;
mod lifecycle_api;
mod merge;
mod operations;
mod outages;
mod phases;
mod plugin;
mod registries;
mod releases;
mod rules;
mod scale;
mod serving;
mod strict;
mod tracing;
mod traffic;
mod webhooks;
mod why;

use std::process::ExitCode;

fn main() -> ExitCode {
    let modules = [
        operations::tests(),
        cancel::tests(),
        traffic::tests(),
        tracing::tests(),
        creation::tests(),
        checks::tests(),
        scale::tests(),
        strict::tests(),
        webhooks::tests(),
        outages::tests(),
        releases::tests(),
        controllers::tests(),
        examples::tests(),
        deletion::tests(),
        hooks::tests(),
        rules::tests(),
        chaos::tests(),
        serving::tests(),
        attacks::tests(),
        registries::tests(),
        clonesets::tests(),
        why::tests(),
        plugin::tests(),
    ];
    podward_e2e::run(modules.into_iter().flatten().collect())
}
