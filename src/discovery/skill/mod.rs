//! What a skill says of itself. Pure: texts in, values out, whatever the texts are.

mod frontmatter;
mod metadata;

use serde::de::DeserializeOwned;
use serde_saphyr::options::MergeKeyPolicy;

pub(super) use self::frontmatter::Frontmatter;
pub(super) use self::metadata::Metadata;

/// One line, with single spaces.
fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads YAML. What a bomb of aliases or of brackets would cost is refused.
fn from_yaml<T: DeserializeOwned>(text: &str) -> Option<T> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000,
            max_nodes: 50_000,
            max_aliases: 100,
            max_recorded_anchor_bytes: 4 << 20,
            max_total_scalar_bytes: 4 << 20,
            max_documents: 2,
        },
        merge_keys: MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
    };
    serde_saphyr::from_str_with_options(text, options).ok()
}
