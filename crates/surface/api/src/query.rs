//! Reads query parameters: a bounded number, each at most once. Unknown names are refused with the nearest known name.

use axum::{extract::Query, http::Uri};
use honeyflow_workflow::problem::nearest;

use crate::{
    answer::{Refusal, quoted},
    codes,
};

pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn read(uri: &Uri, known: &[&'static str], parameters_max: usize) -> Result<Parameters, Refusal> {
        let query = uri.query().unwrap_or_default();
        if query.split('&').count() > parameters_max {
            let message = format!("more than {parameters_max} query parameters");
            return Err(Refusal::bad_request(codes::refusal::TOO_MANY_PARAMETERS, message));
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Refusal::bad_request(codes::refusal::BAD_QUERY_STRING, "the query string cannot be read"))?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let hint = match nearest(name, known.iter().copied()) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("there are: {}", known.join(", ")),
                };
                let message = format!("unknown parameter {}", quoted(name));
                return Err(Refusal::bad_request(codes::refusal::UNKNOWN_PARAMETER, message).hint(hint));
            }
            if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
                let message = format!("parameter {} is given twice", quoted(name));
                return Err(Refusal::bad_request(codes::refusal::REPEATED_PARAMETER, message));
            }
        }
        Ok(Parameters(pairs))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}
