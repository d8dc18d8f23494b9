//! The method table: wire name → typed call.

use serde_json::Value;

use crate::protocol::envelope::ErrorObject;
use crate::protocol::process::ProcessId;
use crate::protocol::{Method, code, discovery, environment, fs, http, process, session};
use crate::telemetry::label;

/// Declares [`Call`] and its decoder from marker types.
macro_rules! calls {
    ($($name:ident($method:ty)),* $(,)?) => {
        /// A decoded request.
        #[derive(Debug)]
        #[expect(clippy::large_enum_variant, reason = "calls are moved once and not kept in numbers")]
        pub(super) enum Call {
            $($name(<$method as Method>::Params),)*
        }

        /// The method of a message, as it is counted: not by what a client may have written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::server) enum MethodLabel {
            $($name,)*
            /// Of that name there is none.
            Unknown,
            /// It is no message.
            Unreadable,
        }

        label!(MethodLabel {
            $($name = <$method as Method>::NAME,)*
            Unknown = "unknown",
            Unreadable = "unreadable",
        });

        impl MethodLabel {
            /// The label of what a client wrote.
            pub(super) fn of(method: &str) -> Self {
                match method {
                    $(<$method as Method>::NAME => Self::$name,)*
                    _ => Self::Unknown,
                }
            }
        }

        impl Call {
            /// The wire names of all requests that are understood.
            pub(super) const METHODS: &[&str] = &[$(<$method as Method>::NAME),*];

            /// Encodes the params again.
            pub(super) fn params(&self) -> serde_json::Result<Value> {
                match self {
                    $(Self::$name(params) => serde_json::to_value(params),)*
                }
            }

            /// Decodes a request.
            ///
            /// # Errors
            /// An unknown method, or params that do not fit.
            pub(super) fn decode(method: &str, params: Value) -> Result<Self, ErrorObject> {
                match method {
                    $(<$method as Method>::NAME => params_of::<$method>(params).map(Self::$name),)*
                    _ => Err(ErrorObject::new(code::METHOD_NOT_FOUND, format!("unknown method `{}`", short(method)))),
                }
            }

            /// The method, as it is counted.
            pub(super) fn label(&self) -> MethodLabel {
                match self {
                    $(Self::$name(_) => MethodLabel::$name,)*
                }
            }

            /// The wire name.
            pub(super) fn method(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => <$method as Method>::NAME,)*
                }
            }
        }
    };
}

calls! {
    Initialize(session::Initialize),
    SessionList(session::List),
    Info(environment::Info),
    Status(environment::Status),
    ConfigRead(environment::ConfigRead),
    RootsDiscover(discovery::RootsDiscover),
    Discover(discovery::Discover),
    Start(process::Start),
    Read(process::Read),
    Write(process::Write),
    CloseStdin(process::CloseStdin),
    Resize(process::Resize),
    Signal(process::Signal),
    Terminate(process::Terminate),
    List(process::List),
    FsReadFile(fs::ReadFile),
    FsWriteFile(fs::WriteFile),
    FsOpen(fs::Open),
    FsReadBlock(fs::ReadBlock),
    FsWriteBlock(fs::WriteBlock),
    FsClose(fs::Close),
    FsCreateDirectory(fs::CreateDirectory),
    FsGetMetadata(fs::GetMetadata),
    FsCanonicalize(fs::Canonicalize),
    FsReadDirectory(fs::ReadDirectory),
    FsWalk(fs::Walk),
    FsRemove(fs::Remove),
    FsCopy(fs::Copy),
    FsWatchMissing(fs::WatchMissing),
    FsRename(fs::Rename),
    FsSetPermissions(fs::SetPermissions),
    FsCreateSymlink(fs::CreateSymlink),
    HttpRequest(http::Request),
}

fn params_of<M: Method>(params: Value) -> Result<M::Params, ErrorObject> {
    if params.is_array() {
        return Err(ErrorObject::new(code::INVALID_PARAMS, "`params` must be an object, not a list"));
    }
    serde_json::from_value(params).map_err(|error| ErrorObject::new(code::INVALID_PARAMS, error.to_string()))
}

/// A client's text, cut so that an answer does not grow with it.
fn short(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Call {
    /// The process that the call is about.
    pub(super) fn process_id(&self) -> Option<&ProcessId> {
        match self {
            Self::Start(params) => Some(&params.exec.process_id),
            Self::Read(params) => Some(&params.process_id),
            Self::Write(params) => Some(&params.process_id),
            Self::CloseStdin(params) => Some(&params.process_id),
            Self::Resize(params) => Some(&params.process_id),
            Self::Signal(params) => Some(&params.process_id),
            Self::Terminate(params) => Some(&params.process_id),
            _ => None,
        }
    }

    /// Whether a connection that only looks on may make the call.
    pub(super) fn is_for_observers(&self) -> bool {
        matches!(
            self,
            Self::SessionList(_)
                | Self::Info(_)
                | Self::Status(_)
                | Self::Read(_)
                | Self::Signal(_)
                | Self::Terminate(_)
                | Self::List(_)
        )
    }
}
