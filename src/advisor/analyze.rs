//! The analysis of one collection: reads, then decides.

use std::collections::BTreeMap;

use mongodb::Database;
use mongodb::error::Error;

use super::bucket::{BucketProposal, ReadCandidate};
use super::collection_stats::CollectionStats;
use super::configuration::Proposal;
use super::evidence::Evidence;
use super::queries::{Ask, reason};
use super::report::Report;
use super::traffic::Traffic;
use super::{bucket, candidate, outlier};

pub(super) struct CollectionAnalysis<'a, 'b> {
    pub(super) ask: &'a mut Ask<'b>,
    pub(super) database: &'a Database,
    /// Maximum number of documents to read.
    pub(super) sample: u64,
}

impl CollectionAnalysis<'_, '_> {
    /// Reads the collection's statistics and documents, and decides.
    pub(super) async fn at(&mut self, mut facts: CollectionStats, mut traffic: Traffic) -> Report {
        // A view has no sizes.
        if facts.unfit.is_empty()
            && let Err(error) = self.ask.add_facts(self.database, &mut facts).await
        {
            return cannot(&facts, &error);
        }
        let mut report = Report {
            namespace: facts.namespace.clone(),
            documents: facts.documents,
            mean_bytes: facts.mean_bytes(),
            seen: 0,
            queries: traffic.len(),
            proposal: None,
            against: facts.unfit.iter().map(|reason| ("shape", reason.clone())).collect(),
        };
        if !facts.unfit.is_empty() {
            return report;
        }
        let (uses, plans) = self.ask.usage(self.database, &facts.namespace).await;
        for used in &uses {
            facts.add_use(used);
        }
        for plan in &plans {
            traffic.add_plan(plan);
        }
        report.queries = traffic.len();
        let Some(sample) = self.ask.sample(self.database, &facts, self.sample).await else {
            return report;
        };
        report.seen = sample.len();
        match outlier::decide(&facts, &sample, &traffic) {
            Ok(outlier) => {
                report.proposal = Some(Proposal::Outlier(outlier));
                let reason =
                    "a collection has one shape, and the outlier shape is proposed because an array has a long tail"
                        .to_owned();
                report.against.push(("bucket shape", reason));
                return report;
            }
            Err(reasons) => report
                .against
                .extend(reasons.into_iter().map(|reason| ("outlier shape", reason))),
        }
        let mut against = bucket::against(&facts, &sample, &traffic);
        if against.is_empty() {
            let evidence = Evidence {
                facts: &facts,
                sample: &sample,
                traffic: &traffic,
            };
            match self.bucket(evidence).await {
                Ok(bucket) => report.proposal = Some(Proposal::Bucket(bucket)),
                Err(reasons) => against = reasons,
            }
        }
        report
            .against
            .extend(against.into_iter().map(|reason| ("bucket shape", reason)));
        report
    }

    /// Reads what the candidates for a bucket shape need, and decides.
    async fn bucket(&mut self, evidence: Evidence<'_>) -> Result<BucketProposal, Vec<String>> {
        let Evidence { facts, sample, traffic } = evidence;
        let candidates = candidate::candidates(facts, sample, traffic);
        let mut by_index = BTreeMap::new();
        if !candidates.is_empty() {
            by_index = self.ask.index_runs(self.database, facts, sample).await;
        }
        let mut read = Vec::new();
        for candidate in candidates {
            read.push(ReadCandidate {
                sizes: self.ask.sizes(self.database, evidence, &candidate).await,
                by_key: self.ask.key_runs(self.database, evidence, &candidate).await,
                candidate,
            });
        }
        bucket::decide(evidence, &by_index, read)
    }
}

fn cannot(facts: &CollectionStats, error: &Error) -> Report {
    Report {
        namespace: facts.namespace.clone(),
        documents: 0,
        mean_bytes: 0,
        seen: 0,
        queries: 0,
        proposal: None,
        against: vec![("shape", format!("it cannot be inspected: {}", reason(error)))],
    }
}
