use super::*;
use crate::error::Kind;

fn started(world: &World) -> Vec<String> {
    world.opens.iter().map(|open| open.to.id.to_string()).collect()
}

#[test]
fn pl_11_deficits_are_served_in_turn_and_servers_in_back_off_are_passed_over() {
    let mut world = World::new(&Settings { max_connecting: 4, ..quiet() }, 3);
    world.reconcile();
    assert_eq!(started(&world), ["s1", "s2", "s3", "s1"], "one cursor over the ring, and four at a time");
    let first = world.opens.remove(0);
    world.fail(&first, false);
    world.core.servers.get_mut(first.server).unwrap().connecting.next_try = world.now.after(ms(50));
    world.opens.clear();
    world.reconcile();
    assert_eq!(started(&world), ["s2"], "its turn was next, and the failed server is in back-off");
}

#[test]
fn pl_12_few_connects_at_a_time_per_server_and_per_pool() {
    let mut world = World::new(&Settings { connections_per_server: Some(10), ..quiet() }, 1);
    world.reconcile();
    assert_eq!(world.opens.len(), 2);
    let mut world = World::new(&Settings { connections_per_server: Some(10), ..quiet() }, 20);
    world.reconcile();
    assert_eq!(world.opens.len(), 8);
}

#[test]
fn pl_13_open_and_opening_connections_always_make_the_target() {
    let mut world = World::full(&quiet(), 2);
    assert_eq!(world.core.open_count(), 4);
    let lent = world.lent();
    world.end(&lent, Ending::Discarded);
    let next = world.reconcile();
    assert_eq!(world.opens.len(), 1);
    assert!(next <= world.now.after(Duration::from_secs(1)), "it looks again within a second");
    let open = world.opens.remove(0);
    world.core.abandoned(&open, &mut world.effects);
    world.after();
    world.reconcile();
    assert_eq!(world.opens.len(), 1, "a connect that ended without a result is made again");
}

#[test]
fn pl_14_failed_connects_wait_longer_each_time_with_full_jitter() {
    let mut longest = [Duration::ZERO; 10];
    for seed in 0..500 {
        let mut world = World::new(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
        world.core.random = seed;
        for longest in &mut longest {
            world.reconcile();
            let open = world.opens.pop().expect("due");
            world.fail(&open, false);
            let next = world.core.servers.get(open.server).unwrap().connecting.next_try;
            *longest = (*longest).max(next.since(world.now));
            assert!(next <= world.now.after(Duration::from_secs(5)));
            world.now = next;
        }
    }
    assert!(longest[0] <= ms(100) && longest[0] > ms(90), "{longest:?}");
    assert!(longest[3] <= ms(800) && longest[3] > ms(700), "{longest:?}");
    assert!(longest[9] > ms(4500), "{longest:?}");
}

#[test]
fn pl_14_a_refused_connect_is_tried_again_within_a_second() {
    let mut world = World::new(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    for _ in 0..50 {
        world.reconcile();
        let open = world.opens.pop().expect("due");
        world.fail(&open, true);
        let next = world.core.servers.get(open.server).unwrap().connecting.next_try;
        assert!(next <= world.now.after(Duration::from_secs(1)));
        world.now = next;
    }
}

#[test]
fn pl_14_good_news_makes_a_try_due_at_most_once_a_second() {
    let mut world = World::new(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let mut tries = 0;
    for _ in 0..100 {
        world.reconcile();
        tries += world.opens.len();
        for open in std::mem::take(&mut world.opens) {
            world.fail(&open, false);
            world.core.servers.get_mut(open.server).unwrap().connecting.next_try = world.now.after(ms(60_000));
        }
        world.now = world.now.after(ms(30));
        world.core.hurry(server(1).address, world.now, &mut world.effects);
    }
    assert_eq!(tries, 4, "the first, and one for each second");
}

#[test]
fn pl_14_a_refused_login_is_not_hurried() {
    let mut world = World::new(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let mut waits = Vec::new();
    for _ in 0..4 {
        world.reconcile();
        let open = world.opens.pop().expect("due");
        let failed = ConnectFailure::of(Kind::Login, "wrong password");
        world.core.failed(&open, &failed, world.now, &mut world.effects);
        world.core.hurry(server(1).address, world.now, &mut world.effects);
        let next = world.core.servers.get(open.server).unwrap().connecting.next_try;
        waits.push(next.since(world.now).as_secs());
        world.now = next;
    }
    assert_eq!(waits, [1, 1, 30, 30]);
    assert_eq!(world.core.status(world.now).servers[0].last_error.as_deref(), Some("wrong password"));
}

/// PL-91: when a login is refused for longer than a starting server takes, one alarm is raised, and the next one only
/// after a login has succeeded.
#[test]
fn pl_91_a_login_that_stays_refused_raises_an_alarm() {
    let mut world = World::new(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let mut alarms = Vec::new();
    for good in [false, false, false, false, true, false, false, false] {
        world.effects.changes.clear();
        world.reconcile();
        let open = world.opens.pop().expect("due");
        if good {
            let key = world.open(&open).expect("wanted");
            world.core.died(key, "ended", world.now.after(Duration::from_secs(60)), &mut world.effects);
            world.after();
        } else {
            let failed = ConnectFailure::of(Kind::Login, "wrong password");
            world.core.failed(&open, &failed, world.now, &mut world.effects);
        }
        let refused = Change::LoginRefused { id: server(1).id, why: "wrong password".into() };
        alarms.push(world.effects.changes.contains(&refused));
        world.now = world.core.servers.get(open.server).unwrap().connecting.next_try.max(world.now);
    }
    assert_eq!(alarms, [false, false, true, false, false, false, false, true]);
    assert_eq!(world.core.counters().logins_refused, 7);
}

/// PL-168: discovery does not ask servers that refused the login, and a login that discovery is refused counts.
#[test]
fn pl_168_a_refused_login_holds_for_pool_and_discovery() {
    let mut world = World::new(&quiet(), 2);
    let address = server(1).address;
    assert_eq!(world.core.login_wait(address, world.now), None);
    let failed = ConnectFailure::of(Kind::Login, "wrong password");
    world.core.login_refused(address, &failed, world.now, &mut world.effects);
    assert_eq!(world.core.login_wait(address, world.now.after(ms(999))).as_deref(), Some("wrong password"));
    assert_eq!(world.core.login_wait(address, world.now.after(ms(1000))), None);
    assert_eq!(world.core.login_wait(server(2).address, world.now), None);
    world.reconcile();
    assert!(world.opens.iter().all(|open| open.to == server(2)), "the pool leaves it alone as well");
}

/// PL-168: if a leaving server had the same address, only the current server waits after the refused login, and only
/// while the login is its last error.
#[test]
fn pl_168_a_refused_login_is_kept_with_the_server_that_is_there_now() {
    let mut world = World::full(&quiet(), 1);
    let (before, address) = (world.key(1), server(1).address);
    let _held = world.lent();
    let successor = Server::at(address).named("successor");
    world.discover(std::slice::from_ref(&successor));
    let key = world.core.server_key(&successor.id).expect("joined");
    world.reconcile();
    let opens = [world.opens.pop().expect("due"), world.opens.pop().expect("two at once")];
    let failed = ConnectFailure::of(Kind::Login, "wrong password");
    world.core.login_refused(address, &failed, world.now, &mut world.effects);
    let row = |world: &World, key| world.core.servers.get(key).map(|row| (row.last_error.clone(), row.connecting));
    assert_eq!(row(&world, before).expect("on loan").0, None);
    let (said, connecting) = row(&world, key).expect("there");
    assert_eq!(said.map(|trouble| trouble.kind), Some(Kind::Login));
    world.fail(&opens[0], false);
    assert_eq!(
        row(&world, key).expect("there").1.next_try,
        connecting.next_try,
        "another failure does not shorten the wait"
    );
    world.now = world.now.after(ms(1000));
    world.fail(&opens[1], true);
    assert!(row(&world, key).expect("there").1.next_try > world.now);
    assert_eq!(world.core.login_wait(address, world.now), None, "the connect was refused, not the login");
}

/// PL-14: a server that greets and hangs up on the first request is not redialled for each request, wherever the
/// broken connection is found.
#[test]
fn pl_14_a_young_connection_found_broken_counts_as_a_failed_connect() {
    let at_checkin = |world: &mut World| {
        let lent = world.lent();
        lent.carried.broken.set(true);
        world.back(&lent);
    };
    let at_checkout = |world: &mut World| {
        let lent = world.lent();
        world.back(&lent);
        lent.carried.broken.set(true);
        world.queued();
    };
    let at_pick_up = |world: &mut World| {
        let lent = world.lent();
        let waiter = world.queued();
        world.back(&lent);
        lent.carried.broken.set(true);
        assert!(matches!(world.pick_up(waiter), PickUp::Waiting));
    };
    for find in [at_checkin as fn(&mut World), at_checkout, at_pick_up] {
        for (age, failures) in [(9, 1), (10, 0)] {
            let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
            world.now = world.now.after(Duration::from_secs(age));
            find(&mut world);
            let row = world.core.servers.get(world.key(1)).expect("there");
            assert_eq!((row.connecting.failures, row.connecting.next_try > world.now), (failures, failures > 0));
            world.reconcile();
            assert_eq!(world.opens.len(), 1 - failures as usize, "replaced at once only if it was good for a while");
        }
    }
}

/// PL-140: requests in flight may finish after a goodbye, but the pool does not wait for orphans.
#[test]
fn pl_140_a_connection_that_takes_no_more_ends_with_its_last_request() {
    for ending in [Ending::Answered, Ending::CutOff] {
        let mut world = World::shared(&Settings { connections_per_server: Some(1), ..quiet() }, 1, 10);
        let loans = [world.lent(), world.lent()];
        world.effects.reconcile = false;
        world.core.on_goodbye(loans[0].connection, world.now, &mut world.effects);
        assert!(world.effects.reconcile, "it is replaced");
        world.after();
        assert_eq!((world.core.open_count(), world.core.usage()), (0, (0, 2, 0)), "both are in flight");
        world.back(&loans[0]);
        assert!(world.core.records().len() == 1, "the other is");
        world.end(&loans[1], ending);
        assert!(world.core.records().is_empty() && world.core.at_rest(), "{ending:?}");
    }
}

/// PL-140 PL-14: a server may say goodbye after every few requests, and is redialled at once if it has answered at
/// least one. A server that never answers is redialled with pauses.
#[test]
fn pl_140_a_goodbye_after_answers_is_not_a_failure_of_the_server() {
    let unanswered = |world: &mut World, lent: &LentConnection<Wire>| world.end(lent, Ending::Finished);
    let answered = |world: &mut World, lent: &LentConnection<Wire>| world.back(lent);
    let judged_by_caller = |world: &mut World, lent: &LentConnection<Wire>| {
        world.end(lent, Ending::Finished);
        world.core.mark_answered(lent.connection);
    };
    let late = |world: &mut World, lent: &LentConnection<Wire>| {
        world.end(lent, Ending::CutOff);
        world.core.end_orphan(lent.connection, world.now, true, world.now, &mut world.effects);
    };
    let uses = [unanswered as fn(&mut World, &LentConnection<Wire>), answered, judged_by_caller, late];
    for (used, failures) in uses.into_iter().zip([1, 0, 0, 0]) {
        let mut world = World::shared(&Settings { connections_per_server: Some(1), ..quiet() }, 1, 10);
        let lent = world.lent();
        used(&mut world, &lent);
        let under_way = world.lent();
        for _ in 0..2 {
            world.core.on_goodbye(lent.connection, world.now, &mut world.effects);
            world.after();
        }
        let row = world.core.servers.get(world.key(1)).expect("there");
        assert_eq!((row.connecting.failures, row.last_error.is_some()), (failures, failures > 0));
        world.reconcile();
        assert_eq!(world.opens.len(), 1 - failures as usize, "replaced at once if anything was answered");
        world.back(&under_way);
    }
}

/// PL-140: a checkout finds a goodbye that the watcher has not reported yet.
#[test]
fn pl_140_a_checkout_never_gets_a_connection_that_takes_no_more() {
    let mut world = World::shared(&Settings { connections_per_server: Some(2), ..quiet() }, 1, 2);
    let first = world.lent();
    first.carried.leaving.set(true);
    let [second, third] = [world.lent(), world.lent()];
    assert!(second.connection != first.connection && third.connection == second.connection);
    world.queued();
    assert_eq!(world.core.open_count(), 1, "it is replaced");
    world.back(&first);
    assert!(world.core.records().len() == 1, "and closed after its last request has ended");
}

/// PL-140 PL-36: the same holds at a hand-off to a waiter, and between the hand-off and the use.
#[test]
fn pl_140_a_waiter_never_gets_a_connection_that_takes_no_more() {
    for on_the_way in [false, true] {
        let mut world = World::shared(&Settings { connections_per_server: Some(1), ..quiet() }, 1, 2);
        world.now = world.now.after(Duration::from_secs(10));
        let loans = [world.lent(), world.lent()];
        let waiter = world.queued();
        loans[0].carried.leaving.set(!on_the_way);
        world.back(&loans[0]);
        loans[0].carried.leaving.set(true);
        assert!(matches!(world.pick_up(waiter), PickUp::Waiting), "{on_the_way}");
        assert_eq!(world.core.usage(), (0, 1, 1), "one is in flight, one waits");
        world.fill();
        let picked = world.picked(waiter);
        assert_ne!(picked.connection, loans[0].connection);
        world.back(&loans[1]);
        assert_eq!((world.core.records().len(), world.core.usage()), (1, (0, 1, 0)), "the first is closed");
    }
}

/// PL-13: the server is down when its last connection retires, also while requests are still in flight there.
#[test]
fn pl_13_a_server_whose_last_connection_retires_is_noticed_at_once() {
    let mut world = World::shared(&Settings { connections_per_server: Some(1), ..quiet() }, 1, 10);
    let (bad, _other) = (world.lent(), world.lent());
    world.effects.reconcile = false;
    world.end(&bad, Ending::Discarded);
    assert_eq!(world.state(1), ServerState::Down);
    assert!(world.effects.reconcile);
    let wires = world.wires;
    world.fill();
    assert_eq!((world.state(1), world.wires), (ServerState::Up, wires + 1));
}

/// PL-90: servers that the request has tried still count as known.
#[test]
fn pl_90_no_untried_server_is_not_no_known_server() {
    let world = World::full(&quiet(), 1);
    assert_eq!(world.core.outage(&[]), None);
    let outage = world.core.outage(&[world.key(1)]).expect("none is left");
    assert_eq!((outage.down.len(), outage.known), (0, 1));
}

#[test]
fn pl_14_first_openings_are_spread() {
    let world = World::new(&Settings { start_jitter: ms(100), ..quiet() }, 50);
    let waits: Vec<Duration> =
        world.core.servers.iter().map(|(_, row)| row.connecting.next_try.since(world.now)).collect();
    assert!(waits.iter().all(|wait| *wait <= ms(100)));
    assert!(waits.iter().max() > Some(&ms(80)) && waits.iter().min() < Some(&ms(20)), "{waits:?}");
}

#[test]
fn pl_15_the_pool_grows_while_a_request_waits_and_shrinks_by_idle_time() {
    let settings = Settings {
        connections_per_server: Some(1),
        max_connections_per_server: Some(3),
        max_idle: Duration::from_secs(10),
        ..quiet()
    };
    let mut world = World::full(&settings, 1);
    let lent = world.lent();
    let waiters = [world.queued(), world.queued(), world.queued()];
    world.fill();
    assert_eq!(world.core.open_count(), 3, "no more than the maximum");
    let loans = [world.picked(waiters[0]), world.picked(waiters[1])];
    world.back(&lent);
    let third = world.picked(waiters[2]);
    loans.iter().chain([&third]).for_each(|lent| world.back(lent));
    world.fill();
    assert_eq!(world.core.open_count(), 3);
    world.pass(Duration::from_secs(10));
    world.fill();
    assert_eq!((world.core.open_count(), world.core.counters().idled_out), (1, 2));
}

#[test]
fn pl_15_an_opening_is_dropped_when_the_demand_has_gone() {
    let settings = Settings { connections_per_server: Some(1), max_connections_per_server: Some(2), ..quiet() };
    let mut world = World::full(&settings, 1);
    let lent = world.lent();
    let waiter = world.queued();
    world.reconcile();
    let open = world.opens.pop().expect("one more is opened");
    world.back(&lent);
    world.picked(waiter);
    assert_eq!(world.open(&open), None);
    assert_eq!(world.core.open_count(), 1);
}

#[test]
fn pl_37_limits_hold_under_any_number_of_requests() {
    let settings =
        Settings { connections_per_server: Some(2), max_connections_per_server: Some(4), queue_limit: 500, ..quiet() };
    let mut world = World::full(&settings, 2);
    for _ in 0..1000 {
        let request = world.request();
        world.ask(&request);
        world.reconcile();
        for open in std::mem::take(&mut world.opens) {
            world.open(&open);
        }
    }
    assert_eq!(world.core.open_count(), 8);
    assert_eq!(world.core.usage(), (0, 8, 500));
}

#[test]
fn pl_40_decay_is_never_drawn_for_an_unused_connection() {
    let mut world = World::full(&Settings { decay_per_billion: Some(1_000_000_000), ..quiet() }, 1);
    let lent = world.lent();
    world.end(&lent, Ending::Unused);
    world.reconcile();
    assert!(world.opens.is_empty());
    let lent = world.lent();
    world.back(&lent);
    world.reconcile();
    assert_eq!(world.opens.len(), 1);
}

/// PL-113 PL-40
#[test]
fn decay_under_overload() {
    let settings = Settings { decay_per_billion: Some(1_000_000_000), connections_per_server: Some(1), ..quiet() };
    let mut world = World::full(&settings, 1);
    let lent = world.lent();
    let waiter = world.queued();
    world.back(&lent);
    let again = world.picked(waiter);
    assert_eq!(again.carried.number, lent.carried.number, "it went straight to the waiter");
    world.fill();
    assert_ne!(world.lent().carried.number, lent.carried.number, "and is replaced all the same");
    world.back(&again);
    assert_eq!((world.core.open_count(), world.core.counters().decayed), (1, 1));
}

/// PL-113 PL-40
#[test]
fn decay_rate_is_the_configured_one() {
    let settings = Settings { decay_per_billion: Some(10_000_000), connections_per_server: Some(1), ..quiet() };
    let mut world = World::full(&settings, 1);
    for _ in 0..100_000 {
        let lent = world.lent();
        world.back(&lent);
        world.fill();
    }
    let decayed = world.core.counters().decayed;
    assert!((900..1100).contains(&decayed), "one in a hundred of 100,000 uses: {decayed}");
}

#[test]
fn pl_41_connections_retire_by_age_with_a_spread_and_never_below_the_target_by_idleness() {
    let settings = Settings {
        connections_per_server: Some(20),
        max_age: Duration::from_secs(100),
        max_idle: Duration::from_secs(1),
        recycle_budget: 100,
        ..quiet()
    };
    let mut world = World::full(&settings, 1);
    let dues: Vec<Duration> = world.core.connections.iter().map(|(_, row)| row.age_due.since(world.now)).collect();
    assert!(dues.iter().all(|due| (Duration::from_secs(90)..=Duration::from_secs(100)).contains(due)));
    assert!(dues.iter().max().unwrap().abs_diff(*dues.iter().min().unwrap()) > Duration::from_secs(5));
    world.pass(Duration::from_secs(89));
    world.fill();
    assert_eq!(world.wires, 20, "idle for long, but none above the target");
    world.pass(Duration::from_secs(11));
    world.fill();
    assert_eq!((world.wires, world.core.open_count(), world.core.counters().aged), (40, 20, 20));
}

#[test]
fn pl_42_the_replacement_comes_first_and_few_at_a_time() {
    let settings = Settings {
        connections_per_server: Some(10),
        decay_per_billion: Some(1_000_000_000),
        recycle_budget: 1,
        ..quiet()
    };
    let mut world = World::full(&settings, 3);
    let loans: Vec<_> = (0..30).map(|_| world.lent()).collect();
    loans.iter().for_each(|lent| world.back(lent));
    world.reconcile();
    assert_eq!(world.opens.len(), 3, "a tenth of the pool, one of each server");
    assert_eq!(world.core.open_count(), 30, "none was closed yet");
    let open = world.opens.pop().unwrap();
    world.open(&open);
    assert_eq!((world.core.open_count(), world.core.counters().decayed), (30, 1));
}

#[test]
fn pl_42_no_more_than_a_tenth_of_the_pool_is_replaced_at_once() {
    let settings = Settings {
        connections_per_server: Some(10),
        decay_per_billion: Some(1_000_000_000),
        recycle_budget: 100,
        ..quiet()
    };
    let mut world = World::full(&settings, 1);
    let loans: Vec<_> = (0..10).map(|_| world.lent()).collect();
    loans.iter().for_each(|lent| world.back(lent));
    world.reconcile();
    assert_eq!(world.opens.len(), 1);
}

/// PL-113 PL-42
#[test]
fn failed_replacement_keeps_size() {
    let settings = Settings { decay_per_billion: Some(1_000_000_000), connections_per_server: Some(1), ..quiet() };
    let mut world = World::full(&settings, 1);
    for _ in 0..50 {
        let lent = world.lent();
        assert_eq!(lent.carried.number, 1, "the old one stays in service");
        world.back(&lent);
        world.reconcile();
        for open in std::mem::take(&mut world.opens) {
            world.fail(&open, true);
        }
        world.now = world.now.after(ms(500));
    }
    assert_eq!(world.core.open_count(), 1);
    world.now = world.now.after(ms(1000));
    world.fill();
    assert_eq!((world.core.open_count(), world.lent().carried.number), (1, 2));
}

#[test]
fn pl_42_orphans_retire_their_connection_when_there_are_too_many_or_one_is_too_old() {
    let settings = Settings { connections_per_server: Some(1), max_orphans: 2, ..quiet() };
    let mut world = World::shared(&settings, 1, 100);
    let loans: Vec<_> = (0..3).map(|_| world.lent()).collect();
    world.end(&loans[0], Ending::CutOff);
    world.end(&loans[1], Ending::CutOff);
    world.fill();
    assert_eq!(world.wires, 1, "one time-out alone closes nothing");
    world.end(&loans[2], Ending::CutOff);
    world.fill();
    assert_eq!((world.wires, world.core.open_count()), (2, 1));
    let lent = world.lent();
    world.end(&lent, Ending::CutOff);
    world.pass(Duration::from_secs(31));
    world.fill();
    assert_eq!((world.wires, world.core.open_count()), (3, 1));
}

/// PL-42: with steady time-outs there is always an orphan, but each is answered soon, so none is old. An orphan that is
/// never answered is found among them.
#[test]
fn pl_42_each_orphan_has_its_own_age() {
    let mut world = World::shared(&Settings { connections_per_server: Some(1), ..quiet() }, 1, 100);
    let one_more = |world: &mut World| {
        let lent = world.lent();
        world.end(&lent, Ending::CutOff);
        (lent.connection, world.now)
    };
    let mut last = one_more(&mut world);
    let mut time_goes_on = |world: &mut World| {
        for _ in 0..80 {
            world.pass(ms(500));
            let (connection, gone_at) = std::mem::replace(&mut last, one_more(world));
            world.core.end_orphan(connection, gone_at, true, world.now, &mut world.effects);
            world.after();
            world.fill();
        }
    };
    time_goes_on(&mut world);
    assert_eq!(world.wires, 1, "none was older than half a second");
    one_more(&mut world);
    time_goes_on(&mut world);
    assert_eq!((world.wires, world.core.open_count()), (2, 1));
}

/// PL-61 PL-42: if the settings changed during a connect, the new connection is replaced.
#[test]
fn pl_61_a_connection_whose_settings_change_during_its_connect_is_replaced() {
    let of =
        |seconds| Settings { connections_per_server: Some(1), write_timeout: Duration::from_secs(seconds), ..quiet() };
    for (settings, wires) in [(of(5), 1), (of(6), 2)] {
        let mut world = World::new(&of(5), 1);
        world.reconcile();
        let open = world.opens.pop().expect("due");
        assert_eq!(open.write_timeout, Duration::from_secs(5));
        world.set(&settings);
        world.open(&open);
        world.fill();
        assert_eq!((world.wires, world.core.open_count()), (wires, 1));
    }
}

/// PL-118
#[test]
fn up_without_connections_is_filled() {
    let mut world = World::full(&quiet(), 2);
    let all: Vec<Key> = world.core.connections.iter().map(|(key, _)| key).collect();
    for connection in all {
        world.core.died(connection, "reset", world.now, &mut world.effects);
        world.after();
    }
    assert_eq!((world.core.open_count(), world.state(1)), (0, ServerState::Down));
    world.now = world.now.after(Duration::from_secs(5));
    world.fill();
    assert_eq!((world.core.open_count(), world.state(1)), (4, ServerState::Up));
}

/// PL-118 PL-188: a returning server gets no storm of connects.
#[test]
fn no_storm_on_return() {
    let mut connects = 0;
    for seed in 0..100 {
        let mut world = World::new(&Settings { connections_per_server: Some(3), ..quiet() }, 1);
        world.core.random = seed;
        for _ in 0..200 {
            world.reconcile();
            assert!(world.opens.len() <= 2, "two at a time");
            for open in std::mem::take(&mut world.opens) {
                world.fail(&open, true);
            }
            world.now = world.now.after(ms(100));
        }
        for _ in 0..100 {
            world.core.hurry(server(1).address, world.now, &mut world.effects);
            world.reconcile();
            assert!(world.opens.len() <= 2, "two at a time");
            connects += world.opens.len();
            for open in std::mem::take(&mut world.opens) {
                world.open(&open);
            }
            world.now = world.now.after(ms(100));
        }
        assert_eq!(world.core.open_count(), 3);
    }
    assert!(connects <= 360, "{connects} connects for 300 connections");
}

/// PL-104
#[test]
fn failed_server_stays_in_ring() {
    let mut world = World::new(&quiet(), 3);
    for _ in 0..20 {
        world.reconcile();
        for open in std::mem::take(&mut world.opens) {
            world.fail(&open, true);
        }
        assert_eq!(world.core.ring.len(), 3);
        world.now = world.now.after(Duration::from_secs(1));
    }
}

#[test]
fn a_server_that_accepts_and_hangs_up_is_left_alone_for_longer_and_longer() {
    let mut world = World::new(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let mut connects = 0;
    for _ in 0..1000 {
        world.reconcile();
        for open in std::mem::take(&mut world.opens) {
            connects += 1;
            let connection = world.open(&open).expect("wanted");
            world.core.died(connection, "reset", world.now, &mut world.effects);
            world.after();
        }
        world.now = world.now.after(ms(100));
    }
    assert!(connects < 100, "{connects} connects in 100 seconds");
}
