//! The thread of the hive's connections. It is separate, so that neither polls nor loads of the program delay a
//! heartbeat.

use futures_util::{FutureExt, future::BoxFuture};
use honeyflow_runtime::Failure;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinHandle,
};

use crate::codes;

pub(crate) struct Thread {
    handle: Handle,
    /// The thread ends when this sender is dropped.
    _running: oneshot::Sender<()>,
}

impl Thread {
    pub fn start() -> Result<Thread, Failure> {
        let no_thread =
            |error: std::io::Error| Failure::retry(codes::NO_THREAD, format!("start a thread for the hive: {error}"));
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

    /// Runs `work` on the thread. If the caller stops waiting, the work is aborted.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        let mut task = AbortOnDrop(self.handle.spawn(work));
        async move {
            let stopped = |_| Failure::retry(codes::HIVE_STOPPED, "the hive was closed during a request");
            (&mut task.0).await.map_err(stopped)?
        }
        .boxed()
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
