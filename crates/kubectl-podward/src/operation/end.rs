//! The end of an operation: its labels change, so that Podward finishes or undoes it.

use std::cell::OnceCell;

use anyhow::{Result, ensure};
use podward_core::{Operation, Operations};
use serde_json::{Value, json};

use super::begun::Begun;
use super::pod_client::PodClient;

impl PodClient {
    /// Writes the labels that `change` returns for the live operation `id`: `Some(None)` if the labels are as they should be,
    /// and `None` if the operation cannot be ended.
    ///
    /// The operation has to be `begun`, or else the one that is seen first: what begins while the request is repeated
    /// belongs to somebody else.
    ///
    /// # Errors
    /// When the pod cannot be read or written, or has no such operation.
    pub(crate) async fn end(
        &self,
        id: &str,
        begun: Option<&Begun>,
        change: impl Fn(&Operations<'_>, &Operation<'_>) -> Option<Option<Value>>,
    ) -> Result<()> {
        let seen = OnceCell::new();
        self.write(|found, unsure| {
            let begun = begun.unwrap_or_else(|| seen.get_or_init(|| Begun::of(found, id)));
            begun.is_on(found, &self.full_name())?;
            let operations = Operations::parse(found.view().labels);
            let live = operations.get(id).filter(|operation| operation.is_live());
            let Some(labels) = live.and_then(|operation| change(&operations, operation)) else {
                // The write whose answer is missing has ended it.
                ensure!(unsure, "pod {} has no operation {id}", self.full_name());
                return Ok(None);
            };
            Ok(labels.map(|labels| json!({"labels": labels})))
        })
        .await
        .map(drop)
    }
}
