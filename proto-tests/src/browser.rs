//! A headless Chromium, driven over its debugging pipe. Messages are JSON objects that end with a zero byte.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guarded::POLL_INTERVAL;
use crate::paths;

/// What it is called on different systems.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// How to get it.
pub const INSTALL: &str = "apt-get install --no-install-recommends chromium fonts-dejavu-core";
/// The pipe is descriptors 3 and 4. `sh` moves them there, and its process becomes Chromium's.
const SCRIPT: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
const LIMIT: Duration = Duration::from_mins(1);

/// Whether a page's own scripts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scripts {
    /// They do.
    On,
    /// They do not.
    Off,
}

/// A running browser with one page. It ends when it is dropped, and, as its pipe then ends, when this process
/// does.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Value,
    next: u64,
    complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts one. `None`: there is none on this machine; see [`INSTALL`].
    pub fn start() -> Result<Option<Self>> {
        let Some(program) = NAMES.iter().find_map(|name| paths::on_path(name)) else {
            return Ok(None);
        };
        let profile = TempDir::with_prefix("mongoshape-chromium-")?;
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(program)
            // Pages of our own alone are opened, some by root in a container, where there is no sandbox.
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args(["--no-first-run", "--disable-extensions", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no input")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let (sender, messages) = sync_channel(1000);
        thread::spawn(move || {
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).unwrap_or_default();
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let mut browser = Self {
            child,
            input,
            messages,
            session: Value::Null,
            next: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        browser.attach()?;
        Ok(Some(browser))
    }

    fn attach(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        self.session = self.call("Target.attachToTarget", &target)?["sessionId"].take();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(())
    }

    /// Opens a page of the admin address, and waits until it is loaded.
    pub fn open(&mut self, address: SocketAddr, scripts: Scripts) -> Result<()> {
        self.open_url(&format!("http://{address}/"), scripts)
    }

    /// Opens any page, and waits until it is loaded.
    pub fn open_url(&mut self, url: &str, scripts: Scripts) -> Result<()> {
        let disabled = json!({ "value": scripts == Scripts::Off });
        self.call("Emulation.setScriptExecutionDisabled", &disabled)?;
        let navigation = self.call("Page.navigate", &json!({ "url": url }))?;
        ensure!(navigation["errorText"].is_null(), "{navigation}");
        self.wait("document.readyState === 'complete' && document.URL !== 'about:blank'")
    }

    /// Sends this password, of any user, with every request.
    pub fn password(&mut self, password: &str) -> Result<()> {
        let value = format!("Basic {}", BASE64_STANDARD.encode(format!("operator:{password}")));
        let headers = json!({ "headers": { "Authorization": value } });
        self.call("Network.setExtraHTTPHeaders", &headers).map(drop)
    }

    /// Shows pages as on a dark or a light screen of this width.
    pub fn screen(&mut self, scheme: &str, width: u32) -> Result<()> {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features)?;
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// The value of an expression.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &parameters)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.evaluate(expression).ok() != Some(Value::Bool(true)) {
            ensure!(Instant::now() < deadline, "never true: {expression}");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The document as it stands now.
    pub fn html(&mut self) -> Result<String> {
        let root = self.call("DOM.getDocument", &json!({}))?["root"]["nodeId"].take();
        let html = self.call("DOM.getOuterHTML", &json!({ "nodeId": root }))?;
        Ok(html["outerHTML"].as_str().context("no HTML")?.to_owned())
    }

    /// The whole page as a PNG.
    pub fn screenshot(&mut self) -> Result<Vec<u8>> {
        self.capture(true)
    }

    /// The part of the page that the screen shows, as a PNG.
    pub fn screenshot_of_screen(&mut self) -> Result<Vec<u8>> {
        self.capture(false)
    }

    fn capture(&mut self, is_whole: bool) -> Result<Vec<u8>> {
        let parameters = json!({ "format": "png", "captureBeyondViewport": is_whole, "optimizeForSpeed": false });
        let picture = self.call("Page.captureScreenshot", &parameters)?;
        Ok(BASE64_STANDARD.decode(picture["data"].as_str().context("no picture")?)?)
    }

    /// Errors of pages: exceptions, refused resources, and other console messages.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.input.write_all(format!("{message}\0").as_bytes())?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut answer = self
                .messages
                .recv_timeout(left)
                .with_context(|| format!("{method}: no answer"))?;
            if answer["id"] == self.next {
                if !answer["error"].is_null() {
                    bail!("{method}: {}", answer["error"]);
                }
                return Ok(answer["result"].take());
            }
            let event = answer["method"].as_str().unwrap_or_default();
            if ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"].contains(&event) {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
