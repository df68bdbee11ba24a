//! PersistentVolumeClaims that are missing or unbound, and volumes in other zones than the nodes that fit.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};

use crate::cause::{Case, Cause};
use crate::words::between;

use super::clauses::Clause;
use super::unscheduled::Unscheduled;

/// The labels of zones, the present one first.
const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
/// The annotation of the StorageClass that claims without a class get.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Returns the names of the PersistentVolumeClaims that the volumes of a pod use.
#[must_use]
pub fn claim_names(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let names = volumes.unwrap_or_default().iter().filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref().map(|it| it.claim_name.clone());
        claim.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{name}-{}", volume.name)))
    });
    names.collect()
}

impl Unscheduled<'_> {
    fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        self.snapshot.claims.iter().find(|claim| claim.metadata.name.as_deref() == Some(name))
    }

    pub(super) fn claims(&self, clause: &Clause<'_>) -> Cause {
        let object = |name: &str| format!("PersistentVolumeClaim {}/{name}", self.commands.namespace());
        let describe = |name: &str| self.commands.kubectl(&format!("describe pvc {name}"));
        if clause.case == Case::VolumeZone {
            return self.zones(clause);
        }
        if let Some(missing) = between(clause.text, "persistentvolumeclaim \"", "\" not found") {
            let what = format!("PersistentVolumeClaim {missing} does not exist");
            let next = format!("{}; create the claim", self.commands.kubectl("get pvc"));
            return Cause::new(Case::Claim, object(missing), what).next(next);
        }
        let names = claim_names(&self.snapshot.pod);
        let phase =
            |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
        let unbound = names.iter().find_map(|name| {
            let claim = self.claim(name)?;
            (phase(claim).as_deref() != Some("Bound")).then_some((name, claim))
        });
        let Some((name, claim)) = unbound else {
            let what = format!("its PersistentVolumeClaims cannot be used: {}", clause.text);
            return Cause::new(Case::Claim, object(names.first().map_or("", String::as_str)), what)
                .next(self.commands.kubectl("describe pvc"));
        };
        let why = self.unbound(claim, clause);
        let what = format!("PersistentVolumeClaim {name} is not bound: {why}");
        let since = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Cause::new(Case::Claim, object(name), what).since(since).next(describe(name))
    }

    fn unbound(&self, claim: &PersistentVolumeClaim, clause: &Clause<'_>) -> String {
        let spec = claim.spec.as_ref();
        let classes = &self.snapshot.classes;
        match spec.and_then(|spec| spec.storage_class_name.as_deref()) {
            Some("") => "no PersistentVolume without a StorageClass fits".to_owned(),
            _ if self.snapshot.is_unread("StorageClasses") => clause.text.to_owned(),
            Some(name) => match classes.iter().find(|class| class.metadata.name.as_deref() == Some(name)) {
                None => format!(
                    "StorageClass {name} does not exist, and no PersistentVolume with its name is free"
                ),
                Some(class) if class.provisioner == "kubernetes.io/no-provisioner" => {
                    format!("no PersistentVolume of StorageClass {name} is free, and nothing provisions them")
                }
                Some(class) => format!("{} has not provisioned a volume yet", class.provisioner),
            },
            None => {
                let is_default = |class: &&k8s_openapi::api::storage::v1::StorageClass| {
                    let annotations = class.metadata.annotations.as_ref();
                    annotations.and_then(|it| it.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
                };
                match classes.iter().find(is_default) {
                    None => "it names no StorageClass, and the cluster has no default one".to_owned(),
                    Some(_) => "no volume was provisioned yet".to_owned(),
                }
            }
        }
    }

    /// A bound volume that can only be used on nodes that have no room, or do not exist.
    fn zones(&self, clause: &Clause<'_>) -> Cause {
        for name in claim_names(&self.snapshot.pod) {
            let volume = self.claim(&name).and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            let volume = volume.and_then(|volume| {
                self.snapshot.volumes.iter().find(|it| it.metadata.name.as_deref() == Some(volume.as_str()))
            });
            let Some(volume) = volume else { continue };
            let Some((key, wanted)) = where_usable(volume) else { continue };
            let of_node = |node: &Node| node.metadata.labels.as_ref()?.get(&key).cloned();
            let present: BTreeSet<String> = self.snapshot.nodes.iter().filter_map(of_node).collect();
            let volume = volume.metadata.name.as_deref().unwrap_or_default();
            let noun = if ZONES.contains(&key.as_str()) { "zone".to_owned() } else { format!("{key}=") };
            let list = |values: &BTreeSet<String>| {
                if values.is_empty() {
                    "no such label".to_owned()
                } else {
                    values.iter().cloned().collect::<Vec<_>>().join(", ")
                }
            };
            let space = if noun.ends_with('=') { "" } else { " " };
            // Without the nodes, only the scheduler knows which there are.
            let what = match wanted.is_disjoint(&present) && !self.snapshot.is_unread("nodes") {
                true => format!(
                    "its volume {volume} (PersistentVolumeClaim {name}) is in {noun}{space}{}, and the nodes are in {}",
                    list(&wanted),
                    list(&present)
                ),
                false => format!(
                    "its volume {volume} (PersistentVolumeClaim {name}) is in {noun}{space}{}, and no node there takes the pod",
                    list(&wanted)
                ),
            };
            let next =
                format!("kubectl get nodes -L {key}; add a node there, or move the data to another volume");
            return Cause::new(Case::VolumeZone, format!("PersistentVolume {volume}"), what).next(next);
        }
        let what = format!("its volume cannot be used on {} nodes", clause.nodes);
        let next = self.commands.kubectl("get pvc; kubectl describe pv");
        Cause::new(Case::VolumeZone, format!("pod {}", self.snapshot.pod_name()), what).next(next)
    }
}

/// Returns the label and its values of the nodes on which a volume can be used: the zone if it names one.
fn where_usable(volume: &PersistentVolume) -> Option<(String, BTreeSet<String>)> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let all = || {
        let terms =
            required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
        terms.filter(|it| it.operator == "In")
    };
    let of_zone = all().find(|it| ZONES.contains(&it.key.as_str()));
    let key = of_zone.or_else(|| all().next())?.key.clone();
    let values = all().filter(|it| it.key == key).flat_map(|it| it.values.iter().flatten().cloned());
    let values = values.collect();
    Some((key, values))
}
