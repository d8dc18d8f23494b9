use super::*;
use proptest::prelude::*;
use test_case::test_case;

#[test_case(r#"{"mcpServers":"./a.json"}"#, Declared::File("./a.json".into()); "a file")]
#[test_case(r#"{"mcpServers":{"a":{"b":[1]}}}"#, Declared::Inline; "inline")]
#[test_case(r#"{"mcpServers":{}}"#, Declared::Inline; "inline and empty")]
#[test_case(r#"{"mcpServers":[{"a":1},2]}"#, Declared::Nowhere; "a list")]
#[test_case(r#"{"mcpServers":null}"#, Declared::Nowhere; "null")]
#[test_case(r#"{"mcpServers":-7}"#, Declared::Nowhere; "a number")]
#[test_case(r#"{"mcpServers":1.5}"#, Declared::Nowhere; "a fraction")]
#[test_case(r#"{"mcpServers":false}"#, Declared::Nowhere; "a truth")]
#[test_case(r#"{"mcp_servers":"./a.json"}"#, Declared::Nowhere; "another spelling")]
#[test_case("", Declared::Nowhere; "empty")]
#[test_case("[7", Declared::Nowhere; "no json")]
fn declares(manifest: &str, mcp_servers: Declared) {
    assert_eq!(Declarations::of(manifest).mcp_servers, mcp_servers);
}

#[test_case("./a b/%20", Ok(&["a b", "%20"]); "literal")]
#[test_case("./a//./b/", Ok(&["a", "b"]); "empty names")]
#[test_case("./a\\b", Ok(&["a\\b"]); "a backslash is part of a name")]
#[test_case("./.", Ok(&[]); "the directory itself")]
#[test_case("./...", Ok(&["..."]); "three dots")]
#[test_case("a", Err(BadPath::NotRelative); "bare")]
#[test_case("/a", Err(BadPath::NotRelative); "absolute")]
#[test_case("", Err(BadPath::NotRelative); "empty")]
#[test_case(".\\a", Err(BadPath::NotRelative); "backslash in front")]
#[test_case("./", Err(BadPath::NotBelow); "nothing below")]
#[test_case("./a/../b", Err(BadPath::NotBelow); "up")]
#[test_case("./a\\..\\b", Err(BadPath::NotBelow); "up with backslashes")]
#[test_case("./a\0b", Err(BadPath::NotBelow); "nul")]
fn paths(path: &str, expected: Result<&[&str], BadPath>) {
    assert_eq!(declared_names(path), expected.map(<[&str]>::to_vec));
}

proptest! {
    #[test]
    fn a_declared_path_never_leaves_its_directory(path in r"(\./)?([./\\a]|\PC){0,12}") {
        if let Ok(names) = declared_names(&path) {
            prop_assert!(names.iter().all(|name| !matches!(*name, "" | "." | "..") && !name.contains(['/', '\0'])));
        }
    }

    #[test]
    fn any_text_is_read(text in any::<String>()) {
        let _ = (Declarations::of(&text), Naming::of(&text));
    }
}

#[test_case("{}", "dir", "dir"; "nothing said")]
#[test_case(r#"{"name":"n"}"#, "n", "n"; "a name")]
#[test_case(r#"{"name":"  "}"#, "dir", "dir"; "a blank name")]
#[test_case(r#"{"name":" n ","interface":{"displayName":" N  x "}}"#, " n ", "N  x"; "both")]
#[test_case(r#"{"name":"n","interface":{"displayName":" "}}"#, "n", "n"; "a blank one for people")]
#[test_case(r#"{"name":"n","interface":null}"#, "n", "n"; "null for people")]
fn names(manifest: &str, name: &str, display_name: &str) {
    let naming = Naming::of(manifest).unwrap();
    assert_eq!((naming.name("dir"), naming.display_name("dir")), (name, display_name));
}

#[test_case(r#"{"name":7}"#)]
#[test_case(r#"{"name":null}"#)]
#[test_case(r#"{"interface":[]}"#)]
#[test_case(r#"{"interface":{"displayName":3}}"#)]
#[test_case("[]")]
#[test_case("{bad")]
#[test_case("\u{feff}{}")]
fn no_manifest(text: &str) {
    assert_eq!(Naming::of(text), None);
}
