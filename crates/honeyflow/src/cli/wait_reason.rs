//! Explains why a run waits, with one sentence for each of the engine's words, and which steps are active.

use serde_json::Value;

/// The sentence for an open run, as the node reports it.
pub fn sentence(run: &Value) -> String {
    let workflow = run["workflow"].as_str().unwrap_or_default();
    let sentence = match run["waits_for"].as_str().unwrap_or_default() {
        "working" => "a worker has it",
        "cancelling" => "it was cancelled, but a worker still has it; it will be parked within a few seconds",
        "settling" => "it has ended, and its result is being stored",
        "behind" => "other runs are ahead of it",
        "breaker" => "its target keeps failing; the breaker is open for a while",
        "crowded" => "too many other runs wait to retry a target that it leads to",
        "paused" => return format!("honeyflow workflow resume {workflow}"),
        "fatal" => "the workflow has stopped; see the log or /v1/status",
        "storm" => "too many keys were about to be parked, so the workflow tries one key at a time",
        "no-worker" => "no worker runs this kind of step, or its definition version cannot be used; see /v1/status",
        "back-off" => "it has failed and will be retried after a pause",
        "delay" => "it sleeps or is not due yet",
        "awaiting" => "it waits for an event",
        "shard-moving" => "the node is stopping, or is about to take over the shard",
        _ => "",
    };
    sentence.to_owned()
}

/// The steps that have begun or may begin, with the number of failures so far.
pub fn active_steps(run: &Value) -> String {
    let steps = run["steps"].as_array().into_iter().flatten().filter(|step| step["state"] == "ready");
    let texts = steps.map(|step| {
        let mut text = step["name"].as_str().unwrap_or_default().to_owned();
        for counted in ["charges", "retries"] {
            if let Some(count) = step[counted].as_u64() {
                text.push_str(&format!(" ({count} {counted})"));
            }
        }
        text
    });
    texts.collect::<Vec<_>>().join(", ")
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
        let mut sentences: Vec<String> =
            words.iter().map(|word| sentence(&json!({ "waits_for": word, "workflow": "book" }))).collect();
        sentences.sort();
        sentences.dedup();
        assert_eq!(sentences.len(), words.len(), "each word has its own sentence: {sentences:?}");
        assert!(!sentences.contains(&String::new()));
        assert!(sentences.contains(&"honeyflow workflow resume book".to_owned()));
    }

    #[test]
    fn active_steps_are_named() {
        let run = json!({ "steps": [
            { "name": "load", "state": "succeeded" },
            { "name": "call", "state": "ready", "retries": 3 },
            { "name": "index", "state": "pending" },
        ]});
        assert_eq!(active_steps(&run), "call (3 retries)");
    }
}
