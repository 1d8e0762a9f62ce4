//! The client and the error reports of a background task of `serve`.

use mongodb::Client;

use super::upstream;
use crate::config::UpstreamConfig;

/// A client with the operator's credentials. It is opened when it is first used.
#[derive(Default)]
pub(super) struct OnDemandClient(Option<Client>);

impl OnDemandClient {
    /// The client. `None`: the upstream is not available, which the topology monitor reports.
    pub(super) async fn get(&mut self, upstream: &UpstreamConfig) -> Option<&Client> {
        if self.0.is_none() {
            self.0 = upstream::named_client(upstream, "mongoshape").await.ok();
        }
        self.0.as_ref()
    }

    /// Closes the connections.
    pub(super) async fn close(self) {
        if let Some(client) = self.0 {
            upstream::close(client).await;
        }
    }
}

/// The error of the last round of a task. A task reports an error once, not in every round.
#[derive(Default)]
pub(super) struct LastError(Option<String>);

impl LastError {
    /// Whether the last round has failed.
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Takes the error of a round. Returns it if the round before did not fail with the same one.
    pub(super) fn replace(&mut self, error: Option<String>) -> Option<&str> {
        let is_same = self.0 == error;
        self.0 = error;
        self.0.as_deref().filter(|_| !is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once() {
        let mut last = LastError::default();
        let mut report = |error: Option<&str>| last.replace(error.map(str::to_owned)).map(str::to_owned);
        let reports = [Some("a"), Some("a"), Some("b"), None, Some("b")].map(&mut report);
        assert_eq!(reports.map(Option::unwrap_or_default), ["a", "", "b", "", "b"]);
    }
}
