//! One load: sends each request when it is due.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    time::MissedTickBehavior,
};

use crate::{
    args::ClientArgs,
    exchange::{self, BrokenExchange, HttpAnswer, exchange},
    pool::{self, ConnectionPool},
    report::{Connections, LoadReport},
    tally::Tally,
    targets::Targets,
};

/// The number of concurrent requests. It bounds the requests to a Service that never responds.
const MOST_UNDER_WAY: usize = 4096;
/// The interval of the attempts to get the first good response.
const RETRY: Duration = Duration::from_millis(50);

/// A load that is running or has ended.
#[derive(Debug)]
pub(crate) struct RunningLoad {
    args: ClientArgs,
    connections: Connections,
    targets: Targets,
    request: Vec<u8>,
    under_way: Arc<Semaphore>,
    pool: Mutex<ConnectionPool>,
    tally: Mutex<Tally>,
    ended: Mutex<Option<Instant>>,
}

impl RunningLoad {
    pub(crate) fn new(args: &ClientArgs, connections: Connections) -> Arc<Self> {
        let keep_alive = connections == Connections::KeepAlive;
        let targets = Targets::new(args);
        Arc::new(Self {
            request: exchange::request(&targets.next().to_string(), &args.path, keep_alive),
            targets,
            connections,
            under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY)),
            pool: Mutex::new(ConnectionPool::new(usize::from(args.pool))),
            tally: Mutex::new(Tally::new(connections, Instant::now())),
            ended: Mutex::new(None),
            args: args.clone(),
        })
    }

    /// Sends requests until `stop` is true, then waits for the pending ones.
    pub(crate) async fn run(self: Arc<Self>, stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.clone().send_all(stop) => {}
            () = self.targets.check_forever() => {}
        }
    }

    async fn send_all(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            () = self.prepare() => {}
        }
        // The preparation is not part of the load.
        *self.tally.lock() = Tally::new(self.connections, Instant::now());
        let mut due = tokio::time::interval(Duration::from_secs(1) / self.args.rate);
        // A request that was due while this process was not scheduled is sent anyway.
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            let at = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                at = due.tick() => at.into_std(),
            };
            match self.under_way.clone().try_acquire_owned() {
                Ok(permit) => {
                    let load = self.clone();
                    tokio::spawn(async move {
                        load.one(at).await;
                        drop(permit);
                    });
                }
                Err(_) => {
                    self.tally.lock().failed("too many requests under way".to_owned(), at, Instant::now())
                }
            }
        }
        *self.ended.lock() = Some(Instant::now());
        // Each ends after its own timeout.
        let all = u32::try_from(MOST_UNDER_WAY).unwrap_or(u32::MAX);
        drop(self.under_way.acquire_many(all).await);
    }

    async fn prepare(&self) {
        let deadline = Instant::now() + self.args.await_first;
        let mut good = 0;
        while Instant::now() < deadline && good < self.targets.count() {
            if self.ask().await.is_ok() {
                good += 1;
            } else {
                good = 0;
                tokio::time::sleep(RETRY).await;
            }
        }
        if self.connections == Connections::KeepAlive {
            self.fill().await;
        }
    }

    /// Opens the connections that are kept alive, like clients that have run for a while.
    async fn fill(&self) {
        while self.pool.lock().has_room() {
            match tokio::time::timeout(self.args.timeout, pool::open(self.targets.next())).await {
                Ok(Ok(stream)) => self.pool.lock().give(stream),
                // The requests will report the failure.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Returns the results so far.
    pub(crate) fn report(&self) -> LoadReport {
        let end = self.ended.lock().unwrap_or_else(Instant::now);
        self.tally.lock().report(end)
    }

    async fn one(&self, due: Instant) {
        let answered = match tokio::time::timeout(self.args.timeout, self.ask()).await {
            Ok(Ok(answer)) if answer.status == 200 => Ok(()),
            Ok(Ok(answer)) => Err(format!("status {}", answer.status)),
            Ok(Err(broken)) => Err(broken.reason),
            Err(_) => Err(format!("no answer within {} ms", self.args.timeout.as_millis())),
        };
        let mut tally = self.tally.lock();
        match answered {
            Ok(()) => tally.succeeded(due, Instant::now()),
            Err(reason) => tally.failed(reason, due, Instant::now()),
        }
    }

    async fn ask(&self) -> Result<HttpAnswer, BrokenExchange> {
        let used = match self.connections {
            Connections::KeepAlive => self.pool.lock().take(),
            Connections::New => None,
        };
        if let Some(mut stream) = used {
            match exchange(&mut stream, &self.request).await {
                Err(broken) if broken.unanswered => self.tally.lock().sent_again += 1,
                other => {
                    self.keep(stream, &other);
                    return other;
                }
            }
        }
        self.tally.lock().opened += 1;
        let opened = pool::open(self.targets.next()).await;
        let mut stream = opened.map_err(|error| BrokenExchange {
            reason: format!("connect: {}", exchange::words(&error)),
            unanswered: true,
        })?;
        let answer = exchange(&mut stream, &self.request).await;
        self.keep(stream, &answer);
        answer
    }

    fn keep(&self, stream: tokio::net::TcpStream, answer: &Result<HttpAnswer, BrokenExchange>) {
        let reusable = answer.as_ref().is_ok_and(|answer| answer.reusable);
        if reusable && self.connections == Connections::KeepAlive {
            self.pool.lock().give(stream);
        }
    }
}

#[cfg(test)]
mod tests;
