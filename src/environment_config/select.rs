use toml::{Table, Value};

/// The paths without those that another one selects as well.
pub(super) fn minimal(paths: &[Vec<String>]) -> Vec<&[String]> {
    let mut sorted: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    // In this order everything below a path follows it.
    sorted.dedup_by(|path, kept| path.starts_with(kept));
    sorted
}

/// The part of a table that minimal paths select. A path may go on beyond a value, which is selected; one to a missing
/// key of a table selects that table without it.
pub(super) fn select(source: &Table, paths: &[&[String]]) -> Table {
    let mut selected = Table::new();
    for path in paths {
        select_path(source, &mut selected, path);
    }
    selected
}

fn select_path(mut from: &Table, mut into: &mut Table, path: &[String]) {
    for (index, key) in path.iter().enumerate() {
        match from.get(key) {
            None => return,
            Some(Value::Table(below)) if index + 1 < path.len() => {
                from = below;
                into = match into.entry(key.clone()).or_insert_with(|| Value::Table(Table::new())) {
                    Value::Table(table) => table,
                    _ => return,
                };
            }
            Some(value) => {
                into.entry(key.clone()).or_insert_with(|| value.clone());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use test_case::test_case;

    const SOURCE: &str = r#"
model = "m"
when = 1979-05-27T07:32:00Z
ratio = 1.0
"a.b" = 1
[table]
a = 1
list = [1, "two", { x = 3 }]
[table.deep]
c = [1, 2]
[[rows]]
n = 1
"#;

    #[test_case(&[&["model"]], "model = \"m\"\n"; "a value")]
    #[test_case(&[&["model", "x"]], "model = \"m\"\n"; "beyond a value")]
    #[test_case(&[&["when"], &["ratio"]], "ratio = 1.0\nwhen = 1979-05-27T07:32:00Z\n"; "types")]
    #[test_case(&[&["a.b"], &["a", "b"]], "\"a.b\" = 1\n"; "literal keys")]
    #[test_case(&[&["table", "deep"]], "[table.deep]\nc = [1, 2]\n"; "a nested table")]
    #[test_case(&[&["table", "none"]], "[table]\n"; "a missing child")]
    #[test_case(&[&["table", "deep", "none", "x"]], "[table.deep]\n"; "a missing grandchild")]
    #[test_case(&[&["none"], &["none", "x"]], ""; "nothing")]
    #[test_case(&[&["rows", "n"]], "[[rows]]\nn = 1\n"; "into an array")]
    #[test_case(&[&["table", "deep", "c"], &["table", "a"]], "[table]\na = 1\n\n[table.deep]\nc = [1, 2]\n"; "two parts")]
    fn selects(paths: &[&[&str]], expected: &str) {
        let paths: Vec<Vec<String>> =
            paths.iter().map(|path| path.iter().map(|key| (*key).to_owned()).collect()).collect();
        let selected = select(&SOURCE.parse().unwrap(), &minimal(&paths));
        assert_eq!(toml::to_string(&selected).unwrap(), expected);
    }

    #[test]
    fn a_whole_table_wins_over_its_parts_in_any_order() {
        let source: Table = SOURCE.parse().unwrap();
        let whole = vec!["table".to_owned()];
        let part = vec!["table".to_owned(), "none".to_owned()];
        for paths in [[whole.clone(), part.clone()], [part, whole]] {
            assert_eq!(select(&source, &minimal(&paths))["table"], source["table"]);
        }
    }

    #[test]
    fn very_many_paths_are_quick() {
        let source: Table = SOURCE.parse().unwrap();
        let mut paths: Vec<Vec<String>> =
            (0..20_000).map(|i| vec!["table".to_owned(), format!("k{i}")]).collect();
        paths.push(vec!["model".to_owned(); 100_000]);
        let selected = select(&source, &minimal(&paths));
        assert_eq!(selected.len(), 2);
    }
}
