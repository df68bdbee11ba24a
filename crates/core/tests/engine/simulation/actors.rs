//! The others who write: operators, users, the kubelet, a traffic loop.

use podward_core::ConditionStatus;
use podward_core::deletion::hold::NodeState;
use podward_core::keys::{
    CONTROL_LABEL, CONTROL_VALUE, PREPARING_TO_DELETE, STAY_OFFLINE, Stage, TO_DELETE, permission_key,
};

use super::controller::What;
use super::deletion::label_requester;
use super::server::{NODE_LIMIT, Precondition};
use super::steps::IDS;
use super::world::World;
use crate::model::{CONSUMER, whole_seconds};

impl World {
    /// As the client library of the reference: refused while another id has the type.
    pub(crate) fn begin(&mut self, name: &str, id: &str, of_type: &str) {
        let now = self.now().to_string();
        let Some(pod) = self.server.get(name) else { return };
        let is_taken = IDS.iter().filter(|other| **other != id).any(|other| {
            pod.pod.labels.get(&Stage::OperationType.key(other)).is_some_and(|value| value == of_type)
        });
        if is_taken || pod.pod.terminating {
            return;
        }
        self.change("operator", name, |object| {
            object.pod.labels.entry(Stage::Operating.key(id)).or_insert(now);
            object.pod.labels.insert(Stage::OperationType.key(id), of_type.to_owned());
        });
    }

    pub(crate) fn finish(&mut self, name: &str, id: &str, both: bool) {
        self.change("operator", name, |object| {
            let was_begun = object.pod.labels.remove(&Stage::Operating.key(id)).is_some();
            if both && was_begun {
                object.pod.labels.remove(&Stage::OperationType.key(id));
            }
        });
    }

    pub(crate) fn undo(&mut self, name: &str, id: &str) {
        self.change("operator", name, |object| {
            let labels = &mut object.pod.labels;
            if let Some(of_type) = labels.get(&Stage::OperationType.key(id)).cloned() {
                labels.insert(Stage::UndoOperationType.key(id), of_type);
            }
        });
    }

    pub(crate) fn label_for_deletion(&mut self, name: &str) {
        let now = self.now().to_string();
        let Some(pod) = self.server.get(name) else { return };
        let uid = pod.uid.clone();
        self.properties.asked_for(&label_requester(&uid), &uid);
        self.change("user", name, |object| {
            object.pod.labels.entry(TO_DELETE.to_owned()).or_insert(now);
        });
    }

    /// Opts a pod out, writes the labels of an operation with its permission, and opts the pod in. Updates fail open,
    /// so a webhook has to be up.
    pub(crate) fn forge(&mut self, name: &str, id: &str) {
        if !self.server.replicas.iter().any(|replica| replica.is_up) {
            return;
        }
        let now = self.now().to_string();
        self.change("mallory", name, |object| drop(object.pod.labels.remove(CONTROL_LABEL)));
        self.change("mallory", name, |object| {
            let labels = &mut object.pod.labels;
            let of_type = labels.entry(Stage::OperationType.key(id)).or_insert_with(|| "update".to_owned());
            let forged = [permission_key(of_type), PREPARING_TO_DELETE.to_owned()];
            let stages = [Stage::Operating, Stage::PreChecked, Stage::Operate].map(|stage| stage.key(id));
            for key in forged.into_iter().chain(stages) {
                labels.entry(key).or_insert_with(|| now.clone());
            }
        });
        self.change("mallory", name, |object| {
            object.pod.labels.insert(CONTROL_LABEL.to_owned(), CONTROL_VALUE.to_owned());
        });
    }

    pub(crate) fn stay_offline(&mut self, name: &str, stays: bool) {
        self.change("user", name, |object| {
            let labels = &mut object.pod.labels;
            if stays {
                labels.insert(STAY_OFFLINE.to_owned(), "1".to_owned());
            } else {
                labels.remove(STAY_OFFLINE);
            }
        });
    }

    /// The kubelet's status write, or what it does to end a pod.
    pub(crate) fn kubelet(&mut self, name: &str) {
        let Some(pod) = self.server.get(name).cloned() else { return };
        if self.server.node.lost_in(NODE_LIMIT, self.now()).is_some() || pod.is_stopped {
            return;
        }
        if pod.pod.terminating && !pod.pod.ready && !pod.pod.containers_ready {
            self.server.stop(&pod);
            return;
        }
        let is_on = !pod.pod.has_gate || pod.pod.gate == Some(ConditionStatus::True);
        let ready = is_on && pod.pod.containers_ready && !pod.pod.terminating;
        let now = Some(whole_seconds(self.now()));
        self.change("system:node:n1", name, |object| {
            if object.pod.ready != ready {
                (object.pod.ready, object.pod.times.ready) = (ready, now);
            }
            object.pod.containers_ready &= !object.pod.terminating;
        });
    }

    pub(crate) fn end_of_deletion(&mut self, name: &str) {
        for _ in 0..2 {
            if self.server.get(name).is_some_and(|pod| pod.pod.terminating) {
                self.kubelet(name);
            }
        }
    }

    /// The node stops being Ready, or is Ready again. A node takes longer for that than a delete that was decided
    /// because
    /// it was lost.
    pub(crate) fn node(&mut self, is_ready: bool) {
        let now = self.now();
        self.server.node = match self.server.node {
            NodeState::NotReadySince(since) if !is_ready => NodeState::NotReadySince(since),
            _ if !is_ready => NodeState::NotReadySince(now),
            _ => NodeState::Ready,
        };
        if is_ready {
            for controller in &mut self.controllers {
                controller.in_flight.retain(|request| !matches!(request.what, What::Delete(_)));
            }
        }
    }

    pub(crate) fn containers(&mut self, name: &str, are_ready: bool) {
        let now = Some(whole_seconds(self.now()));
        self.change("system:node:n1", name, |object| {
            let pod = &mut object.pod;
            if pod.containers_ready != are_ready && !pod.finished && !pod.terminating {
                (pod.containers_ready, pod.times.containers_ready) = (are_ready, now);
            }
        });
    }

    /// All containers end for good.
    pub(crate) fn end(&mut self, name: &str) {
        self.change("system:node:n1", name, |object| {
            let pod = &mut object.pod;
            (pod.finished, pod.ready, pod.containers_ready) = (true, false, false);
        });
    }

    /// The recipe of a traffic controller, on what it has seen. If it does not name the version that it has seen, it
    /// adds its finalizer to a pod that may have left service since.
    pub(crate) fn move_traffic(&mut self, name: &str, names_version: bool) {
        let Some(seen) = self.traffic.get(name).filter(|_| self.setup.has_traffic).cloned() else { return };
        let is_on = seen.pod.ready && seen.pod.gate != Some(ConditionStatus::False) && !seen.pod.terminating;
        let mut precondition = Precondition::exactly(&seen);
        if !is_on || !names_version {
            precondition.version = None;
        }
        // The API server refuses new finalizers of a pod that is being deleted.
        let _ = self.server.patch("traffic", name, &precondition, |object| {
            let is_held = object.pod.finalizers.iter().any(|finalizer| finalizer == CONSUMER);
            if !is_on {
                object.pod.finalizers.retain(|finalizer| finalizer != CONSUMER);
            } else if !is_held && !object.pod.terminating {
                object.pod.finalizers.push(CONSUMER.to_owned());
            }
        });
    }
}
