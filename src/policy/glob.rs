use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use super::{PolicyError, join_lexically};

/// The longest pattern: what one match costs grows with it.
const MAX_PATTERN_BYTES: usize = 4096;

/// What ends the part of a pattern that is taken as it is.
const META: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// A pattern that denies every file it matches: `*`, `?`, `[…]`, `{a,b}` within a name, `**` over directories. Case
/// counts, and names that begin with a dot are names like others.
#[derive(Debug, Clone)]
pub struct DenyGlob {
    pattern: String,
    root: PathBuf,
    below: GlobMatcher,
    max_depth: Option<NonZeroU64>,
}

impl DenyGlob {
    /// Reads a pattern; a relative one is below `cwd`. `max_depth` is how many names below the search root a match may
    /// have.
    ///
    /// # Errors
    ///
    /// The pattern is malformed, or would be looked for in the whole file system. Either would protect nothing.
    pub fn new(
        pattern: &str,
        cwd: Option<&Path>,
        max_depth: Option<NonZeroU64>,
    ) -> Result<Self, PolicyError> {
        let refused = |reason: &str| PolicyError::Glob { pattern: shown(pattern), reason: reason.to_owned() };
        if pattern.is_empty() || pattern.contains('\0') {
            return Err(refused("it is empty or contains NUL"));
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(refused(&format!("it is longer than {MAX_PATTERN_BYTES} bytes")));
        }
        let (fixed, rest) = split(pattern);
        let root = match (Path::new(fixed).is_absolute(), cwd) {
            (false, None) => return Err(PolicyError::NoCwd { entry: format!("`{}`", shown(pattern)) }),
            (_, cwd) => join_lexically(cwd.unwrap_or(Path::new("/")), Path::new(fixed)),
        };
        if root.parent().is_none() {
            return Err(refused(
                "it begins with no directory, so the whole file system would have to be searched",
            ));
        }
        let below = plain(rest).ok_or_else(|| refused("`..` cannot follow a part that is matched"))?;
        let below = GlobBuilder::new(&below)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| refused(&error.kind().to_string()))?
            .compile_matcher();
        Ok(Self { pattern: pattern.to_owned(), root, below, max_depth })
    }

    /// Whether the pattern names a path. It is for the caller to ask for files only.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        path.strip_prefix(&self.root).is_ok_and(|below| self.matches_below(below))
    }

    /// The same for a path relative to the search root.
    #[must_use]
    pub fn matches_below(&self, below: &Path) -> bool {
        let names = below.components().count() as u64;
        names > 0 && self.max_depth.is_none_or(|most| names <= most.get()) && self.below.is_match(below)
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Where matches are looked for: the part before the first metacharacter.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How many names below the root a match can have, by the bound and by the pattern.
    #[must_use]
    pub fn depth(&self) -> u64 {
        let own = if self.glob_text().contains("**") {
            u64::MAX
        } else {
            self.glob_text().split('/').count() as u64
        };
        own.min(self.max_depth.map_or(u64::MAX, NonZeroU64::get))
    }

    fn glob_text(&self) -> &str {
        self.below.glob().glob()
    }

    /// The same pattern below another directory, for a root that is reached through links.
    #[must_use]
    pub fn below(&self, root: PathBuf) -> Self {
        Self { root, ..self.clone() }
    }
}

/// A pattern as errors show it.
fn shown(pattern: &str) -> String {
    pattern.chars().take(200).collect()
}

/// The directories before the first metacharacter, and the rest. A pattern without any is split before its last name.
fn split(pattern: &str) -> (&str, &str) {
    let meta = pattern.find(META).unwrap_or(pattern.len());
    let end = pattern[..meta].rfind('/').map_or(0, |slash| slash + 1);
    pattern.split_at(end)
}

/// The pattern without empty names and `.`, which no path has; nothing where it goes up.
fn plain(rest: &str) -> Option<String> {
    let names: Vec<&str> = rest.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    let goes_up = names.contains(&"..") || names.is_empty();
    (!goes_up).then(|| names.join("/"))
}
