//! The cluster's key: 32 octets that its nodes share and nobody else has.
//!
//! It is never used as it is. Everything that needs a key gets one of its own,
//! derived by HKDF with SHA-256 (RFC 5869) under a label, so that no use can
//! weaken another.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};

use crate::random;

/// Octets of a cluster's key.
pub const KEY_LEN: usize = 32;
/// Octets of a key file at the most: room for remarks.
const FILE_LEN_MAX: u64 = 4096;
/// Makes keys of Pharos differ from those of anything else with this secret.
const SALT: &[u8] = b"pharos cluster key 1";
/// The first line of a key file.
const REMARK: &str = "# Key of a Pharos cluster: the same on all its nodes, and a secret.";

/// What the keys of a cluster are derived from.
#[derive(Clone)]
pub struct ClusterKey(Prk);

impl ClusterKey {
    /// The key of a cluster of one node: drawn at its start, known to nobody.
    pub fn draw() -> Self {
        ClusterKey::new(&random::octets())
    }

    /// Reads the file that [`create_file`] wrote.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = read_private(path)?;
        let secret = parse(&text).map_err(|what| format!("{}: {what}", path.display()))?;
        Ok(ClusterKey::new(&secret))
    }

    fn new(secret: &[u8; KEY_LEN]) -> Self {
        ClusterKey(Salt::new(HKDF_SHA256, SALT).extract(secret))
    }

    /// The key for what `label` names. Every use has a label of its own.
    pub fn derive(&self, label: &str) -> [u8; KEY_LEN] {
        let mut derived = [0; KEY_LEN];
        let info = [label.as_bytes()];
        let filled = self.0.expand(&info, HKDF_SHA256).and_then(|okm| okm.fill(&mut derived));
        filled.expect("HKDF makes a key as long as its hash");
        derived
    }

    /// What further keys can be derived from quickly, for what `label` names.
    pub(super) fn derive_root(&self, label: &str) -> Prk {
        Prk::new_less_safe(HKDF_SHA256, &self.derive(label))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

/// Draws a key and writes it to a new file that only its owner can read.
pub fn create_file(path: &Path) -> Result<(), String> {
    let name = path.display();
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "{name}: is there already, and nodes may depend on it; choose another name, or remove \
             it first"
        ),
        _ => format!("{name}: cannot be created: {error}"),
    })?;
    let written = write_key(&mut file, &random::octets());
    written.map_err(|error| {
        // Half a key would look like a key that somebody spoilt.
        let _ = fs::remove_file(path);
        format!("{name}: cannot be written: {error}")
    })
}

fn write_key(file: &mut File, secret: &[u8; KEY_LEN]) -> io::Result<()> {
    let digits: String = secret.iter().map(|octet| format!("{octet:02x}")).collect();
    file.write_all(format!("{REMARK}\n{digits}\n").as_bytes())?;
    file.sync_all()
}

/// Reads a file that nobody but its owner can read.
fn read_private(path: &Path) -> Result<String, String> {
    let name = path.display();
    let failed = |error: io::Error| {
        format!("{name}: cannot be read: {error}; pharos cache keygen FILE makes one")
    };
    // What is no file must not make the opening wait.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(format!("{name}: no regular file; accepted: a file with a cluster's key"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!(
            "{name}: has mode {:04o}, so others than its owner can use it; chmod 600 {name}",
            metadata.mode() & 0o7777
        ));
    }
    let mut text = String::new();
    file.take(FILE_LEN_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > FILE_LEN_MAX {
        true => Err(format!("{name}: too long; accepted: at most {FILE_LEN_MAX} octets")),
        false => Ok(text),
    }
}

/// Finds the key among remarks. What is wrong with it is said without a digit
/// of it.
fn parse(text: &str) -> Result<[u8; KEY_LEN], String> {
    const ACCEPTED: &str = "accepted: one line of 64 hexadecimal digits, and remarks after a #";
    let mut lines = text.lines().map(str::trim).zip(1..);
    let mut keys = lines.by_ref().filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let Some((digits, number)) = keys.next() else {
        return Err(format!("no key in it; {ACCEPTED}"));
    };
    if let Some((_, second)) = keys.next() {
        return Err(format!("line {second}: a second key; {ACCEPTED}"));
    }
    let mut key = [0; KEY_LEN];
    if digits.len() != 2 * KEY_LEN {
        return Err(format!(
            "line {number}: a key of {} digits; {ACCEPTED}",
            digits.chars().count()
        ));
    }
    for (octet, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digit = |index: usize| char::from(pair[index]).to_digit(16);
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(format!("line {number}: not all are digits; {ACCEPTED}"));
        };
        *octet = (high << 4 | low) as u8;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_is_private_and_read_by_all_nodes_alike() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cluster.key");
        create_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let (one, other) = (ClusterKey::read(&path).unwrap(), ClusterKey::read(&path).unwrap());
        assert_eq!(one.derive("test"), other.derive("test"));
        assert_ne!(one.derive("test"), one.derive("other test"));
        assert_ne!(one.derive("test"), ClusterKey::draw().derive("test"));
    }

    #[test]
    fn a_key_file_is_never_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cluster.key");
        create_file(&path).unwrap();
        let before = fs::read(&path).unwrap();
        let error = create_file(&path).unwrap_err();
        assert!(error.contains("is there already"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        let error = create_file(&home.path().join("none/cluster.key")).unwrap_err();
        assert!(error.contains("cannot be created"), "{error}");
    }

    #[test]
    fn files_that_others_can_use_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cluster.key");
        create_file(&path).unwrap();
        for mode in [0o640, 0o604, 0o644, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = ClusterKey::read(&path).unwrap_err();
            assert!(error.contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        ClusterKey::read(&path).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_told() {
        let digits = "0f".repeat(KEY_LEN);
        assert_eq!(parse(&format!("# a\n\n  {digits}  \n# b")), Ok([0x0f; KEY_LEN]));
        assert_eq!(parse(&digits.to_uppercase()), Ok([0x0f; KEY_LEN]));
        for (text, expected) in [
            ("", "no key in it"),
            ("# only a remark\n", "no key in it"),
            (&digits[2..], "a key of 62 digits"),
            (&format!("{digits}00"), "a key of 66 digits"),
            (&format!("{digits}\n{digits}"), "line 2: a second key"),
            (&format!("#\n+{}", &digits[1..]), "line 2: not all are digits"),
            (&"é".repeat(KEY_LEN), "line 1: not all are digits"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("accepted: one line of 64"), "{error}");
            assert!(!error.contains("0f0f"), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let home = tempfile::tempdir().unwrap();
        let error = ClusterKey::read(home.path()).unwrap_err();
        assert!(error.contains("no regular file"), "{error}");
        let error = ClusterKey::read(&home.path().join("none")).unwrap_err();
        assert!(error.contains("keygen"), "{error}");
        let long = home.path().join("long");
        fs::write(&long, "#".repeat(FILE_LEN_MAX as usize + 1)).unwrap();
        fs::set_permissions(&long, fs::Permissions::from_mode(0o600)).unwrap();
        let error = ClusterKey::read(&long).unwrap_err();
        assert!(error.contains("too long"), "{error}");
    }

    #[test]
    fn a_key_does_not_print() {
        assert_eq!(format!("{:?}", ClusterKey::draw()), "ClusterKey(..)");
    }
}
