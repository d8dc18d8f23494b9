use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::AuthRefusal;
use crate::config::TokenDigest;
use crate::server::followed::{Followed, Source};

/// The capability tokens that pass, as digests.
#[derive(Debug)]
pub(super) enum Tokens {
    Fixed(Vec<TokenDigest>),
    File(Followed<TokenFile>),
}

impl Tokens {
    pub(super) fn check(&self, token: &str) -> Result<(), AuthRefusal> {
        let digest = digest(token);
        let passes = match self {
            Self::Fixed(known) => matches_any(&digest, known),
            Self::File(file) => matches_any(&digest, &file.current()),
        };
        if passes { Ok(()) } else { Err(AuthRefusal::WrongToken) }
    }
}

fn digest(token: &str) -> TokenDigest {
    <[u8; 32]>::from(Sha256::digest(token)).into()
}

/// Compares with every known digest, so that the time tells nothing about which one is near.
fn matches_any(digest: &TokenDigest, known: &[TokenDigest]) -> bool {
    known.iter().fold(Choice::from(0), |found, one| found | one.as_bytes().ct_eq(digest.as_bytes())).into()
}

/// A file of tokens, one a line.
#[derive(Debug)]
pub(super) struct TokenFile(PathBuf);

impl TokenFile {
    /// Reads it, and again whenever it changes.
    pub(super) fn open(path: &Path) -> io::Result<Followed<Self>> {
        Followed::open(Self(path.into()))
    }
}

impl Source for TokenFile {
    type Value = Vec<TokenDigest>;
    type Error = io::Error;

    const NAME: &str = "tokens";

    fn files(&self) -> Vec<&Path> {
        vec![&self.0]
    }

    fn read(&self) -> io::Result<Vec<TokenDigest>> {
        read(&self.0)
    }
}

fn read(path: &Path) -> io::Result<Vec<TokenDigest>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<TokenDigest> = lines.map(digest).collect();
    if tokens.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file holds no token"));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_several_tokens_pass() {
        let tokens = Tokens::Fixed(vec![digest("abc"), digest("def")]);
        assert!(tokens.check("abc").is_ok() && tokens.check("def").is_ok());
        assert_eq!(tokens.check("abd"), Err(AuthRefusal::WrongToken));
        assert!(Tokens::Fixed(vec![]).check("").is_err());
    }

    #[test]
    fn a_file_is_followed_and_a_bad_version_of_it_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "  correct horse \r\n\nsecond\n").unwrap();
        let tokens = Tokens::File(TokenFile::open(&path).unwrap());
        assert!(tokens.check("correct horse").is_ok() && tokens.check("second").is_ok());
        assert!(tokens.check("correct").is_err() && tokens.check("").is_err());

        let replace = |text: &[u8]| {
            let fresh = dir.path().join("fresh");
            std::fs::write(&fresh, text).unwrap();
            std::fs::rename(fresh, &path).unwrap();
        };
        replace(b"other horses\n");
        assert!(tokens.check("correct horse").is_err() && tokens.check("other horses").is_ok());
        replace(b" \n");
        assert!(tokens.check("other horses").is_ok());
        replace(b"\xff");
        assert!(tokens.check("other horses").is_ok());
        std::fs::remove_file(&path).unwrap();
        assert!(tokens.check("other horses").is_ok());
        replace(b"back");
        assert!(tokens.check("other horses").is_err() && tokens.check("back").is_ok());
    }

    #[test]
    fn a_file_without_tokens_does_not_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(TokenFile::open(&path).is_err());
        for bad in [&b" \n"[..], b"", b"\xff\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(TokenFile::open(&path).is_err());
        }
    }
}
