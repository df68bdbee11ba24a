//! `scatterStrategy`: pods with a label are spread over the order of an update.

use super::pod::SetPod;

/// Spreads the pods that have one of the labels evenly over the order. Otherwise the order stays.
pub(super) fn scatter<'a>(
    mut order: Vec<(usize, &'a SetPod)>,
    labels: &[(String, String)],
) -> Vec<(usize, &'a SetPod)> {
    for (key, value) in labels {
        let total = order.len();
        let (matching, others): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|(_, pod)| pod.labels.get(key) == Some(value));
        let (count, mut placed) = (matching.len(), 0);
        let (mut matching, mut others) = (matching.into_iter(), others.into_iter());
        // The pod number n of those that match is in the middle of the n-th of equal parts.
        let place = |index: usize| (2 * index + 1) * total / (2 * count.max(1));
        order = (0..total)
            .filter_map(|position| {
                if placed < count && place(placed) <= position {
                    placed += 1;
                    matching.next()
                } else {
                    others.next().or_else(|| matching.next())
                }
            })
            .collect();
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::plan::tests::pod;
    use super::*;

    #[test]
    fn pods_with_a_label_are_spread() {
        let pods: Vec<SetPod> = "aaabbbbbb"
            .chars()
            .enumerate()
            .map(|(index, zone)| SetPod {
                labels: BTreeMap::from([("zone".to_owned(), zone.to_string())]),
                ..pod(&format!("{zone}{index}"))
            })
            .collect();
        let order = |labels: &[(&str, &str)]| -> String {
            let labels: Vec<_> =
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let found = scatter(pods.iter().enumerate().collect(), &labels);
            found.iter().filter_map(|(_, pod)| pod.name.chars().next()).collect()
        };
        assert_eq!(order(&[]), "aaabbbbbb");
        assert_eq!(order(&[("zone", "a")]), "babbabbab");
        assert_eq!(order(&[("zone", "c")]), "aaabbbbbb", "no pod has it");
        assert_eq!(order(&[("zone", "a"), ("zone", "b")]).len(), 9);
        assert_eq!(scatter(Vec::new(), &[("zone".to_owned(), "a".to_owned())]).len(), 0);
    }
}
