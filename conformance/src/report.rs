//! Counts per rule with an example, findings grouped by kind with full detail.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::peers::Kind;
use crate::rules::RULES;

/// Examples kept per kind of finding: one bug shows in thousands of queries.
const EXAMPLES_MAX: usize = 3;

#[derive(Debug)]
pub struct Example {
    pub index: Option<usize>,
    pub dig: String,
    pub detail: String,
}

#[derive(Debug, Default)]
struct Group {
    count: usize,
    examples: Vec<Example>,
}

#[derive(Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub zones: usize,
    pub queries: usize,
    pub answers: usize,
    pub retried_over_tcp: usize,
    /// (rule, peer) → how often, and the first query.
    rules: BTreeMap<(usize, Kind), (usize, String)>,
    /// What the odd messages brought back, one line each.
    pub odd: Vec<String>,
    findings: BTreeMap<String, Group>,
}

impl Report {
    pub fn new(seed: u64, zones: usize) -> Self {
        Report { seed, zones, ..Report::default() }
    }

    pub fn accepted(&mut self, rule: usize, peer: Kind, example: impl FnOnce() -> String) {
        let entry = self.rules.entry((rule, peer)).or_insert_with(|| (0, example()));
        entry.0 += 1;
    }

    pub fn finding(&mut self, kind: String, example: impl FnOnce() -> Example) {
        let group = self.findings.entry(kind).or_default();
        group.count += 1;
        if group.examples.len() < EXAMPLES_MAX {
            group.examples.push(example());
        }
    }

    pub fn findings(&self) -> usize {
        self.findings.values().map(|group| group.count).sum()
    }

    pub fn kinds(&self) -> impl Iterator<Item = (&str, usize)> {
        self.findings.iter().map(|(kind, group)| (kind.as_str(), group.count))
    }

    pub fn uses_of(&self, rule: &str) -> usize {
        let used = self.rules.iter().filter(|((index, _), _)| RULES[*index].name == rule);
        used.map(|(_, (count, _))| count).sum()
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("# Differential conformance\n\n");
        let _ = writeln!(
            text,
            "Seed {}, {} zones, {} queries, {} answers, {} asked again over TCP. \
             **{} findings of {} kinds.**\n",
            self.seed,
            self.zones,
            self.queries,
            self.answers,
            self.retried_over_tcp,
            self.findings(),
            self.findings.len()
        );
        self.write_findings(&mut text);
        self.write_rules(&mut text);
        if !self.odd.is_empty() {
            text.push_str("## Odd messages\n\n");
            for line in &self.odd {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }

    fn write_findings(&self, text: &mut String) {
        if self.findings.is_empty() {
            return;
        }
        text.push_str("## Findings\n\n");
        let mut groups: Vec<_> = self.findings.iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
        for (kind, group) in groups {
            let _ = writeln!(text, "### {kind} ({} times)\n", group.count);
            for example in &group.examples {
                if let Some(index) = example.index {
                    let _ = writeln!(
                        text,
                        "Again: `--seed {} --zones {} --only {index}`\n",
                        self.seed, self.zones
                    );
                }
                let _ = writeln!(text, "```\n{}\n{}```\n", example.dig, example.detail);
            }
        }
    }

    fn write_rules(&self, text: &mut String) {
        text.push_str("## Differences accepted by a rule\n\n");
        text.push_str(
            "| rule | peer | times | clause | why | example |\n|---|---|---|---|---|---|\n",
        );
        for ((index, peer), (count, example)) in &self.rules {
            let rule = &RULES[*index];
            let _ = writeln!(
                text,
                "| {} | {} | {count} | {} | {} | `{}` |",
                rule.name,
                peer.label(),
                rule.clause,
                rule.why,
                example.replace('|', "\\|")
            );
        }
        let unused = RULES
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.rules.keys().any(|(used, _)| used == index));
        let unused: Vec<_> = unused.map(|(_, rule)| rule.name).collect();
        if !unused.is_empty() {
            let _ = writeln!(text, "\nUnused in this run: {}.", unused.join(", "));
        }
        text.push('\n');
    }
}
