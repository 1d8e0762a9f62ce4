//! The section `traces`.

use super::{ConfigOption, ConfigTable, Holds, Occurrence, OptionalText, Percentage, TextOption};

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "traces",
    times: Occurrence::Once,
    meaning: "[Traces](operations.md#traces) of commands, exported to an OpenTelemetry collector.",
    options: &[&ENDPOINT, &SAMPLED_PERCENT, &SERVICE_NAME],
    tables: &[],
};

pub(in crate::config) const ENDPOINT: ConfigOption<OptionalText> = ConfigOption {
    name: "endpoint",
    value: OptionalText {
        what: "the address of a collector that receives OTLP over HTTP, as in `http://127.0.0.1:4318`",
        otherwise: "commands are not traced",
    },
    holds: Holds::FromStart,
    meaning: "The collector, without TLS: run one on the proxy's host, or in its pod. Spans go to `/v1/traces` there.",
};

pub(in crate::config) const SAMPLED_PERCENT: ConfigOption<Percentage> = ConfigOption {
    name: "sampled_percent",
    value: Percentage {
        least: "0.01",
        most: "100",
        default: 1,
    },
    holds: Holds::FromStart,
    meaning: "The percentage of the commands that are traced. If the `comment` of a command contains a `traceparent`, the parent decides.",
};

pub(in crate::config) const SERVICE_NAME: ConfigOption<TextOption> = ConfigOption {
    name: "service_name",
    value: TextOption {
        what: "a name",
        default: "mongoshape",
    },
    holds: Holds::FromStart,
    meaning: "The name of this service in traces.",
};
