//! `fs/*`: files and directories.
