//! `honeyflow run show`: shows the open runs of one key, as the running node reports them.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    cli::{Context, Fault, Outcome, node_client},
    escape,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Key, as `run list` shows it
    key: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let path = format!("/v1/runs?limit=100&key={}", node_client::encode(&arguments.key));
    let Some(answer) = node_client::get(&config, &path)? else {
        context.output.note("no node runs on this data folder: there are no open runs");
        return Ok(Outcome::Negative);
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
        context.output.note("this key has no open run; `honeyflow explain` shows what is stored about it");
        return Ok(Outcome::Negative);
    }
    Ok(Outcome::Success)
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
