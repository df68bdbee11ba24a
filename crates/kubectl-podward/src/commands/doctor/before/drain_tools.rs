//! Tools that drain nodes, and for how long they wait for pods. Their defaults are those of their documentation.

use super::super::finding::Finding;
use super::facts::ClusterFacts;

const ONE_BY_ONE: &str = "Podward answers 429, which it does not count. Without a PodDisruptionBudget, Podward \
                          evicts one pod of a workload at a time for it; with one, as many as the budget allows: \
                          give each opted-in workload a PodDisruptionBudget";
/// The time that Podward waits for a hook by default, in seconds.
const HOOK_DEADLINE: u64 = 300;

/// Tools that evict pods of workloads and limit the evictions that were accepted, and their resource definitions.
const COUNTING: [(&str, &str); 2] = [
    ("the Vertical Pod Autoscaler", "verticalpodautoscalers.autoscaling.k8s.io"),
    ("a restart of a Rollout (Argo Rollouts)", "rollouts.argoproj.io"),
];

pub(super) fn judge(facts: &ClusterFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(program) = facts.program("cluster-autoscaler") {
        let limit = program.argument("--max-pod-eviction-time").and_then(seconds).unwrap_or(120);
        findings.push(wait(
            &format!(
                "{}: cluster-autoscaler gives up a node if a pod is not evicted within {limit} s",
                program.owner
            ),
            limit,
            "set --max-pod-eviction-time to the time that a drain may take",
        ));
    }
    if facts.definitions.iter().any(|name| name.ends_with(".karpenter.sh")) {
        findings.push(Finding::note(
            "Karpenter retries evictions; with terminationGracePeriod in a NodePool it deletes each pod its \
             terminationGracePeriodSeconds before the end of the node: leave the former longer than a drain takes. \
             Pods with karpenter.sh/do-not-disrupt are deleted only then: give them the time of a drain and of their \
             own end as terminationGracePeriodSeconds",
        ));
    }
    if let Some(program) = facts.program("kured") {
        let limit = program.argument("--drain-timeout").and_then(seconds);
        findings.push(match limit {
            Some(limit) if limit > 0 => wait(
                &format!("{}: kured gives up a drain after {limit} s", program.owner),
                limit,
                "set --drain-timeout to the time that a drain may take",
            ),
            _ => Finding::ok(format!("{}: kured waits for drains without a limit", program.owner)),
        });
    }
    if let Some(program) = facts.program("descheduler") {
        findings.push(Finding::note(format!(
            "{}: the descheduler limits the evictions that were accepted. {ONE_BY_ONE}",
            program.owner
        )));
    }
    for (name, definition) in COUNTING {
        if facts.definitions.iter().any(|defined| defined == definition) {
            findings
                .push(Finding::note(format!("{name} limits the evictions that were accepted. {ONE_BY_ONE}")));
        }
    }
    if facts.definitions.iter().any(|name| name.ends_with(".cluster.x-k8s.io")) {
        findings.push(Finding::note(
            "Cluster API retries drains until nodeDrainTimeout of the Machine, and deletes the node then: leave it longer than a \
             drain takes",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("no tool that drains nodes was found; kubectl drain waits until its --timeout, by default for ever"));
    }
    findings
}

fn wait(what: &str, limit: u64, next: &str) -> Finding {
    match limit < HOOK_DEADLINE {
        true => Finding::warning(format!("{what}, and a hook may take {HOOK_DEADLINE} s by default"), next),
        false => Finding::ok(what),
    }
}

/// Reads a duration of Go: `2m`, `90s`, `1h30m`.
fn seconds(text: &str) -> Option<u64> {
    let (mut total, mut number) = (0_u64, String::new());
    for letter in text.chars() {
        let unit = match letter {
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => {
                number.push(letter);
                continue;
            }
        };
        total += number.parse::<u64>().ok()?.checked_mul(unit)?;
        number.clear();
    }
    number.is_empty().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::super::facts::RunningProgram;
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn of(image: &str, arguments: &[&str]) -> Vec<Finding> {
        let program = RunningProgram {
            owner: "Deployment kube-system/tool".to_owned(),
            image: image.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            ..RunningProgram::default()
        };
        judge(&ClusterFacts { programs: vec![program], ..ClusterFacts::default() })
    }

    #[test]
    fn limits_of_drains_are_compared_with_the_deadline_of_hooks() {
        let usual = of("k8s/cluster-autoscaler:v1", &[]);
        assert_eq!(usual[0].level, FindingLevel::Warning);
        assert!(usual[0].what.contains("within 120 s, and a hook may take 300 s"), "{usual:?}");
        assert_eq!(
            of("k8s/cluster-autoscaler:v1", &["--max-pod-eviction-time=1h30m"])[0].level,
            FindingLevel::Ok
        );
        assert_eq!(of("kured", &["--drain-timeout", "90s"])[0].level, FindingLevel::Warning);
        assert_eq!(of("kured", &[])[0].level, FindingLevel::Ok);
        assert_eq!(of("nginx", &[])[0].level, FindingLevel::Ok);
        assert_eq!((seconds("2m"), seconds("1h30m"), seconds("x")), (Some(120), Some(5_400), None));
    }

    #[test]
    fn tools_that_count_accepted_evictions_need_a_budget() {
        let defined = |name: &str| ClusterFacts { definitions: vec![name.to_owned()], ..Default::default() };
        for found in [
            judge(&defined("verticalpodautoscalers.autoscaling.k8s.io")),
            judge(&defined("rollouts.argoproj.io")),
            of("descheduler/descheduler:v0.34.0", &[]),
        ] {
            assert!(found[0].what.contains("give each opted-in workload a PodDisruptionBudget"), "{found:?}");
            assert_eq!((found.len(), found[0].level), (1, FindingLevel::Note));
        }
        let karpenter = judge(&defined("nodeclaims.karpenter.sh"));
        assert!(karpenter[0].what.contains("karpenter.sh/do-not-disrupt"), "{karpenter:?}");
    }
}
