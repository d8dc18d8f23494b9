//! `fs/*`: files and directories.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::failure::FileErrorData;
use super::method::{Failures, methods, notifications};
use super::process::Empty;
use super::sandbox::SandboxContext;
use super::{ByteChunk, code};
use crate::path_uri::PathUri;

/// How file calls fail.
const FAILURES: Failures = Failures::with::<FileErrorData>(&[code::NOT_FOUND]);

methods! {
    from Client;
    /// Reads a whole file.
    ReadFile = "fs/readFile": ReadFileParams => ReadFileResponse, FAILURES;
    /// Writes a whole file.
    WriteFile = "fs/writeFile": WriteFileParams => Empty, FAILURES;
    /// Opens a file for reading or writing in blocks.
    Open = "fs/open": OpenParams => OpenResponse, FAILURES;
    /// Reads a block of an open file.
    ReadBlock = "fs/readBlock": ReadBlockParams => ReadBlockResponse, FAILURES;
    /// Writes a block of an open file.
    WriteBlock = "fs/writeBlock": WriteBlockParams => Empty, FAILURES;
    /// Closes an open file. One that is not open is no error.
    Close = "fs/close": CloseParams => Empty, FAILURES;
    /// Creates a directory.
    CreateDirectory = "fs/createDirectory": CreateDirectoryParams => Empty, FAILURES;
    /// Describes what a path names.
    GetMetadata = "fs/getMetadata": GetMetadataParams => Metadata, FAILURES;
    /// Resolves every link of a path.
    Canonicalize = "fs/canonicalize": CanonicalizeParams => CanonicalizeResponse, FAILURES;
    /// Lists a directory.
    ReadDirectory = "fs/readDirectory": ReadDirectoryParams => ReadDirectoryResponse, FAILURES;
    /// Lists a tree.
    Walk = "fs/walk": WalkParams => WalkResponse, FAILURES;
    /// Removes a file, a link or a directory.
    Remove = "fs/remove": RemoveParams => Empty, FAILURES;
    /// Copies a file, a link or a directory.
    Copy = "fs/copy": CopyParams => Empty, FAILURES;
    /// Asks to be told once when one of some missing paths appears.
    WatchMissing = "fs/watchMissing": WatchMissingParams => WatchMissingResponse, FAILURES;
    /// Gives a path another name, atomically.
    Rename = "fs/rename": RenameParams => Empty, FAILURES;
    /// Sets permission bits.
    SetPermissions = "fs/setPermissions": SetPermissionsParams => Empty, FAILURES;
    /// Creates a symbolic link.
    CreateSymlink = "fs/createSymlink": CreateSymlinkParams => Empty, FAILURES;
}

notifications! {
    from Server;
    /// A watched path has appeared, or what was present has changed.
    MissingChanged = "fs/missingChanged": MissingChangedParams;
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that skip_serializing_if wants")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that skip_serializing_if wants")]
fn is_no(value: &bool) -> bool {
    !*value
}

fn null_is_yes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

fn null_is_no<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(false))
}

/// Permission bits, 0 to 0o7777. On the wire octal text of one to four digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String", extend("pattern" = "^[0-7]{1,4}$"))]
pub struct FileMode(u16);

impl FileMode {
    /// The permission bits of a mode; bits that are none are dropped.
    #[must_use]
    pub fn from_bits(mode: u32) -> Self {
        Self((mode & 0o7777) as u16)
    }

    /// The bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0.into()
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let octal = (1..=4).contains(&text.len()) && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        match u16::from_str_radix(&text, 8) {
            Ok(bits) if octal => Ok(Self(bits)),
            _ => Err(de::Error::custom(format_args!(
                "invalid mode `{text}`: one to four octal digits are required"
            ))),
        }
    }
}

/// Params of `fs/readFile`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadFileParams {
    /// The file.
    pub path: PathUri,
    /// Whether links may be on the way.
    #[serde(default = "yes", deserialize_with = "null_is_yes", skip_serializing_if = "is_yes")]
    #[schemars(with = "Option<bool>")]
    pub follow_symlinks: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readFile`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadFileResponse {
    /// The content.
    pub data_base64: ByteChunk,
}

/// Params of `fs/writeFile`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteFileParams {
    /// The file; its directory must exist.
    pub path: PathUri,
    /// The new content. Kept as text: base64 that is malformed is another error than params that do not decode.
    #[schemars(with = "ByteChunk")]
    pub data_base64: String,
    /// True: written beside and renamed over, or refused; false: written in place; absent: the former where possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atomic: Option<bool>,
    /// Whether links may be on the way.
    #[serde(default = "yes", deserialize_with = "null_is_yes", skip_serializing_if = "is_yes")]
    #[schemars(with = "Option<bool>")]
    pub follow_symlinks: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// What an open file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OpenMode {
    /// Reading.
    #[default]
    Read,
    /// Writing; the file is created, or emptied at once.
    Replace,
}

/// Params of `fs/open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenParams {
    /// The client's name for the open file, unique within its connection; at most 32 bytes.
    pub handle_id: String,
    /// The file.
    pub path: PathUri,
    /// What for.
    #[serde(default)]
    pub mode: OpenMode,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenResponse {
    /// The id of the request.
    pub handle_id: String,
}

/// Params of `fs/readBlock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadBlockParams {
    /// The open file.
    pub handle_id: String,
    /// Where the block begins.
    pub offset: u64,
    /// Bytes wanted, 1 to 1,048,576.
    pub len: u64,
}

/// Result of `fs/readBlock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadBlockResponse {
    /// The bytes.
    pub chunk: ByteChunk,
    /// Fewer bytes than wanted came back.
    pub eof: bool,
}

/// Params of `fs/writeBlock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteBlockParams {
    /// The open file.
    pub handle_id: String,
    /// Where the block begins.
    pub offset: u64,
    /// The bytes, 1 to 1,048,576.
    pub chunk: ByteChunk,
}

/// Params of `fs/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloseParams {
    /// The open file.
    pub handle_id: String,
}

/// Params of `fs/createDirectory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateDirectoryParams {
    /// The directory.
    pub path: PathUri,
    /// Create parents too, and accept that the directory exists.
    #[serde(default = "yes", deserialize_with = "null_is_yes")]
    #[schemars(with = "Option<bool>")]
    pub recursive: bool,
    /// Whether links may be on the way.
    #[serde(default = "yes", deserialize_with = "null_is_yes", skip_serializing_if = "is_yes")]
    #[schemars(with = "Option<bool>")]
    pub follow_symlinks: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/getMetadata`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetMetadataParams {
    /// The path.
    pub path: PathUri,
    /// Whether links may be on the way.
    #[serde(default = "yes", deserialize_with = "null_is_yes", skip_serializing_if = "is_yes")]
    #[schemars(with = "Option<bool>")]
    pub follow_symlinks: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/getMetadata`. All but `is_symlink` and `link_target` is of the target of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FileMetadata")]
pub struct Metadata {
    /// A directory.
    pub is_directory: bool,
    /// A regular file.
    pub is_file: bool,
    /// The path itself names a link.
    pub is_symlink: bool,
    /// Bytes.
    pub size: u64,
    /// Unix milliseconds; 0 where unknown.
    pub created_at_ms: i64,
    /// Unix milliseconds; 0 where unknown.
    pub modified_at_ms: i64,
    /// Permission bits. This and the following are absent from older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Number of the inode, in decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<String>,
    /// Text of the link that the path names.
    #[serde(default)]
    pub link_target: Option<String>,
}

/// Params of `fs/canonicalize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanonicalizeParams {
    /// The path.
    pub path: PathUri,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/canonicalize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CanonicalizeResponse {
    /// The path without links.
    pub path: PathUri,
}

/// Params of `fs/readDirectory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadDirectoryParams {
    /// The directory.
    pub path: PathUri,
    /// List every link, with its text, also one that leads nowhere.
    #[serde(default, deserialize_with = "null_is_no", skip_serializing_if = "is_no")]
    #[schemars(with = "Option<bool>")]
    pub links: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `fs/readDirectory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadDirectoryResponse {
    /// In no order.
    pub entries: Vec<DirectoryEntry>,
}

/// One row of `fs/readDirectory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryEntry {
    /// The name as text; bytes that are none are U+FFFD.
    pub file_name: String,
    /// A directory, or a link to one.
    pub is_directory: bool,
    /// A regular file, or a link to one.
    pub is_file: bool,
    /// The exact path, where `file_name` is not the exact name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathUri>,
    /// Text of a link, where links were asked for; bytes that are none are U+FFFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
}

/// Params of `fs/walk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WalkParams {
    /// The root; it is not listed itself.
    pub path: PathUri,
    /// Where to stop.
    pub options: WalkOptions,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Where a walk stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WalkOptions {
    /// Levels below the entries of the root, 0 to 64.
    pub max_depth: u64,
    /// Directories to enter, the root among them, 1 to 10,000.
    pub max_directories: u64,
    /// Entries to see, 1 to 50,000.
    pub max_entries: u64,
    /// List and enter directories behind links.
    pub follow_directory_symlinks: bool,
    /// List directories whose name begins with a dot, but do not enter them.
    #[serde(default)]
    pub prune_hidden_directories: bool,
}

/// Result of `fs/walk`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WalkResponse {
    /// Level by level, sorted within a directory.
    pub entries: Vec<WalkEntry>,
    /// What could not be read.
    pub errors: Vec<WalkError>,
    /// A limit other than the depth left something out.
    pub truncated: bool,
}

/// One entry of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalkEntry {
    /// Its path.
    pub path: PathUri,
    /// What it is.
    pub kind: WalkKind,
}

/// See [`WalkEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WalkKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// What a walk could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalkError {
    /// Its path.
    pub path: PathUri,
    /// Why.
    pub message: String,
}

/// Params of `fs/remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveParams {
    /// What goes; a link is never followed.
    pub path: PathUri,
    /// Remove the content of a directory too.
    #[serde(default = "yes", deserialize_with = "null_is_yes")]
    #[schemars(with = "Option<bool>")]
    pub recursive: bool,
    /// Accept that nothing is there.
    #[serde(default = "yes", deserialize_with = "null_is_yes")]
    #[schemars(with = "Option<bool>")]
    pub force: bool,
    /// Whether links may be on the way; false needs `recursive` false.
    #[serde(default = "yes", deserialize_with = "null_is_yes", skip_serializing_if = "is_yes")]
    #[schemars(with = "Option<bool>")]
    pub follow_symlinks: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/copy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyParams {
    /// What is copied; a link as a link.
    pub source_path: PathUri,
    /// Where to.
    pub destination_path: PathUri,
    /// A directory needs true.
    pub recursive: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/watchMissing`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchMissingParams {
    /// Greater than every id that the connection used before.
    pub watch_id: u64,
    /// Paths that do not exist, 1 to 64.
    pub missing: Vec<PathUri>,
    /// One that does, to be watched for changes.
    #[serde(default)]
    pub present: Option<PathUri>,
}

/// Result of `fs/watchMissing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchMissingResponse {
    /// False: nothing is watched, so absence must not be remembered.
    pub watching: bool,
}

/// Params of `fs/missingChanged`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingChangedParams {
    /// The watch, which has ended.
    pub watch_id: u64,
}

/// Params of `fs/rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenameParams {
    /// What is moved; a link itself.
    pub source_path: PathUri,
    /// Its new name, on the same file system.
    pub destination_path: PathUri,
    /// Take the place of what is there.
    #[serde(default, deserialize_with = "null_is_no")]
    #[schemars(with = "Option<bool>")]
    pub replace: bool,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/setPermissions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetPermissionsParams {
    /// The path; a final link is followed.
    pub path: PathUri,
    /// The new bits.
    pub mode: FileMode,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Params of `fs/createSymlink`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateSymlinkParams {
    /// The new link.
    pub path: PathUri,
    /// Its text: native, stored as it is.
    pub target: String,
    /// What the call may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json, to_value};

    #[test]
    fn absent_and_null_mean_the_same_default() {
        for params in [
            json!({"path": "file:///x"}),
            json!({"path": "file:///x", "recursive": null, "force": null, "followSymlinks": null, "sandbox": null}),
        ] {
            let remove: RemoveParams = from_value(params.clone()).unwrap();
            assert!(remove.recursive && remove.force && remove.follow_symlinks && remove.sandbox.is_none());
            let create: CreateDirectoryParams = from_value(params.clone()).unwrap();
            assert!(create.recursive && create.follow_symlinks);
            assert!(from_value::<ReadFileParams>(params.clone()).unwrap().follow_symlinks);
            assert!(from_value::<GetMetadataParams>(params).unwrap().follow_symlinks);
        }
    }

    #[test]
    fn open_reads_by_default_but_takes_no_null() {
        let open = |mode: Value| {
            from_value::<OpenParams>(json!({"handleId": "", "path": "file:///x", "mode": mode}))
        };
        assert_eq!(open(json!("replace")).unwrap().mode, OpenMode::Replace);
        assert!(open(Value::Null).is_err());
        assert!(open(json!("write")).is_err());
        let default: OpenParams = from_value(json!({"handleId": "", "path": "file:///x"})).unwrap();
        assert_eq!(default.mode, OpenMode::Read);
    }

    #[test]
    fn copy_has_no_default_and_rename_keeps() {
        let mut params = json!({"sourcePath": "file:///a", "destinationPath": "file:///b"});
        assert!(from_value::<CopyParams>(params.clone()).is_err());
        assert!(!from_value::<RenameParams>(params.clone()).unwrap().replace);
        params["replace"] = Value::Null;
        assert!(!from_value::<RenameParams>(params).unwrap().replace);
    }

    #[test]
    fn malformed_base64_decodes_as_params_of_write_file_only() {
        let write: WriteFileParams = from_value(json!({"path": "file:///x", "dataBase64": "!!"})).unwrap();
        assert_eq!((write.data_base64.as_str(), write.atomic), ("!!", None));
        assert!(
            from_value::<WriteBlockParams>(json!({"handleId": "h", "offset": 0, "chunk": "!!"})).is_err()
        );
    }

    #[test]
    fn offsets_are_whole_and_not_negative() {
        for bad in [json!(-1), json!(0.5), json!("0")] {
            assert!(
                from_value::<ReadBlockParams>(json!({"handleId": "h", "offset": bad, "len": 1})).is_err()
            );
        }
    }

    #[test]
    fn modes_are_octal_text() {
        for (text, bits) in [("0", 0), ("755", 0o755), ("0755", 0o755), ("7777", 0o7777)] {
            assert_eq!(from_value::<FileMode>(text.into()).unwrap().bits(), bits);
        }
        for bad in
            [json!("8"), json!(""), json!("+755"), json!("07777"), json!("0o7"), json!(755), json!(" 755")]
        {
            assert!(from_value::<FileMode>(bad.clone()).is_err(), "{bad}");
        }
        assert_eq!(to_value(FileMode::from_bits(0o10_0644)).unwrap(), "0644");
    }

    #[test]
    fn metadata_of_an_older_server_decodes() {
        let old = json!({"isDirectory": false, "isFile": true, "isSymlink": false, "size": 5, "createdAtMs": 0,
            "modifiedAtMs": 7});
        let metadata: Metadata = from_value(old).unwrap();
        assert_eq!((metadata.mode, metadata.link_target), (None, None));
    }
}
