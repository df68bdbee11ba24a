//! The worker.
//!
//! 1. **Before it takes a task, it marks its pod as busy**, and checks that no operation was announced before.
//! 2. While it works, it extends the mark before it expires.
//! 3. After a task, it removes the mark, and **takes no task while an operation on its pod waits**. The operation is
//!    then permitted, so it waits for at most one task.

use anyhow::{Context, Result};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    args::Options,
    busy::OwnPod,
    client::{QueueClient, TaskId},
};

/// Works until SIGTERM.
pub(crate) async fn work(options: Options) -> Result<()> {
    let mut stop = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let client = kube::Client::try_default().await.context("connect to the API server")?;
    let worker = Worker {
        pod: OwnPod::new(client, &options.namespace, &options.pod),
        queue: QueueClient::new(&options.queue, &options.pod),
        options,
    };
    println!("works on tasks of {}", worker.options.queue);
    loop {
        // Must not be cancelled, because a task that was just taken would be lost.
        match worker.next().await {
            Ok(Some(task)) => {
                if !worker.do_task(task, &mut stop).await {
                    return Ok(());
                }
            }
            Ok(None) => {}
            // No task was taken. If the pod was marked as busy, the mark expires.
            Err(error) => eprintln!("takes no task: {error:#}"),
        }
        tokio::select! {
            () = sleep(worker.options.pause) => {}
            _ = stop.recv() => return Ok(()),
        }
    }
}

struct Worker {
    pod: OwnPod,
    queue: QueueClient,
    options: Options,
}

impl Worker {
    /// Takes a task. Returns `None` if no task waits, or if an operation on the pod waits.
    async fn next(&self) -> Result<Option<TaskId>> {
        if self.queue.waiting().await? == 0 || self.pod.has_operations().await? {
            return Ok(None);
        }
        let task = match self.pod.mark_busy(self.options.busy, "takes a task").await? {
            true => self.queue.take().await?,
            false => None,
        };
        if task.is_none() {
            self.pod.mark_idle().await?;
        }
        Ok(task)
    }

    /// Works on `task`. Returns true if the worker must continue. On SIGTERM, it puts the task back and returns
    /// false.
    async fn do_task(&self, task: TaskId, stop: &mut Signal) -> bool {
        println!("works on task {task}");
        let done = Instant::now() + self.options.task;
        let interrupted = tokio::select! {
            () = sleep_until(done) => false,
            () = self.stay_busy(task) => false,
            _ = stop.recv() => true,
        };
        let reported =
            if interrupted { self.queue.put_back(task).await } else { self.queue.done(task).await };
        match reported {
            Ok(()) => println!("{} task {task}", if interrupted { "put back" } else { "has done" }),
            Err(error) => eprintln!("could not report the result of task {task}: {error:#}"),
        }
        if let Err(error) = self.pod.mark_idle().await {
            eprintln!("the pod stays busy until the mark expires: {error:#}");
        }
        !interrupted
    }

    /// Extends the mark forever. After an error it retries, and the work continues.
    async fn stay_busy(&self, task: TaskId) {
        let reason = format!("task {task}");
        let mut wait = self.options.busy / 2;
        loop {
            sleep(wait).await;
            wait = match self.pod.mark_busy(self.options.busy, &reason).await {
                // Operations wait while this worker completes its task.
                Ok(_) => self.options.busy / 2,
                Err(error) => {
                    eprintln!("{error:#}; retrying");
                    self.options.pause
                }
            };
        }
    }
}
