//! Failure codes, refusals and readiness reasons of the HTTP surface.

pub mod readiness;
pub mod refusal;

pub(crate) use honeyflow_runtime::codes::MISPLACED_REPLY;

honeyflow_runtime::codes! {
    SLOW = "slow" [Retry]
        "A store, a hive or a sink did not answer the HTTP surface in time.",
        "Check the load of that database or index; the surface asks again.";
}
