//! A changed shape on stored data: the proxy neither reads nor writes data with a shape that differs from the
//! stored one.

mod bucket;
mod outlier;

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use bson::Document;
use proto_tests::raw::Connection;

/// The shape marker.
const INDEX: &str = "mongoshape_shape";

/// Fails unless each is refused, with the reason in its error.
fn all_refused(application: &mut Connection, commands: &[Document], part: &str) -> Result<()> {
    for command in commands {
        let reply = application.command(command)?;
        let errors = reply.get_array("writeErrors").ok();
        let error = errors
            .and_then(|errors| errors.first()?.as_document())
            .unwrap_or(&reply);
        let message = error.get_str("errmsg").with_context(|| format!("{command}: {reply}"))?;
        ensure!(error.get_i32("code")? == 72, "{command}: {reply}");
        ensure!(message.contains(part), "{command}: no {part:?} in {message}");
    }
    Ok(())
}

fn failed(output: &Output, part: &str) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1) && text.contains(part),
        "no {part:?} in:\n{text}"
    );
    Ok(())
}
