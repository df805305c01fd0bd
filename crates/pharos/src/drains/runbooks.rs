//! Runbooks as files.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use base::text::one_line;
use drain::runbook::Library;

/// Files read at the most, bytes of one, and bytes of all.
const FILES_MAX: usize = 4096;
const FILE_LEN_MAX: u64 = 4 << 20;
const TOTAL_LEN_MAX: usize = 16 << 20;

/// The names and texts of runbooks: files, and whatever `*.yaml`, `*.yml` and
/// `*.json` folders hold, with all below. What is hidden there is left alone:
/// editors put copies there, and those who mount folders the one before.
pub fn read_files(paths: &[PathBuf]) -> Result<Vec<(String, String)>, String> {
    let (read, unread) = read_most_files(paths)?;
    if unread.is_empty() { Ok(read) } else { Err(unread.join("\n")) }
}

/// Names and texts of files.
type Files = Vec<(String, String)>;

/// The same with what is wrong with those that cannot be read, or are too many.
pub fn read_most_files(paths: &[PathBuf]) -> Result<(Files, Vec<String>), String> {
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    for path in paths {
        match path.is_dir() {
            true => gather(path, &mut BTreeSet::new(), &mut files, &mut unread),
            false => files.push(path.clone()),
        }
    }
    if files.is_empty() {
        let named: Vec<String> = paths.iter().map(|path| shown(path)).collect();
        return Err(format!(
            "no runbook in {}; accepted: files, or folders with *.yaml, *.yml or *.json{}",
            named.join(", "),
            unread.iter().map(|why| format!("\n{why}")).collect::<String>()
        ));
    }
    files.sort();
    files.dedup();
    if files.len() > FILES_MAX {
        unread.push(format!("{} runbooks; accepted: at most {FILES_MAX}", files.len()));
        files.truncate(FILES_MAX);
    }
    let (mut read, mut total) = (Vec::new(), 0);
    for path in files {
        match read_file(&path) {
            // The rest may fit.
            Ok(file) if total + file.1.len() > TOTAL_LEN_MAX => unread.push(format!(
                "{}: with it the runbooks have more than {TOTAL_LEN_MAX} bytes",
                shown(&path)
            )),
            Ok(file) => {
                total += file.1.len();
                read.push(file);
            }
            Err(why) => unread.push(why),
        }
    }
    Ok((read, unread))
}

/// Why there is nothing to be planned from the runbooks at a path.
pub fn complaint(path: &Path) -> Option<String> {
    let library = match read_files(&[path.to_owned()]) {
        Ok(files) => Library::new(files),
        Err(why) => return Some(why),
    };
    let path = shown(path);
    (!library.is_sound()).then(|| {
        format!("the runbooks in {path} have errors; `pharos runbook check {path}` lists them")
    })
}

/// Adds the runbooks of a folder, and what is wrong with what is in it. A folder that a link
/// leads back to is read once.
fn gather(
    folder: &Path,
    known: &mut BTreeSet<PathBuf>,
    files: &mut Vec<PathBuf>,
    unread: &mut Vec<String>,
) {
    let failed = |path: &Path, error| format!("{}: cannot be read: {error}", shown(path));
    match std::fs::canonicalize(folder) {
        Ok(path) => {
            if !known.insert(path) {
                return;
            }
        }
        Err(error) => return unread.push(failed(folder, error)),
    }
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = match entries {
        Ok(entries) => entries,
        Err(error) => return unread.push(failed(folder, error)),
    };
    let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    // Which ones are over the bound does not depend on the file system.
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".") {
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_runbook = matches!(extension, Some("yaml" | "yml" | "json"));
        match std::fs::metadata(&path) {
            Ok(kind) if kind.is_dir() => gather(&path, known, files, unread),
            Ok(kind) if kind.is_file() && is_runbook => files.push(path),
            // What cannot be read of those is said by whoever reads them.
            Err(_) if is_runbook => files.push(path),
            // A link to nowhere that is no runbook does not matter.
            Ok(_) | Err(_) => {}
        }
        if files.len() > FILES_MAX || unread.len() > FILES_MAX {
            return;
        }
    }
}

/// The name and the text of one file.
pub fn read_file(path: &Path) -> Result<(String, String), String> {
    let failed = |error| format!("{}: cannot be read: {error}", shown(path));
    // Its length says nothing of a pipe, or of a file that is just written.
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    let len = file.take(FILE_LEN_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if len as u64 > FILE_LEN_MAX {
        return Err(format!("{}: too long; accepted: at most {FILE_LEN_MAX} bytes", shown(path)));
    }
    Ok((path.display().to_string(), text))
}

/// The name of a file as part of a line: it may hold what breaks lines.
fn shown(path: &Path) -> String {
    one_line(&path.display().to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Result<Vec<String>, String> {
        let files = read_files(&[folder.to_owned()])?;
        let name = |file: &(String, String)| {
            file.0.strip_prefix(folder.to_str().unwrap()).unwrap().to_owned()
        };
        Ok(files.iter().map(name).collect())
    }

    #[test]
    fn all_that_cannot_be_read_are_named() {
        let home = tempfile::tempdir().unwrap();
        let paths = ["one.yaml", "two.yaml"].map(|name| home.path().join(name));
        let why = read_files(&paths).unwrap_err();
        assert!(why.contains("one.yaml: cannot be read"), "{why}");
        assert!(why.contains("two.yaml: cannot be read"), "{why}");
    }

    #[test]
    fn a_mounted_folder_is_read_once() {
        let home = tempfile::tempdir().unwrap();
        // As Kubernetes mounts a ConfigMap, and with what editors leave.
        let version = home.path().join("..2026_11_16");
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("web.yaml"), "").unwrap();
        symlink("..2026_11_16", home.path().join("..data")).unwrap();
        symlink("..data/web.yaml", home.path().join("web.yaml")).unwrap();
        symlink("nobody@nowhere", home.path().join(".#web.yaml")).unwrap();
        std::fs::create_dir(home.path().join("more")).unwrap();
        std::fs::write(home.path().join("more/chat.json"), "").unwrap();
        std::fs::write(home.path().join("more/notes.txt"), "").unwrap();
        assert_eq!(names(home.path()).unwrap(), ["/more/chat.json", "/web.yaml"]);
    }

    #[test]
    fn runbooks_that_are_wrong_are_known_to_be() {
        let home = tempfile::tempdir().unwrap();
        assert!(complaint(home.path()).unwrap().contains("no runbook in"));
        let file = home.path().join("web.yaml");
        std::fs::write(&file, "pharos: [").unwrap();
        assert!(complaint(home.path()).unwrap().contains("pharos runbook check"));
        std::fs::write(&file, "pharos: template/v1\ntemplate: T\n").unwrap();
        assert!(complaint(home.path()).is_some());
    }

    #[test]
    fn runbooks_are_bounded_all_together() {
        let home = tempfile::tempdir().unwrap();
        for at in 0..17 {
            let file = std::fs::File::create(home.path().join(format!("{at}.yaml"))).unwrap();
            file.set_len(1 << 20).unwrap();
        }
        let why = names(home.path()).unwrap_err();
        assert!(why.contains("more than 16777216 bytes"), "{why}");
        std::fs::remove_file(home.path().join("0.yaml")).unwrap();
        assert_eq!(names(home.path()).unwrap().len(), 16);
    }

    #[test]
    fn a_file_is_named_in_one_line() {
        let why = read_file(Path::new("/none/a\nb\u{202e}.yaml")).unwrap_err();
        assert!(why.starts_with("/none/a b?.yaml: cannot be read"), "{why}");
    }

    #[test]
    fn what_never_ends_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let pipe = home.path().join("pipe.yaml");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(names(home.path()).unwrap_err().contains("no runbook in"));
        assert!(read_file(Path::new("/dev/zero")).unwrap_err().contains("too long"));
        symlink(".", home.path().join("again")).unwrap();
        assert!(names(home.path()).unwrap_err().contains("no runbook in"));
    }

    /// A restore does with what it can read.
    #[test]
    fn what_else_is_in_a_folder_keeps_no_runbook_from_being_read() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("web.yaml"), "").unwrap();
        symlink("nowhere", home.path().join("previous")).unwrap();
        assert_eq!(names(home.path()).unwrap(), ["/web.yaml"]);
        // Whoever follows it has each file many times.
        symlink(".", home.path().join("again")).unwrap();
        assert_eq!(names(home.path()).unwrap(), ["/web.yaml"]);
        let large = std::fs::File::create(home.path().join("large.yaml")).unwrap();
        large.set_len(FILE_LEN_MAX + 1).unwrap();
        for at in 0..17 {
            let file = std::fs::File::create(home.path().join(format!("a{at}.yaml"))).unwrap();
            file.set_len(1 << 20).unwrap();
        }
        let (read, unread) = read_most_files(&[home.path().to_owned()]).unwrap();
        assert!(read.iter().any(|(name, _)| name.ends_with("/web.yaml")), "{unread:?}");
        let all = unread.join("\n");
        for why in ["large.yaml: too long", "more than 16777216 bytes"] {
            assert!(all.contains(why), "{all}");
        }
    }
}
