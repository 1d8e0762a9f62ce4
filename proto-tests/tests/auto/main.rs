//! Shapes with `mode = "auto"`: plain documents are relayed, pages are rewritten, and a conversion exchanges
//! them under the clients of two proxies.

mod another_shape;
mod change_streams;
mod client_waits;
mod commands;
mod concurrent_clients;
mod creation;
mod documents_examined;
mod fixture;
mod given_up;
mod listing;
mod plain_documents;
mod referencing_pipelines;
mod replaced_collections;
mod retries;
mod rights;
mod stable_api;
mod time_limits;
mod write_concern;
