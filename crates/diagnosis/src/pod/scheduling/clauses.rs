//! The message of the scheduler: `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).
//! preemption: ...`. The texts are those of Kubernetes 1.33 to 1.37 (pkg/scheduler/framework/plugins).

use crate::cause::Case;

use super::closed_nodes::ClosedNodes;

/// A reason in the message, and on how many nodes it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clause<'t> {
    pub(super) case: Case,
    pub(super) nodes: usize,
    pub(super) text: &'t str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SchedulerMessage<'t> {
    /// The number of all nodes.
    pub(super) nodes: usize,
    pub(super) clauses: Vec<Clause<'t>>,
}

/// Parts of texts, and what they mean. The first one that occurs decides.
const TEXTS: [(&str, Case); 23] = [
    ("Insufficient cpu", Case::Cpu),
    ("Insufficient memory", Case::Memory),
    ("Too many pods", Case::PodsPerNode),
    ("Insufficient pods", Case::PodsPerNode),
    ("Insufficient ", Case::OtherResource),
    ("untolerated taint", Case::Taint),
    ("were unschedulable", Case::Cordoned),
    ("volume node affinity conflict", Case::VolumeZone),
    ("PersistentVolume's node affinity", Case::VolumeZone),
    ("no available volume zone", Case::VolumeZone),
    ("unbound immediate PersistentVolumeClaims", Case::Claim),
    ("persistentvolumeclaim ", Case::Claim),
    ("find available persistent volumes to bind", Case::Claim),
    ("non-existent pv", Case::Claim),
    ("bound to non-existent", Case::Claim),
    ("enough free storage", Case::Claim),
    ("node affinity/selector", Case::NodeAffinity),
    ("NodeAffinity", Case::NodeAffinity),
    ("anti-affinity rules", Case::PodAntiAffinity),
    ("pod affinity rules", Case::PodAffinity),
    ("topology spread constraints", Case::TopologySpread),
    ("free ports", Case::HostPort),
    ("ResourceClaim", Case::OtherResource),
];

impl<'t> SchedulerMessage<'t> {
    pub(super) fn parse(text: &'t str) -> Self {
        let text = text.split(" preemption: ").next().unwrap_or(text);
        let Some((head, reasons)) = text.split_once(" nodes are available: ") else {
            let clause = Clause { case: case_of(text), nodes: 0, text: text.trim_end_matches('.') };
            let clauses = if text.is_empty() { Vec::new() } else { vec![clause] };
            return Self { nodes: 0, clauses };
        };
        let nodes = head.rsplit('/').next().and_then(|number| number.trim().parse().ok()).unwrap_or(0);
        // What follows the first sentence is about plugins that did nothing: `no new claims to deallocate`.
        let reasons = reasons.split(". ").next().unwrap_or(reasons);
        let clauses = split(reasons.trim_end_matches(['.', ' '])).into_iter().map(|reason| {
            let (number, text) = match reason.split_once(' ') {
                Some((number, text)) => (number.parse().ok(), text),
                None => (None, reason),
            };
            // A reason without a number applies to the pod.
            let (count, text) = number.map_or((nodes, reason), |number| (number, text));
            Clause { case: case_of(text), nodes: count, text }
        });
        Self { nodes, clauses: clauses.collect() }
    }
}

impl Clause<'_> {
    /// The lower, the more probable. The scheduler names the first filter that a node fails, so the nodes of a later filter
    /// are those that nearly fit. `closed` says what closes the nodes that the pod selects.
    pub(super) fn rank(&self, closed: ClosedNodes) -> u8 {
        match self.case {
            Case::Claim => 0,
            Case::VolumeZone => 1,
            Case::PodAffinity | Case::PodAntiAffinity | Case::TopologySpread => 2,
            Case::Cpu | Case::Memory | Case::OtherResource | Case::PodsPerNode => 3,
            Case::HostPort => 4,
            Case::Taint if closed.by_taint => 5,
            Case::Cordoned if closed.by_cordon => 5,
            Case::NodeAffinity => 6,
            Case::Taint => 7,
            Case::Cordoned => 8,
            _ => 9,
        }
    }
}

/// Splits at commas outside braces: a taint is shown as `{key: value}`.
fn split(reasons: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, letter) in reasons.char_indices() {
        match letter {
            '{' | '(' => depth += 1,
            '}' | ')' => depth -= 1,
            ',' if depth <= 0 => {
                parts.push(reasons[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(reasons[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn case_of(text: &str) -> Case {
    TEXTS.iter().find(|(part, _)| text.contains(part)).map_or(Case::Unschedulable, |(_, case)| *case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_with_their_numbers() {
        let text = "0/6 nodes are available: 1 Insufficient cpu, 1 Too many pods, 2 node(s) had untolerated taint \
                    {a: b, c}, 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/6 nodes are \
                    available: 6 Preemption is not helpful for scheduling.";
        let message = SchedulerMessage::parse(text);
        let found: Vec<_> = message.clauses.iter().map(|clause| (clause.case, clause.nodes)).collect();
        assert_eq!(message.nodes, 6);
        assert_eq!(
            found,
            [(Case::Cpu, 1), (Case::PodsPerNode, 1), (Case::Taint, 2), (Case::NodeAffinity, 2)]
        );
    }

    #[test]
    fn what_plugins_add_is_left_out() {
        let text = "0/1 nodes are available: 1 Insufficient example.com/gpu. no new claims to deallocate, preemption: 0/1 nodes";
        let message = SchedulerMessage::parse(text);
        assert_eq!(message.clauses.len(), 1);
        assert_eq!(message.clauses[0].text, "Insufficient example.com/gpu");
    }

    #[test]
    fn a_reason_of_the_pod_has_no_number() {
        let text = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
        let message = SchedulerMessage::parse(text);
        assert_eq!((message.clauses[0].case, message.clauses[0].nodes), (Case::Claim, 3));
        let plain = SchedulerMessage::parse("persistentvolumeclaim \"data\" not found");
        assert_eq!((plain.clauses[0].case, plain.nodes), (Case::Claim, 0));
        assert_eq!(SchedulerMessage::parse("something new").clauses[0].case, Case::Unschedulable);
        assert!(SchedulerMessage::parse("").clauses.is_empty());
    }
}
