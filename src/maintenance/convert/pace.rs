//! The limits of a conversion's pace, as pure rules. [`probe`] measures.

pub(super) mod pauses;
mod probe;
pub(super) mod throttle;

use std::fmt;
use std::time::Duration;

use bson::{Bson, DateTime, Document};

use crate::maintenance::upstream::as_integer;

/// The state of a secondary in `replSetGetStatus`.
const SECONDARY: i64 = 2;
/// The state of the primary in `replSetGetStatus`.
const PRIMARY: i64 = 1;

/// The limits that the operator gives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PaceLimits {
    /// The most documents per second that are copied or compared. `None`: no limit.
    pub(crate) rate: Option<u32>,
    /// The part of the time, in percent, in which documents are copied or compared. `None`: all of it.
    pub(crate) share: Option<u32>,
    /// The greatest lag of a secondary while documents are copied. `None`: no limit.
    pub(crate) lag: Option<Duration>,
    /// The greatest median duration of a small read while documents are copied. `None`: no limit.
    pub(crate) latency: Option<Duration>,
}

/// The measured load of the server. `None`: not measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Of the slowest secondary.
    pub(super) lag: Option<Duration>,
    /// The median of the last small reads.
    pub(super) latency: Option<Duration>,
}

/// A limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    /// A secondary is behind by this.
    Lag { is: Duration, most: Duration },
    /// A small read takes this.
    Latency { is: Duration, most: Duration },
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lag { is, most } => {
                let (is, most) = (is.as_secs(), most.as_secs());
                write!(f, "a secondary is {is} s behind (--max-lag {most})")
            }
            Self::Latency { is, most } => {
                let (is, most) = (is.as_millis(), most.as_millis());
                write!(f, "a small read takes {is} ms (--max-latency {most})")
            }
        }
    }
}

impl PaceLimits {
    /// The limit that the server's load exceeds. `None`: documents may be copied.
    pub(super) fn exceeded(&self, load: Load) -> Option<ExceededLimit> {
        if let (Some(is), Some(most)) = (load.lag, self.lag)
            && is > most
        {
            return Some(ExceededLimit::Lag { is, most });
        }
        if let (Some(is), Some(most)) = (load.latency, self.latency)
            && is > most
        {
            return Some(ExceededLimit::Latency { is, most });
        }
        None
    }

    /// The pause after a batch that took this time, so that the rate is not exceeded.
    pub(super) fn pause(&self, documents: usize, took: Duration) -> Duration {
        let Some(rate) = self.rate.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        let documents = u32::try_from(documents).unwrap_or(u32::MAX);
        let least = Duration::from_secs(1).saturating_mul(documents) / rate;
        least.saturating_sub(took)
    }

    /// The pause after a batch that took this time, so that its part of the time is not exceeded.
    pub(super) fn pause_by_share(&self, took: Duration) -> Duration {
        let share = self.share.unwrap_or(100).clamp(1, 100);
        took.saturating_mul(100 - share) / share
    }

    /// The documents that are read from a cursor at once: a limited rate takes a minute for them. The server
    /// closes a cursor that is not read for 30 minutes. `None`: as many as the server sends.
    pub(super) fn scanned(&self) -> Option<u32> {
        let rate = self.rate?;
        Some(rate.saturating_mul(60))
    }

    /// The most documents of a batch: those of a second, so that the rate is even. `most`: without a limit.
    pub(super) fn batch(&self, most: usize) -> usize {
        let rate = self.rate.and_then(|rate| usize::try_from(rate).ok());
        rate.map_or(most, |rate| rate.clamp(1, most.max(1)))
    }
}

/// The median. The greater one of two in the middle.
pub(super) fn median(durations: impl IntoIterator<Item = Duration>) -> Option<Duration> {
    let mut sorted: Vec<Duration> = durations.into_iter().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// The lag of the slowest secondary in a reply of `replSetGetStatus`. `delayed`: the members that are behind
/// by intention. Members that do not work, or that are copied anew, do not count: nobody reads from them.
/// `None`: there is no secondary.
pub(super) fn greatest_lag(status: &Document, delayed: &[String]) -> Option<Duration> {
    let members = || {
        let members = status.get_array("members").into_iter().flatten();
        members.filter_map(Bson::as_document)
    };
    let has_state = |member: &Document, state| member.get("state").and_then(as_integer) == Some(state);
    let is_delayed = |member: &Document| {
        member
            .get_str("name")
            .is_ok_and(|name| delayed.iter().any(|one| one == name))
    };
    let at = |member: &Document| member.get_datetime("optimeDate").ok().copied();
    let primary: DateTime = members().find(|member| has_state(member, PRIMARY)).and_then(at)?;
    let secondaries = members().filter(|member| has_state(member, SECONDARY) && !is_delayed(member));
    let slowest = secondaries.filter_map(at).min()?;
    let millis = primary.timestamp_millis().saturating_sub(slowest.timestamp_millis());
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// The members with a delay in a reply of `replSetGetConfig`.
pub(super) fn delayed_members(reply: &Document) -> Vec<String> {
    let config = reply.get_document("config").ok();
    let members = config.and_then(|config| config.get_array("members").ok());
    let members = members.into_iter().flatten().filter_map(Bson::as_document);
    // The name of the option before MongoDB 5.0 is `slaveDelay`.
    let delay = |member: &Document| {
        let options = ["secondaryDelaySecs", "slaveDelay"].into_iter();
        options
            .filter_map(|option| member.get(option).and_then(as_integer))
            .max()
    };
    let delayed = members.filter(|member| delay(member).is_some_and(|seconds| seconds > 0));
    delayed
        .filter_map(|member| member.get_str("host").ok().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn limits() -> PaceLimits {
        PaceLimits {
            rate: Some(200),
            share: None,
            lag: Some(Duration::from_secs(10)),
            latency: Some(Duration::from_millis(100)),
        }
    }

    #[test]
    fn a_rate_is_kept_by_pauses_and_small_batches() {
        let millis = Duration::from_millis;
        assert_eq!(limits().pause(100, millis(200)), millis(300));
        assert_eq!(limits().pause(100, millis(500)), Duration::ZERO);
        assert_eq!(limits().pause(100, millis(900)), Duration::ZERO);
        assert_eq!(PaceLimits::default().pause(1000, Duration::ZERO), Duration::ZERO);
        let of_share = |share| PaceLimits { share, ..limits() }.pause_by_share(Duration::from_secs(1));
        assert_eq!(
            [None, Some(100), Some(20)].map(of_share),
            [0, 0, 4].map(Duration::from_secs)
        );
        assert_eq!((limits().batch(1000), limits().batch(50)), (200, 50));
        assert_eq!(PaceLimits::default().batch(1000), 1000);
        assert_eq!(
            (limits().scanned(), PaceLimits::default().scanned()),
            (Some(12_000), None)
        );
    }

    #[test]
    fn a_limit_is_exceeded_only_by_more() {
        let load = |lag, latency| Load {
            lag: Some(Duration::from_secs(lag)),
            latency: Some(Duration::from_millis(latency)),
        };
        let text = |load| limits().exceeded(load).map(|hindrance| hindrance.to_string());
        assert_eq!(text(load(10, 100)), None);
        assert_eq!(
            text(load(11, 500)).unwrap(),
            "a secondary is 11 s behind (--max-lag 10)"
        );
        assert_eq!(
            text(load(0, 130)).unwrap(),
            "a small read takes 130 ms (--max-latency 100)"
        );
        assert_eq!(limits().exceeded(Load::default()), None);
        assert_eq!(PaceLimits::default().exceeded(load(1000, 1000)), None);
    }

    #[test]
    fn one_slow_read_does_not_change_the_median() {
        let of = |millis: &[u64]| median(millis.iter().map(|millis| Duration::from_millis(*millis)));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[2, 900, 1, 3, 2]), Some(Duration::from_millis(2)));
        assert_eq!(of(&[900, 1]), Some(Duration::from_millis(900)));
    }

    #[test]
    fn lag_is_that_of_the_slowest_secondary_that_works() {
        let member = |name: &str, state: i32, seconds: i64| {
            doc! { "name": name, "state": state, "optimeDate": DateTime::from_millis(seconds * 1000) }
        };
        let status = doc! { "members": [
            member("a", 1, 100), member("b", 2, 97), member("c", 2, 88), member("d", 8, 0), member("e", 5, 0),
        ] };
        let lag = |delayed: &[&str]| {
            let delayed: Vec<String> = delayed.iter().map(|name| (*name).to_owned()).collect();
            greatest_lag(&status, &delayed).map(|lag| lag.as_secs())
        };
        assert_eq!((lag(&[]), lag(&["c"]), lag(&["b", "c"])), (Some(12), Some(3), None));
        let ahead = doc! { "members": [member("a", 1, 100), member("b", 2, 101)] };
        assert_eq!(greatest_lag(&ahead, &[]), Some(Duration::ZERO));
        assert_eq!(greatest_lag(&doc! { "members": [member("a", 1, 100)] }, &[]), None);
        assert_eq!(greatest_lag(&doc! {}, &[]), None);
        let config = doc! { "config": { "members": [
            { "host": "a", "secondaryDelaySecs": 0_i64 }, { "host": "b", "secondaryDelaySecs": 3600_i64 },
            { "host": "c", "slaveDelay": 5 }, { "host": "d" },
        ] } };
        assert_eq!(delayed_members(&config), ["b", "c"]);
    }
}
