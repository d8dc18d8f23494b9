//! Which files a program name may mean.

/// Where programs are looked for when the child has no PATH.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/bin:/usr/bin";

/// The paths to try in order, relative ones from the child's working directory. Empty for an empty name.
///
/// With a slash the name is the path; without, the directories of the child's own PATH count. An empty element is
/// the working directory.
#[must_use]
pub fn candidates(program: &[u8], path: Option<&[u8]>) -> Vec<Vec<u8>> {
    if program.is_empty() {
        return Vec::new();
    }
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path = path.unwrap_or(DEFAULT_PATH);
    path.split(|byte| *byte == b':')
        .map(|directory| match directory {
            b"" => [b"./", program].concat(),
            _ => [directory, b"/", program].concat(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(program: &str, path: Option<&str>) -> Vec<String> {
        let found = candidates(program.as_bytes(), path.map(str::as_bytes));
        found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn the_rules() {
        assert_eq!(texts("a/b", Some("/x")), ["a/b"]);
        assert_eq!(texts("p", Some("/x:rel::/y")), ["/x/p", "rel/p", "./p", "/y/p"]);
        assert_eq!(texts("p", Some("")), ["./p"]);
        assert_eq!(texts("p", None), ["/usr/local/bin/p", "/bin/p", "/usr/bin/p"]);
        assert!(texts("", None).is_empty());
    }
}
