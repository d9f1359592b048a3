//! The race of a loan that ends while its answer arrives. The checkin reads the clock, so a clock that delivers the
//! answer when it is read puts the answer exactly there.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use honeyflow_pool::{
    InFlight, Pool, RequestOptions, Settings,
    clock::TokioClock,
    core::State,
    testing::{PATIENCE, memory::Memory, within},
};
use honeyflow_runtime::{Clock, Moment};
use tokio::time::Instant;

/// The request that is answered at the next reading of the clock.
type ArrivingRequest = Arc<Mutex<Option<InFlight<Memory>>>>;

struct AnsweringClock {
    clock: TokioClock,
    arriving: ArrivingRequest,
}

impl Clock for AnsweringClock {
    fn now(&self) -> Moment {
        // Taken out first, since the answer reads the clock again.
        let arriving = self.arriving.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(arriving);
        self.clock.now()
    }
}

/// PL-20: the answer counts as in time or as late, and never as late before its caller has gone.
#[tokio::test(start_paused = true)]
async fn pl_20_an_answer_may_arrive_while_its_loan_is_given_back() {
    let cluster = Memory::new(1, 8);
    let arriving = ArrivingRequest::default();
    let clock = AnsweringClock { clock: TokioClock::default(), arriving: arriving.clone() };
    let settings = Settings {
        servers: vec!["127.0.0.1:1".to_owned()],
        discovery: false,
        start_jitter: Duration::ZERO,
        connections_per_server: Some(1),
        decay_per_billion: Some(0),
        ..Settings::default()
    };
    let pool = Pool::start_with(cluster.again(), settings, clock, 1).expect("good settings");
    assert!(pool.control().ready(1, Instant::now() + PATIENCE).await);
    for _ in 0..3 {
        let mut loan = within("a stream", pool.get(RequestOptions::default())).await.expect("one is free");
        *arriving.lock().unwrap_or_else(PoisonError::into_inner) = Some(loan.in_flight());
        drop(loan);
        assert!(arriving.lock().unwrap_or_else(PoisonError::into_inner).is_none(), "it has arrived");
        let status = pool.status();
        assert_eq!((status.state, status.lent, status.servers[0].orphans), (State::Active, 0, 0), "{status:?}");
    }
    let counters = pool.counters();
    assert_eq!((counters.checkouts, counters.checkins), (3, 3));
}
