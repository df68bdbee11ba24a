//! The load client as a pod. Requests to it go through the API server.

use anyhow::{Context, Result};
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use podward_images::DemoImages;

/// The namespace of the pod. It is not opted in.
const NAMESPACE: &str = "default";
const PORT: u16 = 8090;

/// The pod.
#[derive(Debug)]
pub(super) struct ClientPod {
    api: Api<Pod>,
    name: String,
}

impl ClientPod {
    pub(super) async fn start(client: &Client, image: &str, mut args: Vec<String>) -> Result<Self> {
        args.extend(["--control".to_owned(), format!("0.0.0.0:{PORT}")]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"generateName": "podward-demo-client-"},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "client",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": [DemoImages::CLIENT],
                    "args": args,
                    // Its CPU request prevents pauses of the client, which would count as pauses of the Service.
                    "resources": {"requests": {"cpu": "200m"}},
                }],
            },
        }))?;
        let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let made =
            api.create(&PostParams::default(), &pod).await.context("make the pod of the load client")?;
        let name = made.name_any();
        Ok(Self { api, name })
    }

    /// Returns the response of the control port to `path`.
    pub(super) async fn ask(&self, path: &str) -> Result<String> {
        let url = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:{PORT}/proxy{path}", self.name);
        let request = Request::get(&url).body(Vec::new()).context("describe a request")?;
        self.api
            .clone()
            .into_client()
            .request_text(request)
            .await
            .with_context(|| format!("ask {}", self.describe()))
    }

    pub(super) async fn remove(&self) -> Result<()> {
        let removed = self.api.delete(&self.name, &DeleteParams::default()).await;
        removed.map(drop).with_context(|| format!("delete {}", self.describe()))
    }

    pub(super) fn describe(&self) -> String {
        format!("pod {NAMESPACE}/{}", self.name)
    }
}
