use super::*;

/// Runs requests on the servers that the core chooses and counts them per server; `cost` is the time of each server.
fn served(world: &mut World, requests: usize, cost: impl Fn(u8) -> Duration) -> HashMap<u8, usize> {
    served_near(world, &[], requests, cost)
}

fn served_near(world: &mut World, near: &[Key], requests: usize, cost: impl Fn(u8) -> Duration) -> HashMap<u8, usize> {
    let mut shares = HashMap::new();
    let mut under_way: Vec<(Moment, LentConnection<Wire>, Moment)> = Vec::new();
    for _ in 0..requests {
        world.now = world.now.after(ms(2));
        under_way.retain(|(ends, lent, begun)| {
            let over = *ends <= world.now;
            if over {
                let used = world.now.micros_since(*begun);
                world.core.checkin(lent.connection, Ending::Answered, used, world.now, &mut world.effects);
            }
            !over
        });
        world.pass(Duration::ZERO);
        let request = Request { idempotent: true, due: Moment::FAR, near, ..Request::default() };
        match world.ask(&request) {
            Checkout::Lent(lent) => {
                let id = world.core.server(lent.server).unwrap().id.to_string();
                let number: u8 = id.trim_start_matches('s').parse().unwrap();
                *shares.entry(number).or_default() += 1;
                under_way.push((world.now.after(cost(number)), lent, world.now));
            }
            Checkout::Queued(waiter) => world.cancel(waiter),
            Checkout::Refused(refusal) => panic!("{refusal:?}"),
        }
    }
    for (_, lent, begun) in under_way {
        let used = world.now.micros_since(begun);
        world.core.checkin(lent.connection, Ending::Answered, used, world.now, &mut world.effects);
    }
    world.after();
    shares
}

#[test]
fn pl_80_fewer_in_flight_then_quicker_then_in_turn() {
    let mut world = World::shared(&quiet(), 2, 100);
    let (one, two) = (world.key(1), world.key(2));
    let choose = |world: &mut World| world.core.best_of(&[one, two], &[]).unwrap();
    let first = choose(&mut world);
    let on = Request { target: Some(first), ..world.request() };
    let lent = world.lent_for(&on);
    let second = choose(&mut world);
    assert_ne!(first, second, "one in flight is more than none");
    world.end(&lent, Ending::Unused);
    assert_eq!(choose(&mut world), second, "equal again: the one used longest ago");
    world.core.servers.get_mut(second).unwrap().answered(9000);
    world.core.servers.get_mut(first).unwrap().answered(1000);
    assert_eq!(choose(&mut world), first, "the quicker one");
}

#[test]
fn pl_80_servers_share_evenly_and_nearness_is_a_preference() {
    let mut world = World::shared(&quiet(), 4, 100);
    let shares = served(&mut world, 4000, |_| ms(5));
    assert!(shares.values().all(|share| (700..1300).contains(share)), "{shares:?}");
    let near = world.key(3);
    for _ in 0..20 {
        let request = Request { near: &[near], ..world.request() };
        assert_eq!(world.lent_for(&request).server, near);
    }
    let request = Request { near: &[near], tried: &[near], ..world.request() };
    assert_ne!(world.lent_for(&request).server, near);
}

/// CQ-11: the preferred servers are chosen by the same rules as all servers, and the others get nothing.
#[test]
fn pl_80_pl_83_two_preferred_servers_are_drawn_by_weight() {
    let settings = Settings { slow_start: Duration::from_secs(30), ..quiet() };
    let mut world = World::shared(&settings, 3, 1000);
    world.now = world.now.after(Duration::from_secs(60));
    world.discover(&[server(1), server(2), server(3), server(4)]);
    world.fill();
    let near = [1, 2, 4].map(|number| world.key(number));
    let share = |shares: &HashMap<u8, usize>, number| shares.get(&number).copied().unwrap_or(0);
    let early = served_near(&mut world, &near, 1000, |_| ms(1));
    assert!((5..150).contains(&share(&early, 4)), "it is new: {early:?}");
    world.now = world.now.after(Duration::from_secs(40));
    // One request at a time, so that the servers differ only in their times.
    let late = served_near(&mut world, &near, 1000, |number| Duration::from_micros(1000 + 100 * u64::from(number)));
    assert!([1, 2, 4].iter().all(|number| share(&late, *number) > 50), "the slowest is not forgotten: {late:?}");
    assert!(share(&late, 1) > share(&late, 4), "the quickest has most: {late:?}");
    assert_eq!((share(&early, 3), share(&late, 3)), (0, 0));
}

/// PL-106 PL-81 PL-162
#[test]
fn slow_server_is_remembered() {
    let mut world = World::shared(&quiet(), 3, 1000);
    served(&mut world, 1000, |_| ms(2));
    let onset = |number: u8| if number == 3 { ms(200) } else { ms(2) };
    served(&mut world, 1000, onset);
    assert_eq!(world.state(3), ServerState::Suspect);
    let shares = served(&mut world, 10_000, onset);
    assert!(shares.get(&3).copied().unwrap_or(0) <= 70, "{shares:?}");
    assert_eq!((world.state(1), world.state(2)), (ServerState::Up, ServerState::Up));
}

#[test]
fn pl_81_if_all_servers_are_slow_none_is_suspect() {
    let mut world = World::shared(&quiet(), 3, 1000);
    served(&mut world, 1000, |_| ms(2));
    served(&mut world, 3000, |_| ms(200));
    assert_eq!(world.core.counters().suspicions, 0);
    let slow_half = |number: u8| if number > 1 { ms(300) } else { ms(2) };
    served(&mut world, 3000, slow_half);
    let suspects = [1, 2, 3].iter().filter(|number| world.state(**number) == ServerState::Suspect).count();
    assert!(suspects <= 1, "suspicion does not spread over half the tier");
}

#[test]
fn pl_81_a_server_that_stops_answering_is_found_without_an_answer() {
    let mut world = World::shared(&quiet(), 3, 1000);
    served(&mut world, 1000, |_| ms(60));
    let stopped = |number: u8| if number == 2 { Duration::from_secs(3600) } else { ms(60) };
    let before = world.now;
    served(&mut world, 500, stopped);
    assert_eq!(world.state(2), ServerState::Suspect, "after {:?}", world.now.since(before));
}

/// PL-80 PL-161: a server with more requests in flight than the others is not chosen, suspect or not.
#[test]
fn pl_80_a_server_that_never_answers_gets_no_more_requests_than_the_others_have() {
    let mut world = World::shared(&quiet(), 3, 1000);
    served(&mut world, 1000, |_| ms(2));
    let stopped = |number: u8| if number == 2 { Duration::from_secs(3600) } else { ms(2) };
    let shares = served(&mut world, 500, stopped);
    assert!(shares.get(&2).copied().unwrap_or(0) <= 3, "{shares:?}");
}

#[test]
fn pl_81_five_faults_in_a_row_and_only_the_servers_own() {
    let mut world = World::full(&quiet(), 3);
    let one = world.key(1);
    let judge = |world: &mut World, judgement| {
        world.core.judge(one, judgement, world.now, &mut world.effects);
        world.after();
    };
    for _ in 0..20 {
        judge(&mut world, Judgement::Neutral);
    }
    for _ in 0..4 {
        judge(&mut world, Judgement::Fault);
    }
    judge(&mut world, Judgement::Answered(ms(1)));
    for _ in 0..4 {
        judge(&mut world, Judgement::Fault);
    }
    assert_eq!(world.state(1), ServerState::Up);
    judge(&mut world, Judgement::Fault);
    assert_eq!(world.state(1), ServerState::Suspect);
    let on = Request { target: Some(one), ..world.request() };
    world.lent_for(&on);
}

/// PL-81 PL-71: in both orders.
#[test]
fn pl_81_expiry_and_caller_count_a_time_out_once() {
    for clock_first in [false, true] {
        let mut world = World::full(&quiet(), 3);
        for number in 1..=5 {
            let request = Request { due: world.now.after(ms(50)), target: Some(world.key(1)), ..world.request() };
            let Checkout::Lent(lent) = world.ask(&request) else { panic!("none is free") };
            if clock_first {
                world.pass(ms(50));
            }
            world.now = world.now.after(ms(1));
            world.core.timed_out(lent.connection, lent.server, Some(lent.begun), world.now, &mut world.effects);
            world.after();
            world.end(&lent, Ending::CutOff);
            world.pass(ms(50));
            world.fill();
            assert_eq!(world.core.counters().use_timeouts, number, "{clock_first}");
            let expected = if number < 5 { ServerState::Up } else { ServerState::Suspect };
            assert_eq!(world.state(1), expected, "{clock_first}, {number} times");
        }
    }
}

/// PL-81: a caller that gave its connection back and times out later does not end the next loan of that connection.
#[test]
fn pl_81_a_time_out_ends_its_own_loan_alone() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 1);
    let first = world.lent();
    world.back(&first);
    world.now = world.now.after(ms(1));
    let second = world.lent();
    assert_eq!(first.connection, second.connection);
    world.core.timed_out(first.connection, first.server, Some(first.begun), world.now, &mut world.effects);
    world.after();
    assert_eq!((world.core.counters().use_timeouts, world.core.usage()), (0, (0, 1, 0)));
    world.back(&second);
}

#[test]
fn pl_81_a_suspect_server_serves_one_idempotent_request_in_two_hundred_and_all_when_alone() {
    let mut world = World::shared(&quiet(), 3, 1000);
    let one = world.key(1);
    for _ in 0..5 {
        world.core.judge(one, Judgement::Fault, world.now, &mut world.effects);
    }
    world.after();
    let count = |world: &mut World, idempotent: bool| {
        let mut hits = 0;
        for _ in 0..2000 {
            let request = Request { idempotent, ..world.request() };
            let lent = world.lent_for(&request);
            hits += usize::from(lent.server == one);
            world.back(&lent);
        }
        hits
    };
    assert_eq!((count(&mut world, true), count(&mut world, false)), (10, 0));
    let others: Vec<Key> =
        world.core.connections.iter().filter(|(_, row)| row.server != one).map(|(key, _)| key).collect();
    for connection in others {
        world.core.died(connection, "reset", world.now, &mut world.effects);
        world.after();
    }
    assert_eq!(count(&mut world, false), 2000);
}

fn accuse(world: &mut World, number: u8) {
    let key = world.key(number);
    for _ in 0..5 {
        world.core.judge(key, Judgement::Fault, world.now, &mut world.effects);
    }
    world.after();
    assert_eq!(world.state(number), ServerState::Suspect);
}

fn prove(world: &mut World, number: u8, took: Duration) {
    let key = world.key(number);
    world.core.probed(key, Some(took), world.now, &mut world.effects);
    world.after();
}

#[test]
fn pl_82_suspicion_ends_by_proof_after_a_stay_that_doubles() {
    let mut world = World::full(&quiet(), 3);
    accuse(&mut world, 1);
    for _ in 0..5 {
        prove(&mut world, 1, ms(1));
    }
    assert_eq!(world.state(1), ServerState::Suspect, "the stay is a second");
    world.now = world.now.after(ms(1000));
    prove(&mut world, 1, ms(100));
    prove(&mut world, 1, ms(1));
    prove(&mut world, 1, ms(1));
    assert_eq!(world.state(1), ServerState::Suspect, "a slow answer between: three good ones in a row are needed");
    prove(&mut world, 1, ms(1));
    assert_eq!(world.state(1), ServerState::Up);
    accuse(&mut world, 1);
    world.now = world.now.after(ms(1900));
    for _ in 0..3 {
        prove(&mut world, 1, ms(1));
    }
    assert_eq!(world.state(1), ServerState::Suspect, "again within a minute: two seconds");
    world.now = world.now.after(ms(100));
    prove(&mut world, 1, ms(1));
    assert_eq!(world.state(1), ServerState::Up);
}

#[test]
fn pl_82_a_server_that_was_down_starts_without_suspicion() {
    let mut world = World::full(&quiet(), 3);
    accuse(&mut world, 1);
    let one = world.key(1);
    let own: Vec<Key> =
        world.core.connections.iter().filter(|(_, row)| row.server == one).map(|(key, _)| key).collect();
    for connection in own {
        world.core.died(connection, "reset", world.now, &mut world.effects);
        world.after();
    }
    assert_eq!(world.state(1), ServerState::Down);
    world.now = world.now.after(Duration::from_secs(1));
    world.fill();
    assert_eq!(world.state(1), ServerState::Up);
}

#[test]
fn pl_83_a_returned_server_gets_its_share_gradually() {
    let settings = Settings { slow_start: Duration::from_secs(30), ..quiet() };
    let mut world = World::shared(&settings, 3, 1000);
    world.now = world.now.after(Duration::from_secs(60));
    world.discover(&[server(1), server(2), server(3), server(4)]);
    world.fill();
    let early = served(&mut world, 1000, |_| ms(1));
    world.now = world.now.after(Duration::from_secs(40));
    let late = served(&mut world, 1000, |_| ms(1));
    let share = |shares: &HashMap<u8, usize>| shares.get(&4).copied().unwrap_or(0);
    assert!(share(&early) < 120, "{early:?}");
    assert!(share(&early) > 5, "{early:?}");
    assert!(share(&late) > 180, "{late:?}");
}

#[test]
fn pl_83_states_do_not_flap() {
    let mut world = World::shared(&quiet(), 3, 1000);
    served(&mut world, 500, |_| ms(2));
    world.effects.changes.clear();
    // One server is slow in every other second.
    for _ in 0..60 {
        let slow = (world.now.0 / 1_000_000).is_multiple_of(2);
        served(&mut world, 500, |number| if slow && number == 1 { ms(100) } else { ms(2) });
    }
    let changes = world
        .effects
        .changes
        .iter()
        .filter(|change| matches!(change, Change::Server { id, .. } if *id == server(1).id))
        .count();
    assert!(changes <= 4, "{changes} changes in a minute");
}

#[test]
fn pl_86_further_tries_are_a_fifth_of_requests_and_need_another_server() {
    let mut world = World::full(&quiet(), 2);
    let (one, two) = (world.key(1), world.key(2));
    let tried = TriedServers::from_slice(&[one]);
    let mut allowed = 0;
    for _ in 0..1000 {
        let lent = world.lent();
        world.back(&lent);
        allowed += usize::from(world.core.may_retry(&tried));
    }
    assert!((200..=210).contains(&allowed), "{allowed}");
    assert!(!world.core.may_retry(&TriedServers::from_slice(&[one, two])));
}

#[test]
fn pl_86_all_that_a_server_loses_at_once_may_be_tried_elsewhere_at_once() {
    let mut world = World::shared(&quiet(), 2, 1000);
    for _ in 0..10 {
        let under_way: Vec<_> = (0..60).map(|_| world.lent()).collect();
        under_way.iter().for_each(|lent| world.back(lent));
    }
    let under_way: Vec<_> = (0..60).map(|_| world.lent()).collect();
    let one = world.key(1);
    let lost = under_way.iter().filter(|lent| lent.server == one).count();
    assert!(lost > 20, "{lost}");
    for lent in under_way.iter().filter(|lent| lent.server == one) {
        world.end(lent, Ending::Finished);
        assert!(world.core.may_retry(&TriedServers::from_slice(&[one])));
    }
}

#[test]
fn pl_86_a_lost_request_may_wait_for_a_server_that_comes_back() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 2);
    let (one, two) = (world.key(1), world.key(2));
    for lent in [world.lent(), world.lent()] {
        world.end(&lent, Ending::Discarded);
    }
    assert_eq!([world.state(1), world.state(2)], [ServerState::Down, ServerState::Down]);
    assert!(world.core.may_retry_lost(&TriedServers::from_slice(&[one])));
    assert!(!world.core.may_retry_lost(&TriedServers::from_slice(&[one, two])));
    // A request that was answered with an error fails at once.
    assert!(!world.core.may_retry(&TriedServers::from_slice(&[one])));
}

#[test]
fn pl_85_no_hedge_while_a_request_waits() {
    let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 2);
    let tried = TriedServers::from_slice(&[world.key(1)]);
    assert!(world.core.may_speculate(&tried, false));
    world.lent();
    world.lent();
    world.queued();
    assert!(!world.core.may_speculate(&tried, false) && !world.core.may_speculate(&tried, true));
}

/// PL-85, PL-86, PL-161: requests that are only slow may use up the hedge budget. A stuck request may use the retry
/// budget as well, also while no new request earns a hedge.
#[test]
fn pl_85_a_stuck_request_may_use_the_retry_budget() {
    for (retry_budget, late) in [(20, 10), (0, 0)] {
        let mut world = World::full(&Settings { retry_budget, ..quiet() }, 2);
        let tried = TriedServers::from_slice(&[world.key(1)]);
        let mut count = |late| (0..1000).take_while(|_| world.core.may_speculate(&tried, late)).count();
        assert_eq!((count(false), count(true), count(true)), (60, late, 0));
        for _ in 0..10 {
            let lent = world.lent();
            world.back(&lent);
        }
        let mut count = |late| (0..1000).take_while(|_| world.core.may_speculate(&tried, late)).count();
        assert_eq!((count(false), count(true)), (1, late / 5), "a hedge for each ten requests, a retry for each five");
        assert_eq!(world.core.counters().speculations as usize, 61 + late + late / 5);
    }
}

/// A request in flight at this server that has lost against its hedge.
fn overtaken(world: &mut World, server: Key, due: Duration) -> Arc<Flights> {
    let flights: Arc<Flights> = Arc::default();
    flights.begin();
    let one = OvertakenRequest { server, begun: world.now, due: world.now.after(due), flights: Some(flights.clone()) };
    world.core.overtaken(one, world.now, &mut world.effects);
    flights
}

#[test]
fn pl_85_a_loser_runs_on_and_its_late_answer_counts() {
    let mut world = World::shared(&quiet(), 3, 1000);
    let one = world.key(1);
    let flights = overtaken(&mut world, one, ms(2000));
    let answered = world.now.after(ms(30));
    flights.answered(|| answered);
    flights.end();
    let (lost, came_before) = (overtaken(&mut world, one, ms(2000)), Arc::<Flights>::default());
    lost.end();
    let one_more = OvertakenRequest { server: one, begun: world.now, due: world.now, flights: Some(came_before) };
    world.core.overtaken(one_more, world.now, &mut world.effects);
    world.pass(ms(200));
    let row = world.core.servers.get(one).unwrap();
    assert_eq!((row.health.latency(), row.uses.count()), (ms(30), 1), "one answer was counted");
    assert_eq!(world.core.overtaken_at(one), 0);
    world.pass(ms(5000));
    assert_eq!((world.state(1), world.core.tick_at), (ServerState::Up, Moment::FAR), "and no check is scheduled");
}

/// PL-85: if a connection does not report its requests in flight, only the length of the race is known of a loser.
#[test]
fn pl_85_a_loser_whose_answer_is_never_seen_took_as_long_as_the_race() {
    let mut world = World::shared(&quiet(), 3, 1000);
    let one = world.key(1);
    let mut lose = |after| {
        let (begun, now) = (world.now, world.now.after(ms(after)));
        let loser = OvertakenRequest { server: one, begun, due: now, flights: None };
        world.core.overtaken(loser, now, &mut world.effects);
        let row = world.core.servers.get(one).unwrap();
        (row.health.latency(), row.uses.count())
    };
    assert_eq!(lose(60), (ms(60), 1));
    assert_eq!(lose(30), (ms(60), 1), "it might have been as quick as ever");
    assert_eq!(lose(80), (ms(63), 2));
}

/// PL-85: a race that ended before an answer could come proves nothing about a server that has not answered yet.
#[test]
fn pl_85_a_loser_of_a_short_race_is_no_measure() {
    let mut world = World::shared(&quiet(), 3, 1000);
    let [one, two, three] = [1, 2, 3].map(|number| world.key(number));
    for other in [two, three] {
        world.core.judge(other, Judgement::Answered(ms(20)), world.now, &mut world.effects);
    }
    let mut lose = |used| {
        world.core.judge(one, Judgement::Overtaken(ms(used)), world.now, &mut world.effects);
        world.core.servers.get(one).unwrap().health.latency()
    };
    assert_eq!([1, 20, 21].map(&mut lose), [ms(0), ms(0), ms(21)], "no more than the others take");
}

/// PL-85 PL-82: nor does it reset the good answers of a suspect server.
#[test]
fn pl_85_a_loser_of_a_short_race_disproves_nothing() {
    for (race, state) in [(3, ServerState::Up), (30, ServerState::Suspect)] {
        let mut world = World::shared(&quiet(), 3, 1000);
        let one = world.key(1);
        for _ in 0..5 {
            world.core.judge(one, Judgement::Fault, world.now, &mut world.effects);
        }
        assert_eq!(world.state(1), ServerState::Suspect);
        let later = world.now.after(Duration::from_secs(600));
        let answered = Judgement::Answered(ms(4));
        for judgement in [answered, answered, Judgement::Overtaken(ms(race)), answered] {
            world.core.judge(one, judgement, later, &mut world.effects);
        }
        assert_eq!(world.state(1), state, "a race of {race} ms");
    }
}

/// PL-81: it makes no difference whether hedges rescued the callers.
#[test]
fn pl_85_a_server_whose_requests_all_lose_is_found() {
    let mut world = World::shared(&quiet(), 3, 1000);
    let one = world.key(1);
    let five: Vec<_> = (0..5).map(|_| overtaken(&mut world, one, ms(2000))).collect();
    world.pass(ms(1900));
    assert_eq!(world.state(1), ServerState::Up, "they may still be answered");
    world.pass(ms(200));
    assert_eq!(world.state(1), ServerState::Suspect, "five in a row were not");
    drop(five);
    let mut world = World::shared(&quiet(), 3, 1000);
    let two = world.key(2);
    served(&mut world, 200, |_| ms(2));
    let ten: Vec<_> = (0..10).map(|_| overtaken(&mut world, two, ms(60_000))).collect();
    let others = [world.key(1), world.key(3)];
    served_near(&mut world, &others, 500, |_| ms(2));
    assert_eq!(world.state(2), ServerState::Suspect, "ten of its own are old, and the others answer");
    drop(ten);
}
