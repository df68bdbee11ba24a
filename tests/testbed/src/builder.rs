//! Describes a bed, and starts it.

use std::path::PathBuf;

use crate::{
    bed::{Bed, blocking},
    client::Clients,
    components::{API, NODE_IP, SERVICE_IP},
    error::BedError,
    image::Image,
    kubeconfig, launch, on_panic,
    pki::{self, Authority, name},
    proxy_mode::ProxyMode,
    shape::Shape,
    start,
    state::{Layout, Live, Record, base},
    tools::{Part, Progress, Tools, ToolsError, preflight},
};

/// Describes a bed to start. Made by [`Bed::builder`].
#[derive(Clone)]
#[must_use]
pub struct BedBuilder {
    pub(crate) shape: Shape,
    name: String,
    tools: Option<Tools>,
    pub(crate) images: Vec<Image>,
    pub(crate) audit_log: bool,
    pub(crate) simulated_nodes: usize,
    pub(crate) dns: bool,
    pub(crate) proxy_mode: ProxyMode,
    detached: bool,
}

impl BedBuilder {
    pub(crate) fn new(shape: Shape) -> Self {
        let (name, images) = ("bed".to_owned(), Vec::new());
        let (simulated_nodes, proxy_mode) = (3, ProxyMode::default());
        let (tools, audit_log, dns, detached) = (None, false, false, false);
        Self { shape, name, tools, images, audit_log, simulated_nodes, dns, proxy_mode, detached }
    }

    /// A name for people; beds of the same name get ids that differ. Lower-case letters, digits and dashes, at most 20.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The programs to run, instead of those of the cache, which are built if they are missing.
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools = Some(tools);
        self
    }

    /// An image that the node has from the start.
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// Whether the API server logs all writes, and what the service accounts of namespace `podward-system` read; see
    /// [`Bed::audit_log`].
    pub fn audit_log(mut self, on: bool) -> Self {
        self.audit_log = on;
        self
    }

    /// How many nodes a bed of shape [`Shape::Simulated`] has, each with room for 1,000 pods; 3 if not said.
    pub fn simulated_nodes(mut self, count: usize) -> Self {
        self.simulated_nodes = count;
        self
    }

    /// Whether pods find Services by name, as in real clusters: CoreDNS runs in namespace `kube-system` behind the Service
    /// `kube-dns`, and names outside of the cluster don't exist (NXDOMAIN). Off if not said, since the start takes one or two seconds
    /// more: it waits until a name is found. For a bed of shape [`Shape::Node`] only.
    pub fn dns(mut self, on: bool) -> Self {
        self.dns = on;
        self
    }

    /// How kube-proxy leads traffic on a bed of shape [`Shape::Node`]; by iptables, as Kubernetes does by default, if not said.
    pub fn proxy_mode(mut self, mode: ProxyMode) -> Self {
        self.proxy_mode = mode;
        self
    }

    /// Starts the bed and waits until it can be used: components healthy, nodes Ready, the service account of namespace
    /// `default` there, the cluster's DNS answering if there is to be one.
    pub async fn start(self) -> Result<Bed, BedError> {
        self.check_name()?;
        self.check_dns()?;
        let tools = match self.tools.clone() {
            Some(tools) => tools,
            None => self.ensure_tools().await?,
        };
        self.check_rights()?;
        let builder = self.clone();
        let prepared = blocking(move || builder.prepare(&tools)).await?;
        let Prepared { record, layout, live, owned, authority } = prepared;
        let mut guard = Guard { layout: layout.clone(), owned: Some(owned) };
        let host = layout.dir.join("admin.kubeconfig");
        kubeconfig::write(&layout.pki(), &host, &format!("https://{}", live.host_api), name::ADMIN)?;
        let clients = Clients::from_kubeconfig(&host).await?;
        let bed = Bed::new(record, live, layout, authority, clients, guard.owned.take());
        on_panic::remember(&bed.layout, bed.record.logs.clone());
        if let Err(error) = start::components(&bed, &self).await {
            bed.keep_logs();
            return Err(error);
        }
        Ok(bed)
    }

    /// Says everything that the machine lacks before anything is built.
    async fn ensure_tools(&self) -> Result<Tools, BedError> {
        let node = self.shape == Shape::Node;
        let mut parts = self.shape.parts().to_vec();
        parts.extend(self.dns.then_some(Part::Dns));
        let looked_for = parts.clone();
        let missing = blocking(move || Ok(preflight(&looked_for, node))).await?;
        if !missing.is_empty() {
            return Err(ToolsError::Missing(missing).into());
        }
        Ok(Tools::ensure(&parts, &Progress::stderr()).await?)
    }

    fn check_dns(&self) -> Result<(), BedError> {
        if self.dns && self.shape != Shape::Node {
            let message = format!("a bed of shape {} runs no pods, and so no DNS", self.shape);
            return Err(BedError::Unsupported(message));
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), BedError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 20 || !self.name.chars().all(plain) {
            let message = format!("a bed can't be called {:?}: use a-z, 0-9 and -, at most 20", self.name);
            return Err(BedError::Name(message));
        }
        Ok(())
    }

    fn check_rights(&self) -> Result<(), BedError> {
        if self.shape == Shape::Node && !nix::unistd::geteuid().is_root() {
            let message =
                "a bed of shape node needs root, for cgroups and mounts; control-plane and simulated don't";
            return Err(BedError::Unsupported(message.to_owned()));
        }
        Ok(())
    }

    fn prepare(&self, tools: &Tools) -> Result<Prepared, BedError> {
        let base = base()?;
        let (layout, logs) = launch::make_folders(&base, &self.name)?;
        let id = layout.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record = Record {
            id,
            name: self.name.clone(),
            shape: self.shape,
            detached: self.detached,
            user_namespace: !nix::unistd::geteuid().is_root(),
            node_ip: NODE_IP,
            api: API,
            tools: tools.dir().to_owned(),
            logs: logs.clone(),
            live: None,
        };
        let started = write_pki(&layout).and_then(|authority| {
            let (owned, live) = launch::launch(&base, &layout, &record)?;
            Ok((authority, owned, live))
        });
        match started {
            Ok((authority, owned, live)) => Ok(Prepared { record, layout, live, owned, authority }),
            Err(error) => {
                // Whatever the keeper got as far as making, it has removed; what it never saw is left to us.
                let _ = std::fs::remove_dir_all(&layout.dir);
                let _ = std::fs::remove_dir(&logs);
                Err(error)
            }
        }
    }
}

impl Bed {
    /// Starts a bed that goes on when this process ends, until `Bed::attach(name)` and [`Bed::down`]. Names of detached beds
    /// are unique.
    pub async fn up_detached(builder: BedBuilder) -> Result<Bed, BedError> {
        if let Some(bed) = Bed::list()?.into_iter().find(|bed| bed.detached && bed.name == builder.name) {
            return Err(BedError::Name(format!(
                "a bed called {:?} runs already, in {}",
                bed.name,
                bed.dir.display()
            )));
        }
        let bed = BedBuilder { detached: true, ..builder }.start().await?;
        bed.keeper.detach().await?;
        on_panic::forget(&bed.layout);
        if let Some(owned) = bed.owned.lock().take() {
            owned.detach();
        }
        Ok(bed)
    }
}

struct Prepared {
    record: Record,
    layout: Layout,
    live: Live,
    owned: launch::Owned,
    authority: Authority,
}

/// Ends the bed if starting it fails before there is a [`Bed`].
struct Guard {
    layout: Layout,
    owned: Option<launch::Owned>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            on_panic::keep_logs(&self.layout);
            owned.let_go();
        }
    }
}

/// Certificates of all components, and the kubeconfigs of those inside.
fn write_pki(layout: &Layout) -> Result<Authority, BedError> {
    let dir: PathBuf = layout.pki();
    let authority = pki::create(&dir, NODE_IP, SERVICE_IP)?;
    let users = [name::ADMIN, name::CONTROLLER_MANAGER, name::SCHEDULER, name::PROXY, name::NODE, name::KWOK];
    for user in users {
        kubeconfig::write(&dir, &dir.join(format!("{user}.kubeconfig")), &format!("https://{API}"), user)?;
    }
    Ok(authority)
}
