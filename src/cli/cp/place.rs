//! The two sides of a copy, as they are written and as they are reached.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::backend::ExecutorFileSystem;
use crate::cli::client;
use crate::environment::Environment;
use crate::local::LocalFileSystem;
use crate::path_uri::PathUri;

/// A side as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Side {
    /// A path of this machine.
    Local(PathBuf),
    /// An absolute path of a server.
    Remote {
        /// The server.
        url: String,
        /// The path there.
        path: PathBuf,
    },
}

impl Side {
    /// Splits `URL:/PATH` at the first `:/` behind the scheme; anything that begins with no scheme is a local path.
    ///
    /// # Errors
    /// A URL without a path.
    pub(super) fn parse(text: &OsStr) -> anyhow::Result<Self> {
        let bytes = text.as_bytes();
        let Some(scheme) = [&b"ws://"[..], b"wss://", b"unix:/"].into_iter().find(|s| bytes.starts_with(s))
        else {
            if bytes.is_empty() {
                bail!("an empty path names no file");
            }
            return Ok(Self::Local(text.into()));
        };
        let behind = &bytes[scheme.len()..];
        let split = behind.windows(2).position(|pair| pair == b":/").map(|at| scheme.len() + at);
        let shown = text.to_string_lossy();
        let split = split.with_context(|| {
            format!(
                "{shown} names a server but no absolute path there: write URL:/PATH, as in {shown}:/tmp/file"
            )
        })?;
        let url =
            std::str::from_utf8(&bytes[..split]).with_context(|| format!("{shown}: the URL is not UTF-8"))?;
        Ok(Self::Remote { url: url.to_owned(), path: OsStr::from_bytes(&bytes[split + 1..]).into() })
    }

    /// Reaches it. Nothing is dialled yet.
    ///
    /// # Errors
    /// A wrong URL, a token that cannot be read, a path of this machine that cannot be resolved.
    pub(super) fn open(self, token_file: Option<&Path>) -> anyhow::Result<Place> {
        let (files, path, server): (Arc<dyn ExecutorFileSystem>, _, _) = match self {
            Self::Local(path) => (Arc::new(LocalFileSystem::default()), absolute(&path)?, None),
            Self::Remote { url, path } => {
                let environment = Environment::remote(&url, client::options(token_file)?)?;
                (environment.get_filesystem(), path, Some(url))
            }
        };
        let wants_directory = path.as_os_str().as_bytes().ends_with(b"/");
        Ok(Place { files, path: PathUri::from_native_path(&path)?, server, wants_directory })
    }
}

/// The absolute form of a local path. A `..` in it is behind a link where the system says so.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute = std::path::absolute(path).with_context(|| path.display().to_string())?;
    if !absolute.components().any(|component| component == Component::ParentDir) {
        return Ok(absolute);
    }
    let resolved = match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
        _ => absolute.canonicalize(),
    };
    resolved.with_context(|| path.display().to_string())
}

/// A side as it is reached.
pub(super) struct Place {
    pub(super) files: Arc<dyn ExecutorFileSystem>,
    pub(super) path: PathUri,
    server: Option<String>,
    /// It was written with a slash at its end.
    wants_directory: bool,
}

impl Place {
    /// The last component of its path.
    pub(super) fn name(&self) -> Option<OsString> {
        Some(self.path.to_native_path().ok()?.file_name()?.to_owned())
    }

    /// A path of this side for people.
    pub(super) fn shown(&self, path: &PathUri) -> String {
        let native =
            path.to_native_path().map_or_else(|_| path.to_string(), |path| path.display().to_string());
        match &self.server {
            Some(url) => format!("{url}:{native}"),
            None => native,
        }
    }

    /// Where a thing of this name goes: into a directory that is there, or to the path itself.
    ///
    /// # Errors
    /// The path cannot be looked at, or was to be a directory and is none.
    pub(super) async fn settle(&self, name: Option<OsString>, is_directory: bool) -> anyhow::Result<PathUri> {
        let found = self.files.get_metadata(&self.path, Default::default(), None).await;
        match (found, name) {
            (Ok(found), Some(name)) if found.is_directory => below(&self.path, &name),
            (Ok(found), _) if self.wants_directory && !found.is_directory => {
                bail!("{}: it is not a directory", self.shown(&self.path))
            }
            (Ok(_), _) => Ok(self.path.clone()),
            (Err(error), _) if error.kind() == ErrorKind::NotFound => {
                if self.wants_directory && !is_directory {
                    bail!("{}: there is no such directory", self.shown(&self.path));
                }
                Ok(self.path.clone())
            }
            (Err(error), _) => Err(error).with_context(|| self.shown(&self.path)),
        }
    }
}

/// A name in a directory.
///
/// # Errors
/// The name is none: it would lead elsewhere.
pub(super) fn below(directory: &PathUri, name: &OsStr) -> anyhow::Result<PathUri> {
    let mut components = Path::new(name).components();
    let is_name =
        matches!((components.next(), components.next()), (Some(Component::Normal(one)), None) if one == name);
    if !is_name {
        bail!("{}: not the name of a file", name.to_string_lossy());
    }
    Ok(PathUri::from_native_path(&directory.to_native_path()?.join(name))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use test_case::test_case;

    fn remote(url: &str, path: &str) -> Side {
        Side::Remote { url: url.into(), path: path.into() }
    }

    #[test_case("ws://127.0.0.1:8765:/tmp/f", "ws://127.0.0.1:8765", "/tmp/f"; "port")]
    #[test_case("ws://host:/f", "ws://host", "/f"; "no port")]
    #[test_case("ws://[::1]:8765:/f", "ws://[::1]:8765", "/f"; "address in brackets")]
    #[test_case("ws://h:1/exec?x=1:/f", "ws://h:1/exec?x=1", "/f"; "path in the URL")]
    #[test_case("wss://h:/a:/b", "wss://h", "/a:/b"; "colon in the path")]
    #[test_case("unix:/run/s.sock:/f", "unix:/run/s.sock", "/f"; "socket")]
    fn servers(text: &str, url: &str, path: &str) {
        assert_eq!(Side::parse(text.as_ref()).unwrap(), remote(url, path));
    }

    #[test_case("f"; "relative")]
    #[test_case("/tmp/a:/b"; "colon")]
    #[test_case("./ws://h:/f"; "escaped")]
    fn paths_of_this_machine(text: &str) {
        assert_eq!(Side::parse(text.as_ref()).unwrap(), Side::Local(text.into()));
    }

    #[test_case("ws://127.0.0.1:8765"; "no path")]
    #[test_case("ws://127.0.0.1:8765/tmp/f"; "path of the URL")]
    #[test_case("ws://h:8765:f"; "relative path")]
    #[test_case("unix:/run/s.sock"; "socket alone")]
    #[test_case(""; "nothing")]
    fn refused(text: &str) {
        assert!(Side::parse(text.as_ref()).is_err());
    }

    #[test]
    fn raw_bytes_are_kept() {
        let Side::Remote { path, .. } = Side::parse(OsStr::from_bytes(b"ws://h:/\xff")).unwrap() else {
            panic!("not remote")
        };
        assert_eq!(path.as_os_str().as_bytes(), b"/\xff");
    }

    #[test_case("../x"; "upwards")]
    #[test_case("/etc/passwd"; "absolute")]
    #[test_case("a/b"; "deeper")]
    #[test_case(".."; "parent")]
    #[test_case("."; "itself")]
    #[test_case(""; "none")]
    #[test_case("a/"; "slash at its end")]
    fn names_that_lead_elsewhere(name: &str) {
        assert!(below(&PathUri::parse("file:///d").unwrap(), name.as_ref()).is_err());
    }
}
