//! `honeyflow explain --code`: the entry of a code, without a configuration.

use super::folder::Folder;

#[test]
fn a_code_is_explained_as_text() {
    let ran = Folder::new().run(&["explain", "--code", "index-missing"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        ran.out,
        "index-missing (failure, fatal)\n\
         meaning   There is no index in the folder.\n\
         remedy    Start a node or run `honeyflow reindex`: both build it.\n"
    );
}

#[test]
fn a_code_is_explained_as_json_once_for_each_table() {
    let ran = Folder::new().run(&["explain", "--code", "bad-limit", "--output", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let entries: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect();
    let shown: Vec<_> = entries.iter().map(|entry| (&entry["kind"], &entry["classes"][0])).collect();
    assert_eq!(
        serde_json::json!(shown),
        serde_json::json!([["failure", "reject"], ["problem", "error"], ["refusal", "400"]])
    );
    assert!(entries.iter().all(|entry| entry["code"] == "bad-limit"
        && entry["meaning"].as_str().is_some_and(|text| text.ends_with('.'))
        && entry["remedy"].as_str().is_some_and(|text| text.ends_with('.'))));
}

#[test]
fn an_unknown_code_is_wrong_usage_with_the_nearest_code() {
    let ran = Folder::new().run(&["explain", "--code", "index-mising"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("there is no code `index-mising`"), "{}", ran.err);
    assert!(ran.err.contains("did you mean `index-missing`?"), "{}", ran.err);
}

#[test]
fn a_code_and_a_key_exclude_each_other_and_one_is_required() {
    for arguments in [
        &["explain"][..],
        &["explain", "book"],
        &["explain", "book", "1", "--code", "index-missing"],
        &["explain", "--code"],
    ] {
        let ran = Folder::new().run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
    }
}
