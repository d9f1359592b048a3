//! Tests of the Tantivy sink through its public interface: the conformance suite of sinks, then its own behaviour.

mod crash;
mod damage;
mod disk;
mod fence;
mod generation;
#[cfg(feature = "planted")]
mod planted;
mod search;

use std::{path::Path, sync::Arc, time::Duration};

use honeyflow_conformance::{sink::Backend, sink_suite};
use honeyflow_event::{Epoch, Stamp};
use honeyflow_sink::Sink;
use honeyflow_sink_tantivy::{Field, FieldKind, Options, TantivySink};
use tempfile::TempDir;

fn fields() -> Vec<Field> {
    vec![
        Field::new("title", FieldKind::Text { language: Some("en".into()) }),
        Field::new("isbn", FieldKind::Keyword),
        Field::new("price", FieldKind::Decimal),
        Field::new("pages", FieldKind::Integer),
        Field::new("in_print", FieldKind::Boolean),
        Field::new("published", FieldKind::Date),
        Field::new("authors", FieldKind::Text { language: None }),
    ]
}

fn options(folder: &Path) -> Options {
    Options { install_id: "here".into(), source: "shop".into(), ..Options::new(folder.join("books"), fields()) }
}

fn open(folder: &Path) -> TantivySink {
    TantivySink::open(options(folder)).expect("the index opens")
}

fn stamp(epoch: u64, sequence: u32) -> Stamp {
    Stamp::new(Epoch(epoch), sequence)
}

struct OnDisk(TempDir);

impl OnDisk {
    fn new() -> OnDisk {
        OnDisk(tempfile::tempdir().expect("a folder"))
    }
}

impl Backend for OnDisk {
    fn open(&self) -> Arc<dyn Sink> {
        Arc::new(open(self.0.path()))
    }
}

mod conformance {
    use super::*;

    sink_suite!(OnDisk::new());
}

/// The same suite, with the writer closed and opened again between any two writes.
mod conformance_when_always_idle {
    use super::*;

    struct AlwaysIdle(OnDisk);

    impl Backend for AlwaysIdle {
        fn open(&self) -> Arc<dyn Sink> {
            let options = Options { idle_close: Duration::ZERO, ..options(self.0.0.path()) };
            Arc::new(TantivySink::open(options).expect("the index opens"))
        }
    }

    sink_suite!(AlwaysIdle(OnDisk::new()));
}
