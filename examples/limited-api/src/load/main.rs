//! Sends requests to several copies of the service at a stated rate, evenly or unevenly, and adds up what they
//! admitted.

mod report;
mod send;

use std::{error::Error, time::Duration};

use crate::report::Report;

#[derive(clap::Parser)]
#[command(name = "limited-load", version, about = "Send requests to copies of limited-api and add up what they admit")]
struct Arguments {
    /// Addresses or URLs of the copies
    #[arg(long, value_delimiter = ',', required = true)]
    targets: Vec<String>,
    /// Requests a second to all copies together
    #[arg(long, default_value_t = 1500)]
    rate: u64,
    /// Part of the requests that each copy gets; equal parts if omitted
    #[arg(long, value_delimiter = ',')]
    skew: Vec<u64>,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, short, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Arguments = clap::Parser::parse();
    let shares = match arguments.skew.as_slice() {
        [] => vec![1; arguments.targets.len()],
        skew if skew.len() == arguments.targets.len() && skew.iter().sum::<u64>() > 0 => skew.to_vec(),
        skew => {
            let (targets, parts) = (arguments.targets.len(), skew.len());
            return Err(
                format!("--skew has {parts} parts but --targets has {targets}: pass one part for each target").into()
            );
        }
    };
    let urls: Vec<String> = arguments.targets.iter().map(|target| url(target)).collect();
    let all: u64 = shares.iter().sum();
    let length = Duration::from_secs(arguments.seconds);
    let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
    let before = report::admitted(&client, &urls).await?;
    let senders = urls.iter().zip(&shares).map(|(url, share)| {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = arguments.rate as f64 * *share as f64 / all as f64;
        tokio::spawn(send::send(client.clone(), format!("{url}/orders"), rate, length))
    });
    let mut sent = Vec::new();
    for sender in senders.collect::<Vec<_>>() {
        sent.push(sender.await?);
    }
    let after = report::admitted(&client, &urls).await?;
    let report = Report::new(&urls, sent, &before, &after, length);
    match arguments.output.as_str() {
        "json" => println!("{}", serde_json::to_string(&report)?),
        _ => print!("{report}"),
    }
    Ok(())
}

fn url(target: &str) -> String {
    let target = target.trim_end_matches('/');
    if target.contains("://") { target.to_owned() } else { format!("http://{target}") }
}
