//! Whether the kubelet has replaced a container.
//!
//! There is no program on the node: the evidence is the container's status. An image with another id is a proof. Two
//! images can have the same id, and then the runtime may report either name for both; a container that has another id
//! than before, and runs, is the evidence that is left. It is wrong for a moment if the old container crashed just
//! before the kubelet saw the change.

use jiff::Timestamp;

use super::image_name;
use super::update_state::{LastStatus, UpdateState};
use crate::pod::{ContainerStatus, Pod};

/// Returns true if the container was replaced since the state was written.
pub(super) fn is_replaced(pod: &Pod, state: &UpdateState, name: &str, last: &LastStatus) -> bool {
    let (Some(container), Some(status)) = (pod.container(name), pod.container_status(name)) else {
        return false;
    };
    let Some(id) = status.container_id.as_ref().filter(|id| !id.is_empty()) else { return false };
    let image = container.image.as_deref().unwrap_or_default();
    let has_other_image = !status.image_id.is_empty() && status.image_id != last.image_id;
    let has_name = image_name::runs(status, image);
    match &last.container_id {
        Some(last_id) => id != last_id && (has_other_image || has_name || started(status).is_some()),
        None if last.image.as_deref() == Some(image) && status.image_id == last.image_id => true,
        None => {
            // OpenKruise has written the state.
            let is_newer =
                matches!((started(status), state.update_timestamp), (Some(it), Some(begin)) if it >= begin);
            has_name || is_newer || (has_other_image && last.image.is_none())
        }
    }
}

/// Returns when the container started, if it runs.
fn started(status: &ContainerStatus) -> Option<Timestamp> {
    let time = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?;
    Some(time.0)
}
