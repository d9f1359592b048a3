//! `[limit.NAME]`: what all nodes together keep to.

use honeyflow_api::HeaderName;
use honeyflow_hive::limit::{Definition, OnOutage, Terms, definition::What, rate::Quota};
use honeyflow_workflow::Problem;

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
    let what = match (values.rate("rate")?, values.count("burst")) {
        (quota, None) => quota,
        (Quota::Rate { rate, burst: None }, burst) => Quota::Rate { rate, burst },
        (Quota::Rate { .. }, Some(_)) => {
            let problem = Problem::error(values.at("burst"), "bad-limit", "the burst stands in `rate` already");
            problems.push(problem.help("write it in one of the two places"));
            return None;
        }
        (Quota::Calendar { .. }, Some(_)) => {
            let message = "a calendar quota has no burst: all of it may go at once";
            problems.push(Problem::error(values.at("burst"), "bad-limit", message));
            return None;
        }
    };
    let on_outage = match values.text("on-outage")?.as_str() {
        "closed" => OnOutage::Closed,
        "open" => OnOutage::Open,
        _ => OnOutage::Safe,
    };
    let keys_max = usize::try_from(values.count("max-keys")?).unwrap_or(usize::MAX);
    let definition = Definition {
        exact: values.text("mode")? == "exact",
        ..Definition::new(name, What::Quota(what)).on_outage(on_outage).keys_max(keys_max)
    };
    match Terms::of(&definition) {
        Ok(terms) => {
            if let Some(remark) = terms.remark(&definition) {
                let help = "mode = \"exact\" says that this is meant; a larger burst lets nodes draw batches";
                problems.push(warning(values.at("rate"), "exact-limit", &remark, help));
            }
        }
        Err(failure) => {
            problems.push(Problem::error(values.at("rate"), "bad-limit", &*failure.message));
            return None;
        }
    }
    let (shadow, old_headers) = (values.boolean("shadow")?, values.boolean("old-headers")?);
    Some(LimitConfig { definition, key: key.and_then(Result::ok), shadow, old_headers })
}
