//! The shell around [`Member`]: a thread of its own, so that renewal never waits behind work.

use std::sync::Arc;

use honeyflow_event::{Epoch, Name};
use honeyflow_runtime::{Clock, Failure, Moment};
use tokio::sync::mpsc;

use crate::{
    contract::{HiveStore, Reply},
    member::{Config, Effect, Input, Member},
    term::Term,
};

/// What a member's terms are doing.
#[derive(Clone, Debug)]
pub enum Change {
    Granted(Term),
    Lost {
        lease: Name,
        why: &'static str,
    },
    Trust(Moment),
    /// Cannot be a member, with the reason.
    Refused(Failure),
    /// Buried by others: everything stops; come back under a fresh identity.
    Buried,
    Left,
}

/// Cheap to clone; the member leaves when it is told to, or when every handle is gone.
#[derive(Clone)]
pub struct Handle {
    inputs: mpsc::Sender<Input>,
}

impl Handle {
    pub async fn mint(&self, lease: Name, floor: Epoch) {
        let _ = self.inputs.send(Input::Mint { lease, floor }).await;
    }

    pub async fn leave(&self) {
        let _ = self.inputs.send(Input::Leave).await;
    }
}

/// Starts the heartbeat thread. `changes` is called on that thread and must not block.
///
/// # Errors
/// If the thread cannot be started.
pub fn join(
    store: Arc<dyn HiveStore>,
    config: Config,
    leases: Vec<Name>,
    clock: Arc<dyn Clock>,
    changes: impl Fn(Change) + Send + 'static,
) -> Result<Handle, Failure> {
    let (inputs, mut received) = mpsc::channel::<Input>(64);
    // The thread keeps the sender itself: answers come in even after the last handle has gone.
    let (answers, mut answered) = mpsc::channel::<Input>(64);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Failure::fatal("no-thread", format!("cannot start the heartbeat: {error}")))?;
    let beat = async move {
        let mut member = Member::new(config);
        let mut effects = Vec::new();
        let mut abandoned = false;
        for lease in leases {
            member.step(Input::Want(lease), clock.now(), &mut effects);
        }
        loop {
            for effect in effects.drain(..) {
                let change = match effect {
                    Effect::Call { call, request } => {
                        let sent_at = clock.now();
                        let asked = store.call(request);
                        let answers = answers.clone();
                        tokio::spawn(async move {
                            let result: Result<Reply, Failure> = asked.await;
                            let _ = answers.send(Input::Answer { call, sent_at, result }).await;
                        });
                        continue;
                    }
                    Effect::Granted(term) => Change::Granted(term),
                    Effect::Lost { lease, why } => Change::Lost { lease, why },
                    Effect::Trust(until) => Change::Trust(until),
                    Effect::Refused(failure) => Change::Refused(failure),
                    Effect::Buried => Change::Buried,
                    Effect::Left => Change::Left,
                };
                let last = matches!(change, Change::Left | Change::Buried | Change::Refused(_));
                changes(change);
                if last {
                    return;
                }
            }
            let wait = member.wake_at().since(clock.now());
            let input = tokio::select! {
                Some(input) = answered.recv() => input,
                input = received.recv(), if !abandoned => input.unwrap_or_else(|| {
                    abandoned = true;
                    Input::Leave
                }),
                () = tokio::time::sleep(wait) => Input::Tick,
            };
            member.step(input, clock.now(), &mut effects);
        }
    };
    std::thread::Builder::new()
        .name("honeyflow-hive".to_owned())
        .spawn(move || runtime.block_on(beat))
        .map_err(|error| Failure::fatal("no-thread", format!("cannot start the heartbeat: {error}")))?;
    Ok(Handle { inputs })
}
