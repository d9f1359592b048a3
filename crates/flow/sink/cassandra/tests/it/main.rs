//! Tests of the Cassandra sink on a real cluster: the conformance suite of sinks, then its own behaviour.

mod cluster;
mod fence;
mod fit;

use honeyflow_conformance::sink_suite;

mod conformance {
    use super::*;

    sink_suite!(match cluster::WholeDocuments::new().await {
        Some(backend) => backend,
        None => return,
    });
}
