//! The gRPC server.

use anyhow::{Context, Result};
use podward_proto::v1::hook_handler_server::HookHandlerServer;
use tokio::{
    fs,
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Mutex,
};
use tonic::transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming};

use crate::{args::Args, balancer::Balancer, caller::Caller, handler::Handler, registration::register};

/// Serves until SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let read = async |path| fs::read(path).await.with_context(|| format!("read {path:?}"));
    let identity = Identity::from_pem(read(&args.tls_cert).await?, read(&args.tls_key).await?);
    let caller = match &args.caller {
        Some(user) => Some(Caller {
            client: kube::Client::try_default().await.context("connect to the API server")?,
            user: user.clone(),
            audience: format!("podward.io/hooks/{}", args.hook_name),
            known: Mutex::default(),
        }),
        None => None,
    };
    let balancer = Balancer::new(args.backends.clone(), args.report.clone());
    let handler = HookHandlerServer::new(Handler { balancer, caller });
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<HookHandlerServer<Handler>>().await;

    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let listener = TcpListener::bind(args.bind).await.with_context(|| format!("bind {}", args.bind))?;
    let address = listener.local_addr().context("read the address of the listener")?;
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .context("use the certificate")?
        .add_service(health_service)
        .add_service(handler)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), async move {
            terminate.recv().await;
        });
    println!("serving at {address}");
    // Register while serving, because Podward checks that the endpoint answers. The hook stays registered when this
    // process ends, because it restarts, or another replica answers.
    let registered = async {
        if args.podward.is_some() {
            register(&args).await?;
        }
        std::future::pending::<Result<()>>().await
    };
    tokio::select! {
        ended = server => ended.context("serve"),
        failed = registered => failed,
    }
}
