//! Evaluates a step's expressions for a batch of runs: `when`, then `for-each`, then `input`; also the durations and
//! events of the control kinds. It has no side effects but may be slow, so it runs outside the async reactor.

use std::sync::Arc;

use honeyflow_event::{Document, Name};
use honeyflow_runtime::Failure;
use honeyflow_workflow::{Expression, Graph, Role, Step, StepId, Variables};
use serde_json::Value;

use crate::{
    codes,
    core::{
        Evaluation,
        event_check::met_by,
        input::{CheckQuestion, EvaluationItem, EventCheck},
    },
};

pub fn evaluate_all(graph: &Graph, step: StepId, items: &[EvaluationItem]) -> Vec<Evaluation> {
    items.iter().map(|item| evaluate_step(graph, step, item).unwrap_or_else(Evaluation::Failed)).collect()
}

/// Whether an arriving event passes its check. An error does not count as `false`.
pub fn check_event(item: &EventCheck) -> Result<bool, Failure> {
    let event = Arc::new(item.event.as_json());
    let variables = Variables { event: Some(event.clone()), ..Variables::default() };
    match &item.question {
        CheckQuestion::Begins { source } => {
            let mut failure = None;
            for on in met_by(&item.graph, source, &item.event) {
                let Some(when) = &on.when else { return Ok(true) };
                match evaluate(when, "on.when", &event, &variables) {
                    Ok(Value::Null | Value::Bool(false)) => {}
                    Ok(_) => return Ok(true),
                    Err(error) => failure = Some(error),
                }
            }
            failure.map_or(Ok(false), Err)
        }
        CheckQuestion::Matches { step, run, outputs } => {
            let step = &item.graph.steps[*step as usize];
            let Some((_, matches)) = step.expressions.iter().find(|(name, _)| &**name == "match") else {
                return Ok(true);
            };
            let variables =
                Variables { run: Some(Arc::new(run.as_json())), steps: steps(&item.graph, outputs), ..variables };
            let matched = evaluate(matches, "match", &event, &variables)?;
            Ok(!matches!(matched, Value::Null | Value::Bool(false)))
        }
    }
}

fn steps(graph: &Graph, outputs: &[(StepId, Document)]) -> Vec<(Name, Document)> {
    outputs.iter().map(|(id, output)| (graph.steps[*id as usize].name.clone(), output.clone())).collect()
}

/// Evaluates the expressions of a step for one run.
///
/// # Errors
/// If an expression fails, or its value has the wrong type.
pub fn evaluate_step(graph: &Graph, step: StepId, item: &EvaluationItem) -> Result<Evaluation, Failure> {
    let step = &graph.steps[step as usize];
    let input = item.input.as_deref().unwrap_or(&Value::Null);
    let mut variables = Variables {
        event: Some(Arc::new(item.event.as_json())),
        run: Some(Arc::new(item.run.as_json())),
        steps: steps(graph, &item.outputs),
        item: None,
        index: None,
    };
    if let Some(when) = &step.when
        && matches!(evaluate(when, "when", input, &variables)?, Value::Null | Value::Bool(false))
    {
        return Ok(Evaluation::Skip);
    }
    if let Some(for_each) = &step.for_each {
        let list = match evaluate(for_each, "for-each", input, &variables)? {
            Value::Null => Vec::new(),
            Value::Array(list) => list,
            other => {
                return Err(Failure::reject(
                    codes::BAD_FOR_EACH,
                    format!("for-each gave {}, not a list", kind(&other)),
                ));
            }
        };
        let (mut inputs, mut items) = (Vec::with_capacity(list.len()), Vec::with_capacity(list.len()));
        for (index, element) in list.into_iter().enumerate() {
            let element = Arc::new(element);
            items.push(Some(element.clone()));
            variables.item = Some(element.clone());
            variables.index = u32::try_from(index).ok();
            inputs.push(match &step.input {
                Some(expression) => document(evaluate(expression, "input", input, &variables)?),
                None => Some(element),
            });
        }
        return Ok(Evaluation::Each { inputs, items });
    }
    let given = match &step.input {
        Some(expression) => document(evaluate(expression, "input", input, &variables)?),
        None => item.input.clone(),
    };
    match step.role {
        Role::Sleep => sleep(step),
        Role::Wait => wait(step, item, input, &variables),
        Role::Emit => match given.as_deref() {
            None | Some(Value::Null) => Ok(Evaluation::Emit(Vec::new())),
            Some(Value::Array(events)) => Ok(Evaluation::Emit(events.clone())),
            Some(event) => Ok(Evaluation::Emit(vec![event.clone()])),
        },
        _ => Ok(Evaluation::Go(given)),
    }
}

fn evaluate(expression: &Expression, place: &str, input: &Value, variables: &Variables) -> Result<Value, Failure> {
    expression
        .evaluate(input, variables)
        .map_err(|error| Failure::reject(codes::BAD_EXPRESSION, format!("{place}: {error}")))
}

fn document(value: Value) -> Document {
    if value.is_null() { None } else { Some(Arc::new(value)) }
}

fn sleep(step: &Step) -> Result<Evaluation, Failure> {
    let text = step.settings.get("for").and_then(Value::as_str).unwrap_or("0s");
    let wait = honeyflow_workflow::duration::parse(text)
        .ok_or_else(|| Failure::reject(codes::BAD_DURATION, format!("`{text}` is no duration")))?;
    Ok(Evaluation::Sleep(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

/// Evaluates which key the awaited event must have: that of the `key` setting; with `match` alone any key; otherwise
/// the key of the run.
fn wait(step: &Step, item: &EvaluationItem, input: &Value, variables: &Variables) -> Result<Evaluation, Failure> {
    let setting = |wanted: &str| step.expressions.iter().find(|(name, _)| &**name == wanted);
    let key = match (setting("key"), setting("match")) {
        (Some((_, key)), _) => match evaluate(key, "key", input, variables)? {
            Value::String(key) if key.contains('\0') => {
                return Err(Failure::reject(
                    codes::BAD_KEY,
                    "key gave a text with a NUL character, which no event has",
                ));
            }
            Value::String(key) => Some(key.into()),
            Value::Number(key) => Some(key.to_string().into()),
            other => {
                return Err(Failure::reject(
                    codes::BAD_KEY,
                    format!("key gave {}, not a text or number", kind(&other)),
                ));
            }
        },
        (None, Some(_)) => None,
        (None, None) => Some(item.run.key.clone()),
    };
    Ok(Evaluation::Wait { millis: u64::try_from(step.timeout.as_millis()).unwrap_or(u64::MAX), key })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
