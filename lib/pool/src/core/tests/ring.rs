use super::*;
use crate::server::ServerId;

fn ids(world: &World) -> Vec<String> {
    world.core.ring.iter().map(|key| world.core.servers.get(*key).unwrap().server.id.to_string()).collect()
}

#[test]
fn pl_10_a_discovered_server_adopts_the_connections_of_its_seed() {
    let mut world = World::new(&quiet(), 0);
    let seeds = [Server::at(server(1).address), Server::at(([10, 9, 9, 9], 9042).into())];
    world.core.seeds(&seeds, false, world.now, &mut world.effects);
    world.fill();
    assert_eq!(world.core.open_count(), 4);
    world.discover(&[server(1), server(2)]);
    assert_eq!(ids(&world), ["s1", "s2"], "the seed that discovery did not name has left");
    assert_eq!(world.core.open_count(), 2, "the connections of the other stay");
    let wires = world.wires;
    world.fill();
    assert_eq!((world.core.open_count(), world.wires), (4, wires + 2));
}

/// PL-10 PL-25
#[test]
fn pl_25_a_server_that_got_its_name_later_is_still_found_by_its_address() {
    let mut world = World::new(&quiet(), 0);
    let (seed, named) = (Server::at(server(1).address), server(1));
    world.core.seeds(std::slice::from_ref(&seed), false, world.now, &mut world.effects);
    world.discover(std::slice::from_ref(&named));
    let key = world.core.find_server(&named);
    assert!(key.is_some());
    assert_eq!(world.core.find_server(&seed), key, "by its old id");
    // A server with another id at the same address is not the same server.
    assert_eq!(world.core.find_server(&Server { id: ServerId::new("c3d4"), ..seed.clone() }), None);
    assert_eq!(world.core.find_server(&server(2)), None);
    world.core.seeds(&[], true, world.now, &mut world.effects);
    world.after();
    assert_eq!(world.core.find_server(&seed), None, "it has left");
}

#[test]
fn pl_10_the_same_address_under_a_new_id_is_another_server() {
    let mut world = World::full(&quiet(), 1);
    let heir = Server { id: ServerId::new("heir"), ..server(1) };
    world.discover(std::slice::from_ref(&heir));
    assert_eq!(ids(&world), ["heir"]);
    assert_eq!(world.core.open_count(), 0);
    world.fill();
    assert_eq!(world.core.open_count(), 2);
}

/// PL-102
#[test]
fn target_follows_live_ring() {
    let mut world = World::full(&quiet(), 2);
    assert_eq!(world.core.wanted(), 4);
    world.discover(&[server(1), server(2), server(3)]);
    assert_eq!(world.core.wanted(), 6);
    world.fill();
    assert_eq!(world.core.open_count(), 6);
    world.discover(&[server(3)]);
    world.discover(&[server(3)]);
    assert_eq!((world.core.wanted(), world.core.open_count()), (2, 2));
}

#[test]
fn pl_52_a_server_leaves_after_two_rounds_without_it_or_one_and_a_notice() {
    let mut world = World::full(&quiet(), 3);
    let change = world.discover(&[server(1), server(2)]);
    assert_eq!(change.absent, [server(3).id]);
    world.discover(&[server(1), server(2), server(3)]);
    let change = world.discover(&[server(1), server(2)]);
    assert!(change.leaving.is_empty(), "it was there in between");
    let change = world.discover(&[server(1), server(2)]);
    assert_eq!(change.leaving, [server(3).id]);
    world.core.on_removed_notice(server(2).address);
    let change = world.discover(&[server(1)]);
    assert_eq!(change.leaving, [server(2).id]);
    assert_eq!(ids(&world), ["s1"]);
}

#[test]
fn pl_52_a_server_that_moved_is_replaced() {
    let mut world = World::full(&quiet(), 1);
    let moved = Server { address: ([10, 0, 0, 99], 9042).into(), ..server(1) };
    world.discover(std::slice::from_ref(&moved));
    world.fill();
    let lent = world.lent();
    assert_eq!(world.core.server(lent.server), Some(&moved));
    assert_eq!((ids(&world).len(), world.core.open_count()), (1, 2));
}

/// PL-114
#[test]
fn shrink_to_one_is_noticed() {
    let mut world = World::full(&quiet(), 3);
    world.discover(&[server(2)]);
    world.discover(&[server(2)]);
    assert_eq!(ids(&world), ["s2"]);
}

/// PL-114 PL-52
#[test]
fn removed_server_drains() {
    let mut world = World::full(&Settings { drain_timeout: ms(500), ..quiet() }, 2);
    let one = world.key(1);
    let on = Request { target: Some(one), ..world.request() };
    let (kept, late) = (world.lent_for(&on), world.lent_for(&on));
    world.discover(&[server(2)]);
    world.discover(&[server(2)]);
    assert!(ids(&world).contains(&"s1".to_owned()), "what is on loan may finish");
    for _ in 0..4 {
        let request = world.request();
        if let Checkout::Lent(lent) = world.ask(&request) {
            assert_ne!(lent.server, one, "nothing new goes there");
        }
    }
    world.back(&kept);
    world.pass(ms(499));
    assert!(ids(&world).contains(&"s1".to_owned()));
    world.pass(ms(1));
    assert_eq!(ids(&world), ["s2"], "then it is cut");
    world.back(&late);
}

#[test]
fn pl_53_without_discovery_the_configured_servers_are_the_ring() {
    let mut world = World::new(&quiet(), 0);
    let seeds = |numbers: &[u8]| numbers.iter().map(|n| Server::at(server(*n).address)).collect::<Vec<_>>();
    world.core.seeds(&seeds(&[1, 2]), true, world.now, &mut world.effects);
    world.fill();
    assert_eq!(world.core.open_count(), 4);
    world.core.seeds(&seeds(&[2, 3]), true, world.now, &mut world.effects);
    world.after();
    world.fill();
    assert_eq!(ids(&world), ["10.0.0.2:9042", "10.0.0.3:9042"]);
    assert_eq!((world.core.open_count(), world.wires), (4, 6), "the second kept its connections");
}

#[test]
fn pl_53_a_down_notice_starts_a_probe_and_an_up_notice_clears_the_back_off() {
    let mut world = World::full(&quiet(), 2);
    world.core.on_down_notice(server(1).address, world.now, &mut world.effects);
    assert_eq!(world.effects.probe.len(), 1);
    assert_eq!(world.state(1), ServerState::Up, "the notice alone changes nothing");
    world.after();
    assert_eq!(world.core.usage(), (4, 0, 0));
}

#[test]
fn pl_84_nearer_tiers_go_first_and_remote_ones_only_if_allowed() {
    let place = |number: u8, datacentre: &str, rack: &str| server(number).within(datacentre, rack);
    let all = [place(1, "north", "r1"), place(2, "north", "r2"), place(3, "south", "r1")];
    let settings = Settings {
        local_datacentre: Some("north".to_owned()),
        local_rack: Some("r1".to_owned()),
        connections_per_server: Some(1),
        ..quiet()
    };
    for allow_remote in [false, true] {
        let mut world = World::new(&Settings { allow_remote, ..settings.clone() }, 0);
        world.discover(&all);
        world.fill();
        let mut order = Vec::new();
        for number in [1, 2, 3] {
            let request = world.request();
            match world.ask(&request) {
                Checkout::Lent(lent) => order.push(world.core.server(lent.server).unwrap().id.to_string()),
                Checkout::Queued(waiter) => world.cancel(waiter),
                Checkout::Refused(refusal) => panic!("{refusal:?}"),
            }
            // The nearest one goes down.
            let key = world.key(number);
            let gone: Vec<Key> =
                world.core.connections.iter().filter(|(_, row)| row.server == key).map(|(key, _)| key).collect();
            for connection in gone {
                world.core.died(connection, "reset", world.now, &mut world.effects);
                world.after();
            }
        }
        let expected: &[&str] = if allow_remote { &["s1", "s2", "s3"] } else { &["s1", "s2"] };
        assert_eq!(order, expected);
    }
}

/// PL-1: the commands follow the table in the header of the states.
#[test]
fn pl_1_every_command_answers_before_and_now() {
    use State::{Active, Broken, Closed, Disabled, Draining, Inactive};
    let command = |state: State, name: &str| {
        let mut core: Core<Wire> = Core::new(Rules::from(&quiet()), state, 1);
        if matches!(state, Draining(_)) {
            core.state = Active;
            let Draining(next) = state else { unreachable!() };
            core.begin_drain(next, true, &mut Effects::default());
        }
        let effects = &mut Effects::default();
        let (before, now) = match name {
            "enable" => core.enable(effects),
            "activate" => core.activate(effects),
            "deactivate" => core.begin_drain(DrainTarget::Inactive, true, effects),
            "disable" => core.begin_drain(DrainTarget::Disabled, true, effects),
            _ => core.begin_drain(DrainTarget::Closed, true, effects),
        };
        assert_eq!((before, now), (state, core.state()));
        assert_eq!(effects.changes.is_empty(), before == now, "no change without a change");
        now
    };
    let names = ["enable", "activate", "deactivate", "disable", "close"];
    let table = [
        (Disabled, [Inactive, Disabled, Disabled, Disabled, Draining(DrainTarget::Closed)]),
        (Inactive, [Inactive, Active, Inactive, Draining(DrainTarget::Disabled), Draining(DrainTarget::Closed)]),
        (
            Active,
            [
                Active,
                Active,
                Draining(DrainTarget::Inactive),
                Draining(DrainTarget::Disabled),
                Draining(DrainTarget::Closed),
            ],
        ),
        (
            Draining(DrainTarget::Disabled),
            [
                Draining(DrainTarget::Disabled),
                Draining(DrainTarget::Disabled),
                Draining(DrainTarget::Disabled),
                Draining(DrainTarget::Disabled),
                Draining(DrainTarget::Closed),
            ],
        ),
        (Closed, [Closed; 5]),
        (Broken, [Broken, Broken, Broken, Broken, Draining(DrainTarget::Closed)]),
    ];
    for (state, expected) in table {
        for (name, expected) in names.into_iter().zip(expected) {
            assert_eq!(command(state, name), expected, "{name} in {state:?}");
        }
    }
}

#[test]
fn pl_5_a_drain_serves_or_fails_waiters_and_cuts_what_is_late() {
    for serve in [true, false] {
        let mut world = World::full(&Settings { connections_per_server: Some(1), ..quiet() }, 2);
        let (early, late) = (world.lent(), world.lent());
        let waiter = world.queued();
        world.core.begin_drain(DrainTarget::Inactive, serve, &mut world.effects);
        world.after();
        let request = world.request();
        assert_eq!(world.refused(&request).kind, crate::error::Kind::Draining);
        world.back(&early);
        assert!(world.was_woken(waiter));
        if serve {
            let lent = world.picked(waiter);
            world.back(&lent);
        } else {
            assert!(matches!(world.pick_up(waiter), PickUp::Refused(_)));
        }
        assert!(!world.core.is_drained());
        let drained = world.core.finish_drain(world.now, &mut world.effects);
        world.after();
        let expected = if serve {
            DrainReport { finished: 2, aborted: 1, waiters_failed: 0, closed: 2 }
        } else {
            DrainReport { finished: 1, aborted: 1, waiters_failed: 1, closed: 2 }
        };
        assert_eq!(drained, expected, "waiters served: {serve}");
        assert_eq!((world.core.state(), world.core.open_count()), (State::Inactive, 0));
        world.back(&late);
        world.reconcile();
        assert!(world.opens.is_empty(), "an inactive pool opens nothing");
    }
}
