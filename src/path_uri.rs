//! `file:` URIs and the native paths that they name.

use serde::{Deserialize, Serialize};

/// A `file:` URI.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathUri(String);
