//! Query parameters: bounded, each at most once, unknown ones refused with the nearest right word.

use axum::{extract::Query, http::Uri};
use honeyflow_workflow::problem::nearest;

use crate::answer::{Refusal, quoted};

pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn read(uri: &Uri, known: &[&'static str], parameters_max: usize) -> Result<Parameters, Refusal> {
        let query = uri.query().unwrap_or_default();
        if query.split('&').count() > parameters_max {
            let message = format!("more than {parameters_max} query parameters");
            return Err(Refusal::bad_request("too-many-parameters", message));
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Refusal::bad_request("bad-query-string", "the query string cannot be read"))?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let hint = match nearest(name, known.iter().copied()) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("there are: {}", known.join(", ")),
                };
                let message = format!("unknown parameter {}", quoted(name));
                return Err(Refusal::bad_request("unknown-parameter", message).hint(hint));
            }
            if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                let message = format!("parameter {} is given twice", quoted(name));
                return Err(Refusal::bad_request("repeated-parameter", message));
            }
        }
        Ok(Parameters(pairs))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}
