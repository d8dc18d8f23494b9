use super::MAX_PATTERNS;
use crate::policy::hosts::PatternError;

/// What is wrong with the rules of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// A pattern that is none.
    #[error("networkProxy.proxy.{field}: `{pattern}` is not a pattern of hosts: {reason}")]
    Pattern {
        /// Where it stands.
        field: &'static str,
        /// As it was written.
        pattern: String,
        /// What would be right.
        reason: PatternError,
    },
    /// A rule that would leave nothing.
    #[error(
        "networkProxy.proxy.domains: `{pattern}` denies every host; leave it out, since what no rule allows is refused anyway"
    )]
    DeniesEverything {
        /// As it was written.
        pattern: String,
    },
    /// More than anybody needs.
    #[error(
        "networkProxy.proxy has more than {MAX_PATTERNS} patterns in domains and reviewDomains; use wildcards such as *.example.com"
    )]
    TooMany,
}
