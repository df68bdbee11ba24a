//! A running bed.

use std::{
    ffi::OsStr,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::Client;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::{
    builder::BedBuilder,
    client::Clients,
    components::{Component, Context, node},
    control::Control,
    error::{BedError, During},
    image::Image,
    kubeconfig,
    launch::{self, Owned},
    on_panic,
    pki::{self, Authority, CertificatePem},
    process::{Command, Process},
    protocol::Spawn,
    shape::Shape,
    start,
    state::{self, Layout, Live, Record},
    tools::Tools,
};

/// How many lines of a log an error shows.
pub(crate) const TAIL_LINES: usize = 20;

/// A Kubernetes cluster in namespaces of its own.
///
/// It ends with [`Bed::down`], when it is dropped, and when the process that started it ends, in whatever way; unless it
/// was started by [`Bed::up_detached`].
pub struct Bed {
    pub(crate) record: Record,
    pub(crate) live: Live,
    pub(crate) layout: Layout,
    pub(crate) tools: Tools,
    pub(crate) control: Control,
    pub(crate) keeper: Control,
    pub(crate) clients: Clients,
    kubeconfig: PathBuf,
    authority: Arc<Authority>,
    pub(crate) components: Mutex<Vec<(Process, Component)>>,
    pub(crate) owned: Mutex<Option<Owned>>,
}

/// A TCP connection made inside a bed.
pub type BedStream = UnixStream;

/// A port inside that leads out. It is closed when this is dropped, and connections with it.
#[derive(Debug)]
pub struct Exposed(UnixStream);

impl Exposed {
    /// Closes it, and waits until nobody listens there any more.
    pub async fn end(mut self) -> Result<(), BedError> {
        let end = async {
            self.0.shutdown().await?;
            self.0.read(&mut [0]).await
        };
        end.await.map(drop).during(|| "close a port of the bed".to_owned())
    }
}

impl Bed {
    /// Describes a bed to start.
    pub fn builder(shape: Shape) -> BedBuilder {
        BedBuilder::new(shape)
    }

    pub(crate) fn new(
        record: Record,
        live: Live,
        layout: Layout,
        authority: Authority,
        clients: Clients,
        owned: Option<Owned>,
    ) -> Self {
        let tools = Tools::at(record.tools.clone());
        let (control, keeper) = (Control::new(layout.control_socket()), Control::new(layout.keeper_socket()));
        let (authority, components, owned) = (Arc::new(authority), Mutex::default(), Mutex::new(owned));
        let kubeconfig = layout.dir.join("admin.kubeconfig");
        Self {
            record,
            live,
            layout,
            tools,
            control,
            keeper,
            clients,
            kubeconfig,
            authority,
            components,
            owned,
        }
    }

    /// The name that its builder gave it.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its name and some letters that tell it from every other bed.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// What it is made of.
    pub fn shape(&self) -> Shape {
        self.record.shape
    }

    /// A new client of the API server, from the host, as admin: without retries, timeouts and limits of its own. It belongs to
    /// the runtime in which this is called.
    pub fn client(&self) -> Client {
        self.clients.client()
    }

    /// The admin's kubeconfig, for programs on the host.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The admin's kubeconfig, for programs inside the bed's network.
    pub fn inner_kubeconfig(&self) -> PathBuf {
        self.layout.pki().join("admin.kubeconfig")
    }

    /// Where processes inside listen, as the API server sees them.
    pub fn node_ip(&self) -> IpAddr {
        self.record.node_ip
    }

    /// The API server, for processes inside.
    pub fn api_url(&self) -> String {
        format!("https://{}", self.record.api)
    }

    /// The certificate of the bed's CA.
    pub fn ca_pem(&self) -> &str {
        self.authority.cert_pem()
    }

    /// A certificate for a server inside, known by these DNS names and addresses, signed by the bed's CA.
    pub fn server_certificate(&self, names: &[&str]) -> Result<CertificatePem, BedError> {
        self.authority.server(names.first().unwrap_or(&"server"), names)
    }

    /// A certificate of `user` in `groups` (at most two), signed by the bed's CA; one that has expired, if it is to have.
    pub fn client_certificate(
        &self,
        user: &str,
        groups: &[&str],
        expired: bool,
    ) -> Result<CertificatePem, BedError> {
        match expired {
            false => self.authority.client(user, groups),
            true => self.authority.expired_client(user, groups),
        }
    }

    /// Writes a kubeconfig for a program inside that is `user` in `groups` (at most two) by a client certificate.
    pub fn client_kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf, BedError> {
        let file: String = user.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = format!("client-{file}");
        pki::store(&self.layout.pki(), &file, &self.authority.client(user, groups)?)?;
        let path = self.layout.dir.join(format!("{file}.kubeconfig"));
        kubeconfig::write(&self.layout.pki(), &path, &self.api_url(), &file)
    }

    /// The bed's folder, which goes with it.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// The folder with a log for each component and process.
    pub fn logs_dir(&self) -> &Path {
        &self.record.logs
    }

    /// The API server's log of writes, if it was asked for: a JSON event a line.
    pub fn audit_log(&self) -> Option<PathBuf> {
        Some(self.record.logs.join("audit.json")).filter(|path| path.exists())
    }

    /// The programs that it runs.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Leaves the logs behind when the bed ends.
    pub fn keep_logs(&self) {
        on_panic::keep_logs(&self.layout);
    }

    /// Makes an image known to the node.
    pub async fn import_image(&self, image: &Image) -> Result<(), BedError> {
        if self.record.shape != Shape::Node {
            let message =
                format!("a bed of shape {} has no node that could take an image", self.record.shape);
            return Err(BedError::Unsupported(message));
        }
        let archive = tempfile::Builder::new().prefix("image-").suffix(".tar").tempfile_in(&self.layout.dir);
        let archive = archive.during(|| "make a file for an image".to_owned())?.into_temp_path();
        image.write(&archive)?;
        self.spawn_to_its_end(node::import(self.context(), &archive)).await
    }

    /// Sends the first process of a container a signal by its number, as SIGKILL for what a crash does: the kubelet has to find out.
    /// `container` is its id in containerd.
    pub async fn signal_container(&self, container: &str, signal: i32) -> Result<(), BedError> {
        self.spawn_to_its_end(node::signal(self.context(), container, signal)).await
    }

    async fn spawn_to_its_end(&self, command: Command) -> Result<(), BedError> {
        let process = self.spawn(command).await?;
        let exit = process.wait().await?;
        if exit.success() { Ok(()) } else { Err(died(&process, exit)) }
    }

    /// Starts a program inside; it ends with the bed.
    pub async fn spawn(&self, command: Command) -> Result<Process, BedError> {
        let Command { name, program, args, env, cwd } = command;
        let log = self.record.logs.join(format!("{name}.log"));
        let path = self.tools.bin_path_env().to_string_lossy().into_owned();
        let spawn = Spawn {
            argv: std::iter::once(program.display().to_string()).chain(args).collect(),
            env: std::iter::once(("PATH".to_owned(), path)).chain(env).collect(),
            cwd: cwd.unwrap_or_else(|| self.layout.dir.clone()),
            log: log.clone(),
        };
        let pid = self.control.spawn(spawn).await?;
        Ok(Process { name, pid, log, control: self.control.clone() })
    }

    /// A component that this process has started, such as `kube-proxy`.
    pub fn component(&self, name: &str) -> Option<Process> {
        self.running(name).map(|(process, _)| process)
    }

    fn running(&self, name: &str) -> Option<(Process, Component)> {
        self.components.lock().iter().find(|(process, _)| process.name == name).cloned()
    }

    /// Starts a component again that has been ended, and waits until it works.
    pub async fn start_again(&self, name: &str) -> Result<Process, BedError> {
        let unknown = || BedError::Name(format!("this process has started no component {name:?}"));
        let (_, component) = self.running(name).ok_or_else(unknown)?;
        start::again(self, component).await
    }

    /// Opens a TCP connection inside.
    pub async fn connect(&self, to: SocketAddr) -> Result<BedStream, BedError> {
        self.control.connect(to).await
    }

    /// Listens at `at` inside and relays every connection to the Unix socket `to`, so that a server of this process can be reached
    /// from there.
    pub async fn expose(&self, at: SocketAddr, to: PathBuf) -> Result<Exposed, BedError> {
        Ok(Exposed(self.control.expose(at, to).await?))
    }

    /// Opens a loopback port of the host whose connections lead to `to` inside, for as long as the bed lives.
    pub async fn forward(&self, to: SocketAddr) -> Result<SocketAddr, BedError> {
        self.keeper.forward(to).await
    }

    /// A command that runs in the bed's network with the host's files and processes, and with `KUBECONFIG` and `PATH` set for
    /// kubectl and helm.
    pub fn exec_command(&self, argv: impl IntoIterator<Item = impl AsRef<OsStr>>) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command.arg("-t").arg(self.live.init_pid.to_string());
        if self.record.user_namespace {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.args(["-n", "--"]).args(argv);
        command.env("KUBECONFIG", self.inner_kubeconfig()).env("PATH", self.tools.bin_path_env());
        command
    }

    /// Ends the bed and waits until processes, namespaces, mounts, cgroups and files are gone.
    pub async fn down(&self) -> Result<(), BedError> {
        let owned = self.owned.lock().take();
        let layout = self.layout.clone();
        on_panic::forget(&layout);
        if owned.is_none() && layout.lives() {
            self.keeper.stop().await?;
        }
        blocking(move || match owned {
            Some(owned) => owned.end(&layout),
            None => launch::wait_gone(&layout),
        })
        .await
    }

    /// The bed of that name or id, started by another process.
    pub async fn attach(name: &str) -> Result<Bed, BedError> {
        let mut beds = Bed::list()?.into_iter().filter(|bed| bed.name == name || bed.id == name);
        let bed = beds.next_back().ok_or_else(|| BedError::Name(format!("no bed called {name:?} runs")))?;
        let layout = Layout::new(bed.dir);
        let record = layout.read()?;
        let live = record.live.ok_or_else(|| BedError::Name(format!("bed {name:?} is still starting")))?;
        let authority = Authority::load(&layout.pki(), pki::name::CA)?;
        let clients = Clients::from_kubeconfig(&layout.dir.join("admin.kubeconfig")).await?;
        Ok(Bed::new(record, live, layout, authority, clients, None))
    }

    /// The beds of this user that run, by name.
    pub fn list() -> Result<Vec<BedInfo>, BedError> {
        let mut beds: Vec<BedInfo> = state::beds(&state::base()?)
            .into_iter()
            .filter(Layout::lives)
            .filter_map(|layout| Some((layout.read().ok()?, layout.dir)))
            .map(|(record, dir)| BedInfo {
                id: record.id,
                name: record.name,
                shape: record.shape,
                detached: record.detached,
                dir,
            })
            .collect();
        beds.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Ok(beds)
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { record: &self.record, tools: &self.tools, dir: &self.layout.dir }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.lock().take() {
            if std::thread::panicking() {
                self.keep_logs();
            }
            on_panic::forget(&self.layout);
            owned.let_go();
        }
    }
}

/// What can be told of a bed without attaching to it.
#[derive(Clone, Debug)]
pub struct BedInfo {
    /// The bed's unique id.
    pub id: String,
    /// The name that its builder gave it.
    pub name: String,
    /// What it is made of.
    pub shape: Shape,
    /// Whether it goes on when the process that started it ends.
    pub detached: bool,
    /// Its folder.
    pub dir: PathBuf,
}

pub(crate) fn died(process: &Process, exit: crate::process::Exit) -> BedError {
    BedError::Died {
        name: process.name.clone(),
        exit,
        log: process.log.clone(),
        tail: process.log_tail(TAIL_LINES),
    }
}

/// Runs what blocks where it may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BedError> + Send + 'static,
) -> Result<T, BedError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(BedError::Io { what: "run a blocking step".to_owned(), source: error.into() })
    })
}
