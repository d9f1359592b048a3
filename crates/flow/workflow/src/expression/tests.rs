use std::time::Instant;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn evaluate(source: &str, input: &Value) -> Result<Value, String> {
    Expression::parse(source).unwrap_or_else(|error| panic!("{source}: {error}")).evaluate(input, &Variables::default())
}

fn refused(source: &str) -> String {
    match Expression::parse(source) {
        Ok(_) => panic!("{source} was not refused"),
        Err(error) => error.to_string(),
    }
}

fn variables() -> Variables {
    let document = |value: Value| Some(Arc::new(value));
    Variables {
        event: document(json!({ "kind": "row", "key": "7" })),
        run: document(json!({ "id": "r1" })),
        steps: vec![("load".into(), document(json!({ "title": "Emma", "ids": [1, 2] }))), ("gone".into(), None)],
        item: document(json!("one")),
        index: Some(3),
    }
}

#[test]
fn wf_15_every_variable_is_seen() {
    let see = |source: &str| Expression::parse(source).unwrap().evaluate(&json!({ "a": 1 }), &variables()).unwrap();
    assert_eq!(see("$event.key"), json!("7"));
    assert_eq!(see("$run.id"), json!("r1"));
    assert_eq!(see("$steps.load.title"), json!("Emma"));
    assert_eq!(see("$steps[\"load\"].ids[1]"), json!(2));
    assert_eq!(see("$steps.gone"), json!(null));
    assert_eq!(see("$steps.unknown"), json!(null));
    assert_eq!(see("$steps | keys"), json!(["gone", "load"]));
    assert_eq!(see("[$item, $index, .a]"), json!(["one", 3, 1]));
    assert_eq!(see("$steps.load.ids | map(. * 2) | add"), json!(6));
    assert_eq!(see("\"\\(.a * 3) \\($event.key)\""), json!("3 7"));
    assert_eq!(see("def twice(f): f * 2; twice(.a)"), json!(2));
    assert_eq!(see(". as {a: $x} | reduce (1, 2) as $y ($x; . * ($y + 1))"), json!(6));
}

#[test]
fn wf_15_numbers_are_unchanged_by_an_evaluation() {
    for value in [
        json!(0),
        json!(-5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.1),
        json!(1e300),
        json!("x"),
        json!({ "a": [null, true] }),
    ] {
        assert_eq!(evaluate(".", &value).unwrap(), value);
    }
    assert_eq!(evaluate("1 / 4", &Value::Null).unwrap(), json!(0.25));
    assert_eq!(evaluate("4 / 2", &Value::Null).unwrap(), json!(2));
}

#[test]
fn wf_15_an_expression_gives_one_value() {
    assert_eq!(evaluate("empty", &json!(1)), Ok(Value::Null));
    assert_eq!(evaluate("[.[]]", &json!([1, 2])), Ok(json!([1, 2])));
    assert!(evaluate(".[]", &json!([1, 2])).unwrap_err().contains("more than one value"));
    assert!(evaluate("1, error(\"no\")", &json!(1)).is_err());
}

#[test]
fn wf_6_an_error_is_an_error_and_not_false() {
    assert!(evaluate(".a.b", &json!({ "a": 5 })).is_err());
    assert_eq!(evaluate("error(\"no title\")", &json!(null)).unwrap_err(), "no title");
    let long = evaluate("error", &json!("é".repeat(100_000))).unwrap_err();
    assert!(long.len() < 2000, "an error that quotes a document is cut");
}

#[test]
fn wf_15_errors_carry_line_and_column() {
    assert_eq!(refused(".a |\n  foo"), "line 2, column 3: `foo` is not available here");
    assert_eq!(refused("é | lenght"), "line 1, column 1: expected token");
    assert_eq!(refused(".é"), "line 1, column 2: expected token");
    assert_eq!(refused("\"é\" | lenght"), "line 1, column 7: `lenght` is not available here; did you mean `length`?");
    assert_eq!(refused(".a +"), "line 1, column 5: expected term");
    assert_eq!(refused("(.a"), "line 1, column 4: expected closing parenthesis");
    assert_eq!(refused(".a ]"), "line 1, column 4: expected token");
    assert_eq!(refused("$evnt.key"), "line 1, column 1: there is no variable `$evnt`; did you mean `$event`?");
    assert_eq!(refused("map(.a; .b)"), "line 1, column 1: `map/2` is not available here");
    assert_eq!(refused(""), "line 1, column 1: expected term");
}

#[test]
fn wf_15_filters_that_reach_outside_are_refused() {
    for source in [
        "env",
        "$ENV",
        "$ENV.HOME",
        "$__loc__",
        "input",
        "inputs",
        "now",
        "localtime",
        "strflocaltime(\"%H\")",
        "debug",
        "debug(1)",
        "stderr",
        "halt",
        "halt(1)",
        "halt_error",
        "input_filename",
        "import \"a\" as a; .",
        "include \"a\"; .",
        "a::b",
        "get_search_list",
        "\"\\(now)\"",
        "@foo \"x\"",
        "{(env): 1}",
        ". as {(env): $x} | $x",
        "reduce env as $x (0; 1)",
        "if env then 1 end",
        "try env",
        "try 1 catch env",
        ".[env]",
        ".[env:]",
        ".[:env]",
        "[env]",
        "-env",
        "label $x | env",
        "def f: env; f",
        "def f(g): g; f(env)",
        "1 + env",
        "1 as $x | env",
        "{a: env}",
        "{env: env}",
        "foreach .[] as $x (0; 1; env)",
    ] {
        let error = Expression::parse(source).err();
        assert!(error.is_some(), "{source} was not refused");
    }
}

#[test]
fn wf_16_filters_that_could_run_for_ever_are_refused() {
    for source in [
        "repeat(.)",
        "until(false; .)",
        "while(true; .)",
        "recurse(.)",
        "recurse(.; true)",
        "[limit(5; repeat(1))]",
        "def f: f; f",
        "def f(x): 1 | f(x); f(1)",
        "def f: def g: f; g; f",
        "def length: length; length",
        "def f: 1; def f: f; f",
        "def map(f): [.[] | f] | map(f); map(1)",
        "range(infinite)",
        "range(.n)",
        "range(0; .n)",
        "range(0; 10; .by)",
        "range(100001)",
        "range(1e9)",
        "[range(length)]",
        "combinations",
        "def _multiply(a; b): 1; 2 * 3",
        "_shallow",
        "_expression",
        "_multiply(1; 2)",
        ".a *= 2",
        "def f($n): f($n - 1); f(1)",
        "input_line_number",
        "limit(1; def f: f; f)",
    ] {
        assert!(Expression::parse(source).is_err(), "{source} was not refused");
    }
    assert!(refused("def map(f): map(f); map(1)").ends_with("`map` calls itself, and could do so for ever"));
    assert_eq!(evaluate("[range(3)]", &Value::Null).unwrap(), json!([0, 1, 2]));
    assert_eq!(evaluate("[range(-2; 1)]", &Value::Null).unwrap(), json!([-2, -1, 0]));
    assert_eq!(
        evaluate("def f: 1; def f(x): x + f; f(2)", &Value::Null).unwrap(),
        json!(3),
        "another arity is another filter"
    );
    assert_eq!(evaluate("[..]", &json!([1])).unwrap(), json!([[1], 1]));
}

#[test]
fn wf_16_products_are_bounded() {
    assert_eq!(evaluate("\"ab\" * .n", &json!({ "n": 3 })).unwrap(), json!("ababab"));
    for (source, input) in [
        (".a * .n", json!({ "a": "abc", "n": 2_000_000_000 })),
        (".n * .a", json!({ "a": "abc", "n": u64::MAX })),
        ("reduce range(100) as $i (10; . * .)", json!(null)),
        ("[.[] * 1000000000]", json!(["abc"])),
        ("map(.a |= . * 1000000000)", json!([{ "a": "abc" }])),
        ("{(\"a\" * 1000000000): 1}", json!(null)),
        ("\"\\(\"a\" * 1000000000)\"", json!(null)),
        ("def f(x): x * 1000000000; f(\"a\")", json!(null)),
        (".[\"a\" * 1000000000]", json!({})),
    ] {
        assert_eq!(evaluate(source, &input).unwrap_err(), "the product is too large", "{source}");
    }
    assert_eq!(
        evaluate("{\"a\": {\"b\": 1}} * {\"a\": {\"c\": 2}}", &Value::Null).unwrap(),
        json!({ "a": { "b": 1, "c": 2 } })
    );
    assert_eq!(evaluate("[(1, 2) * (3, 5)] | sort", &Value::Null).unwrap(), json!([3, 5, 6, 10]));
}

#[test]
fn wf_16_results_are_bounded() {
    assert!(evaluate("reduce range(63) as $i (1; [.])", &Value::Null).is_ok());
    assert!(evaluate("reduce range(65) as $i (1; [.])", &Value::Null).unwrap_err().contains("deeper than 64"));
    assert!(evaluate("reduce range(65) as $i (1; {a: .})", &Value::Null).unwrap_err().contains("deeper than 64"));
    assert!(evaluate("[., .]", &json!("x".repeat(9 << 20))).unwrap_err().contains("larger than 16 MiB"));
    assert!(evaluate("reduce range(40) as $i (1; [., .])", &Value::Null).unwrap_err().contains("larger than 16 MiB"));
    assert!(evaluate("0 / 0", &Value::Null).is_err(), "not a number is not JSON");
    assert!(evaluate("{(\"a\"): 1} | .[\"b\"] = 1e1000", &Value::Null).is_err());
}

#[test]
fn wf_16_the_value_of_a_fold_is_bounded() {
    let items = json!(vec![1; 100_000]);
    for source in [
        "reduce .[] as $x (null; [.])",
        "reduce .[] as $x (null; {head: $x, tail: .}) | 1",
        "reduce .[] as $x (null; [$x, .])",
        "reduce .[] as $x (null; [., [$x]])",
        "reduce .[] as $x (null; [[$x], .])",
        "[foreach .[] as $x (null; [.]; 1)] | length",
        "[foreach .[] as $x (null; [.])] | length",
    ] {
        assert_eq!(evaluate(source, &items).unwrap_err(), "a fold nests too deep", "{source}");
    }
    assert_eq!(evaluate("reduce .[] as $x (0; . + $x)", &items).unwrap(), json!(100_000));
    assert_eq!(evaluate("reduce .[] as $x ([]; . + [$x]) | length", &items).unwrap(), json!(100_000));
    assert_eq!(
        evaluate("(reduce (\"a\", \"b\") as $key (.; .[$key])) |= 1", &json!({ "a": { "b": 0 } })).unwrap(),
        json!({ "a": { "b": 1 } })
    );
    assert_eq!(evaluate("path(reduce (\"a\", \"b\") as $key (.; .[$key]))", &Value::Null).unwrap(), json!(["a", "b"]));
}

#[test]
fn wf_16_json_text_that_nests_too_deep_is_refused() {
    assert_eq!(evaluate("fromjson.a", &json!("{\"a\": [1]}")).unwrap(), json!([1]));
    assert_eq!(evaluate("\"12\" | tonumber", &Value::Null).unwrap(), json!(12));
    assert!(evaluate("fromjson", &json!("[".repeat(1_000_000))).unwrap_err().contains("not JSON"));
    assert!(evaluate("fromjson", &json!(5)).is_err());
}

#[test]
fn se_26_sources_that_would_exhaust_the_parser_are_refused() {
    for source in [
        "(".repeat(100_000),
        "[".repeat(65),
        format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
        "-".repeat(100_000) + "1",
        "1+".repeat(100_000) + "1",
        ".a|".repeat(3000) + ".",
        "try ".repeat(3000) + "1",
        "if 1 then ".repeat(3000) + "1" + &" end".repeat(3000),
        "\"\\(".repeat(3000),
        "x".repeat(100_000),
    ] {
        assert!(Expression::parse(&source).is_err(), "{}…", &source[..10]);
    }
    // sources just below the bounds do not overflow the small stack of a test's thread
    for (source, accepted) in [
        ("-".repeat(190) + "1", true),
        ("1+".repeat(190) + "1", true),
        ("1+".repeat(30_000) + "1", false),
        (".|".repeat(190) + ".", true),
        (".|".repeat(30_000) + ".", false),
        ("1,".repeat(30_000) + "1", false),
        ("1 as $x|".repeat(95) + "1", true),
        ("try ".repeat(190) + "1", true),
        ("if 1 then ".repeat(95) + "1" + &" end".repeat(95), true),
        ("if 1 then 1 else ".repeat(60) + "1" + &" end".repeat(60), true),
        ("1//".repeat(190) + "1", true),
        (format!("{}1{}", "[".repeat(64), "]".repeat(64)), true),
        ("def f: 1;".repeat(199) + "f", true),
        ("label $x|".repeat(95) + "1", true),
        (".a".repeat(190), true),
        (".[0]".repeat(190), true),
        (".a".repeat(20_000), false),
        (".[0]".repeat(10_000), false),
        (format!("{{{}}}", "a: .b,".repeat(190)), true),
        (format!("{{{}}}", "a: .b,".repeat(9000)), false),
        (format!("\"{}\"", "\\n".repeat(9000)), false),
        (format!("\"{}\"", "\\n".repeat(190)), true),
        ("?".repeat(60_000), false),
        (format!(".a{}", "?".repeat(60_000)), true),
    ] {
        let parsed = Expression::parse(&source);
        assert_eq!(
            parsed.as_ref().err().map(|error| &*error.message).is_none(),
            accepted,
            "{}… {parsed:?}",
            &source[..10]
        );
        if let Ok(expression) = parsed {
            let _ = expression.evaluate(&Value::Null, &Variables::default());
        }
    }
}

#[test]
fn the_reads_of_an_expression_are_found() {
    let reads = |source: &str| {
        let expression = Expression::parse(source).unwrap();
        (expression.reads().join(" "), expression.reads_all(), expression.reads_input())
    };
    let named = |names: &str, input: bool| (names.to_owned(), false, input);
    assert_eq!(reads("$steps.load.ids"), named("load", false));
    assert_eq!(reads("[$steps.b, $steps.a, $steps[\"b\"]]"), named("a b", false));
    assert_eq!(reads("$steps.load | .ids"), named("load", true));
    assert_eq!(reads("\"\\($steps.load.title)\""), named("load", false));
    assert_eq!(reads("{a: $steps.x, b}"), named("x", true));
    assert_eq!(reads("if $steps.x then $steps.y else null end"), named("x y", false));
    assert_eq!(reads("$steps[$event.name]"), (String::new(), true, false));
    assert_eq!(reads("$steps | length"), (String::new(), true, true));
    assert_eq!(reads("1 as $steps | $steps.a"), named("", false));
    assert_eq!(reads("$event.a == 1"), named("", false));
    assert_eq!(reads("[..]"), named("", true));
    assert_eq!(reads("true"), named("", false));
}

#[test]
fn constant_expressions_are_found() {
    for (source, constant) in
        [("false", true), (" null ", true), ("(false)", true), ("true", false), (".a", false), ("false or .a", false)]
    {
        assert_eq!(Expression::parse(source).unwrap().is_constant_false(), constant, "{source}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may look at the clock and at other threads")]
fn wf_15_expressions_are_compiled_once_and_shared_between_threads() {
    let expression =
        Expression::parse("{title, authors: [.authors[] | ascii_upcase], price: (.price * 100 | round)}").unwrap();
    let document = json!({ "title": "Emma", "authors": ["Jane Austen", "x"], "price": 12.34, "isbn": "0" });
    let other = expression.clone();
    let same = document.clone();
    let there = std::thread::spawn(move || other.evaluate(&same, &Variables::default()).unwrap()).join().unwrap();
    assert_eq!(there, json!({ "title": "Emma", "authors": ["JANE AUSTEN", "X"], "price": 1234 }));
    // a generous limit, since the library is not optimised here: recompiling would take milliseconds
    let variables = Variables::default();
    let fastest = (0..200)
        .map(|_| {
            let begin = Instant::now();
            assert_eq!(expression.evaluate(&document, &variables).unwrap(), there);
            begin.elapsed()
        })
        .min();
    println!("evaluate: {fastest:?}");
    let begin = Instant::now();
    Expression::parse(".a").unwrap();
    println!("parse: {:?}", begin.elapsed());
    assert!(fastest.unwrap().as_micros() < 500, "{fastest:?}");
}

/// Pieces of the language in random order: most are invalid, some are valid.
fn soup() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        ".", "..", ".a", "[", "]", "(", ")", "{", "}", "|", ",", ":", ";", "?", "//", "+", "-", "*", "=", "|=", "==",
        "and", "or", "not", "if", "then", "else", "elif", "end", "try", "catch", "reduce", "foreach", "as", "$x",
        "$steps", "$event", "def", "f", "f:", "map", "(.)", "[]", "\"", "\\(", "a", "1", "1e9", "0.", "@json", "@",
        "label", "break", "$", "$__loc__", "#", "\n", "é", "💣", "\\u00", "null", "import", "range(3)", "limit",
        "first", "..=", "?//", "*=", "'", "`", "\u{0}", "a::b", " ",
    ]);
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn se_26_no_source_makes_the_parser_panic(source in prop_oneof![soup(), soup().prop_map(|soup| soup.replace(' ', "")), ".{0,20}"]) {
        match Expression::parse(&source) {
            Ok(expression) => drop(expression.evaluate(&json!({ "a": [1] }), &variables())),
            Err(error) => {
                prop_assert!(error.line >= 1 && error.line <= source.matches('\n').count() + 1);
                prop_assert!(error.column >= 1 && error.column <= source.chars().count() + 1);
            }
        }
    }
}
