//! The control socket in the file system: opened so that nobody but the
//! server's own user, and the members of a group if one is configured, can
//! connect at any moment, and removed with the server.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use crate::config;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The socket's place in the file system. It is given up when dropped, on
/// whatever way the server ends.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Device and inode: what lies there later may be somebody else's.
    identity: Option<(u64, u64)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.identity.is_some() && identity_of(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A control socket that is bound, and its place in the file system.
pub type Bound = (UnixListener, Place);

/// A group whose members may use the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub gid: u32,
}

/// Opens the control socket. One that another server answers on, a path that is
/// something else, and a group that cannot be given access are mistakes in the
/// configuration, and errors. Where the system refuses, a server works without
/// one and says so.
pub fn open(path: &Path, group: Option<&Group>) -> Result<Option<Bound>, String> {
    let has_folder = folder_of(path).exists();
    let error = match bind(path) {
        Ok(bound) => {
            if let Some(group) = group {
                open_to(path, group, !has_folder)?;
            }
            return Ok(Some(bound));
        }
        Err(error) => error,
    };
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            return Err(format!(
                "no control socket at {path}: {error}; accepted: a path where nothing is, or a \
                 socket that a server left behind"
            ));
        }
        io::ErrorKind::AddrInUse => {
            return Err(format!(
                "no control socket at {path}: {error}; accepted: that server stopped, or another \
                 path with --control PATH or `control` under [admin]"
            ));
        }
        _ => {}
    }
    tracing::warn!(
        "no control socket at {path}: {error}; reload with SIGHUP, or pass --control PATH"
    );
    Ok(None)
}

fn bind(path: &Path) -> io::Result<(UnixListener, Place)> {
    make_directory(path)?;
    remove_left_over(path)?;
    let socket = bind_private(path)?;
    let place = Place { path: path.to_owned(), identity: identity_of(path) };
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((UnixListener::from_std(socket.into())?, place))
}

fn make_directory(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent()
        && !directory.as_os_str().is_empty()
        && !directory.exists()
    {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // Behind the creation: somebody may have been faster.
    config::check_control_directory(path).map_err(io::Error::other)
}

/// Removes the socket of a server that was killed, and nothing else.
fn remove_left_over(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what is there is no socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(taken("another server answers on it".into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(taken(format!("another server may be using it (connecting: {error})"))),
    }
}

fn taken(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, what)
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Lets the members of a group connect, and enter the folder if it was made
/// here. Until then nobody else could.
fn open_to(path: &Path, group: &Group, is_folder_own: bool) -> Result<(), String> {
    let Group { name, gid } = group;
    let folder = folder_of(path);
    let give = |path: &Path, mode: u32| {
        std::os::unix::fs::chown(path, None, Some(*gid))
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
    };
    give(path, 0o660)
        .and_then(|()| if is_folder_own { give(folder, 0o710) } else { Ok(()) })
        .map_err(|error| {
            format!(
                "admin.control_group: {} cannot be given to group `{name}`: {error}; accepted: a \
                 group that the server's user is a member of, or any if it runs as root",
                path.display()
            )
        })?;
    if !is_entered_by(folder, *gid) {
        let folder = folder.display();
        tracing::warn!(
            "admin.control_group: members of `{name}` cannot enter {folder}, and so not reach the \
             control socket; accepted: `chgrp {name} {folder} && chmod g+x {folder}`"
        );
    }
    Ok(())
}

fn is_entered_by(folder: &Path, gid: u32) -> bool {
    let Ok(metadata) = fs::metadata(folder) else { return false };
    let needed = if metadata.gid() == gid { 0o010 } else { 0o001 };
    metadata.mode() & needed != 0
}

/// Binds `path`. The socket has its mode before it has a name, so that the
/// umask decides nothing and no moment is left to connect in.
fn bind_private(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    socket.bind(&SockAddr::unix(path)?)?;
    Ok(socket)
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(path: &Path) -> String {
        bind(path).err().unwrap().to_string()
    }

    #[tokio::test]
    async fn only_a_left_over_socket_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("control.sock");
        fs::write(&path, "precious").unwrap();
        assert_eq!(error_of(&path), "what is there is no socket");
        assert!(open(&path, None).unwrap_err().contains("accepted: a path where nothing is"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        // A link is not followed, wherever it leads.
        let left_over = home.path().join("other.sock");
        drop(std::os::unix::net::UnixListener::bind(&left_over).unwrap());
        std::os::unix::fs::symlink(&left_over, &path).unwrap();
        assert_eq!(error_of(&path), "what is there is no socket");
        fs::remove_file(&path).unwrap();
        fs::rename(&left_over, &path).unwrap();
        let (_listener, _place) = bind(&path).unwrap();
        assert_eq!(error_of(&path), "another server answers on it");
        let refused = open(&path, None).unwrap_err();
        assert!(refused.contains("accepted: that server stopped, or another path"), "{refused}");
    }

    #[tokio::test]
    async fn its_place_is_given_up_unless_it_is_another_servers() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("control.sock");
        let (_listener, place) = bind(&path).unwrap();
        drop(place);
        assert!(!path.exists());
        let (_listener, place) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        drop(place);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn members_of_the_group_may_connect_and_others_may_not() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        let path = folder.join("control.sock");
        let gid = rustix::process::getegid().as_raw();
        let group = Group { name: "own".into(), gid };
        let _bound = open(&path, Some(&group)).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o710);
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, gid));
    }

    #[test]
    fn nobody_else_can_connect_at_any_moment() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("control.sock");
        let _bound = bind_private(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o} before it listens");
    }
}
