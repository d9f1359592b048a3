//! The Cassandra sink on a real cluster: the sink suite, then what is its own.

mod cluster;
mod fence;
mod fit;

use honeyflow_conformance::sink_suite;

mod conformance {
    use super::*;

    sink_suite!(match cluster::Whole::new().await {
        Some(backend) => backend,
        None => return,
    });
}
