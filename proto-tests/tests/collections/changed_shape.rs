//! A changed shape on stored data: the proxy neither reads nor writes data with a shape that differs from the
//! stored one.

mod bucket;
mod outlier;

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use bson::Document;
use proto_tests::raw::Connection;

/// The index that says what is stored.
const INDEX: &str = "mongoshape_shape";

/// That each is refused, and says why.
fn all_refused(application: &mut Connection, commands: &[Document], said: &str) -> Result<()> {
    for command in commands {
        let reply = application.command(command)?;
        let errors = reply.get_array("writeErrors").ok();
        let error = errors
            .and_then(|errors| errors.first()?.as_document())
            .unwrap_or(&reply);
        let message = error.get_str("errmsg").with_context(|| format!("{command}: {reply}"))?;
        ensure!(error.get_i32("code")? == 72, "{command}: {reply}");
        ensure!(message.contains(said), "{command}: no {said:?} in {message}");
    }
    Ok(())
}

fn failed(output: &Output, said: &str) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1) && text.contains(said),
        "no {said:?} in:\n{text}"
    );
    Ok(())
}
