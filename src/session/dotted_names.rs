//! `distinct` of a path that may be a field's own name. Servers of one wire version handle such a field
//! differently.

use super::error::RunError;
use super::upstream_connection::{LinkError, UpstreamConnection};
use crate::command::distinct::Distinct;
use crate::command::error::CommandError;
use crate::pattern::unwound::distinct::{DottedNames, is_of_rejected_name, may_be_dotted_name};

/// The handling of such fields by the server.
pub(super) async fn dotted_names(
    link: &mut UpstreamConnection,
    wanted: &Distinct<'_>,
) -> Result<DottedNames, LinkError> {
    if !may_be_dotted_name(wanted.key) {
        return Ok(DottedNames::Ignored);
    }
    Ok(DottedNames::of(link.server_version().await?))
}

/// A refusal if the pipeline has found such a field, and any other error as it is.
pub(super) fn unless_rejected_name(error: RunError, unsupported: impl FnOnce(&str) -> CommandError) -> RunError {
    error.map_command(|error| {
        if is_of_rejected_name(&error) {
            unsupported("distinct of a path that is a field's own name")
        } else {
            error
        }
    })
}
