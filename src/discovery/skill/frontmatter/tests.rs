use super::*;
use proptest::prelude::*;
use test_case::test_case;

fn read(head: &str) -> Option<(String, String, Option<String>)> {
    let found = Frontmatter::of(&format!("---\n{head}---\nbody: [\n"), "dir")?;
    Some((found.name, found.description, found.short_description))
}

#[test_case("name: a\ndescription: d\n", "a", "d"; "plain")]
#[test_case("description: d\n", "dir", "d"; "no name")]
#[test_case("name: ~\ndescription: d\n", "dir", "d"; "a null name")]
#[test_case("name: \"  \"\ndescription: d\n", "dir", "d"; "a blank name")]
#[test_case("name: |\n  a\n  b\ndescription: >\n  c\n\n  d\n", "a b", "c d"; "several lines")]
#[test_case("name: \"a\u{a0}b\"\ndescription: \"d\u{2003}e\"\n", "a b", "d e"; "other spaces")]
#[test_case("name: 7\ndescription: 1.50\n", "7", "1.50"; "numbers as they are written")]
#[test_case("name: true\ndescription: no\n", "true", "no"; "truths as they are written")]
#[test_case("name: a\ndescription: d # not this\n", "a", "d"; "a comment")]
#[test_case("name: &x a\ndescription: *x\n", "a", "a"; "an alias")]
#[test_case("name: a\ndescription: d\nallowed-tools: [x]\nlicense: {a: b}\n", "a", "d"; "other keys")]
#[test_case("name: a: b\ndescription: use: when x\n", "a: b", "use: when x"; "colons")]
#[test_case("name : a\ndescription:  see http://x:80/y: z #c\n", "a", "see http://x:80/y: z"; "a colon and a comment")]
#[test_case("name: a\ndescription: it's: \"q\" \\n\n", "a", "it's: \"q\" \\n"; "a colon and quotes")]
#[test_case("# c: d: e\nname: a\ndescription: x: y\n", "a", "x: y"; "a comment with colons")]
#[test_case("name: a\ndescription: d\nlist:\n  - a: b: c\n  - p: [q: r: s\n", "a", "d"; "colons elsewhere")]
#[test_case("name: a\ndescription: *bold* x: y\n", "a", "*bold* x: y"; "a star and a colon")]
#[test_case("name: a\ndescription: [a: b: c\n", "a", "[a: b: c"; "a bracket and colons")]
#[test_case("name: a\ndescription: @x y\n", "a", "@x y"; "an at sign")]
#[test_case("name: a\ndescription: `x` y\n", "a", "`x` y"; "a backtick")]
#[test_case("name: a\ndescription: d\nx: |\n", "a", "d"; "an empty block")]
fn reads(head: &str, name: &str, description: &str) {
    assert_eq!(read(head), Some((name.to_owned(), description.to_owned(), None)));
}

#[test_case("metadata:\n  short-description: \" s  t \"\n", Some("s t"); "given")]
#[test_case("metadata:\n  short-description: s: t\n", Some("s: t"); "with a colon")]
#[test_case("metadata:\n  short-description: 5\n", Some("5"); "a number")]
#[test_case("metadata:\n  short-description:\n", None; "null")]
#[test_case("metadata:\n  short-description: \"  \"\n", None; "blank")]
#[test_case("metadata: {}\n", None; "missing")]
fn short_descriptions(head: &str, expected: Option<&str>) {
    let found = read(&format!("name: a\ndescription: d\n{head}")).unwrap();
    assert_eq!(found.2.as_deref(), expected);
}

#[test_case("name: a\n"; "no description")]
#[test_case("name: a\ndescription: \"\"\n"; "an empty description")]
#[test_case("name: [a]\ndescription: d\n"; "a list as name")]
#[test_case("name: a\nname: b\ndescription: d\n"; "a key twice")]
#[test_case("name: a\ndescription: d\nmetadata: x\n"; "a text as metadata")]
#[test_case("name: a\n\tdescription: d\n"; "a tab")]
#[test_case("name: a\ndescription: \"x\": y\n"; "quotes and more")]
#[test_case("b: &b {description: d}\n<<: *b\nname: a\n"; "merged")]
#[test_case("foo\n"; "no keys")]
#[test_case(""; "nothing")]
fn leaves_out(head: &str) {
    assert_eq!(read(head), None);
}

#[test_case("---\r\nname: a\r\ndescription: d\r\n---\r\n", true; "carriage returns")]
#[test_case("--- \nname: a\ndescription: d\n---", true; "spaces and no last newline")]
#[test_case("---\nname: a\ndescription: d\n--- \nname: c\n---\n", true; "a second document")]
#[test_case("\u{feff}---\nname: a\ndescription: d\n---\n", false; "a byte order mark")]
#[test_case("\n---\nname: a\ndescription: d\n---\n", false; "not at the start")]
#[test_case("----\nname: a\ndescription: d\n----\n", false; "four dashes")]
#[test_case("---\nname: a\ndescription: d\n", false; "no end")]
#[test_case("---", false; "a border alone")]
#[test_case("", false; "an empty file")]
fn borders(text: &str, is_head: bool) {
    assert_eq!(Frontmatter::of(text, "dir").is_some(), is_head);
}

#[test]
fn names_have_64_characters_at_most() {
    let named = |name: &str| read(&format!("name: {name}\ndescription: d\n"));
    assert!(named(&"é".repeat(64)).is_some());
    assert!(named(&"é".repeat(65)).is_none());
}

#[test]
fn bombs_are_refused_quickly() {
    let bomb = (1..30).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |head, level| {
        let below = vec![format!("*a{}", level - 1); 9].join(",");
        format!("{head}a{level}: &a{level} [{below}]\n")
    });
    let brackets = format!("x: {}\n", "[".repeat(200_000));
    let started = std::time::Instant::now();
    for head in [bomb, brackets] {
        assert_eq!(read(&format!("{head}name: a\ndescription: d\n")), None);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
}

proptest! {
    #[test]
    fn any_text_is_read(text in any::<String>(), head in r##"([a-z-]{0,5}:? ?[ '"#&*\[\]{}|>%@`\PC]{0,8}\n){0,6}"##) {
        let _ = (Frontmatter::of(&text, "dir"), read(&head));
    }

    #[test]
    fn what_is_read_is_one_line(name in "\\PC{0,20}", description in "[ \\PC]{0,40}") {
        if let Some((name, description, _)) = read(&format!("name: {name}\ndescription: {description}\n")) {
            for text in [name, description] {
                prop_assert_eq!(&collapse(&text), &text);
                prop_assert!(!text.is_empty());
            }
        }
    }

    #[test]
    fn a_quoted_value_is_the_text_itself(value in "[a-zA-Z'\"\\\\]{1,8}: [a-z '\"\\\\:]{0,8}[a-z]") {
        prop_assume!(!value.starts_with(['"', '\'', '|', '>']));
        let (_, description, _) = read(&format!("name: a\ndescription: {value}\n")).unwrap();
        prop_assert_eq!(description, collapse(&value));
    }
}
