//! The key that signs the audit log: Ed25519, kept in a file beside no entry
//! that it signs. Whoever has the public half alone can verify.
//!
//! ```text
//! pharos audit key 1
//! public PUBLIC KEY, 64 hexadecimal digits
//! since N:DIGEST, the end of the log when the key was made
//! secret SEED, 64 hexadecimal digits; not in the file that ends in .pub
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

use crate::audit::Head;
use crate::chain::{Digest, from_hex, to_hex};

const FORMAT: &str = "pharos audit key 1";
/// What a signature is of begins with this, so that it is good for nothing else.
const CONTEXT: &[u8] = b"pharos audit entry 1\0";
/// Longer files are no keys.
const FILE_LEN_MAX: u64 = 4096;

/// The signature of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    pub key: [u8; 32],
    pub bytes: [u8; 64],
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", to_hex(&self.bytes), self.key_id())
    }
}

impl Signature {
    pub fn key_id(&self) -> KeyId {
        KeyId::of(&self.key)
    }

    /// Whether it is the signature of this head by the key that it names.
    pub fn is_of(&self, head: &Head) -> bool {
        UnparsedPublicKey::new(&ED25519, self.key).verify(&message(head), &self.bytes).is_ok()
    }
}

/// The first eight bytes of the digest of a public key: what people compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 8]);

impl KeyId {
    fn of(public: &[u8; 32]) -> KeyId {
        let digest: [u8; 32] = Sha256::digest(public).into();
        KeyId(*digest.first_chunk().expect("eight of 32"))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

/// What signatures are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub bytes: [u8; 32],
    /// The end of the log when the key was made: what comes later is signed.
    pub since: Head,
}

impl PublicKey {
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.bytes)
    }

    /// Reads the file of a public key, or the public half of a secret one.
    pub fn read(path: &Path) -> Result<PublicKey, String> {
        let text = read(path).map_err(|error| unread(path, &error.to_string()))?;
        parse(&text).map(|(public, _)| public).map_err(|why| unread(path, &why))
    }

    fn text(&self) -> String {
        let Head { entries, digest } = self.since;
        format!("{FORMAT}\npublic {}\nsince {entries}:{digest}\n", to_hex(&self.bytes))
    }
}

/// What entries are signed with.
pub struct AuditKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is never shown.
        write!(f, "AuditKey({})", self.public.id())
    }
}

impl AuditKey {
    /// A key from 32 random bytes, for a log that ends with `since`.
    pub fn from_seed(seed: &[u8; 32], since: Head) -> AuditKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        let bytes = pair.public_key().as_ref().try_into().expect("public keys have 32 bytes");
        AuditKey { pair, public: PublicKey { bytes, since } }
    }

    /// Reads the file of a key; where there is none it is made from `seed`, with
    /// its public half beside it. Refused are files that others can read.
    pub fn open(path: &Path, seed: &[u8; 32], since: Head) -> Result<AuditKey, String> {
        match OpenOptions::new().read(true).open(path) {
            Ok(file) => return AuditKey::from_file(path, &file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unread(path, &error.to_string())),
        }
        let made = AuditKey::from_seed(seed, since);
        match made.write(path, seed) {
            Ok(()) => Ok(made),
            // Another server of this store was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = File::open(path).map_err(|error| unread(path, &error.to_string()))?;
                AuditKey::from_file(path, &file)
            }
            Err(error) => Err(format!(
                "audit key {}: it cannot be made: {error}; accepted: a path in a folder that the \
                 server's user can write, or the file of a key",
                path.display()
            )),
        }
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, head: &Head) -> Signature {
        let bytes = self.pair.sign(&message(head)).as_ref().try_into();
        Signature { key: self.public.bytes, bytes: bytes.expect("signatures have 64 bytes") }
    }

    fn from_file(path: &Path, file: &File) -> Result<AuditKey, String> {
        let metadata = file.metadata().map_err(|error| unread(path, &error.to_string()))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(format!(
                "audit key {}: others can read or write it (mode {:04o}); accepted: `chmod 600`, \
                 after a new key if somebody may have read it",
                path.display(),
                metadata.mode() & 0o7777
            ));
        }
        let text = read(path).map_err(|error| unread(path, &error.to_string()))?;
        let (public, seed) = parse(&text).map_err(|why| unread(path, &why))?;
        let seed = seed.ok_or_else(|| unread(path, "it has no secret"))?;
        let key = AuditKey::from_seed(&seed, public.since);
        if key.public != public {
            return Err(unread(path, "its public key does not belong to its secret"));
        }
        Ok(key)
    }

    /// Writes both halves, each whole or not at all.
    fn write(&self, path: &Path, seed: &[u8; 32]) -> io::Result<()> {
        let secret = format!("{}secret {}\n", self.public.text(), to_hex(seed));
        put_new(path, 0o600, &secret)?;
        match put_new(&public_path(path), 0o644, &self.public.text()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }
}

/// Where the public half of a key lies: `FILE.pub`.
pub fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

fn message(head: &Head) -> Vec<u8> {
    [CONTEXT, &head.entries.to_be_bytes(), &head.digest.0].concat()
}

fn unread(path: &Path, why: &str) -> String {
    format!(
        "audit key {}: {why}; accepted: a file that Pharos made, readable by its owner alone if it \
         has the secret",
        path.display()
    )
}

fn read(path: &Path) -> io::Result<String> {
    use io::Read;
    let mut text = String::new();
    File::open(path)?.take(FILE_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> Result<(PublicKey, Option<[u8; 32]>), String> {
    let mut lines = text.lines();
    if lines.next() != Some(FORMAT) {
        return Err(format!("its first line is not `{FORMAT}`"));
    }
    let (mut public, mut since, mut secret) = (None, None, None);
    for line in lines {
        match line.split_once(' ') {
            Some(("public", digits)) => public = from_hex(digits),
            Some(("since", head)) => since = Head::parse(head),
            Some(("secret", digits)) => secret = from_hex(digits),
            // The line may be a part of the secret.
            _ => return Err("it has a line that is none of public, since and secret".into()),
        }
    }
    let bytes = public.ok_or("it has no public key")?;
    let since = since.ok_or("it does not say since when it signs")?;
    Ok((PublicKey { bytes, since }, secret))
}

/// Makes a file that does not exist yet, with everything in it at once.
fn put_new(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let draft = PathBuf::from(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        // Unlike a rename, a link takes nothing away.
        .and_then(|()| fs::hard_link(&draft, path));
    let _ = fs::remove_file(&draft);
    written
}

/// A head that was sent away, as one line: number, digest, key, signature, time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentHead {
    pub head: Head,
    pub signature: Option<Signature>,
}

impl SentHead {
    /// The line, without its time.
    pub fn line(&self) -> String {
        let Head { entries, digest } = self.head;
        match &self.signature {
            Some(own) => {
                format!("{entries} {digest} {} {}", to_hex(&own.key), to_hex(&own.bytes))
            }
            None => format!("{entries} {digest} - -"),
        }
    }

    /// Reads a line; what follows the signature is not looked at.
    pub fn parse(line: &str) -> Option<SentHead> {
        let mut words = line.split_whitespace();
        let head =
            Head { entries: words.next()?.parse().ok()?, digest: Digest::parse(words.next()?)? };
        let signature = match (words.next()?, words.next()?) {
            ("-", "-") => None,
            (key, bytes) => Some(Signature { key: from_hex(key)?, bytes: from_hex(bytes)? }),
        };
        Some(SentHead { head, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const SEED: [u8; 32] = [7; 32];

    fn head(entries: u64) -> Head {
        Head { entries, digest: Digest::genesis() }
    }

    #[test]
    fn a_signature_is_of_one_head_by_one_key() {
        let key = AuditKey::from_seed(&SEED, head(0));
        let signature = key.sign(&head(3));
        assert!(signature.is_of(&head(3)));
        assert!(!signature.is_of(&head(4)));
        let other = AuditKey::from_seed(&[8; 32], head(0));
        assert!(!Signature { key: other.public.bytes, ..signature }.is_of(&head(3)));
    }

    #[test]
    fn a_key_is_made_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.key");
        let made = AuditKey::open(&path, &SEED, head(5)).unwrap();
        let read = AuditKey::open(&path, &[9; 32], head(9)).unwrap();
        assert_eq!(read.public, made.public);
        assert_eq!(read.public.since.entries, 5);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let public = public_path(&path);
        assert_eq!(PublicKey::read(&public).unwrap(), made.public);
        assert!(!fs::read_to_string(&public).unwrap().contains("secret"));
        assert!(AuditKey::open(&public, &SEED, head(0)).is_err(), "no secret, and open to all");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = AuditKey::open(&path, &SEED, head(0)).unwrap_err();
            assert!(refused.contains("others can read or write it"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_no_key_is_refused_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.key");
        for text in ["", "hello", "pharos audit key 1\nhush 12\n", "pharos audit key 1\n"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let refused = AuditKey::open(&path, &SEED, head(0)).unwrap_err();
            assert!(!refused.contains("hush"), "{refused}");
        }
    }

    #[test]
    fn sent_heads_are_read_as_they_are_written() {
        let key = AuditKey::from_seed(&SEED, head(0));
        for signature in [None, Some(key.sign(&head(2)))] {
            let sent = SentHead { head: head(2), signature };
            let line = format!("{} 2026-11-17T03:00:00Z", sent.line());
            assert_eq!(SentHead::parse(&line), Some(sent));
        }
        assert_eq!(SentHead::parse("2 ab"), None);
    }
}
