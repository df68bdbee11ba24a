//! The processes of Podward's services.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use podward_support::{Podward, ServiceKind};
use serde::{Deserialize, Serialize};

use crate::usage::Usage;

/// The memory of a service.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ServiceMemory {
    /// The resident memory, in MiB.
    pub rss_mib: f64,
    /// The peak of the resident memory since the start of the process, in MiB.
    pub peak_rss_mib: f64,
}

impl ServiceMemory {
    pub(super) fn of(usage: &Usage) -> Result<ServiceMemory> {
        Ok(ServiceMemory { rss_mib: usage.rss_mib()?, peak_rss_mib: usage.peak_rss_mib()? })
    }
}

/// The processes, by service. Both replicas of the lifecycle-controller have an entry.
pub(super) struct Services(BTreeMap<String, Usage>);

impl Services {
    /// Returns the processes that run now.
    pub(super) async fn find(podward: &Podward) -> Result<Services> {
        let mut found = BTreeMap::new();
        let leader = podward.leader().await?.context("no lifecycle-controller leads")?;
        for replica in podward.services(ServiceKind::LifecycleController) {
            let role = if replica.name() == leader.name() { "leader" } else { "standby" };
            found.insert(format!("{} ({role})", replica.kind()), Usage::of_replica(podward, &replica)?);
        }
        for kind in
            [ServiceKind::TrafficController, ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook]
        {
            found.insert(kind.to_string(), Usage::of(podward, kind)?);
        }
        Ok(Services(found))
    }

    /// Returns the memory of each.
    pub(super) fn memory(&self) -> Result<BTreeMap<String, ServiceMemory>> {
        self.0.iter().map(|(service, usage)| Ok((service.clone(), ServiceMemory::of(usage)?))).collect()
    }

    /// Returns the CPU time of each since its start, in milliseconds.
    pub(super) fn cpu_ms(&self) -> Result<BTreeMap<String, f64>> {
        self.0.iter().map(|(service, usage)| Ok((service.clone(), usage.cpu_ms()?))).collect()
    }
}
