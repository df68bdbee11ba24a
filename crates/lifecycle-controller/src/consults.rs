//! Who asks hooks, and knows what they have answered.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::reflector::ObjectRef;
use podward_core::hooks::{Answers, Hook, HookSet, NoAnswers, Question};

use crate::cached_pod::CachedPod;

/// The hooks of the cluster, their questions and answers.
pub(crate) trait Consults: Send + Sync {
    /// The hooks that match `pod`, or `None` until all hooks and namespaces are known: nothing may be decided before that.
    fn hooks_for(&self, pod: &CachedPod) -> Option<Vec<Arc<Hook>>>;
    /// All hooks.
    fn known(&self) -> Arc<HookSet>;
    /// What is known of the answers about the pod with this UID.
    fn answers(&self, uid: &str) -> Box<dyn Answers + '_>;
    /// Puts these questions about `pod`, and no others: whoever is asked another one is told that it isn't open any more. Cheap when
    /// nothing has changed.
    fn ask(&self, pod: &Arc<CachedPod>, questions: &[Question]);
    /// The pod is gone.
    fn forget(&self, uid: &str);
    /// Pods about which an answer has come, or whose hooks have changed.
    fn pods_to_look_at(&self) -> BoxStream<'static, ObjectRef<CachedPod>>;
}

/// There are no hooks.
#[derive(Debug, Default)]
pub(crate) struct NoHooks {
    none: Arc<HookSet>,
}

impl Consults for NoHooks {
    fn hooks_for(&self, _: &CachedPod) -> Option<Vec<Arc<Hook>>> {
        Some(Vec::new())
    }

    fn known(&self) -> Arc<HookSet> {
        self.none.clone()
    }

    fn answers(&self, _: &str) -> Box<dyn Answers + '_> {
        Box::new(NoAnswers)
    }

    fn ask(&self, _: &Arc<CachedPod>, _: &[Question]) {}

    fn forget(&self, _: &str) {}

    fn pods_to_look_at(&self) -> BoxStream<'static, ObjectRef<CachedPod>> {
        futures::stream::pending().boxed()
    }
}
