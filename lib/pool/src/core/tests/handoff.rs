use super::*;
use crate::{
    core::{histogram::Histogram, queue::QueuePosition},
    error::Kind,
    settings::{IdleOrder, WhenEmpty},
};

#[test]
fn pl_20_a_clean_end_goes_to_the_waiter_and_a_cut_off_one_is_never_reused() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let waiter = world.queued();
    world.back(&lent);
    let next = world.picked(waiter);
    assert_eq!(next.carried.number, lent.carried.number);
    let waiter = world.queued();
    world.end(&next, Ending::CutOff);
    assert!(matches!(world.pick_up(waiter), PickUp::Waiting), "the connection was closed and not handed on");
    world.fill();
    assert_ne!(world.picked(waiter).carried.number, lent.carried.number);
}

#[test]
fn pl_20_pl_22_a_cut_off_stream_stays_taken_until_its_answer_wakes_the_next() {
    let mut world = World::shared(&Settings { connections_per_server: Some(1), ..quiet() }, 1, 2);
    let (first, second) = (world.lent(), world.lent());
    assert_eq!(first.connection, second.connection, "one connection, two streams");
    let waiter = world.queued();
    world.end(&first, Ending::CutOff);
    assert!(!world.was_woken(waiter));
    assert_eq!(world.core.status(world.now).servers[0].orphans, 1);
    world.core.end_orphan(first.connection, world.now, true, world.now, &mut world.effects);
    world.after();
    assert!(world.was_woken(waiter));
    world.picked(waiter);
    assert_eq!(world.core.counters().late_answers, 1);
}

/// PL-71
#[test]
fn pl_71_a_request_that_ends_without_an_answer_is_no_late_answer() {
    let mut world = World::shared(&quiet(), 1, 10);
    for (answered, late) in [(true, 1), (false, 1)] {
        let lent = world.lent();
        world.end(&lent, Ending::CutOff);
        let flights = Flights::default();
        // An answer that came before the caller left is not a late one.
        flights.begin();
        flights.answered(|| world.now);
        assert!(flights.leave(world.now));
        if answered {
            flights.answered(|| world.now);
        }
        let (gone_at, answered) = flights.end().expect("the last, after its caller");
        world.core.end_orphan(lent.connection, gone_at, answered, world.now, &mut world.effects);
        assert_eq!(world.core.counters().late_answers, late);
    }
}

/// PL-70: memory that is allocated under the lock does not grow with the measurements.
#[test]
fn pl_70_a_status_takes_no_copy_of_the_times() {
    let mut world = World::full(&quiet(), 3);
    let lent = world.lent();
    world.now = world.now.after(Duration::from_millis(7));
    world.back(&lent);
    let made = allocation_counter::measure(|| drop(world.core.status(world.now)));
    assert!(made.bytes_total < 4096, "{made:?}");
    let mut room: [Histogram; 3] = std::array::from_fn(|_| Histogram::with_room());
    let made = allocation_counter::measure(|| world.core.copy_times(lent.server, &mut room));
    assert_eq!((made.count_total, room[0].count(), room[2].count()), (0, 2, 1), "without an allocation");
    let made = allocation_counter::measure(|| drop(world.core.take_times(lent.server, room)));
    assert!(made.bytes_total < 4096, "{made:?}");
}

/// PL-71: it counts once, however the pool learns that the connection has ended.
#[test]
fn pl_71_a_wrong_answer_is_counted_when_its_connection_is_removed() {
    let ends: [fn(&mut World, &LentConnection<Wire>); 3] = [
        |world, lent| world.back(lent),
        |world, lent| world.core.died(lent.connection, "nonsense", world.now, &mut world.effects),
        |world, lent| {
            world.back(lent);
            world.lent();
        },
    ];
    for end in ends {
        let mut world = World::full(&quiet(), 1);
        let lent = world.lent();
        lent.carried.wrong.set(true);
        lent.carried.broken.set(true);
        assert_eq!(world.core.counters().wrong_answers, 0);
        end(&mut world, &lent);
        world.after();
        assert_eq!(world.core.take_counters().wrong_answers, 1);
        assert_eq!(world.core.counters().wrong_answers, 0);
    }
}

#[test]
fn pl_22_shared_connections_are_bounded_by_settings_and_by_themselves() {
    let settings = Settings { connections_per_server: Some(1), streams_per_connection: 3, ..quiet() };
    for (offered, carried) in [(1, 1), (2, 2), (100, 3)] {
        let mut world = World::shared(&settings, 1, offered);
        for _ in 0..carried {
            world.lent();
        }
        world.queued();
    }
}

#[test]
fn pl_23_a_cancelled_waiter_loses_nothing() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let (first, second, third) = (world.queued(), world.queued(), world.queued());
    world.cancel(second);
    world.back(&lent);
    world.cancel(first);
    assert!(world.was_woken(third), "the connection of the first went to the next at once");
    let lent = world.picked(third);
    world.back(&lent);
    assert_eq!(world.core.usage(), (1, 0, 0));
    let counters = world.core.counters();
    assert_eq!((counters.checkouts, counters.checkins, counters.waiters_gone), (3, 3, 2));
}

/// PL-112
#[test]
fn handoff_to_gone_waiter_returns() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let waiter = world.queued();
    world.back(&lent);
    world.cancel(waiter);
    assert_eq!(world.core.usage(), (1, 0, 0), "idle again");
    world.lent();
}

/// PL-112 PL-26
#[test]
fn dead_checkin_never_handed_out() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let waiter = world.queued();
    lent.carried.broken.set(true);
    world.back(&lent);
    assert!(matches!(world.pick_up(waiter), PickUp::Waiting));
    world.pass(ms(1000));
    world.fill();
    assert_ne!(world.picked(waiter).carried.number, lent.carried.number);
}

#[test]
fn pl_26_idle_order_is_first_in_first_out_or_last_in_first_out() {
    for (order, expected) in [(IdleOrder::Fifo, [1, 2, 1]), (IdleOrder::Lifo, [2, 2, 2])] {
        let mut world = World::full(&Settings { idle_order: order, ..quiet() }, 1);
        let mut used = Vec::new();
        for _ in 0..3 {
            let lent = world.lent();
            used.push(lent.carried.number);
            world.back(&lent);
        }
        assert_eq!(used, expected, "{order:?}");
    }
}

#[test]
fn pl_26_a_broken_idle_one_is_passed_over_at_hand_off() {
    let mut world = World::full(&quiet(), 1);
    let first = world.lent();
    world.back(&first);
    first.carried.broken.set(true);
    let next = world.lent();
    world.back(&next);
    assert_ne!(next.carried.number, first.carried.number);
    let after = world.lent();
    assert_ne!(after.carried.number, first.carried.number);
    assert_eq!(world.core.counters().dead_idle, 1);
}

#[test]
fn pl_27_an_overdue_loan_is_reported_once() {
    let mut world = World::full(&Settings { loan_warn: ms(100), ..quiet() }, 1);
    let request = Request { site: Some(Location::caller()), ..world.request() };
    world.lent_for(&request);
    world.pass(ms(99));
    assert!(world.effects.overdue.is_empty());
    world.pass(ms(2));
    world.pass(ms(500));
    assert_eq!(world.effects.overdue.len(), 1);
    assert_eq!(world.core.counters().overdue_loans, 1);
}

/// PL-27: each loan of a shared connection is reported on its own, while it lasts or at the latest when it comes back.
#[test]
fn pl_27_an_overdue_loan_of_a_shared_connection_is_reported_once_with_its_site() {
    let settings = Settings { loan_warn: ms(300), connections_per_server: Some(1), ..quiet() };
    let mut world = World::shared(&settings, 1, 10);
    let (here, there) = (Location::caller(), world.request().site.expect("a site"));
    let first = world.lent_for(&Request { site: Some(here), ..world.request() });
    world.pass(ms(150));
    let second = world.lent();
    world.pass(ms(149));
    assert!(world.effects.overdue.is_empty());
    world.pass(ms(101));
    assert_eq!(world.effects.overdue, [here], "still out");
    world.pass(ms(51));
    world.back(&second);
    assert_eq!(world.effects.overdue, [here, there], "reported at its return");
    world.pass(ms(500));
    world.back(&first);
    assert_eq!((world.effects.overdue.len(), world.core.counters().overdue_loans), (2, 2), "once each");
    let third = world.lent();
    world.pass(ms(299));
    world.back(&third);
    assert_eq!((world.core.counters().overdue_loans, world.core.out.len()), (2, 0), "in time");
}

#[test]
fn pl_30_one_deadline_for_wait_and_use() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let request = Request { due: world.now.after(ms(50)), ..Request::default() };
    let waiter = world.queued_for(&request);
    world.pass(ms(49));
    assert!(!world.was_woken(waiter));
    world.pass(ms(1));
    assert!(world.was_woken(waiter), "nothing had come back");
    let PickUp::Refused(refusal) = world.pick_up(waiter) else { panic!("still waiting") };
    assert_eq!((refusal.kind, refusal.waited), (Kind::WaitTimeout, ms(50)));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.core.usage(), (0, 0, 0), "an exclusive connection is closed at its loan's deadline");
    world.back(&lent);
    assert_eq!(world.core.counters().use_timeouts, 1);
}

/// PL-110
#[test]
fn expiry_without_checkin() {
    let mut world = World::new(&quiet(), 1);
    let waiter = world.queued();
    assert!(world.core.expire(world.now, &mut world.effects) <= world.now.after(Duration::from_secs(5)));
    world.pass(Duration::from_secs(5));
    assert!(matches!(world.pick_up(waiter), PickUp::Refused(Refusal { kind: Kind::WaitTimeout, .. })));
}

/// PL-112 PL-31
#[test]
fn no_idle_beside_waiter() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 2);
    let loans = [world.lent(), world.lent()];
    let waiters = [world.queued(), world.queued(), world.queued()];
    for lent in &loans {
        world.back(lent);
    }
    assert_eq!(waiters.map(|waiter| world.was_woken(waiter)), [true, true, false]);
    assert_eq!(world.core.usage(), (0, 2, 1));
}

#[test]
fn pl_32_order_inside_a_class_and_bounded_ageing_between_classes() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let mut lent = world.lent();
    let ask = |world: &mut World, class| {
        let request = Request { class, due: world.now.after(Duration::from_secs(60)), ..Request::default() };
        world.queued_for(&request)
    };
    let low = ask(&mut world, Class::Low);
    let normal = ask(&mut world, Class::Normal);
    world.pass(ms(500));
    let high = ask(&mut world, Class::High);
    let high_again = ask(&mut world, Class::High);
    world.pass(ms(3600));
    let late = ask(&mut world, Class::High);
    let mut order = Vec::new();
    for _ in 0..5 {
        world.back(&lent);
        let next = [low, normal, high, high_again, late]
            .into_iter()
            .find(|waiter| !order.contains(waiter) && world.was_woken(*waiter))
            .unwrap();
        lent = world.picked(next);
        order.push(next);
    }
    assert_eq!(order, [high, high_again, normal, low, late], "after four seconds even the lowest goes first");
}

#[test]
fn pl_33_a_full_queue_takes_only_a_request_that_goes_before_the_last() {
    let settings = Settings { connections_per_server: Some(1), queue_limit: 2, ..quiet() };
    let mut world = World::full(&settings, 1);
    world.lent();
    let first = world.queued();
    let last = world.queued();
    let plain = world.request();
    assert_eq!(world.refused(&plain).kind, Kind::QueueFull);
    let urgent = Request { class: Class::High, ..world.request() };
    world.queued_for(&urgent);
    assert!(matches!(world.pick_up(last), PickUp::Refused(Refusal { kind: Kind::QueueFull, .. })));
    assert!(matches!(world.pick_up(first), PickUp::Waiting));
    let counters = world.core.counters();
    assert_eq!((counters.refused_full, counters.waiters_displaced), (1, 1));
}

/// PL-110
#[test]
fn queue_is_bounded() {
    let mut world = World::new(&Settings { queue_limit: 100, early_refusal: false, ..quiet() }, 1);
    let request = world.request();
    let queued = (0..1000).filter(|_| matches!(world.ask(&request), Checkout::Queued(_))).count();
    assert_eq!((queued, world.core.usage().2), (100, 100));
}

/// PL-108 PL-33
#[test]
fn fail_strategy_returns_error() {
    let settings = Settings { when_empty: WhenEmpty::Fail, connections_per_server: Some(1), ..quiet() };
    let mut world = World::full(&settings, 1);
    let lent = world.lent();
    let request = world.request();
    assert_eq!(world.refused(&request).kind, Kind::NoConnection);
    world.back(&lent);
    world.lent();
}

#[test]
fn pl_34_a_request_that_would_time_out_anyway_is_refused_at_once() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let mut lent = world.lent();
    let mut waiters: Vec<Key> = (0..150).map(|_| world.queued()).collect();
    // A hundred hand-offs in one second.
    for waiter in waiters.drain(..100) {
        world.now = world.now.after(ms(10));
        world.back(&lent);
        lent = world.picked(waiter);
    }
    let hurried = Request { due: world.now.after(ms(200)), ..Request::default() };
    let refusal = world.refused(&hurried);
    assert_eq!(refusal.kind, Kind::WouldTimeOut);
    assert!(refusal.estimate.is_some_and(|estimate| (ms(900)..ms(1100)).contains(&estimate)), "{refusal:?}");
    world.queued();
    let urgent = Request { class: Class::High, ..hurried };
    world.queued_for(&urgent);
    assert_eq!(world.core.counters().refused_early, 1);
}

#[test]
fn pl_34_without_open_connections_only_requests_due_before_the_next_try_are_refused() {
    let mut world = World::new(&quiet(), 1);
    world.reconcile();
    for open in std::mem::take(&mut world.opens) {
        for _ in 0..1 {
            world.fail(&open, false);
        }
    }
    let next = world.core.servers.get(world.key(1)).unwrap().connecting.next_try;
    let before = Request { due: Moment(next.0 - 1), ..Request::default() };
    assert_eq!(world.refused(&before).kind, Kind::WouldTimeOut);
    let after = Request { due: next.after(ms(1)), ..Request::default() };
    world.queued_for(&after);
}

/// PL-36 PL-111
#[test]
fn requeue_keeps_place_and_deadline() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let (first, second) = (world.queued(), world.queued());
    let due = world.core.waiters.get(first).unwrap().due;
    world.now = world.now.after(ms(100));
    world.back(&lent);
    assert!(world.was_woken(first));
    lent.carried.broken.set(true);
    assert!(matches!(world.pick_up(first), PickUp::Waiting));
    assert_eq!(world.core.waiters.get(first).unwrap().due, due);
    world.now = world.now.after(ms(10_000));
    world.core.waiters.get_mut(first).unwrap().due = world.now.after(ms(1));
    world.fill();
    world.picked(first);
    assert!(matches!(world.pick_up(second), PickUp::Waiting | PickUp::Refused(_)));
}

/// PL-118: a woken waiter whose connection has died goes on waiting; it neither hangs nor fails.
#[test]
fn woken_waiter_that_loses_waits_on() {
    let mut world = World::full(&quiet(), 1);
    let loans = [world.lent(), world.lent()];
    let waiter = world.queued();
    world.back(&loans[0]);
    loans[0].carried.broken.set(true);
    world.back(&loans[1]);
    assert!(matches!(world.pick_up(waiter), PickUp::Waiting));
    assert!(world.woken.0.load(Ordering::Relaxed) > 0, "the other connection was idle and was granted at once");
    world.picked(waiter);
}

/// PL-118: a new request never goes before a waiter, even if a connection comes back at that moment.
#[test]
fn no_barging() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let lent = world.lent();
    let waiter = world.queued();
    world.back(&lent);
    let newcomer = world.queued();
    world.picked(waiter);
    assert!(matches!(world.pick_up(newcomer), PickUp::Waiting));
}

/// PL-110: waiters that have tried a server are skipped, and the search ends.
#[test]
fn skipping_is_bounded() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 2);
    let (one, two) = (world.key(1), world.key(2));
    let loans = [world.lent(), world.lent()];
    let of = |key: Key| loans.iter().find(|lent| lent.server == key).unwrap();
    let picky: Vec<Key> = (0..500)
        .map(|_| {
            let request = Request { tried: &[one], ..world.request() };
            world.queued_for(&request)
        })
        .collect();
    let plain = world.queued();
    world.back(of(one));
    assert!(world.was_woken(plain), "the first that may take it");
    world.back(of(two));
    assert!(world.was_woken(picky[0]));
}

#[test]
fn pl_25_a_named_server_or_an_error_at_once() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 2);
    let two = world.key(2);
    let on = Request { target: Some(two), ..world.request() };
    let lent = world.lent_for(&on);
    assert_eq!(lent.server, two);
    let waiter = world.queued_for(&on);
    world.end(&lent, Ending::Discarded);
    assert!(matches!(world.pick_up(waiter), PickUp::Refused(Refusal { kind: Kind::ServerDown, .. })));
    assert_eq!(world.refused(&on).kind, Kind::ServerDown);
    world.fill();
    world.lent_for(&on);
    let waiter = world.queued_for(&on);
    world.discover(&[server(1)]);
    world.discover(&[server(1)]);
    assert!(matches!(world.pick_up(waiter), PickUp::Refused(Refusal { kind: Kind::UnknownServer, .. })));
    assert_eq!(world.refused(&on).kind, Kind::UnknownServer);
}

#[test]
fn pl_32_positions_are_ordered_by_arrival_then_sequence() {
    let position = |arrival, sequence| QueuePosition { arrival: Moment(arrival), sequence };
    assert!(position(1, 9) < position(2, 1) && position(2, 1) < position(2, 2));
}

#[test]
fn pl_71_counts_of_all_takes_add_up() {
    let mut world = World::full(&quiet(), 1);
    let mut sum = Counters::default();
    for round in 0..10 {
        for _ in 0..round {
            let lent = world.lent();
            world.back(&lent);
        }
        sum += world.core.take_counters();
    }
    assert_eq!((sum.checkouts, sum.checkins, sum.connects_ok), (45, 45, 2));
}

/// PL-116
#[test]
fn take_returns_old_values() {
    let mut world = World::full(&quiet(), 1);
    let lent = world.lent();
    world.back(&lent);
    assert_eq!(world.core.take_counters().checkouts, 1);
    assert_eq!(world.core.counters(), Counters::default());
}

/// PL-116 PL-70
#[test]
fn status_capacity_is_pool_wide() {
    let mut world = World::full(&quiet(), 3);
    let lent = world.lent();
    let status = world.core.status(world.now);
    assert_eq!((status.wanted, status.open, status.idle, status.lent), (6, 6, 5, 1));
    assert!(status.servers.iter().all(|server| (server.target, server.open) == (2, 2)));
    assert_eq!(status.servers.iter().map(|server| server.share).sum::<f64>().to_bits(), 1.0_f64.to_bits());
    world.back(&lent);
}

/// PL-72
#[test]
fn pl_72_each_connection_has_a_record_that_can_be_taken() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let began = world.now;
    let first = world.lent();
    let waiter = world.queued();
    world.pass(ms(10));
    world.back(&first);
    let second = world.picked(waiter);
    world.pass(ms(10));
    world.back(&second);
    let of = |times: Times| (times.count(), times.first(), times.last());
    let [(at, record)] = &world.core.take_records()[..] else { panic!("one connection") };
    assert_eq!(*at, server(1));
    assert_eq!(of(record.checkouts), (2, Some(began), Some(began.after(ms(10)))));
    assert_eq!(of(record.checkins), (2, Some(began.after(ms(10))), Some(began.after(ms(20)))));
    assert_eq!(of(record.hand_offs), (1, Some(began.after(ms(10))), Some(began.after(ms(10)))));
    assert_eq!(world.core.records(), [(server(1), Record::default())], "the record was reset");
    assert_eq!(of(world.core.records()[0].1.checkins), (0, None, None));
}

/// PL-116 PL-72
#[test]
fn rows_die_with_their_connection() {
    let mut world = World::full(&quiet(), 2);
    let lent = world.lent();
    world.end(&lent, Ending::Discarded);
    assert_eq!(world.core.records().len(), 3);
    world.fill();
    world.discover(&[server(1)]);
    world.discover(&[server(1)]);
    assert_eq!((world.core.records().len(), world.core.server_keys().len()), (2, 1));
}
