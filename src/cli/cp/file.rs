//! One file or link: made beside its place, then put there.
//!
//! A tree comes from whoever has the server: what its links lead to is never written.

use std::io::{self, ErrorKind};

use anyhow::{Context, bail};
use uuid::Uuid;

use super::Copier;
use crate::backend::{RemoveOptions, RenameOptions};
use crate::path_uri::PathUri;
use crate::protocol::fs::FileMode;

/// Permission bits that are kept. Which user a program runs as is for the user of the other machine to say.
const KEPT: u32 = 0o777;
/// Nobody else reads what is not in its place yet.
const PRIVATE: u32 = 0o600;

/// A file is tried so often when its connection is lost.
const ATTEMPTS: u32 = 3;

/// What a link that is there already means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// It stands for its target.
    Follow,
    /// It is in the way.
    Replace,
}

impl Copier {
    /// Copies the content and the permission bits of a regular file. A copy that lost its connection begins anew.
    pub(super) async fn file(
        &self,
        from: &PathUri,
        to: &PathUri,
        mode: Option<FileMode>,
        there: Existing,
    ) -> anyhow::Result<()> {
        let mut attempts = 1;
        loop {
            match self.file_once(from, to, mode, there).await {
                Err(error) if is_lost(&error) && attempts < ATTEMPTS && self.check().is_ok() => attempts += 1,
                outcome => return outcome.with_context(|| self.both(from, to)),
            }
        }
    }

    async fn file_once(
        &self,
        from: &PathUri,
        to: &PathUri,
        mode: Option<FileMode>,
        there: Existing,
    ) -> anyhow::Result<()> {
        let to = self.real_place(to, there).await?;
        let beside = beside(&to)?;
        self.placed(self.fill(from, &beside, mode).await, &beside, &to).await
    }

    /// Makes a link with this text, in the place of a file or link that is there.
    pub(super) async fn link(&self, from: &PathUri, to: &PathUri, text: &str) -> anyhow::Result<()> {
        let make = async {
            if text.contains('\u{fffd}') {
                bail!("the text of the link is not UTF-8, so it cannot be made there");
            }
            let beside = beside(to)?;
            let made = self.destination().create_symlink(&beside, text, None).await;
            self.placed(made.map_err(Into::into), &beside, to).await
        };
        make.await.with_context(|| self.both(from, to))
    }

    pub(super) fn both(&self, from: &PathUri, to: &PathUri) -> String {
        format!("{} -> {}", self.source.shown(from), self.destination.shown(to))
    }

    /// The path to replace: behind a link, and nothing but a regular file or nothing.
    async fn real_place(&self, to: &PathUri, there: Existing) -> anyhow::Result<PathUri> {
        let files = self.destination();
        match files.get_metadata(to, Default::default(), None).await {
            Ok(found) if found.is_symlink && there == Existing::Replace => Ok(to.clone()),
            Ok(found) if found.is_directory => bail!("a directory is there"),
            Ok(found) if !found.is_file => bail!("what is there is not a regular file; it is not replaced"),
            Ok(found) if found.is_symlink => Ok(files.canonicalize(to, None).await?),
            Ok(_) => Ok(to.clone()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(to.clone()),
            Err(error) => Err(error.into()),
        }
    }

    async fn fill(&self, from: &PathUri, beside: &PathUri, mode: Option<FileMode>) -> anyhow::Result<()> {
        let mut reader = self.source().read_file_stream(from, None).await?;
        let mut writer = self.destination().open_for_replacement(beside, None).await?;
        self.destination().set_permissions(beside, FileMode::from_bits(PRIVATE), None).await?;
        let mut part = self.progress.part();
        while let Some(bytes) = reader.next().await? {
            self.check()?;
            writer.write(&bytes).await?;
            part.copied(bytes.len() as u64);
        }
        writer.finish().await?;
        part.keep();
        if let Some(mode) = mode {
            let kept = FileMode::from_bits(mode.bits() & KEPT);
            self.destination().set_permissions(beside, kept, None).await?;
        }
        Ok(())
    }

    /// Puts what was made beside into its place, or removes it.
    async fn placed(&self, made: anyhow::Result<()>, beside: &PathUri, to: &PathUri) -> anyhow::Result<()> {
        let replace = RenameOptions { replace: true };
        let placed = match made {
            Ok(()) => self.destination().rename(beside, to, replace, None).await.map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        if placed.is_err() {
            let only_this = RemoveOptions { recursive: false, ..RemoveOptions::default() };
            // The first error says more than that of the removal.
            let _ = self.destination().remove(beside, only_this, None).await;
        }
        placed
    }
}

fn is_lost(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// A name in the same directory that nobody else has.
fn beside(path: &PathUri) -> anyhow::Result<PathUri> {
    let native = path.to_native_path()?;
    Ok(PathUri::from_native_path(
        &native.with_file_name(format!(".exec-server-cp-{}", Uuid::new_v4().simple())),
    )?)
}
