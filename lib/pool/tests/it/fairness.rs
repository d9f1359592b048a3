//! Many tasks share few connections, and are served in the order of their arrival.

use std::{cell::RefCell, rc::Rc, time::Duration};

use honeyflow_pool::{Class, RequestOptions, Settings, testing::memory::Memory};
use tokio::task::LocalSet;

const TASKS: u64 = 1024;
const TURNS: u64 = 10;

/// PL-181 PL-32: each task draws a number when it asks, and records it when it is served. There is one thread, so that
/// nothing can happen between drawing the number and joining the queue.
#[tokio::test(start_paused = true)]
async fn pl_181_waiters_of_one_class_are_served_in_order() {
    let cluster = Memory::new(1, 1);
    let settings = Settings {
        servers: vec!["127.0.0.1:1".to_owned()],
        discovery: false,
        connections_per_server: Some(16),
        decay_per_billion: Some(0),
        ..Settings::default()
    };
    let pool = cluster.pool(settings, 7).expect("good settings");
    let by = tokio::time::Instant::now() + Duration::from_secs(60);
    assert!(pool.control().ready(16, by).await);
    let drawn = Rc::new(RefCell::new(0_u64));
    let served: Rc<RefCell<Vec<(Class, u64)>>> = Rc::default();
    let tasks = LocalSet::new();
    for task in 0..TASKS {
        let (pool, drawn, served) = (pool.clone(), drawn.clone(), served.clone());
        let class = if task % 3 == 0 { Class::High } else { Class::Normal };
        tasks.spawn_local(async move {
            for _ in 0..TURNS {
                *drawn.borrow_mut() += 1;
                let number = *drawn.borrow();
                let loan =
                    pool.get(RequestOptions::within(Duration::from_secs(600)).priority(class)).await.expect("served");
                served.borrow_mut().push((class, number));
                tokio::task::yield_now().await;
                drop(loan);
            }
        });
    }
    tasks.await;
    let served = served.borrow();
    assert_eq!(served.len() as u64, TASKS * TURNS);
    for class in [Class::High, Class::Normal] {
        let numbers: Vec<u64> = served.iter().filter(|(of, _)| *of == class).map(|(_, number)| *number).collect();
        let overtakes = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert_eq!(overtakes, 0, "overtakes among {class:?}");
    }
    assert!(pool.counters().hand_offs > TASKS, "most had to wait");
}
