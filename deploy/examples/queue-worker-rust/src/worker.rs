//! The worker.
//!
//! 1. **Before it takes a task it says that it is busy**, and looks whether it was in time.
//! 2. While it works it says so again, well before the time has passed.
//! 3. When it is done it says that it is idle, and **takes no task while somebody wants its pod**: operations that have waited get their
//!    permission now, and none waits for longer than one task.

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
    let mut stop = signal(SignalKind::terminate()).context("listen to SIGTERM")?;
    let client = kube::Client::try_default().await.context("find the API server")?;
    let worker = Worker {
        pod: OwnPod::new(client, &options.namespace, &options.pod),
        queue: QueueClient::new(&options.queue, &options.pod),
        options,
    };
    println!("works on tasks of {}", worker.options.queue);
    loop {
        // Not to be broken off: a task that was taken would be nobody's.
        match worker.next().await {
            Ok(Some(task)) => {
                if !worker.do_task(task, &mut stop).await {
                    return Ok(());
                }
            }
            Ok(None) => {}
            // Nothing was taken. A pod that said that it is busy is idle again when the time has passed.
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
    /// A task, if there is one for this pod.
    async fn next(&self) -> Result<Option<TaskId>> {
        if self.queue.waiting().await? == 0 || self.pod.is_wanted().await? {
            return Ok(None);
        }
        let task = match self.pod.say_busy(self.options.busy, "takes a task").await? {
            true => self.queue.take().await?,
            false => None,
        };
        if task.is_none() {
            self.pod.say_idle().await?;
        }
        Ok(task)
    }

    /// Works on `task`. Gives whether the worker goes on after it: on SIGTERM it puts the task back, and doesn't.
    async fn do_task(&self, task: TaskId, stop: &mut Signal) -> bool {
        println!("works on task {task}");
        let done = Instant::now() + self.options.task;
        let interrupted = tokio::select! {
            () = sleep_until(done) => false,
            () = self.stay_busy(task) => false,
            _ = stop.recv() => true,
        };
        let told = if interrupted { self.queue.put_back(task).await } else { self.queue.done(task).await };
        match told {
            Ok(()) => println!("{} task {task}", if interrupted { "put back" } else { "has done" }),
            Err(error) => eprintln!("could not say what became of task {task}: {error:#}"),
        }
        if let Err(error) = self.pod.say_idle().await {
            eprintln!("counts as busy until its time has passed: {error:#}");
        }
        !interrupted
    }

    /// Never ends. One that can't be renewed is tried again, while the work goes on.
    async fn stay_busy(&self, task: TaskId) {
        let reason = format!("task {task}");
        let mut wait = self.options.busy / 2;
        loop {
            sleep(wait).await;
            wait = match self.pod.say_busy(self.options.busy, &reason).await {
                // Who waits goes on waiting, and this worker goes on working: that is what it is for.
                Ok(_) => self.options.busy / 2,
                Err(error) => {
                    eprintln!("{error:#}; tries again");
                    self.options.pause
                }
            };
        }
    }
}
