//! The processes of one hive, and what they say.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::Place;

/// A loaded machine may be slow; what does not happen within this does not happen.
pub const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    Default,
    Fast,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Fast => "fast",
        }
    }

    pub fn heartbeat(self) -> Duration {
        match self {
            Profile::Default => Duration::from_secs(2),
            Profile::Fast => Duration::from_millis(500),
        }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(word: &str) -> Result<Profile, String> {
        let found = [Profile::Default, Profile::Fast].into_iter().find(|profile| profile.name() == word);
        found.ok_or_else(|| format!("no profile is called `{word}`"))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    Joined,
    Wrote {
        lease: String,
        epoch: u64,
        at_us: u64,
    },
    Holding {
        epoch: u64,
    },
    Tried {
        lease: String,
        epoch: u64,
        accepted: u32,
        refused: u32,
    },
    Left,
    /// Its output has ended.
    Ended,
}

impl Said {
    fn read(line: &str) -> Option<Said> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words[..] {
            ["joined"] => Said::Joined,
            ["left"] => Said::Left,
            ["wrote", lease, epoch, at_us] => {
                Said::Wrote { lease: lease.to_owned(), epoch: epoch.parse().ok()?, at_us: at_us.parse().ok()? }
            }
            ["holding", _, epoch] => Said::Holding { epoch: epoch.parse().ok()? },
            ["tried", lease, epoch, accepted, refused] => Said::Tried {
                lease: lease.to_owned(),
                epoch: epoch.parse().ok()?,
                accepted: accepted.parse().ok()?,
                refused: refused.parse().ok()?,
            },
            _ => return None,
        })
    }
}

#[derive(Clone)]
pub struct Setting {
    pub program: PathBuf,
    pub place: Place,
    pub hive: String,
    pub profile: Profile,
    pub fenced: bool,
    pub pace_ms: u64,
}

/// Killed when it is dropped, stopped or not.
struct Bee {
    name: String,
    child: Child,
    stopped: bool,
}

impl Drop for Bee {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Swarm {
    pub setting: Setting,
    bees: Vec<Bee>,
    started: u32,
    /// By lease.
    writers: BTreeMap<String, (String, u64)>,
    tell: Sender<(String, Said)>,
    said: Receiver<(String, Said)>,
}

impl Swarm {
    /// All of them, each a member.
    ///
    /// # Errors
    /// If one cannot be started, or does not join.
    pub fn start(setting: Setting, count: usize) -> Result<Swarm, String> {
        // Makes the log, so that nobody is the first.
        setting.place.ledger(&setting.hive)?;
        let (tell, said) = channel();
        let mut swarm = Swarm { setting, bees: Vec::new(), started: 0, writers: BTreeMap::new(), tell, said };
        for _ in 0..count {
            swarm.add()?;
        }
        Ok(swarm)
    }

    /// One more; answers its name once it has joined.
    ///
    /// # Errors
    /// If it cannot be started, or does not join.
    pub fn add(&mut self) -> Result<String, String> {
        let name = format!("bee-{}", self.started);
        self.started += 1;
        let Setting { program, place, hive, profile, fenced, pace_ms } = &self.setting;
        let mut child = Command::new(program)
            .args(["bee", "--backend", place.backend.name(), "--url", &place.url, "--hive", hive, "--name", &name])
            .args(["--profile", profile.name(), "--fenced", if *fenced { "yes" } else { "no" }])
            .args(["--pace", &pace_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let (tell, speaker) = (self.tell.clone(), name.clone());
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some(said) = Said::read(&line) {
                        let _ = tell.send((speaker.clone(), said));
                    }
                }
                let _ = tell.send((speaker, Said::Ended));
            });
        }
        self.bees.push(Bee { name: name.clone(), child, stopped: false });
        self.wait("a node joins", |who, said| (who == name && *said == Said::Joined).then_some(()))?;
        Ok(name)
    }

    /// Hears everything until it is what is waited for.
    ///
    /// # Errors
    /// If it does not come.
    pub fn wait<T>(&mut self, what: &str, is_it: impl FnMut(&str, &Said) -> Option<T>) -> Result<T, String> {
        self.wait_for(PATIENCE, is_it)?.ok_or_else(|| format!("in {PATIENCE:?} it did not come to this: {what}"))
    }

    /// # Errors
    /// If a node has ended by itself.
    pub fn wait_for<T>(
        &mut self,
        patience: Duration,
        mut is_it: impl FnMut(&str, &Said) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let until = Instant::now() + patience;
        loop {
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((who, said)) => {
                    if let Said::Wrote { lease, epoch, .. } = &said
                        && self.writers.get(lease).is_none_or(|(_, before)| before < epoch)
                    {
                        self.writers.insert(lease.clone(), (who.clone(), *epoch));
                    }
                    if let Some(found) = is_it(&who, &said) {
                        return Ok(Some(found));
                    }
                    if said == Said::Ended && self.bees.iter().any(|bee| bee.name == who) {
                        return Err(format!("{who} has ended by itself"));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err("nobody is left".to_owned()),
            }
        }
    }

    /// Who was last heard to write under this lease, and under which epoch.
    pub fn writer(&self, lease: &str) -> Option<(String, u64)> {
        self.writers.get(lease).cloned()
    }

    fn bee(&mut self, name: &str) -> Result<&mut Bee, String> {
        self.bees.iter_mut().find(|bee| bee.name == name).ok_or_else(|| format!("{name} is gone"))
    }

    fn signal(&mut self, name: &str, signal: Signal) -> Result<(), String> {
        let bee = self.bee(name)?;
        bee.stopped = signal == Signal::STOP;
        kill_process(Pid::from_child(&bee.child), signal).map_err(|error| format!("cannot signal {name}: {error}"))
    }

    /// # Errors
    /// If it is gone.
    pub fn pause(&mut self, name: &str) -> Result<(), String> {
        self.signal(name, Signal::STOP)
    }

    /// # Errors
    /// If it is gone.
    pub fn go_on(&mut self, name: &str) -> Result<(), String> {
        self.signal(name, Signal::CONT)
    }

    /// With -9.
    ///
    /// # Errors
    /// If it is gone already.
    pub fn kill(&mut self, name: &str) -> Result<(), String> {
        self.bee(name)?;
        self.bees.retain(|bee| bee.name != name);
        Ok(())
    }

    /// # Errors
    /// If it is gone.
    pub fn command(&mut self, name: &str, word: &str) -> Result<(), String> {
        let input = self.bee(name)?.child.stdin.as_mut().ok_or("its input is closed")?;
        writeln!(input, "{word}").map_err(|error| format!("{name} does not listen: {error}"))
    }

    /// It has left, or was told to: its end is no surprise.
    pub fn forget(&mut self, name: &str) {
        self.bees.retain(|bee| bee.name != name);
    }
}
