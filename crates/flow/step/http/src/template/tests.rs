use serde_json::json;

use super::*;

fn parse(text: &str) -> Template {
    Template::parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> Error {
    match Template::parse(text, false) {
        Ok(_) => panic!("{text} was accepted"),
        Err(error) => error,
    }
}

fn rendered(template: &str, input: &Value) -> Result<String, Failure> {
    parse(template).render(input, &Variables::default()).map(String::from)
}

#[test]
fn se_22_data_goes_into_segments_and_values_encoded() {
    let input = json!({"id": "a/b", "n": 7, "q": "x&y=z#", "list": [1, "ü"]});
    for (template, url) in [
        ("https://api.test/book/{.id}", "https://api.test/book/a%2Fb"),
        ("https://api.test/book/{.id}/page-{.n}.json", "https://api.test/book/a%2Fb/page-7.json"),
        ("https://api.test?q={.q}&n={.n}", "https://api.test/?q=x%26y%3Dz%23&n=7"),
        ("https://api.test/?list={.list}&gone={.gone}", "https://api.test/?list=%5B1%2C%22%C3%BC%22%5D&gone="),
        ("https://api.test:8443/{\"}{\" + {a: .n | tostring}.a}", "https://api.test:8443/%7D%7B7"),
        ("https://api.test/{\"\\(.n | {\"}\": .}[\"}\"])\"}", "https://api.test/7"),
        ("https://api.test/a%20b/{.n}?fixed=%7B", "https://api.test/a%20b/7?fixed=%7B"),
        ("https://api.test//{.n}", "https://api.test//7"),
        ("HTTPS://API.test:443", "https://api.test/"),
    ] {
        assert_eq!(rendered(template, &input).unwrap(), url, "{template}");
    }
}

#[test]
fn se_22_no_data_reaches_another_host_or_path() {
    for hostile in [
        "@evil.test/",
        "//evil.test",
        "\\\\evil.test",
        ":80@evil.test",
        "?x=1",
        "#",
        "a\r\nHost: evil.test\r\n",
        "a b",
        "\t\n\0",
        "%2e%2e",
        "..;/..",
        "…",
        "http://evil.test",
    ] {
        let url = parse("https://api.test/v1/{.}/end?key={.}")
            .render(&json!(hostile), &Variables::default())
            .unwrap_or_else(|failure| panic!("{hostile:?}: {failure}"));
        assert_eq!(url.origin().ascii_serialization(), "https://api.test", "{hostile:?}");
        let segments: Vec<_> = url.path_segments().unwrap().collect();
        assert_eq!((segments.len(), segments[0], segments[2]), (3, "v1", "end"), "{hostile:?}");
        assert_eq!(url.query_pairs().collect::<Vec<_>>(), [("key".into(), hostile.into())]);
        assert!(url.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{url}");
    }
    for (template, climbing) in [
        ("https://api.test/v1/{.}", ".."),
        ("https://api.test/v1/{.}/x", "."),
        ("https://api.test/v1/.{.}", "."),
        ("https://api.test/v1/%2e{.}", "."),
        ("https://api.test/v1/{.}{.}", "."),
        ("https://api.test/v1/{.}?q=1", ".."),
    ] {
        assert_eq!(rendered(template, &json!(climbing)).unwrap_err().code, "bad-url-value", "{template}");
    }
    assert_eq!(rendered("https://api.test/?q={.}", &json!("..")).unwrap(), "https://api.test/?q=..");
}

#[test]
fn se_22_the_length_of_urls_is_bounded() {
    let fits = "x".repeat(URL_BYTES_MAX - 1);
    assert!(rendered("https://api.test/{.}", &json!(fits)).is_ok());
    for length in [URL_BYTES_MAX, URL_BYTES_MAX * 1000] {
        let failure = rendered("https://api.test/{.}", &json!("x".repeat(length))).unwrap_err();
        assert_eq!(failure.code, "url-too-long");
    }
}

#[test]
fn se_22_the_origin_is_literal() {
    for text in [
        "https://{.host}/",
        "https://api.{.tenant}.test/",
        "https://api.test:{.port}/",
        "{.scheme}://api.test/",
        "https://{.user}@api.test/",
        "https://{\"a/b\"}/",
    ] {
        assert!(matches!(refused(text), Error::PlaceholderInOrigin), "{text}");
    }
    assert!(matches!(refused("https://user:pass@api.test/"), Error::Credentials));
    assert!(matches!(refused("http://api.test/"), Error::PlainHttp));
    assert!(Template::parse("http://api.test/", true).is_ok());
    for text in ["ftp://api.test/", "file:///etc/passwd", "unix://x/"] {
        assert!(matches!(refused(text), Error::Scheme(_)), "{text}");
    }
    for text in ["", "api.test/book", "{.url}", "https:///path", "https://", "https://api.test:99999/", "https://a b/"]
    {
        assert!(matches!(refused(text), Error::NotAUrl(_)), "{text}");
    }
}

#[test]
fn se_22_placeholders_stand_only_in_segments_and_values() {
    assert!(matches!(refused("https://api.test/?{.name}=1"), Error::PlaceholderInName));
    assert!(matches!(refused("https://api.test/?a=1&b{.name}=1"), Error::PlaceholderInName));
    assert!(matches!(refused("https://api.test/#{.id}"), Error::Fragment));
    assert!(matches!(refused("https://api.test/a/../{.id}"), Error::Dots));
    assert!(matches!(refused("https://api.test/%2E%2e"), Error::Dots));
    for text in [
        "https://api.test/%{.id}",
        "https://api.test/%4{.id}",
        "https://api.test/\\x",
        "https://api.test/ x",
        "https://api.test/}",
    ] {
        assert!(matches!(refused(text), Error::Character(_)), "{text}");
    }
    for text in ["https://api.test/{.id", "https://api.test/{.id]}", "https://api.test/{\"}"] {
        assert!(matches!(refused(text), Error::Unclosed), "{text}");
    }
    for text in ["https://api.test/{}", "https://api.test/{.id |}", "https://api.test/{env}"] {
        assert!(matches!(refused(text), Error::Expression { .. }), "{text}");
    }
}

#[test]
fn se_22_every_spelling_of_an_address_is_the_address() {
    for spelling in [
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0x7f000001",
        "127.0.0.1.",
        "１２７.0.0.1",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
    ] {
        let template = parse(&format!("https://{spelling}/"));
        let host = template.origin().host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let address: std::net::IpAddr =
            host.parse().unwrap_or_else(|_| panic!("{spelling} is read as the name {host}"));
        assert!(crate::address::Guard::default().check(address).is_err(), "{spelling}");
    }
}
