//! The queue over HTTP.
//!
//! | request | does |
//! |---|---|
//! | `GET /` | returns the state of all tasks as JSON |
//! | `GET /waiting` | returns the number of waiting tasks |
//! | `POST /tasks/<count>` | adds tasks |
//! | `POST /take/<worker>` | takes a task and returns its number, or 204 if none waits |
//! | `POST /done/<task>/<worker>` | completes the task |
//! | `POST /back/<task>/<worker>` | puts the task back |

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::queue::Queue;

type Shared = State<Arc<Mutex<Queue>>>;

/// Serves until SIGTERM.
pub(crate) async fn serve(bind: SocketAddr) -> Result<()> {
    let mut stop = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let routes = Router::new()
        .route("/", get(account))
        .route("/waiting", get(waiting))
        .route("/tasks/{count}", post(add))
        .route("/take/{worker}", post(take))
        .route("/done/{task}/{worker}", post(done))
        .route("/back/{task}/{worker}", post(back))
        .with_state(Arc::default());
    let listener = TcpListener::bind(bind).await.with_context(|| format!("bind {bind}"))?;
    println!("queue at {bind}");
    let stopped = async move {
        stop.recv().await;
    };
    axum::serve(listener, routes).with_graceful_shutdown(stopped).await.context("serve")
}

async fn account(State(queue): Shared) -> Response {
    match serde_json::to_string(&*of(&queue)) {
        Ok(text) => text.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn waiting(State(queue): Shared) -> String {
    of(&queue).waiting().to_string()
}

async fn add(State(queue): Shared, Path(count): Path<usize>) -> StatusCode {
    if of(&queue).add(count) { StatusCode::NO_CONTENT } else { StatusCode::INSUFFICIENT_STORAGE }
}

async fn take(State(queue): Shared, Path(worker): Path<String>) -> Response {
    match of(&queue).take(worker) {
        Some(task) => task.to_string().into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn done(State(queue): Shared, Path((task, worker)): Path<(u64, String)>) -> StatusCode {
    if of(&queue).finish(task, &worker) { StatusCode::NO_CONTENT } else { StatusCode::CONFLICT }
}

async fn back(State(queue): Shared, Path((task, worker)): Path<(u64, String)>) -> StatusCode {
    if of(&queue).put_back(task, &worker) { StatusCode::NO_CONTENT } else { StatusCode::CONFLICT }
}

/// Locks the queue. A poisoned lock is ignored, because no method panics between two changes.
fn of(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
