//! The set that controls an object.

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use podward_api::CloneSet;

/// What an object says of the set that controls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl SetReference {
    /// Returns the reference by which the controller knows the set.
    pub(crate) fn object(&self) -> ObjectRef<CloneSet> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

/// Returns the set that controls the object. `None` if it is controlled by something else, or by nothing.
pub(crate) fn set_of(object: &impl ResourceExt) -> Option<SetReference> {
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    let is_set = owner.kind == "CloneSet" && group == Some(&*<CloneSet as kube::Resource>::group(&()));
    is_set.then(|| SetReference {
        namespace: object.namespace().unwrap_or_default(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    })
}

/// Returns true if nothing controls the object.
pub(crate) fn is_orphan(object: &impl ResourceExt) -> bool {
    object.owner_references().iter().all(|owner| owner.controller != Some(true))
}
