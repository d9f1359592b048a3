//! `search.index`: the step that writes a run's document into a sink; a `null` document deletes.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use honeyflow_step::{Batch, Outcome, Step};
use honeyflow_workflow::{Checkpoint, Kind, Role, Setting, SettingValue};

use crate::{Sink, Write};

/// The catalogue entry of `search.index`.
pub fn kind() -> Kind {
    Kind {
        name: "search.index",
        settings: &[Setting {
            name: "into",
            required: true,
            value: SettingValue::Text,
            doc: "the sink that is written; a `null` document deletes",
        }],
        role: Role::Sink,
        checkpoint: Checkpoint::Never,
        batch_max: 500,
        timeout: Duration::from_secs(60),
    }
}

pub struct IndexStep {
    sink: Arc<dyn Sink>,
}

impl IndexStep {
    pub fn new(sink: Arc<dyn Sink>) -> IndexStep {
        IndexStep { sink }
    }
}

impl Step for IndexStep {
    fn execute(&self, batch: Batch) -> BoxFuture<'static, Vec<Outcome>> {
        let sink = self.sink.clone();
        Box::pin(async move {
            let writes = batch
                .items
                .into_iter()
                .map(|item| Write { key: item.key, stamp: item.stamp, document: item.input })
                .collect();
            let outcomes = sink.write(writes).await;
            outcomes
                .into_iter()
                .map(|outcome| match outcome {
                    crate::Outcome::Done => Outcome::Done(None),
                    crate::Outcome::Stale { stored } => Outcome::Stale { stored },
                    crate::Outcome::Failed(failure) => Outcome::Failed(failure),
                })
                .collect()
        })
    }
}
