//! Which process this is, among all that could drive a run.
//!
//! The holder of a lease is one process: the name of the node and 128 random
//! bits that are drawn at the start and kept nowhere. So two servers of one name
//! are two holders, and neither takes the other's runs while its lease lives.
//!
//! A server that was started again need not wait for the lease of its former
//! self if that is certainly gone. Every server holds an exclusive `flock` on a
//! file beside the store, `STORE.NAME.lock`, for as long as it lives, and writes
//! down there which instance it is and under which boot of which kernel. Who
//! gets that lock, under the same boot, knows that the instance written there is
//! gone: the kernel gives a lock up with its process and never before. Under
//! another boot id it may be a lock of another host, which proves nothing.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

#[cfg(test)]
use super::tests::Mutation;
use crate::control::escaped;
use crate::random;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Longer files are none of ours.
const LOCK_LEN_MAX: u64 = 4096;

/// This process, as the store knows it.
#[derive(Debug)]
pub struct Instance {
    /// `NAME/RANDOM`: the holder of leases.
    holder: String,
    /// The holder that was here before, and is gone.
    former: Option<String>,
    /// Given up by the kernel, with the process.
    _lock: File,
}

impl Instance {
    /// Claims a name on a store, for as long as it is kept. Refused while
    /// another process has it.
    pub fn claim(store: &Path, name: &str) -> Result<Instance, String> {
        let path = lock_path(store, name);
        let failed = |error: io::Error| {
            format!(
                "{}: cannot be locked: {error}; accepted: a store in a folder that the server's \
                 user can write, on a file system with locks",
                path.display()
            )
        };
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        #[cfg(test)]
        let locked = if Mutation::LockUnchecked.is_planted() { Ok(()) } else { locked };
        if let Err(error) = locked {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            let note = Note::read(&mut lock).ok().flatten();
            let who = note.map_or(String::new(), |note| format!(", pid {}", note.pid));
            return Err(format!(
                "store {}: another server named `{name}` has it{who}; accepted: another `name` \
                 under [node], another store, or that server stopped",
                store.display()
            ));
        }
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        let former = Note::read(&mut lock).map_err(failed)?;
        let is_gone = |former: &Note| !boot.is_empty() && former.boot == boot;
        let former = former.filter(is_gone).map(|former| former.holder);
        let random: [u8; 16] = random::octets();
        let holder = format!("{name}/{}", store::chain::to_hex(&random));
        let note = Note { holder: holder.clone(), pid: std::process::id(), boot };
        note.write(&mut lock).map_err(failed)?;
        Ok(Instance { holder, former, _lock: lock })
    }

    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether a holder of a lease is certainly gone.
    pub fn is_gone(&self, holder: &str) -> bool {
        #[cfg(test)]
        if Mutation::FormerUnknown.is_planted() {
            return false;
        }
        self.former.as_deref() == Some(holder)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.holder)
    }
}

/// The name of the node in a holder, for people.
pub fn node_of(holder: &str) -> &str {
    holder.rsplit_once('/').map_or(holder, |(name, _)| name)
}

fn lock_path(store: &Path, name: &str) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(format!(".{}.lock", escaped(name)));
    path.into()
}

/// What stands in the file of a lock: a line each.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    holder: String,
    pid: u32,
    boot: String,
}

impl Note {
    /// `None` if nobody has written anything, or only a part of it.
    fn read(lock: &mut File) -> io::Result<Option<Note>> {
        let mut text = Vec::new();
        lock.rewind()?;
        lock.take(LOCK_LEN_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let [holder, pid, boot, "end"] = lines[..] else { return Ok(None) };
        let Ok(pid) = pid.parse() else { return Ok(None) };
        Ok(Some(Note { holder: holder.to_owned(), pid, boot: boot.to_owned() }))
    }

    fn write(&self, lock: &mut File) -> io::Result<()> {
        lock.set_len(0)?;
        lock.rewind()?;
        write!(lock, "{}\n{}\n{}\nend\n", self.holder, self.pid, self.boot)?;
        lock.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims a name that was just given back. A process that another test starts has
    /// the lock for as long as it has not begun its program.
    fn claim_again(store: &Path, name: &str) -> Instance {
        for _ in 0..500 {
            match Instance::claim(store, name) {
                Ok(instance) => return instance,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        Instance::claim(store, name).expect("given back")
    }

    #[test]
    fn a_name_is_claimed_once_and_its_former_holder_is_known_to_be_gone() {
        let home = tempfile::tempdir().unwrap();
        let store = home.path().join("drain.db");
        let first = Instance::claim(&store, "a/b").unwrap();
        let refused = Instance::claim(&store, "a/b").unwrap_err();
        let pid = std::process::id();
        assert!(
            refused.contains(&format!("another server named `a/b` has it, pid {pid}")),
            "{refused}"
        );
        let other = Instance::claim(&store, "ab").unwrap();
        assert!(!other.is_gone(first.holder()));
        let holder = first.holder().to_owned();
        assert_eq!(node_of(&holder), "a/b");
        drop(first);
        let second = claim_again(&store, "a/b");
        assert!(second.is_gone(&holder) && second.holder() != holder);
    }

    #[test]
    fn a_holder_of_another_boot_or_half_a_note_proves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let store = home.path().join("drain.db");
        for text in ["a/1\n7\nanother boot\nend\n", "a/1\n7\n", "", "\u{0}\u{1}"] {
            std::fs::write(lock_path(&store, "a"), text).unwrap();
            assert!(!claim_again(&store, "a").is_gone("a/1"), "{text:?}");
        }
    }
}
