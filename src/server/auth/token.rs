//! Makes tokens: for a server that is reachable and for which nobody configured one, and for whoever asks for one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64_simd::URL_SAFE_NO_PAD;
use rustix::rand::{GetRandomFlags, getrandom};

/// The file of the token in a state directory, made on first use and kept from then on.
pub(super) fn ensure(state_dir: &Path) -> io::Result<PathBuf> {
    let path = state_dir.join("token");
    match open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(open(&path)?)?,
            outcome => outcome?,
        },
        Err(error) => return Err(error),
        Ok(file) => check(file)?,
    }
    Ok(path)
}

/// A link could make the token a file that others know.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Whoever can write the file, or made it, knows the token.
fn check(mut file: File) -> io::Result<()> {
    let data = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !data.is_file() || (data.uid() != own && data.uid() != 0) || data.mode() & 0o022 != 0 {
        return Err(io::Error::other("it must be a file of the server's user that nobody else can write"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.trim().is_empty() {
        return Err(io::Error::other("it is empty; remove it to have a new one made"));
    }
    Ok(())
}

/// Makes a file with a new token, for its owner only. It is complete before it has its name, so of two servers that start
/// together one makes it and both use it.
///
/// # Errors
/// A file that exists stays as it is ([`io::ErrorKind::AlreadyExists`]).
pub fn create(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    writeln!(file, "{}", random()?)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map(drop).map_err(|failure| failure.error)
}

/// A new token: 256 bits of the kernel's randomness.
///
/// # Errors
/// The kernel has none to give.
pub fn random() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    // Up to 256 bytes are never delivered in part.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(URL_SAFE_NO_PAD.encode_to_string(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_token_is_long_private_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = ensure(dir.path()).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(first.trim().len(), 43);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ensure(dir.path()).unwrap(), path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        assert_ne!(random().unwrap(), random().unwrap());
    }

    #[test]
    fn a_file_that_others_could_know_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "known\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(ensure(dir.path()).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(ensure(dir.path()).is_ok());
        std::fs::write(&path, " \n").unwrap();
        assert!(ensure(dir.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(ensure(dir.path()).is_err());
    }
}
