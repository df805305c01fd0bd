//! The audit log: what people did and why, in a chain that shows any change,
//! signed with a key that is kept elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};
use tokio::sync::mpsc::UnboundedSender;

use crate::chain::{Digest, Link};
use crate::custody::{Compared, Interpret, compare_runs};
use crate::error::{Error, Result, bounded, signed};
use crate::key::{AuditKey, KeyId, PublicKey, SentHead, Signature};
use crate::open::{Store, check_integrity, classify, connect_to_read};
use crate::records::JSON_LEN_MAX;
use crate::runs::{RunId, reading};
use crate::schema;

/// Entries in one page.
pub const AUDIT_LIMIT_MAX: u32 = 1000;

/// Something that somebody did, to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Audit<'a> {
    pub at: u64,
    pub actor: &'a str,
    /// The verb: `pause`, `override`.
    pub action: &'a str,
    pub reason: &'a str,
    pub run: Option<RunId>,
    /// What else belongs to it, such as values observed at that moment.
    pub json: &'a str,
}

/// Something that somebody did, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// From 1, without a gap.
    pub seq: u64,
    pub at: u64,
    pub actor: String,
    pub action: String,
    pub reason: String,
    pub run: Option<RunId>,
    pub json: String,
    pub digest: Digest,
    /// Nothing, if it is older than the key.
    pub signature: Option<Signature>,
}

/// The end of the log at some moment. Kept elsewhere, it proves later that
/// nothing up to there was changed or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub entries: u64,
    pub digest: Digest,
}

impl Head {
    /// The end of an empty log.
    pub fn genesis() -> Head {
        Head { entries: 0, digest: Digest::genesis() }
    }

    /// Reads `N:DIGEST`.
    pub fn parse(text: &str) -> Option<Head> {
        let (entries, digest) = text.split_once(':')?;
        Some(Head { entries: entries.parse().ok()?, digest: Digest::parse(digest)? })
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.entries, self.digest)
    }
}

/// What is known of a log from elsewhere, and is believed.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Keys that sign it. Without any, signatures prove nothing.
    pub keys: Vec<PublicKey>,
    pub heads: Vec<KnownHead>,
}

/// A head that was remembered.
#[derive(Clone, Debug)]
pub struct KnownHead {
    pub head: Head,
    /// Where, for people: `the sink heads.log`.
    pub from: String,
}

/// What looking through the whole log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Verified(Proof),
    /// The first entry that is not as it was.
    Broken {
        at: u64,
        why: String,
    },
    /// The log is as it was, but the records, rows or plans of runs do not say the
    /// same.
    Mismatched {
        proof: Proof,
        /// The first ones, each with its run.
        why: Vec<String>,
    },
}

/// What is proven of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Its end: every digest up to there was made again.
    pub head: Head,
    /// Entries without a signature by a known key. They are the first ones.
    pub unsigned: u64,
    /// Entries that are signed, in their order.
    pub signed: Vec<SignedPart>,
    /// The last entry whose head was known from elsewhere.
    pub known: u64,
    /// Runs that an older Pharos opened without the digest of their plan.
    pub runs_without_plan: u64,
}

/// Entries in a row that one key signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedPart {
    pub key: KeyId,
    pub from: u64,
    pub to: u64,
}

impl Store {
    /// Signs every further entry.
    pub fn sign_with(&self, key: AuditKey) {
        // Once, at the start of a server.
        let _ = self.key.set(key);
    }

    /// Sends every further head away, once its entry is durable.
    pub fn send_heads_to(&self, sink: UnboundedSender<SentHead>) {
        let _ = self.sink.set(sink);
    }

    /// Lets heads go out whose entries are durable now.
    pub(crate) fn send(&self, heads: impl IntoIterator<Item = SentHead>) {
        let Some(sink) = self.sink.get() else { return };
        for head in heads {
            // Whoever took them has stopped, as the server does.
            let _ = sink.send(head);
        }
    }

    /// Adds an entry to the log and returns its new end.
    pub async fn append_audit(&self, audit: Audit<'_>) -> Result<Head> {
        const APPEND: &str = "keeping an audit entry";
        let failed = |error| Error::from_database(APPEND, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let sent = put_audit(&mut transaction, audit, self.key.get()).await?;
        transaction.commit().await.map_err(failed)?;
        let head = sent.head;
        self.send([sent]);
        Ok(head)
    }

    /// The end of the log, to be remembered elsewhere.
    pub async fn audit_head(&self) -> Result<Head> {
        self.sent_head().await.map(|sent| sent.head)
    }

    /// The end of the log with its signature.
    pub async fn sent_head(&self) -> Result<SentHead> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        head(&mut reader).await
    }

    /// Entries from a number on; at most 1000 of them.
    pub async fn audit(&self, from: u64, limit: u32) -> Result<Vec<AuditEntry>> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        page(&mut reader, from, limit).await
    }

    /// Makes every digest again and verifies every signature. A log whose end
    /// was cut off is whole in itself: only a head that is known from elsewhere
    /// shows it. Records, rows and plans of runs are compared with it. Refused is a
    /// file whose schema is not ours, or whose indexes differ from their tables.
    pub async fn verify_audit(&self, trust: &Trust, interpret: Interpret) -> Result<Verdict> {
        // One transaction: what is added meanwhile is not looked at.
        let mut reader = self.readers.begin().await.map_err(reading)?;
        verify(self.path(), &mut reader, trust, interpret).await
    }
}

/// Verifies the log in a file that no server needs to have open, without a
/// change to it.
pub async fn verify_audit_file(
    path: &Path,
    trust: &Trust,
    interpret: Interpret,
) -> Result<Verdict> {
    let mut connection = connect_to_read(path).await?;
    let mut transaction = connection.begin().await.map_err(reading)?;
    verify(path, &mut transaction, trust, interpret).await.map_err(|error| classify(path, error))
}

async fn verify(
    path: &Path,
    reader: &mut SqliteConnection,
    trust: &Trust,
    interpret: Interpret,
) -> Result<Verdict> {
    // Or what is read need not be what is in the tables.
    schema::check_newest(path, reader).await?;
    let verdict = verify_log(reader, trust).await?;
    let Verdict::Verified(mut proof) = verdict else { return Ok(verdict) };
    check_integrity(path, reader).await?;
    let Compared { why, without_plan } = compare_runs(reader, interpret).await?;
    proof.runs_without_plan = without_plan;
    Ok(match why.is_empty() {
        true => Verdict::Verified(proof),
        false => Verdict::Mismatched { proof, why },
    })
}

async fn verify_log(reader: &mut SqliteConnection, trust: &Trust) -> Result<Verdict> {
    let mut verifier = Verifier::new(trust);
    if let Err(broken) = verifier.begin() {
        return Ok(broken);
    }
    if let Some(first) = first(reader).await?.filter(|first| *first < 1) {
        let why = format!("an entry {first} stands before the first; it was put there");
        return Ok(Verdict::Broken { at: 0, why });
    }
    loop {
        let rows = rows(reader, verifier.proof.head.entries + 1, AUDIT_LIMIT_MAX).await?;
        if rows.is_empty() {
            return Ok(verifier.end());
        }
        for row in &rows {
            let at = verifier.proof.head.entries + 1;
            // Nothing that cannot be read was ever written.
            let taken = read(row).map_err(|error| format!("it cannot be read: {error}"));
            if let Err(why) = taken.and_then(|entry| verifier.take(&entry)) {
                return Ok(Verdict::Broken { at, why });
            }
        }
    }
}

/// Goes through a log, entry by entry.
struct Verifier<'t> {
    trust: &'t Trust,
    /// Digests that are known from elsewhere, by the number of their entries.
    known: BTreeMap<u64, Vec<(Digest, String)>>,
    proof: Proof,
}

impl<'t> Verifier<'t> {
    fn new(trust: &'t Trust) -> Self {
        let mut known = BTreeMap::<u64, Vec<(Digest, String)>>::new();
        for KnownHead { head, from } in &trust.heads {
            known.entry(head.entries).or_default().push((head.digest, from.clone()));
        }
        for key in &trust.keys {
            let from = format!("the file of key {}, from when it was made", key.id());
            known.entry(key.since.entries).or_default().push((key.since.digest, from));
        }
        let proof = Proof {
            head: Head::genesis(),
            unsigned: 0,
            signed: Vec::new(),
            known: 0,
            runs_without_plan: 0,
        };
        Verifier { trust, known, proof }
    }

    fn begin(&mut self) -> std::result::Result<(), Verdict> {
        self.compare().map_err(|why| Verdict::Broken { at: 0, why })
    }

    fn take(&mut self, entry: &AuditEntry) -> std::result::Result<(), String> {
        check(entry, self.proof.head.entries + 1, self.proof.head.digest)?;
        let head = Head { entries: entry.seq, digest: entry.digest };
        match &entry.signature {
            None => self.take_unsigned(entry.seq)?,
            Some(_) if self.trust.keys.is_empty() => self.proof.unsigned = entry.seq,
            Some(signature) => self.take_signed(&head, signature)?,
        }
        self.proof.head = head;
        self.compare()
    }

    fn take_unsigned(&mut self, seq: u64) -> std::result::Result<(), String> {
        let keys = || self.trust.keys.iter();
        if let Some(key) = keys().find(|key| key.since.entries < seq) {
            return Err(format!(
                "it is not signed, and key {} signs every entry from {} on",
                key.id(),
                key.since.entries + 1
            ));
        }
        if let Some(last) = self.proof.signed.last() {
            return Err(format!("it is not signed, and entry {} before it is", last.to));
        }
        self.proof.unsigned = seq;
        Ok(())
    }

    fn take_signed(&mut self, head: &Head, own: &Signature) -> std::result::Result<(), String> {
        let key = own.key_id();
        if !self.trust.keys.iter().any(|known| known.bytes == own.key) {
            return Err(format!(
                "it is signed by key {key}, which is not known here; accepted: `--store FILE \
                 --key FILE …` with the public keys of all that signed it"
            ));
        }
        if !own.is_of(head) {
            return Err(format!("its signature is not by key {key}: whoever wrote it had no key"));
        }
        match self.proof.signed.last_mut().filter(|last| last.key == key) {
            Some(last) => last.to = head.entries,
            None => {
                let part = SignedPart { key, from: head.entries, to: head.entries };
                self.proof.signed.push(part);
            }
        }
        Ok(())
    }

    /// Compares the present end with what is known of it from elsewhere.
    fn compare(&mut self) -> std::result::Result<(), String> {
        let Head { entries, digest } = self.proof.head;
        for (known, from) in self.known.remove(&entries).unwrap_or_default() {
            if known != digest {
                return Err(format!("its digest is not the one in {from}: the log was made anew"));
            }
            self.proof.known = entries;
        }
        Ok(())
    }

    fn end(self) -> Verdict {
        let seen = self.proof.head.entries;
        match self.known.last_key_value() {
            Some((entries, from)) => {
                let from = from.first().map_or("", |(_, from)| from);
                let why = format!("the log ends after {seen} entries; {entries} are in {from}");
                Verdict::Broken { at: seen + 1, why }
            }
            None => Verdict::Verified(self.proof),
        }
    }
}

/// Whether an entry is the one that follows.
pub(crate) fn check(
    entry: &AuditEntry,
    seq: u64,
    before: Digest,
) -> std::result::Result<(), String> {
    if entry.seq != seq {
        return Err(format!("it is missing; the next one there is {}", entry.seq));
    }
    let link = Link {
        seq,
        at: entry.at,
        actor: &entry.actor,
        action: &entry.action,
        reason: &entry.reason,
        run: entry.run.map(|run| run.0),
        json: &entry.json,
    };
    if before.followed_by(&link) != entry.digest {
        return Err("it does not match its digest: it, or what was before it, was changed".into());
    }
    Ok(())
}

/// Adds an entry to the end of the log.
pub(crate) async fn put_audit(
    connection: &mut SqliteConnection,
    audit: Audit<'_>,
    key: Option<&AuditKey>,
) -> Result<SentHead> {
    let failed = |error| Error::from_database("keeping an audit entry", error);
    for text in [audit.actor, audit.action, audit.reason, audit.json] {
        bounded("a text of an audit entry", text, JSON_LEN_MAX)?;
    }
    let head = head(connection).await?.head;
    let seq = head.entries + 1;
    let link = Link {
        seq,
        at: audit.at,
        actor: audit.actor,
        action: audit.action,
        reason: audit.reason,
        run: audit.run.map(|run| run.0),
        json: audit.json,
    };
    let digest = head.digest.followed_by(&link);
    let head = Head { entries: seq, digest };
    let signature = key.map(|key| key.sign(&head));
    sqlx::query(
        "INSERT INTO audit (seq, at, actor, action, reason, run, json, digest, key, signature) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(signed("an audit entry", seq)?)
    .bind(signed("a time", audit.at)?)
    .bind(audit.actor)
    .bind(audit.action)
    .bind(audit.reason)
    .bind(audit.run.map(|run| signed("a run", run.0)).transpose()?)
    .bind(audit.json)
    .bind(digest.0.as_slice())
    .bind(signature.map(|own| own.key.to_vec()))
    .bind(signature.map(|own| own.bytes.to_vec()))
    .execute(connection)
    .await
    .map_err(failed)?;
    Ok(SentHead { head, signature })
}

async fn head(connection: &mut SqliteConnection) -> Result<SentHead> {
    const HEAD: &str = "SELECT seq, digest, key, signature FROM audit ORDER BY seq DESC LIMIT 1";
    let row = sqlx::query(HEAD).fetch_optional(connection).await.map_err(reading)?;
    let Some(row) = row else { return Ok(SentHead { head: Head::genesis(), signature: None }) };
    let entries = row.try_get::<i64, _>("seq").map_err(reading)? as u64;
    Ok(SentHead { head: Head { entries, digest: digest(&row)? }, signature: signature(&row)? })
}

/// The number of the first entry there is.
async fn first(connection: &mut SqliteConnection) -> Result<Option<i64>> {
    sqlx::query_scalar("SELECT min(seq) FROM audit").fetch_one(connection).await.map_err(reading)
}

async fn page(connection: &mut SqliteConnection, from: u64, limit: u32) -> Result<Vec<AuditEntry>> {
    rows(connection, from, limit).await?.iter().map(read).collect()
}

pub(crate) async fn rows(
    connection: &mut SqliteConnection,
    from: u64,
    limit: u32,
) -> Result<Vec<SqliteRow>> {
    sqlx::query(
        "SELECT seq, at, actor, action, reason, run, json, digest, key, signature FROM audit \
         WHERE seq >= ? ORDER BY seq LIMIT ?",
    )
    .bind(signed("an audit entry", from)?)
    .bind(limit.min(AUDIT_LIMIT_MAX))
    .fetch_all(connection)
    .await
    .map_err(reading)
}

pub(crate) fn read(row: &SqliteRow) -> Result<AuditEntry> {
    Ok(AuditEntry {
        seq: row.try_get::<i64, _>("seq").map_err(reading)? as u64,
        at: row.try_get::<i64, _>("at").map_err(reading)? as u64,
        actor: row.try_get("actor").map_err(reading)?,
        action: row.try_get("action").map_err(reading)?,
        reason: row.try_get("reason").map_err(reading)?,
        run: row.try_get::<Option<i64>, _>("run").map_err(reading)?.map(|run| RunId(run as u64)),
        json: row.try_get("json").map_err(reading)?,
        digest: digest(row)?,
        signature: signature(row)?,
    })
}

fn digest(row: &SqliteRow) -> Result<Digest> {
    let digest = row.try_get("digest").map_err(reading)?;
    sized("the digest of an audit entry", digest).map(Digest)
}

fn signature(row: &SqliteRow) -> Result<Option<Signature>> {
    let key: Option<Vec<u8>> = row.try_get("key").map_err(reading)?;
    let bytes: Option<Vec<u8>> = row.try_get("signature").map_err(reading)?;
    let (Some(key), Some(bytes)) = (key, bytes) else { return Ok(None) };
    let what = "the signature of an audit entry";
    Ok(Some(Signature { key: sized(what, key)?, bytes: sized(what, bytes)? }))
}

pub(crate) fn sized<const N: usize>(what: &'static str, bytes: Vec<u8>) -> Result<[u8; N]> {
    bytes.try_into().map_err(|bytes: Vec<u8>| Error::Invalid {
        what,
        why: format!("{} bytes; accepted: {N}", bytes.len()),
    })
}
