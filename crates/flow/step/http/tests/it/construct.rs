//! Configurations that are refused before the step runs.

use honeyflow_step_http::{Config, Error, HttpStep, UrlError, kind};
use serde_json::{Map, Value, json};

fn refused(config: &Config) -> Error {
    match HttpStep::new(config) {
        Ok(_) => panic!("{config:?} was accepted"),
        Err(error) => error,
    }
}

fn read(settings: &Value) -> Result<Config, Error> {
    let settings: Map<String, Value> = settings.as_object().unwrap().clone();
    let secret = |reference: &str| match reference {
        "env:TOKEN" => Ok("canary\n".to_owned()),
        other => Err(format!("`{other}` is not set")),
    };
    Config::read(&settings, &secret)
}

#[test]
fn se_22_addresses_in_the_url_are_checked_in_every_spelling() {
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.0.0.1",
        "100.64.1.1",
        "192.168.0.1",
    ] {
        let config = Config::new(format!("https://{host}/"));
        assert!(matches!(refused(&config), Error::Address(_)), "{host}");
    }
    for host in [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "0",
        "[::]",
    ] {
        let networks = vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
        let config = Config { allow_networks: networks, ..Config::new(format!("https://{host}/")) };
        assert!(matches!(refused(&config), Error::Address(_)), "{host}");
    }
    let named = Config { allow_networks: vec!["10.0.0.0/8".to_owned()], ..Config::new("https://10.1.2.3/") };
    assert!(HttpStep::new(&named).is_ok());
    let metadata = Config { allow_networks: vec!["169.254.0.0/16".to_owned()], ..Config::new("https://api.test/") };
    assert!(matches!(refused(&metadata), Error::Network(_)));
}

#[test]
fn se_22_the_origin_of_the_url_is_literal() {
    assert!(matches!(refused(&Config::new("https://{.host}/")), Error::Url(UrlError::PlaceholderInOrigin)));
    assert!(matches!(refused(&Config::new("http://api.test/")), Error::Url(UrlError::PlainHttp)));
    let message = refused(&Config::new("https://{.host}/")).to_string();
    assert_eq!(
        message,
        "a placeholder stands in the URL's scheme, host or port: these are literal, data goes into path and query"
    );
}

#[test]
fn se_22_headers_of_the_step_itself_cannot_be_set() {
    let with = |name: &str, value: &str| Config {
        headers: vec![(name.to_owned(), value.to_owned())],
        ..Config::new("https://api.test/")
    };
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Idempotency-Key",
        "honeyflow-version",
        "Proxy-Authorization",
        "Connection",
        "Accept-Encoding",
        "a b",
        "",
        "x:y",
        "é",
    ] {
        assert!(matches!(refused(&with(name, "x")), Error::Header { .. }), "{name}");
    }
    for value in ["a\r\nX-Injected: 1", "a\nb", "a\0b"] {
        let error = refused(&with("x-ok", value));
        assert!(matches!(error, Error::Header { .. }), "{value:?}");
        assert!(!error.to_string().contains("Injected"));
    }
    assert!(HttpStep::new(&with("X-Ok", "value")).is_ok());
    let wrong_method = Config { method: "TRACE".to_owned(), ..Config::new("https://api.test/") };
    assert!(matches!(refused(&wrong_method), Error::Method(_)));
}

#[test]
fn se_20_secrets_are_resolved_and_never_printed() {
    let config = read(&json!({
        "url": "https://api.test/",
        "headers": {"Authorization": "Bearer env:TOKEN", "X-Api-Key": "env:TOKEN", "Accept": "text/plain; q=1"},
    }));
    let mut headers = config.unwrap().headers;
    headers.sort();
    let expected = [("Accept", "text/plain; q=1"), ("Authorization", "Bearer canary"), ("X-Api-Key", "canary")];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for inline in ["Authorization", "Cookie", "X-API-Key", "X-Auth-Token"] {
        let error = read(&json!({"url": "https://api.test/", "headers": {inline: "Bearer canary"}})).unwrap_err();
        assert!(matches!(error, Error::Header { .. }), "{inline}");
        assert!(!error.to_string().contains("canary"));
    }
    let missing = read(&json!({"url": "https://api.test/", "headers": {"Authorization": "env:NOPE"}})).unwrap_err();
    assert!(matches!(missing, Error::Secret { .. }));
}

#[test]
fn wf_29_settings_are_read_as_documented() {
    let config = read(&json!({
        "url": "https://api.test/{.id}", "method": "PUT", "body": "{a: .b}", "answer": "json", "http": false,
        "allow-networks": ["10.0.0.0/8"], "connect-timeout": "2s", "headers": {},
    }))
    .unwrap();
    assert_eq!((&*config.method, config.connect_timeout.as_secs(), config.allow_networks.len()), ("PUT", 2, 1));
    assert!(HttpStep::new(&config).is_ok());
    for (name, wrong) in [
        ("method", json!(1)),
        ("body", json!("{a")),
        ("answer", json!("xml")),
        ("http", json!("yes")),
        ("allow-networks", json!("10.0.0.0/8")),
        ("allow-networks", json!([1])),
        ("connect-timeout", json!("0s")),
        ("headers", json!(["a"])),
        ("headers", json!({"a": 1})),
        ("url", json!(null)),
    ] {
        let mut settings = json!({"url": "https://api.test/"});
        settings[name] = wrong.clone();
        assert!(read(&settings).is_err(), "{name} = {wrong}");
    }
    assert!(read(&json!({})).is_err());
    assert!(kind().settings.iter().all(|setting| !setting.doc.is_empty()));
}
