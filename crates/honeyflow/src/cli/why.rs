//! Why a run waits, in a sentence for each of the engine's words, and where it stands.

use serde_json::Value;

/// Of an open run, as the node tells it.
pub fn sentence(run: &Value) -> String {
    let workflow = run["workflow"].as_str().unwrap_or_default();
    let sentence = match run["waits_for"].as_str().unwrap_or_default() {
        "working" => "a worker has it",
        "cancelling" => "it was ended, and a worker still has it; it is parked in a few seconds at most",
        "settling" => "it has ended, and that is being stored",
        "behind" => "others are before it",
        "breaker" => "its target keeps failing and is left alone for a while",
        "crowded" => "too many others wait to be tried again at a target that it leads to",
        "paused" => return format!("honeyflow workflow resume {workflow}"),
        "fatal" => "the workflow has stopped; the log and /v1/status say why",
        "storm" => "too many keys were about to be parked, so they are tried one by one",
        "no-worker" => "nobody offers to do this kind of step, or can go on by its version; /v1/status says why",
        "back-off" => "it has failed and is tried again after a pause",
        "delay" => "it sleeps, or is not due yet",
        "awaiting" => "it waits for an event",
        "shard-moving" => "the node is stopping, or is about to own the source",
        _ => "",
    };
    sentence.to_owned()
}

/// The steps that are begun or may begin, with what has failed so far.
pub fn steps(run: &Value) -> String {
    let steps = run["steps"].as_array().into_iter().flatten().filter(|step| step["state"] == "ready");
    let told = steps.map(|step| {
        let mut text = step["name"].as_str().unwrap_or_default().to_owned();
        for counted in ["charges", "retries"] {
            if let Some(count) = step[counted].as_u64() {
                text.push_str(&format!(" ({count} {counted})"));
            }
        }
        text
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ob_85_every_reason_has_a_sentence() {
        let words = [
            "behind",
            "breaker",
            "crowded",
            "paused",
            "fatal",
            "storm",
            "no-worker",
            "back-off",
            "delay",
            "awaiting",
            "shard-moving",
            "working",
            "cancelling",
            "settling",
        ];
        let mut said: Vec<String> =
            words.iter().map(|word| sentence(&json!({ "waits_for": word, "workflow": "book" }))).collect();
        said.sort();
        said.dedup();
        assert_eq!(said.len(), words.len(), "one of its own each: {said:?}");
        assert!(!said.contains(&String::new()));
        assert!(said.contains(&"honeyflow workflow resume book".to_owned()));
    }

    #[test]
    fn steps_that_are_under_way_are_named() {
        let run = json!({ "steps": [
            { "name": "load", "state": "succeeded" },
            { "name": "call", "state": "ready", "retries": 3 },
            { "name": "index", "state": "pending" },
        ]});
        assert_eq!(steps(&run), "call (3 retries)");
    }
}
