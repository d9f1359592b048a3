//! `[limit.NAME]`: what all nodes together keep to.

use honeyflow_api::HeaderName;
use honeyflow_hive::limit::{Definition, OnOutage, Terms, definition::What, rate::Quota};
use honeyflow_workflow::{Problem, problem::nearest};

use super::{cross::warning, keys, tree::Node, values::Values};

#[derive(Clone, Debug)]
pub struct LimitConfig {
    pub definition: Definition,
    /// At the door: the header by whose value is counted.
    pub key: Option<HeaderName>,
    pub shadow: bool,
    pub old_headers: bool,
}

pub fn read(name: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<LimitConfig> {
    let path = format!("limit.{name}");
    let values = Values::read(Some(node), keys::LIMIT, &path, problems);
    let key = values.text("key").map(|text| {
        HeaderName::try_from(&*text).map_err(|_| {
            let message = format!("`{text}` cannot be the name of a request header");
            problems.push(Problem::error(values.at("key"), "bad-value", message).help("for example x-client"));
        })
    });
    let what = what(name, &values, node, problems)?;
    let on_outage = match values.text("on-outage")?.as_str() {
        "closed" => OnOutage::Closed,
        "open" => OnOutage::Open,
        _ => OnOutage::Safe,
    };
    let keys_max = usize::try_from(values.count("max-keys")?).unwrap_or(usize::MAX);
    let definition = Definition {
        exact: values.text("mode")? == "exact",
        ..Definition::new(name, what).on_outage(on_outage).keys_max(keys_max)
    };
    match Terms::of(&definition) {
        Ok(terms) => {
            if let Some(remark) = terms.remark(&definition) {
                let help = "mode = \"exact\" says that this is meant; a larger burst lets nodes draw batches";
                problems.push(warning(values.at("rate"), "exact-limit", &remark, help));
            }
        }
        Err(failure) => {
            let key = if matches!(what, What::Slots { .. }) { "concurrent" } else { "rate" };
            problems.push(Problem::error(values.at(key), "bad-limit", &*failure.message));
            return None;
        }
    }
    let (shadow, old_headers) = (values.boolean("shadow")?, values.boolean("old-headers")?);
    Some(LimitConfig { definition, key: key.and_then(Result::ok), shadow, old_headers })
}

/// A rate or so many at once: exactly one of them.
fn what(name: &str, values: &Values<'_>, node: &Node, problems: &mut Vec<Problem>) -> Option<What> {
    let mut wrong = |key: &str, message: &str, help: &str| {
        problems.push(Problem::error(values.at(key), "bad-limit", message).help(help));
        None
    };
    let is_written = |key: &str| values.node(key).is_some();
    match (is_written("rate"), is_written("concurrent")) {
        (true, false) => {}
        (false, true) => {
            if let Some(key) = ["burst", "mode"].into_iter().find(|key| is_written(key)) {
                let message =
                    format!("`{key}` belongs to `rate`; `concurrent` alone says how many there may be at once");
                return wrong(key, &message, &format!("leave `{key}` out"));
            }
            return values.count("concurrent").map(|max| What::Slots { max });
        }
        (true, true) => {
            let message = "a limit has a `rate` or says how many may be `concurrent`, not both";
            return wrong("concurrent", message, "leave one of them out; the other may be a limit of its own");
        }
        (false, false) => {
            // Written wrongly, it has been reported as an unknown key.
            let is_misspelt = |name: &String| nearest(name, ["rate", "concurrent"]).is_some();
            if !node.table().is_some_and(|entries| entries.keys().any(is_misspelt)) {
                let message = format!("[limit.{name}] needs `rate` or `concurrent`");
                let help = "rate = \"500/s\": so many per time; concurrent = 20: so many at once";
                problems.push(Problem::error(format!("limit.{name}"), "missing-key", message).help(help));
            }
            return None;
        }
    }
    match (values.rate("rate")?, values.count("burst")) {
        (quota, None) => Some(What::Quota(quota)),
        (Quota::Rate { rate, burst: None }, burst) => Some(What::Quota(Quota::Rate { rate, burst })),
        (Quota::Rate { .. }, Some(_)) => {
            wrong("burst", "the burst stands in `rate` already", "write it in one of the two places")
        }
        (Quota::Calendar { .. }, Some(_)) => {
            wrong("burst", "a calendar quota has no burst: all of it may go at once", "leave `burst` out")
        }
    }
}
