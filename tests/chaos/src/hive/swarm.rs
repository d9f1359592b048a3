//! The processes of one hive, and what they say.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Place, Said,
    check::Terms,
    clocks::{self, Clocks, DRIFT_MAX, Wall},
    line::{Exchange, Line},
};
use crate::proxy::Way;

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

#[derive(Clone)]
pub struct Setting {
    pub program: PathBuf,
    pub place: Place,
    pub hive: String,
    pub profile: Profile,
    pub fenced: bool,
    pub pace_ms: u64,
}

/// What can be done to bees beyond signals; nothing of it unless it is asked for.
#[derive(Clone, Default)]
pub struct Reach {
    pub exchange: Option<Arc<Exchange>>,
    pub clocks: Option<Arc<Clocks>>,
    /// Of three bees the clock of one runs fast and that of another slow.
    pub drifts: bool,
    /// Shards to divide among them; bees that have some also serve requests.
    pub shards: u32,
    /// Nobody wants [`super::LEASE`].
    pub no_duty: bool,
    /// Whoever has heard that its term is lost writes no more.
    pub polite: bool,
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// Killed when it is dropped, stopped or not.
struct Bee {
    name: String,
    child: Child,
    line: Option<Line>,
    wall: Option<Wall>,
}

impl Drop for Bee {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.wall.is_some() {
            clocks::sweep(self.child.id());
        }
    }
}

pub struct Swarm {
    pub setting: Setting,
    reach: Reach,
    bees: Vec<Bee>,
    started: u32,
    /// By lease.
    writers: BTreeMap<String, (String, u64)>,
    pub terms: Terms,
    tell: Sender<(String, Said)>,
    said: Receiver<(String, Said)>,
}

impl Swarm {
    /// All of them, each a member.
    ///
    /// # Errors
    /// If one cannot be started, or does not join.
    pub fn start(setting: Setting, count: usize) -> Result<Swarm, String> {
        Swarm::within(Reach::default(), setting, count)
    }

    /// The same, with more that can be done to them.
    ///
    /// # Errors
    /// If one cannot be started, or does not join.
    pub fn within(reach: Reach, setting: Setting, count: usize) -> Result<Swarm, String> {
        // Makes the log, so that nobody is the first.
        setting.place.ledger(&setting.hive)?;
        let (tell, said) = channel();
        let (bees, writers, terms) = (Vec::new(), BTreeMap::new(), Terms::default());
        let mut swarm = Swarm { setting, reach, bees, started: 0, writers, terms, tell, said };
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
        let drift = if self.reach.drifts { [0, DRIFT_MAX, -DRIFT_MAX][self.started as usize % 3] } else { 0 };
        self.started += 1;
        let line = self.reach.exchange.as_ref().map(|exchange| exchange.line()).transpose()?;
        let Setting { program, place, hive, profile, fenced, pace_ms } = &self.setting;
        let place = line.as_ref().map_or(place, |line| &line.place);
        let mut command = Command::new(program);
        command
            .args(["bee", "--backend", place.backend.name(), "--url", &place.url, "--hive", hive, "--name", &name])
            .args(["--profile", profile.name(), "--fenced", yes(*fenced)])
            .args(["--pace", &pace_ms.to_string(), "--drift", &drift.to_string()])
            .args(["--shards", &self.reach.shards.to_string()])
            .args(["--duty", yes(!self.reach.no_duty), "--polite", yes(self.reach.polite)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let wall = match &self.reach.clocks {
            Some(clocks) => Some(clocks.hang(&format!("{hive}-{name}"), &mut command)?),
            None => None,
        };
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
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
        self.bees.push(Bee { name: name.clone(), child, line, wall });
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
                    self.terms.hear(&said);
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

    /// The leases under which it was the last to write.
    pub fn written_by(&self, name: &str) -> Vec<String> {
        self.writers.iter().filter(|(_, (writer, _))| writer == name).map(|(lease, _)| lease.clone()).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.bees.iter().map(|bee| bee.name.clone()).collect()
    }

    fn bee(&mut self, name: &str) -> Result<&mut Bee, String> {
        self.bees.iter_mut().find(|bee| bee.name == name).ok_or_else(|| format!("{name} is gone"))
    }

    fn signal(&mut self, name: &str, signal: Signal) -> Result<(), String> {
        let bee = self.bee(name)?;
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

    /// What becomes of everything between it and the server.
    ///
    /// # Errors
    /// If it is gone, or has no line of its own.
    pub fn cut(&mut self, name: &str, way: Way) -> Result<(), String> {
        self.bee(name)?.line.as_ref().ok_or("it has no line that could be cut")?.set(way);
        Ok(())
    }

    /// Its wall clock, off by so many seconds.
    ///
    /// # Errors
    /// If it is gone, or has the machine's clock.
    pub fn set_clock(&mut self, name: &str, seconds: i64) -> Result<(), String> {
        self.bee(name)?.wall.as_ref().ok_or("it has the machine's clock")?.set(seconds)
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
