//! PL-143: the suite that every connector passes, on a cluster in memory, in both modes.

mod exclusive {
    honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Exclusive, start_paused = true);
}

mod shared {
    honeyflow_pool::conformance!(honeyflow_pool::testing::memory::Shared, start_paused = true);
}
