//! The proxy as a server: connections, TLS, topologies, metrics, reloads and malicious clients.

mod admin_access;
mod compression;
mod demo;
mod failover;
mod harness;
mod insert_metrics;
mod logins;
mod malformed;
mod malicious_clients;
mod metrics;
mod observe;
mod operators_page;
mod relay;
mod reload;
mod secrets;
mod secured;
mod stand_in;
mod stream_errors;
mod tls;
mod topologies;
mod traces;
