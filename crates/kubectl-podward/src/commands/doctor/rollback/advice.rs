//! How to go on when a rollback is refused.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;

use super::super::finding::Finding;

/// The annotation of objects that Helm does not delete.
const POLICY: &str = "helm.sh/resource-policy";

/// Returns true if Helm does not delete the definition when the chart does not contain it any more.
pub(super) fn is_kept(definition: &CustomResourceDefinition) -> bool {
    definition.annotations().get(POLICY).is_some_and(|policy| policy == "keep")
}

/// Returns the next steps. `not_kept` are the definitions that Helm would delete.
pub(super) fn advice(namespace: &str, not_kept: &[String]) -> Vec<Finding> {
    // While the last revision is pending, Helm refuses upgrades, and a rollback compares with objects that do not exist.
    let mut steps = vec![Finding::note(format!(
        "first remove Helm's record of a refused rollback: \
         kubectl -n {namespace} delete secret -l owner=helm,status=pending-rollback"
    ))];
    let keep =
        "to keep the newer definitions: helm upgrade with the older chart and --set crds.install=false";
    if not_kept.is_empty() {
        steps.push(Finding::note(keep));
    } else {
        // Otherwise all objects would be deleted with them.
        steps.push(Finding::note(format!(
            "{keep}, but first prevent that Helm deletes them: kubectl annotate crd {} {POLICY}=keep",
            not_kept.join(" ")
        )));
    }
    steps.push(Finding::note(
        "to go back all the same, and lose what is named above: helm rollback with --no-hooks",
    ));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_that_helm_would_delete_are_named() {
        let mut definition = podward_api::crds().remove(0);
        assert!(!is_kept(&definition));
        definition.annotations_mut().insert(POLICY.to_owned(), "keep".to_owned());
        assert!(is_kept(&definition));
        let steps = |not_kept: &[String]| -> Vec<String> {
            advice("ours", not_kept).into_iter().map(|finding| finding.what).collect()
        };
        let kept = steps(&[]);
        assert!(kept[0].contains("kubectl -n ours delete secret"), "{kept:?}");
        assert!(kept[1].ends_with("--set crds.install=false"), "{kept:?}");
        let not_kept = steps(&["a.example.com".to_owned(), "b.example.com".to_owned()]);
        let annotate = "kubectl annotate crd a.example.com b.example.com helm.sh/resource-policy=keep";
        assert!(not_kept[1].ends_with(annotate), "{not_kept:?}");
    }
}
