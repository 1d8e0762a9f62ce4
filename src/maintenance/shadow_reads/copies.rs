//! A proxy for the copies in pages, inside `serve`.

use std::collections::BTreeMap;

use mongodb::Client;

use crate::config::Config;
use crate::maintenance::convert::ShadowCopy;
use crate::maintenance::embedded_proxy::EmbeddedProxy;
use crate::pattern::shapes::{BucketShape, Shape, Shapes};

/// The most copies that one proxy knows. With more, it begins again.
const MAX_COPIES: usize = 64;
/// The name of the proxy's client that the server lists.
const NAME: &str = "mongoshape shadow";

/// The proxy. It is started when a copy is first read.
#[derive(Default)]
pub(super) struct Copies {
    /// The shapes that the proxy knows, by the copies' namespaces.
    known: BTreeMap<String, BucketShape>,
    proxy: Option<EmbeddedProxy>,
}

impl Copies {
    /// A client that reads the copy's pages as documents. Starts the proxy anew if it does not know the
    /// copy's shape.
    ///
    /// # Errors
    /// Those of [`EmbeddedProxy::start`].
    pub(super) async fn client(&mut self, config: &Config, copy: &ShadowCopy) -> anyhow::Result<Client> {
        let namespace = copy.shape.namespace().to_string();
        let known = self.known.get(&namespace);
        let is_known = known.is_some_and(|known| known.stored_as() == copy.shape.stored_as());
        match &self.proxy {
            Some(proxy) if is_known => return Ok(proxy.client().clone()),
            _ => self.stop().await,
        }
        if self.known.len() >= MAX_COPIES {
            self.known.clear();
        }
        self.known.insert(namespace, copy.shape.clone());
        let shapes = self.known.values().cloned().map(Shape::Bucket).collect();
        // Two shapes with one namespace are impossible.
        let shapes = Shapes::new(shapes).unwrap_or_default();
        let proxy = EmbeddedProxy::start(config, shapes, NAME).await?;
        Ok(self.proxy.insert(proxy).client().clone())
    }

    /// Ends the proxy.
    pub(super) async fn stop(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
    }
}
