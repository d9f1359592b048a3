//! Reads `[limit.NAME]`: a limit for all nodes together.

use honeyflow_api::HeaderName;
use honeyflow_hive::limit::{Definition, OnOutage, Terms, definition::LimitKind, rate::Quota};
use honeyflow_workflow::{Problem, problem::nearest};

use super::{cross::warning, keys, tree::Node, values::Values};
use crate::codes;

#[derive(Clone, Debug)]
pub struct LimitConfig {
    pub definition: Definition,
    /// For the event endpoint: the header whose values are counted separately.
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
            problems.push(
                Problem::error(values.at("key"), codes::problem::BAD_VALUE, message).help("for example x-client"),
            );
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
    match Terms::from_definition(&definition) {
        Ok(terms) => {
            if let Some(remark) = terms.remark(&definition) {
                let help = "set mode = \"exact\" if this is intended; a larger burst lets nodes take batches";
                problems.push(warning(values.at("rate"), codes::problem::EXACT_LIMIT, &remark, help));
            }
        }
        Err(failure) => {
            let key = if matches!(what, LimitKind::Slots { .. }) { "concurrent" } else { "rate" };
            problems.push(Problem::error(values.at(key), codes::problem::BAD_LIMIT, &*failure.message));
            return None;
        }
    }
    let (shadow, old_headers) = (values.boolean("shadow")?, values.boolean("old-headers")?);
    Some(LimitConfig { definition, key: key.and_then(Result::ok), shadow, old_headers })
}

/// Reads what the limit counts: exactly one of `rate` and `concurrent`.
fn what(name: &str, values: &Values<'_>, node: &Node, problems: &mut Vec<Problem>) -> Option<LimitKind> {
    let mut wrong = |key: &str, message: &str, help: &str| {
        problems.push(Problem::error(values.at(key), codes::problem::BAD_LIMIT, message).help(help));
        None
    };
    let is_written = |key: &str| values.node(key).is_some();
    match (is_written("rate"), is_written("concurrent")) {
        (true, false) => {}
        (false, true) => {
            if let Some(key) = ["burst", "mode"].into_iter().find(|key| is_written(key)) {
                let message = format!("`{key}` belongs to `rate`; `concurrent` needs no other key");
                return wrong(key, &message, &format!("remove `{key}`"));
            }
            return values.count("concurrent").map(|max| LimitKind::Slots { max });
        }
        (true, true) => {
            let message = "a limit has either `rate` or `concurrent`, not both";
            return wrong("concurrent", message, "remove one of them; use a second limit for the other");
        }
        (false, false) => {
            // A misspelt key has been reported as unknown.
            let is_misspelt = |name: &String| nearest(name, ["rate", "concurrent"]).is_some();
            if !node.table().is_some_and(|entries| entries.keys().any(is_misspelt)) {
                let message = format!("[limit.{name}] needs `rate` or `concurrent`");
                let help = "rate = \"500/s\" limits the number per time; concurrent = 20 limits the number at once";
                problems.push(Problem::error(format!("limit.{name}"), codes::problem::MISSING_KEY, message).help(help));
            }
            return None;
        }
    }
    match (values.rate("rate")?, values.count("burst")) {
        (quota, None) => Some(LimitKind::Quota(quota)),
        (Quota::Rate { rate, burst: None }, burst) => Some(LimitKind::Quota(Quota::Rate { rate, burst })),
        (Quota::Rate { .. }, Some(_)) => wrong("burst", "`rate` already contains a burst", "give the burst once"),
        (Quota::Calendar { .. }, Some(_)) => {
            wrong("burst", "a calendar quota has no burst: all of it may be used at once", "remove `burst`")
        }
    }
}
