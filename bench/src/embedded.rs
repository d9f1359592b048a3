//! A node on SQLite and Tantivy: how fast it works off a backlog, and how long a change takes.

use crate::{Result, drain, figure::Reporter, latency, shop::Shop};

#[derive(clap::Args)]
pub struct Options {
    /// Number of books in the shop; the backlog has one event for each
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(i64).range(1_000..1_000_000))]
    pub books: i64,
    /// Changes per second while latency is measured
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..100_000))]
    pub rate: u32,
    /// How long each latency run takes
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..3600))]
    pub seconds: u64,
}

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    eprintln!("making a shop of {} books and its index …", options.books);
    let runtime = crate::runtime()?;
    let shop = runtime.block_on(Shop::indexed(options.books))?;
    if reporter.wants("drain") {
        drain::measure(&runtime, &shop, reporter)?;
    }
    if reporter.wants("latency") {
        latency::measure(&runtime, &shop, options, reporter)?;
    }
    Ok(())
}
