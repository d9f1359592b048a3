//! Rest-for-one supervision: a child that fails is restarted together with the children after it, which depend on it.
//! The children before it run on. Restarts back off; too many failures in a short time stop all children, with the
//! reason.

use std::{collections::VecDeque, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{Backoff, Class, Clock, Failure, Moment, codes};

/// A task that runs until it fails. Each restart runs it from the start.
pub struct Child {
    name: &'static str,
    start: Box<dyn Fn() -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>,
}

impl Child {
    pub fn new<F>(name: &'static str, start: impl Fn() -> F + Send + Sync + 'static) -> Child
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Child { name, start: Box::new(move || Box::pin(start())) }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub backoff: Backoff,
    pub restarts_max: usize,
    pub within: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30)),
            restarts_max: 10,
            within: Duration::from_secs(60),
        }
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Wait, then restart this child and all children after it.
    Restart {
        from: usize,
        wait: Duration,
    },
    Stop,
}

/// Decides what to do after a failure; it is pure and owns no task.
pub struct Supervision {
    config: Config,
    failures: VecDeque<Moment>,
}

impl Supervision {
    pub fn new(config: Config) -> Supervision {
        Supervision { config, failures: VecDeque::new() }
    }

    pub fn failed(&mut self, child: usize, class: Class, now: Moment) -> Verdict {
        while self.failures.front().is_some_and(|at| now.since(*at) > self.config.within) {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        if class == Class::Fatal || self.failures.len() > self.config.restarts_max {
            return Verdict::Stop;
        }
        let tries = u32::try_from(self.failures.len() - 1).unwrap_or(u32::MAX);
        Verdict::Restart { from: child, wait: self.config.backoff.ceiling(tries) }
    }
}

/// Starts the children in order and runs them until one succeeds or the verdict is to stop.
///
/// # Errors
/// The failure that stopped everything.
pub async fn run(children: Vec<Child>, config: Config, clock: &dyn Clock) -> Result<(), Failure> {
    let (ended, mut endings) = mpsc::channel::<(usize, u64, Result<(), Failure>)>(children.len().max(1));
    let mut supervision = Supervision::new(config);
    let mut tasks: Vec<Option<JoinHandle<()>>> = children.iter().map(|_| None).collect();
    // Per child: tells the result of a stopped run from the result of its restart.
    let mut generations = vec![0_u64; children.len()];
    start_from(0, &children, &mut tasks, &generations, &ended);
    let result = loop {
        let Some((child, of, result)) = endings.recv().await else { break Ok(()) };
        if of != generations[child] {
            continue;
        }
        let Err(failure) = result else { break Ok(()) };
        tracing::error!(child = children[child].name, code = %failure.code, "{failure}");
        match supervision.failed(child, failure.class, clock.now()) {
            Verdict::Stop => break Err(failure),
            Verdict::Restart { from, wait } => {
                stop_from(from, &mut tasks).await;
                tokio::time::sleep(wait).await;
                generations[from..].iter_mut().for_each(|generation| *generation += 1);
                tracing::info!(child = children[child].name, ?wait, "restarted, together with the children after it");
                start_from(from, &children, &mut tasks, &generations, &ended);
            }
        }
    };
    stop_from(0, &mut tasks).await;
    result
}

fn start_from(
    from: usize,
    children: &[Child],
    tasks: &mut [Option<JoinHandle<()>>],
    generations: &[u64],
    ended: &mpsc::Sender<(usize, u64, Result<(), Failure>)>,
) {
    for (at, child) in children.iter().enumerate().skip(from) {
        let work = tokio::spawn((child.start)());
        let ended = ended.clone();
        let (name, generation) = (child.name, generations[at]);
        tasks[at] = Some(tokio::spawn(async move {
            let _stop = StopOnDrop(work.abort_handle());
            let result = work
                .await
                .unwrap_or_else(|error| Err(Failure::retry(codes::PANICKED, format!("{name} panicked: {error}"))));
            let _ = ended.send((at, generation, result)).await;
        }));
    }
}

async fn stop_from(from: usize, tasks: &mut [Option<JoinHandle<()>>]) {
    for task in tasks.iter_mut().skip(from).rev().filter_map(Option::take) {
        task.abort();
        let _ = task.await;
    }
}

struct StopOnDrop(tokio::task::AbortHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;
    use crate::time::BootClock;

    fn seconds(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    #[test]
    fn wf_93_more_than_ten_restarts_in_a_minute_stop_everything() {
        let mut supervision = Supervision::new(Config::default());
        for _ in 0..10 {
            assert!(matches!(supervision.failed(1, Class::Retry, seconds(1)), Verdict::Restart { from: 1, .. }));
        }
        assert_eq!(supervision.failed(1, Class::Retry, seconds(2)), Verdict::Stop);
        let mut supervision = Supervision::new(Config::default());
        for minute in 0..100 {
            let verdict = supervision.failed(0, Class::Retry, seconds(minute * 61));
            assert_eq!(verdict, Verdict::Restart { from: 0, wait: Duration::from_millis(100) });
        }
        assert_eq!(supervision.failed(0, Class::Fatal, seconds(90_000)), Verdict::Stop);
    }

    #[tokio::test]
    async fn a_failing_child_is_restarted_with_the_children_after_it() {
        let starts: Arc<[AtomicU32; 3]> = Arc::default();
        let child = |at: usize, fails: bool| {
            let starts = starts.clone();
            Child::new("child", move || {
                let starts = starts.clone();
                async move {
                    let nth = starts[at].fetch_add(1, Ordering::SeqCst);
                    match (fails, nth) {
                        (true, 0) => panic!("the first time"),
                        (true, 1) => Err(Failure::retry("again", "the second time")),
                        (true, _) => {
                            while starts[2].load(Ordering::SeqCst) < 3 {
                                tokio::task::yield_now().await;
                            }
                            Ok(())
                        }
                        (false, _) => std::future::pending().await,
                    }
                }
            })
        };
        let config = Config { backoff: Backoff::new(Duration::ZERO, Duration::ZERO), ..Config::default() };
        run(vec![child(0, false), child(1, true), child(2, false)], config, &BootClock).await.unwrap();
        let counts: Vec<u32> = starts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        assert_eq!(counts, [1, 3, 3], "a child before it is not restarted");
    }
}
