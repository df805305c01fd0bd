//! Large pages for the zones.
//!
//! Among a million zones every answer reads memory that the processor has no
//! address for at hand; with pages of 2 MiB instead of 4 KiB it has, which
//! halves the time of an answer and shortens the load. Where the system gives
//! large pages only to who asks, the C library's allocator asks if it is told
//! to when the process starts, and only then: so the process starts itself
//! again, once, with that setting. Its id, arguments and files stay.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Settings of the C library, separated by colons.
const TUNABLES: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";
/// Set in the second start: the C library may take its own variable away.
const ASKED: &str = "PHAROS_LARGE_PAGES_ASKED";

/// Starts the process again with large pages, if that would change anything.
/// Whoever sets the tunable, also to 0, has decided already.
pub fn ask() {
    let tunables = env::var_os(TUNABLES).unwrap_or_default();
    let kernel = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if env::var_os(ASKED).is_some() || !is_worth_it(&tunables, &kernel.unwrap_or_default()) {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    again.arg0(arguments.next().unwrap_or_else(|| "pharos".into()));
    again.args(arguments).env(ASKED, "1").env(TUNABLES, with_tunable(tunables));
    let error = again.exec();
    tracing::debug!("no large pages: {error}");
}

/// `kernel` is the system's policy, the one in force in brackets.
fn is_worth_it(tunables: &OsStr, kernel: &str) -> bool {
    cfg!(target_env = "gnu")
        && kernel.contains("[madvise]")
        && !tunables.to_string_lossy().contains(TUNABLE)
}

fn with_tunable(mut tunables: OsString) -> OsString {
    if !tunables.is_empty() {
        tunables.push(":");
    }
    tunables.push(format!("{TUNABLE}=1"));
    tunables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_not_decided_is_started_again() {
        let policy = "always [madvise] never\n";
        assert!(is_worth_it(OsStr::new(""), policy));
        assert!(is_worth_it(OsStr::new("glibc.malloc.arena_max=2"), policy));
        assert!(!is_worth_it(OsStr::new("glibc.malloc.hugetlb=0"), policy));
        assert!(!is_worth_it(OsStr::new(""), "[always] madvise never\n"));
        assert!(!is_worth_it(OsStr::new(""), "always madvise [never]\n"));
        assert!(!is_worth_it(OsStr::new(""), ""));
    }

    #[test]
    fn other_tunables_are_kept() {
        assert_eq!(with_tunable(OsString::new()), "glibc.malloc.hugetlb=1");
        let kept = with_tunable("glibc.malloc.arena_max=2".into());
        assert_eq!(kept, "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1");
    }
}
