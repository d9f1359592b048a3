//! Chromium without a window, driven through `chromedriver`. Both end with this value.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::http;

const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--window-size=1400,1000",
];

/// The program that is needed and not installed, if any.
pub fn missing() -> Option<&'static str> {
    ["chromium", "chromedriver"].into_iter().find(|program| find(program).is_none())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

pub struct Browser {
    driver: Child,
    address: String,
    session: String,
    /// The browser's profile; removed after the browser has ended.
    _profile: tempfile::TempDir,
}

/// The driver takes a free port of one address family, and ends if another program has the same port of the other
/// family.
const STARTS_MAX: usize = 5;

impl Browser {
    pub fn start() -> Result<Browser, String> {
        let mut last_error = String::new();
        for _ in 0..STARTS_MAX {
            match Browser::start_once() {
                Ok(browser) => return Ok(browser),
                Err(why) => last_error = why,
            }
        }
        Err(last_error)
    }

    fn start_once() -> Result<Browser, String> {
        let profile = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start chromedriver: {error}"))?;
        let port = port_of(&mut driver);
        // From here on, dropping the value ends the processes.
        let mut browser = Browser { driver, address: String::new(), session: String::new(), _profile: profile };
        browser.address = format!("127.0.0.1:{}", port?);
        let mut flags: Vec<String> = FLAGS.iter().map(ToString::to_string).collect();
        flags.push(format!("--user-data-dir={}", browser._profile.path().display()));
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": find("chromium"), "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let answer = http::request(&browser.address, "POST", "/session", Some(&capabilities))?;
        let session = answer["value"]["sessionId"].as_str().ok_or_else(|| format!("no session: {answer}"))?;
        browser.session = session.to_owned();
        Ok(browser)
    }

    fn call(&self, path: &str, body: &Value) -> Result<Value, String> {
        let path = format!("/session/{}/{path}", self.session);
        let answer = http::request(&self.address, "POST", &path, Some(body))?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{path}: {error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].clone()),
        }
    }

    pub fn open(&self, url: &str) -> Result<(), String> {
        self.call("url", &json!({ "url": url })).map(|_| ())
    }

    /// Runs a script and returns its result.
    pub fn script(&self, text: &str) -> Result<Value, String> {
        self.call("execute/sync", &json!({ "script": text, "args": [] }))
    }

    /// The text of the element with this id; empty if there is none.
    pub fn text(&self, id: &str) -> Result<String, String> {
        let value =
            self.script(&format!("const e = document.getElementById('{id}'); return e ? e.textContent : ''"))?;
        Ok(value.as_str().unwrap_or_default().trim().to_owned())
    }

    /// Replaces the text of an input key by key, as a person types.
    pub fn type_into(&self, id: &str, text: &str) -> Result<(), String> {
        let found = self.call("element", &json!({ "using": "css selector", "value": format!("#{id}") }))?;
        let element = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        let element = element.ok_or_else(|| format!("there is no #{id}"))?;
        self.call(&format!("element/{element}/clear"), &json!({}))?;
        self.call(&format!("element/{element}/value"), &json!({ "text": text })).map(|_| ())
    }

    /// The browser's log since the last call: errors of scripts, refusals by the page's policy.
    pub fn complaints(&self) -> Result<Vec<String>, String> {
        let entries = self.call("se/log", &json!({ "type": "browser" }))?;
        let entries = entries.as_array().cloned().unwrap_or_default();
        Ok(entries.iter().map(ToString::to_string).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = http::request(&self.address, "DELETE", &format!("/session/{}", self.session), None);
        }
        // Kills the browser, too, if no session has ended it: the driver alone would leave it behind.
        let _ = kill_process_group(Pid::from_child(&self.driver), Signal::KILL);
        let _ = self.driver.wait();
    }
}

/// `ChromeDriver was started successfully on port 40123.`
fn port_of(driver: &mut Child) -> Result<u16, String> {
    let output = driver.stdout.take().ok_or("no output of chromedriver")?;
    let mut lines = BufReader::new(output).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    // Reads on, so that the driver never writes into a full or closed pipe.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    port.ok_or_else(|| "chromedriver ended without a port".to_owned())
}
