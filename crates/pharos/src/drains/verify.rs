//! `pharos audit verify`: asks a server, or reads the store itself, and says
//! exactly what is proven and what is not.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use store::{Head, KnownHead, PublicKey, Trust};

use super::api::verdict_view;
use super::command::Verify;
use super::custody::meaning_of;
use super::sink::read_heads;
use crate::control::{Socket, escaped};
use crate::output::Output;

/// Entries that are asked for at once.
const PAGE: usize = 999;

impl Verify {
    pub fn verify(self) -> Result<u8, String> {
        let sent = self.sink.as_deref().map(heads_of).transpose()?;
        let mut verdict = match &self.store {
            Some(store) => self.read(store, sent.as_deref().unwrap_or_default())?,
            None => self.ask(sent.as_deref().unwrap_or_default())?,
        };
        if let (Some(heads), Some(path)) = (&sent, &self.sink) {
            let last = heads.iter().map(|own| own.head.entries).max().unwrap_or_default();
            verdict["sink"] = json!({
                "file": path.display().to_string(), "heads": heads.len(), "last": last,
            });
        }
        verdict["head_given"] = json!(self.head.is_some());
        let is_verified = verdict["verified"] == true;
        self.socket.print(&verdict, show)?;
        Ok(if is_verified { 0 } else { crate::EXIT_FAILED })
    }

    /// Reads the store itself.
    fn read(&self, store: &Path, sent: &[KnownHead]) -> Result<Value, String> {
        let keys = self.key.iter().map(|path| PublicKey::read(path));
        let mut trust = Trust { keys: keys.collect::<Result<_, _>>()?, heads: sent.to_vec() };
        if let Some(text) = &self.head {
            let head = Head::parse(text).ok_or_else(|| {
                format!("`{text}` is no head of the log; accepted: N:DIGEST, as it was printed")
            })?;
            trust.heads.push(KnownHead { head, from: "the head that was given".into() });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
        let verdict = runtime.block_on(store::verify_audit_file(store, &trust, meaning_of));
        verdict.map(|verdict| verdict_view(&verdict)).map_err(|error| error.to_string())
    }

    /// Has the server verify with its key, and compares what was sent away.
    fn ask(&self, sent: &[KnownHead]) -> Result<Value, String> {
        let head = self.head.as_ref();
        let head = head.map_or(String::new(), |head| format!("?head={}", escaped(head)));
        let verdict = self.socket.get(&format!("/v1/audit/verify{head}"))?;
        if verdict["verified"] != true || sent.is_empty() {
            return Ok(verdict);
        }
        let missing = compare(&self.socket, sent)?;
        Ok(missing.map_or(verdict, |(at, why)| json!({ "verified": false, "at": at, "why": why })))
    }
}

/// The heads in a sink. One without any would prove nothing, and look like proof.
fn heads_of(sink: &Path) -> Result<Vec<KnownHead>, String> {
    let heads = read_heads(sink)?;
    if heads.iter().all(|own| own.head.entries == 0) {
        return Err(format!(
            "{}: no head of an entry is in it, so it proves nothing; accepted: a file that \
             `audit_sink` wrote, or lines of a log with `audit head`",
            sink.display()
        ));
    }
    Ok(heads)
}

/// The first head that was sent away and is not in the log of a server.
fn compare(socket: &Socket, sent: &[KnownHead]) -> Result<Option<(u64, String)>, String> {
    let mut by_number = BTreeMap::<u64, Vec<&KnownHead>>::new();
    for own in sent {
        by_number.entry(own.head.entries).or_default().push(own);
    }
    by_number.remove(&0);
    let mut from = 1;
    let mut seen = 0;
    loop {
        let page = socket.get(&format!("/v1/audit?from={from}&limit={PAGE}"))?;
        for entry in page["entries"].as_array().into_iter().flatten() {
            seen = entry["seq"].as_u64().unwrap_or_default();
            for own in by_number.remove(&seen).unwrap_or_default() {
                if entry["digest"] != own.head.digest.to_string() {
                    let from = &own.from;
                    let why = format!("its digest is not the one in {from}: the log was made anew");
                    return Ok(Some((seen, why)));
                }
            }
        }
        match page["next"].as_u64() {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(by_number.last_key_value().map(|(entries, own)| {
        let from = own.first().map_or("", |own| own.from.as_str());
        (seen + 1, format!("the log ends after {seen} entries; {entries} are in {from}"))
    }))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn show(out: &mut Output, verdict: &Value) -> io::Result<()> {
    if let Some(mismatches) = verdict["mismatches"].as_array() {
        let entries = number(&verdict["entries"]);
        writeln!(out, "{entries} entries, the chain is whole; but runs do not say the same:")?;
        return mismatches.iter().try_for_each(|own| writeln!(out, "  {}", text(own)));
    }
    if verdict["verified"] != true {
        return writeln!(
            out,
            "entry {} is not as it was: {}",
            verdict["at"],
            text(&verdict["why"])
        );
    }
    let (entries, unsigned) = (number(&verdict["entries"]), number(&verdict["unsigned"]));
    writeln!(out, "{entries} entries, the chain is whole; head {}", text(&verdict["head"]))?;
    let signed = verdict["signed"].as_array().map_or(&[][..], |parts| &parts[..]);
    if unsigned > 0 {
        let since = match signed.first() {
            Some(part) => format!(
                "written before key {} was; proven of them is only that nobody without that key \
                 changed them since",
                text(&part["key"])
            ),
            None => "and no known key signed anything: whoever can write the store can make the \
                     whole log anew"
                .to_owned(),
        };
        writeln!(out, "unsigned: entries 1 to {unsigned}, {since}")?;
    }
    for part in signed {
        writeln!(
            out,
            "signed by key {}: entries {} to {}; nobody without that key changed, removed or \
             reordered entries 1 to {}",
            text(&part["key"]),
            part["from"],
            part["to"],
            part["to"]
        )?;
    }
    if let Some(sink) = verdict["sink"].as_object() {
        writeln!(
            out,
            "sink {}: all {} heads are in the log; entries 1 to {} are as they were when they were \
             sent there, also if whoever changed them had the key, as long as that file is as it \
             was written",
            text(&sink["file"]),
            sink["heads"],
            sink["last"]
        )?;
    }
    show_runs(out, verdict)?;
    show_unproven(out, verdict, entries)
}

/// What is proven of the runs themselves.
fn show_runs(out: &mut Output, verdict: &Value) -> io::Result<()> {
    writeln!(
        out,
        "runs: plans, commands, and who began what and why are those of the log; how a run ended \
         is not signed, only compared with its last record"
    )?;
    match number(&verdict["runs_without_plan"]) {
        0 => Ok(()),
        1 => writeln!(
            out,
            "not proven: that the plan of 1 run is as it was: an older Pharos opened it, without \
             the digest of its plan"
        ),
        count => writeln!(
            out,
            "not proven: that the plans of {count} runs are as they were: an older Pharos opened \
             them, without the digests of their plans"
        ),
    }
}

/// What nobody should read into it.
fn show_unproven(out: &mut Output, verdict: &Value, entries: u64) -> io::Result<()> {
    let is_signed = verdict["signed"].as_array().is_some_and(|parts| !parts.is_empty());
    let sunk = verdict["sink"]["last"].as_u64();
    if sunk.is_none_or(|last| last < entries) && verdict["head_given"] != true {
        let after = sunk.unwrap_or(0).max(1);
        let rest = match sunk {
            Some(_) => format!("that nothing was cut off behind entry {after}"),
            None => "that nothing was cut off at the end".to_owned(),
        };
        writeln!(out, "not proven: {rest}; --sink FILE or --head N:DIGEST shows that")?;
    }
    if is_signed && sunk.is_none() {
        writeln!(
            out,
            "not proven: that nobody who has the key (the user of the server, root on its host) \
             wrote the log anew; --sink FILE from another host shows that"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_without_heads_is_no_proof() {
        let home = tempfile::tempdir().unwrap();
        let sink = home.path().join("heads");
        for text in ["", "\n\n"] {
            std::fs::write(&sink, text).unwrap();
            let refused = heads_of(&sink).unwrap_err();
            assert!(refused.contains("it proves nothing; accepted: a file"), "{refused}");
        }
    }
}
