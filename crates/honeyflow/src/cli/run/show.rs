//! `honeyflow run show`

use std::fmt::Write;

use serde_json::Value;

use crate::{
    cli::{Context, Done, Fault, ask},
    escape,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The key, as `run list` shows it
    key: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let path = format!("/v1/runs?limit=100&key={}", ask::encode(&arguments.key));
    let Some(answer) = ask::node(&config, &path)? else {
        context.output.note("no node runs on this data folder: nothing is open");
        return Ok(Done::Negative);
    };
    let runs = answer["runs"].as_array().cloned().unwrap_or_default();
    if context.output.is_json() {
        for run in &runs {
            context.output.object(run)?;
        }
    } else {
        for run in &runs {
            context.output.print(&text(run))?;
        }
    }
    if runs.is_empty() {
        context.output.note("no run of this key is open; `honeyflow explain` tells what is stored about it");
        return Ok(Done::Negative);
    }
    Ok(Done::Well)
}

fn text(run: &Value) -> String {
    let field = |name: &str| escape::line(run[name].as_str().unwrap_or_default()).into_owned();
    let mut text = format!(
        "{} version {} of {} {}: open for {} ms with {} events, attempt {}, waits for: {}\n",
        field("workflow"),
        run["version"],
        field("entity"),
        field("key"),
        run["open_ms"],
        run["events"],
        run["attempts"],
        field("waits_for"),
    );
    for step in run["steps"].as_array().into_iter().flatten() {
        let name = escape::line(step["name"].as_str().unwrap_or_default());
        let _ = write!(text, "  {name:<16} {}", step["state"].as_str().unwrap_or_default());
        for counted in ["charges", "retries"] {
            if let Some(count) = step[counted].as_u64() {
                let _ = write!(text, ", {count} {counted}");
            }
        }
        text.push('\n');
    }
    text
}
