use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Values at absolute paths; the deepest at or above a path is the one that covers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTree<T>(BTreeMap<PathBuf, T>);

impl<T> Default for PathTree<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> PathTree<T> {
    /// The value at a path, to be set or changed.
    pub fn entry(&mut self, path: PathBuf) -> std::collections::btree_map::Entry<'_, PathBuf, T> {
        self.0.entry(path)
    }

    /// The value at exactly this path.
    #[must_use]
    pub fn at(&self, path: &Path) -> Option<&T> {
        self.0.get(path)
    }

    /// The deepest value at or above a path, and where it is.
    #[must_use]
    pub fn covering(&self, path: &Path) -> Option<(&Path, &T)> {
        path.ancestors()
            .find_map(|above| self.0.get_key_value(above))
            .map(|(at, value)| (at.as_path(), value))
    }

    /// What is strictly below a path, in order.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a Path, &'a T)> {
        // Paths are ordered by their components, so what is below a path follows it.
        self.0
            .range::<Path, _>((Bound::Excluded(path), Bound::Unbounded))
            .map(|(at, value)| (at.as_path(), value))
            .take_while(move |(at, _)| at.starts_with(path))
    }

    /// All of them, a path before those below it.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &T)> {
        self.0.iter().map(|(path, value)| (path.as_path(), value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> FromIterator<(PathBuf, T)> for PathTree<T> {
    fn from_iter<I: IntoIterator<Item = (PathBuf, T)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}
