//! Compares the three providers with each other, and checks their error messages.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Makes settings from random bits, each key within its range.
fn settings(bits: &[u64]) -> Settings {
    let mut bits = bits.iter().copied().cycle();
    let mut draw = |least: u64, most: u64| least + bits.next().unwrap_or(0) % (most - least + 1);
    let ms = |n: u64| Duration::from_millis(n);
    let wanted = draw(1, 500) as u32;
    let some = |n: u64, value: u32| (n > 0).then_some(value);
    let names = |n: u64| (0..n).map(|at| format!("name \"{at}\" \\ é\n")).collect::<Vec<_>>();
    let address = |n: u64| SocketAddr::from(([10, 0, 0, n as u8], n as u16));
    let datacentre = draw(0, 1) > 0;
    Settings {
        name: names(draw(1, 3)).concat(),
        enabled: draw(0, 1) > 0,
        start: [Start::Active, Start::Inactive][draw(0, 1) as usize],
        mode: [Mode::Auto, Mode::Exclusive, Mode::Shared][draw(0, 2) as usize],
        servers: (0..draw(1, 4)).map(|n| format!("host{n}:{n}")).collect(),
        port: draw(1, 65_535) as u16,
        when_empty: [WhenEmpty::Wait, WhenEmpty::Fail][draw(0, 1) as usize],
        deadline: Duration::from_nanos(draw(1_000_000, 3_600_000_000_000)),
        queue_limit: draw(0, 1_000_000) as usize,
        early_refusal: draw(0, 1) > 0,
        tcp_timeout: ms(draw(1, 60_000)),
        handshake_timeout: ms(draw(1, 60_000)),
        write_timeout: ms(draw(1, 600_000)),
        start_jitter: ms(draw(0, 60_000)),
        max_backoff: ms(draw(100, 600_000)),
        connections_per_server: some(draw(0, 1), wanted),
        max_connections_per_server: some(draw(0, 1), wanted + draw(0, 500) as u32),
        streams_per_connection: draw(1, 32_768) as u32,
        max_connecting: draw(1, 1000) as u32,
        tries: draw(1, 10) as u32,
        idle_order: [IdleOrder::Fifo, IdleOrder::Lifo][draw(0, 1) as usize],
        decay_per_billion: some(draw(0, 1), draw(0, 1_000_000_000) as u32),
        max_age: ms(draw(1000, 86_400_000)),
        max_idle: ms(draw(1000, 86_400_000)),
        recycle_budget: draw(1, 100) as u32,
        discovery: draw(0, 1) > 0,
        discover_every: ms(draw(1000, 86_400_000)),
        translate: Translate { table: (0..draw(0, 3)).map(|n| (address(n), address(n + 9))).collect(), hook: None },
        filter: Filter {
            datacentres: names(draw(0, 2)),
            racks: names(draw(0, 2)),
            addresses: (0..draw(0, 2)).map(address).collect(),
            hook: None,
        },
        local_datacentre: datacentre.then(|| "north".to_owned()),
        local_rack: (datacentre && draw(0, 1) > 0).then(|| "r1".to_owned()),
        allow_remote: draw(0, 1) > 0,
        heartbeat_idle: ms(draw(100, 3_600_000)),
        heartbeat_timeout: ms(draw(1, 600_000)),
        max_orphans: draw(1, 32_768) as u32,
        suspect_stay: ms(draw(10, 300_000)),
        slow_start: ms(draw(0, 600_000)),
        speculate_after: [SpeculateAfter::Off, SpeculateAfter::P99, SpeculateAfter::Time(ms(draw(1, 60_000)))]
            [draw(0, 2) as usize],
        speculate_budget: draw(0, 100) as u32,
        retry_budget: draw(0, 100) as u32,
        loan_warn: ms(draw(1, 86_400_000)),
        drain_timeout: ms(draw(0, 3_600_000)),
        connector: (0..draw(0, 2))
            .map(|n| {
                let inner = Table::from([
                    ("user".to_owned(), Value::from("x")),
                    ("max".to_owned(), Value::Integer(n.cast_signed() - 1)),
                    ("deeper".to_owned(), Value::Table(Table::from([("on".to_owned(), Value::from(true))]))),
                    ("list".to_owned(), Value::from(names(n))),
                ]);
                (format!("own-{n}"), Value::Table(inner))
            })
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// PL-60 PL-175
    #[test]
    fn pl_175_all_providers_give_the_same_settings(bits in prop::array::uniform32(any::<u64>())) {
        let settings = settings(&bits);
        prop_assert_eq!(settings.check(), Ok(()));
        let functions = { let settings = settings.clone(); Functions(move || Ok(settings.clone())) };
        prop_assert_eq!(&functions.settings().unwrap(), &settings);
        let built = CompiledSettings::build(&settings).unwrap();
        let compiled = CompiledSettings::shared(built.bytes().into()).unwrap();
        prop_assert_eq!(&compiled.settings().unwrap(), &settings);
        let again = CompiledSettings::build(&compiled.settings().unwrap()).unwrap();
        prop_assert_eq!(again.bytes(), built.bytes());
        let text = Section::try_from(&settings).unwrap().to_toml("app.pool").unwrap();
        let section = Section::from_toml(&text, "app.pool").unwrap();
        prop_assert_eq!(&section.settings().unwrap(), &settings);
    }

    /// PL-60: random bytes never cause a panic, also with a right checksum.
    #[test]
    fn pl_60_no_bytes_make_it_panic(noise in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>()) {
        let _ = CompiledSettings::shared(noise.clone().into());
        let mut bytes = CompiledSettings::build(&Settings::default()).unwrap().bytes().to_vec();
        let place = at.index(bytes.len());
        for (byte, noise) in bytes[place..].iter_mut().zip(&noise) {
            *byte = *noise;
        }
        if let Some(rest) = bytes.get(14..) {
            let checksum = crc32fast::hash(rest).to_le_bytes();
            bytes[10..14].copy_from_slice(&checksum);
        }
        let _ = CompiledSettings::shared(bytes.into());
    }
}

fn wrong(text: &str) -> Vec<String> {
    let error = Section::from_toml(text, "pool").unwrap_err();
    error.wrong.into_iter().map(|(key, what)| format!("{key} {what}")).collect()
}

/// PL-60
#[test]
fn pl_60_an_error_names_everything_wrong_with_a_section_and_the_line() {
    let text = "x = 1\n[pool]\ntires = 3\ntries = 99\ndeadline = 5\nmax-age = \"5 s\"\nport = -1\nmode = \"share\"\n\
        filter = { rack = [] }\nservers = [1]\nslow-start = 1.5\n";
    assert_eq!(
        wrong(text),
        [
            "slow-start is a number with a fraction; whole numbers are allowed (line 11)",
            "deadline is 5, allowed is 1ms to 1h, a whole number and a unit, like \"200ms\", \"5s\", \"10m\", \"2h\", \"1d\" (line 5)",
            "filter is a table, allowed is datacentres, racks, addresses (line 9)",
            "max-age is \"5 s\", allowed is 1s to 30 days, a whole number and a unit, like \"200ms\", \"5s\", \"10m\", \"2h\", \"1d\" (line 6)",
            "mode is \"share\", allowed is auto, exclusive or shared (line 8)",
            "port is -1, allowed is 1 to 65535 (line 7)",
            "servers is a list, allowed is at least one (line 10)",
            "tires is no setting; did you mean `tries`? (line 3)",
            "tries is 99, allowed is 1 to 10 (line 4)",
        ]
    );
    assert_eq!(wrong("[pol]\n"), ["pool there is no section of this name; did you mean `pol`?"]);
    let broken = wrong("[pool]\ntries = \n");
    assert!(broken[0].starts_with("pool cannot be read: ") && broken[0].ends_with("(line 2)"), "{broken:?}");
}

/// PL-60: an application's own configuration may hold a section.
#[test]
fn pl_60_a_section_is_read_by_serde() {
    #[derive(serde::Deserialize)]
    struct App {
        search: Section,
    }
    let app: App = toml::from_str("[search]\ntries = 2\ndiscovery = \"off\"\n").unwrap();
    let settings = app.search.settings().unwrap();
    assert_eq!((settings.tries, settings.discovery), (2, false));
    let error = toml::from_str::<App>("[search]\ntires = 2\n").err().unwrap();
    assert!(error.to_string().contains("did you mean `tries`?"), "{error}");
}

#[test]
fn every_key_is_written_and_read() {
    let bits: Vec<u64> = (0..97).map(|n| n * 7 + 1).collect();
    let mut all = settings(&bits);
    (all.local_datacentre, all.local_rack) = (Some("n".to_owned()), Some("r".to_owned()));
    (all.connections_per_server, all.max_connections_per_server) = (Some(3), Some(3));
    all.decay_per_billion = Some(1);
    all.filter.racks = vec!["r".to_owned()];
    all.translate.table.insert(SocketAddr::from(([1; 4], 1)), SocketAddr::from(([1; 4], 1)));
    all.connector.clear();
    let table = all.table().unwrap();
    let known: Vec<&str> = {
        let mut names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(table.keys().map(String::as_str).collect::<Vec<_>>(), known);
}
