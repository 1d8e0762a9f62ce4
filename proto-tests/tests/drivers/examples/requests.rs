//! The requests of an example, as its `requests.json` lists them, and the ids in their answers.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One request. It is sent `times` times, with the number of the time in two digits for `<n>`.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// JSON, or empty.
    pub(super) body: String,
    /// Expected without the proxy, so that two equal failures are not taken for success.
    pub(super) status: u16,
}

impl Request {
    /// All of a file, repeated ones as often as they are sent.
    pub(super) fn all(file: &str) -> Result<Vec<Self>> {
        let listed: Vec<Value> = serde_json::from_str(file)?;
        let mut all = Vec::new();
        for request in &listed {
            let times = request.get("times").map_or(Some(1), Value::as_u64).context("times")?;
            for number in 1..=times {
                all.push(Self::of(request, &format!("{number:02}")).with_context(|| request.to_string())?);
            }
        }
        Ok(all)
    }

    fn of(request: &Value, number: &str) -> Result<Self> {
        let line = request["request"].as_str().context("no request")?;
        let (method, path) = line.split_once(' ').context("no path")?;
        let body = request.get("body").map_or(String::new(), Value::to_string);
        Ok(Self {
            method: method.to_owned(),
            path: path.replace("<n>", number),
            body: body.replace("<n>", number),
            status: u16::try_from(request["status"].as_u64().context("no status")?)?,
        })
    }
}

/// The `ObjectId`s that one application has generated, in the order in which its answers contained them. The first
/// is `<id 1>` in the requests and in the compared answers.
#[derive(Debug, Default)]
pub(super) struct Ids(Vec<String>);

impl Ids {
    /// Puts ids for their names into a request's path.
    pub(super) fn fill(&self, path: &str) -> String {
        let ids = self.0.iter().enumerate();
        ids.fold(path.to_owned(), |path, (at, id)| path.replace(&name(at), id))
    }

    /// Puts names for the ids into an answer.
    pub(super) fn hide(&mut self, answer: &mut Value) {
        match answer {
            Value::String(text) if is_id(text) => *text = self.name_of(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.hide(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.hide(value)),
            _ => {}
        }
    }

    fn name_of(&mut self, id: &str) -> String {
        let at = self.0.iter().position(|known| known == id).unwrap_or_else(|| {
            self.0.push(id.to_owned());
            self.0.len() - 1
        });
        name(at)
    }
}

fn name(at: usize) -> String {
    format!("<id {}>", at + 1)
}

fn is_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
