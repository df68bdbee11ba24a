//! One load: sends each request when it is due.

use std::{
    net::SocketAddr,
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
    pool::{self, ConnectionPool, IdleConnection},
    report::{Connections, LoadReport},
    tally::Tally,
    targets::{NoTarget, Targets},
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
    /// # Errors
    /// Fails with a message for people if the registry of `args` is unusable.
    pub(crate) fn new(args: &ClientArgs, connections: Connections) -> Result<Arc<Self>, String> {
        Ok(Self::to(Targets::new(args)?, args, connections))
    }

    fn to(targets: Targets, args: &ClientArgs, connections: Connections) -> Arc<Self> {
        let keep_alive = connections == Connections::KeepAlive;
        Arc::new(Self {
            request: exchange::request(&targets.host(), &args.path, keep_alive),
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
            () = self.targets.update_forever(|| self.pool.lock().retain(|address| self.targets.keeps(address))) => {}
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
            let Ok(target) = self.targets.next() else { return };
            match tokio::time::timeout(self.args.timeout, pool::open(target)).await {
                Ok(Ok(stream)) => self.pool.lock().give((target, stream)),
                // The requests will report the failure.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Returns the results so far.
    pub(crate) fn report(&self) -> LoadReport {
        let end = self.ended.lock().unwrap_or_else(Instant::now);
        LoadReport { discovery: self.targets.report(), ..self.tally.lock().report(end) }
    }

    async fn one(&self, due: Instant) {
        if tokio::time::timeout(self.args.timeout, self.targets.until_usable()).await.is_err() {
            let reason = format!("no list of the registry within {} ms", self.args.timeout.as_millis());
            return self.tally.lock().failed(reason, due, Instant::now());
        }
        let answered = match tokio::time::timeout(self.args.timeout, self.ask()).await {
            Ok(Ok((address, HttpAnswer { status: 200, .. }))) => Ok(address),
            Ok(Ok((_, answer))) => Err(format!("status {}", answer.status)),
            Ok(Err(broken)) => Err(broken.reason),
            Err(_) => Err(format!("no answer within {} ms", self.args.timeout.as_millis())),
        };
        let mut tally = self.tally.lock();
        match answered {
            Ok(address) => tally.succeeded(address, due, Instant::now()),
            Err(reason) => tally.failed(reason, due, Instant::now()),
        }
    }

    /// Sends a request, and returns the response and the address that it came from.
    async fn ask(&self) -> Result<(SocketAddr, HttpAnswer), BrokenExchange> {
        let chosen = self.targets.of_request().map_err(no_instance)?;
        let used = match self.connections {
            Connections::KeepAlive => self.pool.lock().take(chosen),
            Connections::New => None,
        };
        if let Some((address, mut stream)) = used {
            match exchange(&mut stream, &self.request).await {
                Err(broken) if broken.unanswered => self.tally.lock().sent_again += 1,
                answered => {
                    self.keep((address, stream), &answered);
                    return answered.map(|answer| (address, answer));
                }
            }
        }
        self.tally.lock().opened += 1;
        let target = match chosen {
            Some(target) => target,
            None => self.targets.next().map_err(no_instance)?,
        };
        let mut stream = pool::open(target).await.map_err(|error| BrokenExchange {
            reason: format!("connect: {}", exchange::words(&error)),
            unanswered: true,
        })?;
        let answered = exchange(&mut stream, &self.request).await;
        self.keep((target, stream), &answered);
        answered.map(|answer| (target, answer))
    }

    fn keep(&self, connection: IdleConnection, answered: &Result<HttpAnswer, BrokenExchange>) {
        let reusable = answered.as_ref().is_ok_and(|answer| answer.reusable);
        if reusable && self.connections == Connections::KeepAlive && self.targets.keeps(connection.0) {
            self.pool.lock().give(connection);
        }
    }
}

fn no_instance(NoTarget: NoTarget) -> BrokenExchange {
    BrokenExchange { reason: "the registry shows no instance".to_owned(), unanswered: true }
}

#[cfg(test)]
mod tests;
