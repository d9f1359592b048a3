//! The thread on which connections live: neither polls nor loads of the program can delay a beat.

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_runtime::Failure;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinHandle,
};

pub(crate) struct Thread {
    handle: Handle,
    /// Dropped, the thread ends.
    _running: oneshot::Sender<()>,
}

impl Thread {
    pub fn start() -> Result<Thread, Failure> {
        let no_thread =
            |error: std::io::Error| Failure::retry("no-thread", format!("start a thread for the hive: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let handle = runtime.handle().clone();
        let (_running, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("hive-redis".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
            })
            .map_err(no_thread)?;
        Ok(Thread { handle, _running })
    }

    /// Whoever stops waiting ends the work too.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let mut task = Wanted(self.handle.spawn(work));
        async move {
            let stopped = |_| Failure::retry("hive-stopped", "the hive was closed while it was asked");
            (&mut task.0).await.map_err(stopped)?
        }
        .boxed()
    }
}

struct Wanted<T>(JoinHandle<T>);

impl<T> Drop for Wanted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
