//! Metrics, logs and the admin endpoints: assembles what the other floors register.
