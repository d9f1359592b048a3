//! The cost of an idle node: `idle-cpu` in percent of a core, `idle-memory` in MiB, for the real binary in a process of
//! its own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use honeyflow::demo::shop;

use crate::{
    Result,
    figure::{Better, Measurement, Reporter},
    shop::Shop,
};

#[derive(clap::Args)]
pub struct Options {
    /// Time for which an idle node is watched for `idle-cpu`, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..3600))]
    cpu_wait: u64,
    /// Time from the node's start to the reading of its memory, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..3600))]
    memory_wait: u64,
    /// Binary to start; by default it is built in the profile of this program
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The unit of the times in /proc. It is the same on every Linux that we build for, independent of the kernel's own
/// clock.
const TICKS_PER_SECOND: f64 = 100.0;
/// The time that a node needs to start and to find no work.
const SETTLE: Duration = Duration::from_secs(5);

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    if !reporter.wants("idle-cpu") && !reporter.wants("idle-memory") {
        return Ok(());
    }
    let binary = options.binary.clone().map_or_else(build, Ok)?;
    let template = crate::runtime()?.block_on(Shop::indexed(shop::BOOKS))?;
    if reporter.wants("idle-cpu") {
        let mut ours = Vec::new();
        for run in 1..=reporter.runs {
            eprintln!("idle-cpu: run {run} of {}", reporter.runs);
            let node = Node::start(&binary, template.copy()?)?;
            std::thread::sleep(SETTLE);
            let (before, begun) = (node.cpu_seconds()?, Instant::now());
            std::thread::sleep(Duration::from_secs(options.cpu_wait));
            ours.push((node.cpu_seconds()? - before) / begun.elapsed().as_secs_f64() * 100.0);
        }
        reporter.report(&Measurement { figure: "idle-cpu", unit: "% core", better: Better::Lower, ours, peer: None });
    }
    if reporter.wants("idle-memory") {
        let mut ours = Vec::new();
        for run in 1..=reporter.runs {
            eprintln!("idle-memory: run {run} of {}", reporter.runs);
            let node = Node::start(&binary, template.copy()?)?;
            std::thread::sleep(Duration::from_secs(options.memory_wait));
            ours.push(node.resident_mib()?);
        }
        reporter.report(&Measurement { figure: "idle-memory", unit: "MiB", better: Better::Lower, ours, peer: None });
    }
    Ok(())
}

/// Builds the binary beside this program.
fn build() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("this program has no folder")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    eprintln!("building honeyflow in profile {profile} …");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--profile", profile, "--package", "honeyflow", "--bin", "honeyflow"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stdout(Stdio::null())
        .status()?;
    let binary = folder.join("honeyflow");
    if !built.success() || !binary.exists() {
        return Err("cannot build honeyflow; pass --binary PATH".into());
    }
    Ok(binary)
}

/// A process that runs `honeyflow start`; it is ended when the value is dropped.
struct Node {
    process: Child,
    _shop: Shop,
}

impl Node {
    fn start(binary: &Path, shop: Shop) -> Result<Node> {
        let process = Command::new(binary)
            .args(["start", "--yes", "--config"])
            .arg(&shop.config.file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Node { process, _shop: shop })
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.process.id());
        Ok(std::fs::read_to_string(path).map_err(|error| format!("the node has ended: {error}"))?)
    }

    /// The processor time so far, in user and kernel mode.
    fn cpu_seconds(&self) -> Result<f64> {
        let stat = self.read("stat")?;
        // The name of the program is in parentheses and may contain anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).ok_or("no times in stat");
        Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
    }

    fn resident_mib(&self) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the node has ended")?;
        let kib: f64 = line.split_whitespace().next().unwrap_or_default().parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if matches!(self.process.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
