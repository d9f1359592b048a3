use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn node(roles: &[&str], published: &str) -> Value {
    json!({"name": "n", "version": "2.19.6", "roles": roles, "http": {"publish_address": published}})
}

fn members(nodes: &Value) -> Result<Vec<Member>, String> {
    read(json!({"_nodes": {"total": 1}, "cluster_name": "c", "nodes": nodes}).to_string().as_bytes())
}

fn ids(nodes: &Value) -> Vec<String> {
    members(nodes).unwrap().into_iter().map(|member| member.id).collect()
}

#[test]
fn pl_141_id_version_roles_and_address_are_read_in_both_forms() {
    let found = members(&json!({
        "b": node(&["data"], "search-2.example.com/10.0.0.8:9201"),
        "a": node(&["data", "ingest"], "10.0.0.7:9200"),
        "c": node(&[], "[::1]:9202"),
    }));
    let found = found.unwrap();
    let published: Vec<_> =
        found.iter().map(|one| (one.id.as_str(), one.address.to_string(), one.host.as_deref())).collect();
    assert_eq!(
        published,
        [
            ("a", "10.0.0.7:9200".to_owned(), None),
            ("b", "10.0.0.8:9201".to_owned(), Some("search-2.example.com")),
            ("c", "[::1]:9202".to_owned(), None),
        ]
    );
    assert_eq!(
        (found[0].version.as_str(), &found[0].roles[..]),
        ("2.19.6", &["data".to_owned(), "ingest".to_owned()][..])
    );
}

#[test]
fn pl_141_servers_that_only_manage_are_left_out() {
    let nodes = json!({
        "manager": node(&["cluster_manager"], "10.0.0.1:9200"),
        "master": node(&["master", "remote_cluster_client"], "10.0.0.2:9200"),
        "voter": node(&["master", "voting_only"], "10.0.0.3:9200"),
        "both": node(&["cluster_manager", "data"], "10.0.0.4:9200"),
        "tier": node(&["data_hot"], "10.0.0.5:9200"),
        "coordinator": node(&[], "10.0.0.6:9200"),
        "of-old": {"version": "5.6.0", "http": {"publish_address": "10.0.0.7:9200"}},
    });
    assert_eq!(ids(&nodes), ["both", "coordinator", "of-old", "tier"]);
    assert!(members(&json!({"m": node(&["master"], "10.0.0.1:9200")})).unwrap_err().contains("none of which"));
}

#[test]
fn pl_141_servers_that_cannot_be_dialled_are_left_out() {
    let nodes = json!({
        "good": node(&["data"], "10.0.0.1:9200"),
        "twin": node(&["data"], "10.0.0.1:9200"),
        "no-http": {"version": "2.19.6", "roles": ["data"]},
        "null": {"roles": null, "http": null},
        "no-port": node(&["data"], "10.0.0.2"),
        "port-0": node(&["data"], "10.0.0.2:0"),
        "anywhere": node(&["data"], "0.0.0.0:9200"),
        "name": node(&["data"], "search:9200"),
        "many": node(&["data"], "224.0.0.1:9200"),
        "": node(&["data"], "10.0.0.3:9200"),
        "line\nbreak": node(&["data"], "10.0.0.4:9200"),
    });
    assert_eq!(ids(&nodes), ["good"]);
}

#[test]
fn pl_141_an_invalid_host_name_is_ignored() {
    let found = members(&json!({"a": node(&[], "evil\r\nhost/10.0.0.1:9200"), "b": node(&[], "/10.0.0.2:9200")}));
    assert!(found.unwrap().iter().all(|member| member.host.is_none()));
}

#[test]
fn pl_141_a_malformed_list_is_an_error_that_quotes_nothing() {
    for text in
        ["", "{}", "[]", "secret", r#"{"nodes": []}"#, r#"{"nodes": {"a": "secret"}}"#, "{\"nodes\": {\"a\": {}"]
    {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
    let deep = "[".repeat(100_000);
    assert!(read(format!("{{\"nodes\": {{\"a\": {{\"x\": {deep}").as_bytes()).is_err());
    let many: serde_json::Map<String, Value> = (0..=MEMBERS_MAX).map(|id| (id.to_string(), json!({}))).collect();
    assert!(members(&many.into()).unwrap_err().contains("4096"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,20}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        any::<SocketAddr>().prop_map(|address| address.to_string().into()),
        ("[a-z.]{1,9}", any::<SocketAddr>()).prop_map(|(host, address)| format!("{host}/{address}").into()),
        Just(json!(["master"])),
    ];
    let key = prop_oneof![
        Just("version".to_owned()),
        Just("roles".to_owned()),
        Just("http".to_owned()),
        Just("publish_address".to_owned()),
        "[a-z]{1,4}",
    ];
    leaf.prop_recursive(4, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Checks the properties that every accepted list has.
fn check(members: &[Member]) {
    assert!(!members.is_empty() && members.len() <= MEMBERS_MAX);
    let addresses: BTreeSet<_> = members.iter().map(|member| member.address).collect();
    let ids: BTreeSet<_> = members.iter().map(|member| &member.id).collect();
    assert_eq!((addresses.len(), ids.len()), (members.len(), members.len()));
    for member in members {
        assert!(member.address.port() != 0 && !only_manages(&member.roles));
        let texts = [&member.id, &member.version].into_iter().chain(&member.host).chain(&member.roles);
        assert!(texts.flat_map(|text| text.chars()).all(|c| c.is_ascii_graphic()), "{member:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pl_141_any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(members) = read(&bytes) {
            check(&members);
        }
    }

    #[test]
    fn pl_141_any_nodes_are_accepted_or_refused(nodes in prop::collection::btree_map(".{0,8}", any_json(), 0..6)) {
        if let Ok(found) = members(&nodes.into_iter().collect()) {
            check(&found);
        }
    }

    /// A valid answer with a few bytes changed, or cut off.
    #[test]
    fn pl_141_damaged_answers_are_accepted_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let good = json!({"nodes": {
            "i_ACKPlISUaNEXoaBOv70w": node(&["cluster_manager", "data"], "localhost/127.0.0.1:9200"),
            "a": node(&["ingest"], "[::1]:9200"),
        }});
        let mut bytes = good.to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        if let Ok(members) = read(&bytes) {
            check(&members);
        }
    }
}
