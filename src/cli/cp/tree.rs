//! A tree, directory by directory. Links stay links, and none of the destination is followed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};

use anyhow::{Context, bail};
use futures_util::{StreamExt, stream};

use super::Copier;
use super::file::Existing;
use super::place::below;
use crate::backend::CreateDirectoryOptions;
use crate::path_uri::PathUri;
use crate::protocol::fs::{DirectoryEntry, FileMode, Metadata};

/// Files on their way at a time: for many small ones on a slow line.
const AT_A_TIME: usize = 4;
/// Permission bits of directories that are kept.
const KEPT: u32 = 0o777;
/// A directory that is being filled.
const PRIVATE: u32 = 0o700;

/// A directory to copy, and where to.
struct Directory {
    from: PathUri,
    to: PathUri,
}

/// Something in a directory.
struct Entry {
    from: PathUri,
    to: PathUri,
    listed: DirectoryEntry,
}

impl Copier {
    /// Copies a directory with everything below it. What cannot be copied is complained about and counted; only a lost
    /// connection or an interrupt ends the copy.
    pub(super) async fn tree(&self, from: PathUri, to: PathUri, found: &Metadata) -> anyhow::Result<usize> {
        let mut made = Vec::new();
        let mut failures = 0;
        self.directory(&to, found.mode, true, &mut made).await?;
        let mut waiting = vec![Directory { from, to }];
        while let Some(directory) = waiting.pop() {
            self.check()?;
            match self.entries(&directory).await {
                Ok(entries) => failures += self.content(entries, &mut waiting, &mut made).await?,
                Err(error) => failures += self.failed(error)?,
            }
        }
        // The deepest first, and after their content: a directory may forbid to write in it.
        for (directory, mode) in made.into_iter().rev() {
            if let Err(error) = self.destination().set_permissions(&directory, mode, None).await {
                failures +=
                    self.failed(anyhow::Error::from(error).context(self.destination.shown(&directory)))?;
            }
        }
        Ok(failures)
    }

    /// Copies what is no directory, and makes the directories, which wait for their own content.
    async fn content(
        &self,
        entries: Vec<Entry>,
        waiting: &mut Vec<Directory>,
        made: &mut Vec<(PathUri, FileMode)>,
    ) -> anyhow::Result<usize> {
        let is_directory = |entry: &Entry| entry.listed.is_directory && entry.listed.link_target.is_none();
        let (directories, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_directory);
        let mut failures = 0;
        let mut copies =
            stream::iter(others.iter().map(|entry| self.entry(entry))).buffer_unordered(AT_A_TIME);
        while let Some(copied) = copies.next().await {
            if let Err(error) = copied {
                failures += self.failed(error)?;
            }
        }
        for Entry { from, to, .. } in directories {
            let make = async {
                let found = self.source().get_metadata(&from, Default::default(), None).await;
                let found = found.with_context(|| self.source.shown(&from))?;
                self.directory(&to, found.mode, false, made).await
            };
            match make.await {
                Ok(()) => waiting.push(Directory { from, to }),
                Err(error) => failures += self.failed(error)?,
            }
        }
        Ok(failures)
    }

    async fn entry(&self, entry: &Entry) -> anyhow::Result<()> {
        self.check()?;
        let Entry { from, to, listed } = entry;
        match &listed.link_target {
            Some(text) => self.link(from, to, text).await,
            None if listed.is_file => {
                let found = self.source().get_metadata(from, Default::default(), None).await;
                let found = found.with_context(|| self.source.shown(from))?;
                self.progress.expect(found.size);
                self.file(from, to, found.mode, Existing::Replace).await
            }
            None => bail!("{}: neither file, directory nor link; it is left out", self.source.shown(from)),
        }
    }

    /// Makes a directory, or uses one that is there and, below the top, no link.
    async fn directory(
        &self,
        to: &PathUri,
        mode: Option<FileMode>,
        is_top: bool,
        made: &mut Vec<(PathUri, FileMode)>,
    ) -> anyhow::Result<()> {
        let files = self.destination();
        match files.get_metadata(to, Default::default(), None).await {
            Ok(found) if found.is_directory && (is_top || !found.is_symlink) => return Ok(()),
            Ok(_) => bail!("{}: what is there is not a directory", self.destination.shown(to)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| self.destination.shown(to)),
        }
        let alone = CreateDirectoryOptions { recursive: false, ..CreateDirectoryOptions::default() };
        let create = async {
            files.create_directory(to, alone, None).await?;
            files.set_permissions(to, FileMode::from_bits(PRIVATE), None).await
        };
        create.await.with_context(|| self.destination.shown(to))?;
        if let Some(mode) = mode {
            made.push((to.clone(), FileMode::from_bits(mode.bits() & KEPT)));
        }
        Ok(())
    }

    /// What is in a directory, each once and by a name that leads nowhere else.
    async fn entries(&self, directory: &Directory) -> anyhow::Result<Vec<Entry>> {
        let listed = self.source().read_directory_with_links(&directory.from, None).await;
        let listed = listed.with_context(|| self.source.shown(&directory.from))?;
        let mut names = HashSet::new();
        let mut entries = Vec::new();
        for listed in listed {
            let name = exact_name(&listed).with_context(|| self.source.shown(&directory.from))?;
            let (from, to) = (below(&directory.from, &name)?, below(&directory.to, &name)?);
            if !names.insert(name) {
                bail!("{}: it is listed twice", self.source.shown(&from));
            }
            entries.push(Entry { from, to, listed });
        }
        Ok(entries)
    }

    /// Says what has failed and goes on, unless nothing more can succeed.
    fn failed(&self, error: anyhow::Error) -> anyhow::Result<usize> {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if let Some(ErrorKind::BrokenPipe | ErrorKind::NotConnected | ErrorKind::Interrupted) = kind {
            return Err(error);
        }
        self.progress.complain(format_args!("{error:#}"));
        Ok(1)
    }
}

/// The name of an entry, byte for byte.
fn exact_name(entry: &DirectoryEntry) -> anyhow::Result<OsString> {
    let Some(path) = &entry.path else { return Ok(OsString::from(&entry.file_name)) };
    let name = path.to_native_path()?.file_name().map(ToOwned::to_owned);
    name.with_context(|| format!("{path} names no file"))
}
