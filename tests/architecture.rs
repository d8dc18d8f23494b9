//! The layers of the crate: a module imports from lower rows only, and from there only what its row says.
//!
//! Rows go from low to high. Within a row a module may import what it lists that stands before it. A row that lists
//! an import which does not exist is wrong as well: the table is the truth about the crate, not a wish.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module and what it may import.
type Module = (&'static str, &'static [&'static str]);

const ROWS: &[&[Module]] = &[
    &[("path_uri", &[]), ("protocol", &["path_uri"]), ("policy", &["protocol", "path_uri"])],
    &[
        ("memory", &[]),
        ("fsops", &["path_uri", "protocol"]),
        ("rpc", &["protocol"]),
        ("config", &["policy", "protocol"]),
        ("telemetry", &["config", "protocol"]),
        ("service", &[]),
        ("openrpc", &["protocol"]),
        ("backend", &["path_uri", "protocol"]),
        ("environment_info", &["path_uri", "protocol"]),
    ],
    &[("spawn", &["protocol"]), ("outbound", &[])],
    &[("sandbox", &["spawn", "policy", "protocol"]), ("doctor", &["sandbox", "spawn", "protocol"])],
    &[
        ("process", &["sandbox", "spawn", "memory", "protocol"]),
        ("fs", &["fsops", "sandbox", "policy", "spawn", "protocol", "path_uri"]),
        ("discovery", &["fs", "fsops", "sandbox", "protocol", "path_uri"]),
        ("environment_config", &["fsops", "protocol", "path_uri"]),
        ("snapshot", &["process", "sandbox", "spawn", "protocol"]),
    ],
    &[("network", &["outbound", "policy", "protocol"])],
    &[
        (
            "session",
            &[
                "network",
                "snapshot",
                "process",
                "sandbox",
                "spawn",
                "memory",
                "telemetry",
                "path_uri",
                "protocol",
            ],
        ),
        ("http_request", &["outbound", "memory", "policy", "protocol"]),
    ],
    &[(
        "error_map",
        &[
            "session",
            "http_request",
            "fs",
            "discovery",
            "environment_config",
            "process",
            "sandbox",
            "policy",
            "protocol",
        ],
    )],
    &[
        (
            "local",
            &[
                "error_map",
                "session",
                "network",
                "http_request",
                "fs",
                "discovery",
                "environment_config",
                "process",
                "sandbox",
                "spawn",
                "outbound",
                "backend",
                "memory",
                "path_uri",
                "protocol",
            ],
        ),
        (
            "server",
            &[
                "error_map",
                "session",
                "http_request",
                "fs",
                "discovery",
                "environment_config",
                "network",
                "snapshot",
                "process",
                "sandbox",
                "spawn",
                "outbound",
                "environment_info",
                "config",
                "memory",
                "telemetry",
                "service",
                "rpc",
                "policy",
                "path_uri",
                "protocol",
            ],
        ),
        ("client", &["spawn", "outbound", "backend", "rpc", "policy", "path_uri", "protocol"]),
    ],
    &[(
        "environment",
        &["client", "local", "outbound", "environment_info", "fsops", "backend", "path_uri", "protocol"],
    )],
    &[
        ("helper", &["sandbox", "spawn"]),
        ("benchmarking", &["server", "fs", "fsops", "process", "memory", "protocol"]),
        ("fuzzing", &["server", "network", "rpc", "discovery", "protocol"]),
        (
            "cli",
            &[
                "environment",
                "client",
                "local",
                "server",
                "doctor",
                "session",
                "sandbox",
                "spawn",
                "backend",
                "config",
                "telemetry",
                "service",
                "openrpc",
                "path_uri",
                "protocol",
            ],
        ),
    ],
];

/// From which module to which, and where it says so.
type Imports = BTreeMap<(String, String), Vec<String>>;

/// The text without comments and without the content of string literals.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let (mut in_string, mut escaped, mut previous) = (false, false, ' ');
        for letter in line.chars() {
            match letter {
                _ if escaped => escaped = false,
                '\\' if in_string => escaped = true,
                // The character literal '"' opens nothing.
                '"' if in_string || previous != '\'' => in_string = !in_string,
                '/' if !in_string && previous == '/' => break,
                _ if !in_string => code.push(letter),
                _ => {}
            }
            previous = letter;
        }
        code.push('\n');
    }
    code
}

fn identifier(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The first names behind `crate::`, of a group as well.
fn named(behind: &str) -> Vec<&str> {
    let Some(group) = behind.strip_prefix('{') else { return vec![identifier(behind)] };
    let (mut names, mut depth, mut at_start) = (Vec::new(), 0_u32, true);
    for (place, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            _ if depth == 0 && at_start && !letter.is_whitespace() => {
                names.push(identifier(&group[place..]));
                at_start = false;
            }
            _ => {}
        }
    }
    names
}

/// What a file of a module imports; `depth` is how many `super` lead from it to the root.
fn imports_of(text: &str, depth: usize) -> BTreeSet<String> {
    let code = code(text);
    let mut found = BTreeSet::new();
    for (place, _) in code.match_indices("crate::") {
        let is_part = code[..place].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if !is_part {
            found.extend(named(&code[place + "crate::".len()..]).into_iter().map(str::to_owned));
        }
    }
    // At the left margin, so not in a module within the file.
    let up = format!("use {}", "super::".repeat(depth));
    for line in
        code.lines().filter_map(|line| line.strip_prefix("pub(crate) ").unwrap_or(line).strip_prefix(&up))
    {
        found.extend(named(line).into_iter().map(str::to_owned));
    }
    found
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// All imports between the modules of a crate.
fn imports_in(src: &Path) -> Imports {
    let mut all = Imports::new();
    for file in files_below(src) {
        let below = file.strip_prefix(src).expect("below src").with_extension("");
        let mut parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
        if parts.last() == Some(&"mod") {
            parts.pop();
        }
        if matches!(parts.as_slice(), ["lib" | "main"]) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("text");
        for target in imports_of(&text, parts.len()) {
            if target != parts[0] {
                let edge = (parts[0].to_owned(), target);
                all.entry(edge).or_default().push(below.display().to_string());
            }
        }
    }
    all
}

/// What is wrong with imports, by the table.
fn violations(imports: &Imports) -> Vec<String> {
    let rows: BTreeMap<&str, (usize, &[&str])> = ROWS
        .iter()
        .enumerate()
        .flat_map(|(row, modules)| modules.iter().map(move |(name, may)| (*name, (row, *may))))
        .collect();
    let mut wrong = Vec::new();
    for ((from, to), places) in imports {
        let places = places.join(", ");
        match (rows.get(from.as_str()), rows.get(to.as_str())) {
            (None, _) => wrong.push(format!("{from} has no row ({places})")),
            (_, None) => wrong.push(format!("{from} imports {to}, which has no row ({places})")),
            (Some((low, _)), Some((high, _))) if low < high => {
                wrong.push(format!("{from} imports {to}, which is above it ({places})"));
            }
            (Some((_, may)), _) if !may.contains(&to.as_str()) => {
                wrong.push(format!("{from} imports {to}, which its row does not list ({places})"));
            }
            _ => {}
        }
    }
    wrong
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn no_module_imports_upwards() {
    let wrong = violations(&imports_in(&src()));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_table_lists_what_is_there() {
    let imports = imports_in(&src());
    let mut known = BTreeSet::new();
    for row in ROWS {
        for (name, may) in *row {
            for target in *may {
                assert!(known.contains(target), "{name} lists {target}, which does not stand before it");
                let edge = ((*name).to_owned(), (*target).to_owned());
                assert!(imports.contains_key(&edge), "{name} lists {target} but does not import it");
            }
            known.insert(*name);
        }
    }
    let root = fs::read_to_string(src().join("lib.rs")).expect("lib.rs");
    for line in code(&root).lines() {
        if let Some((_, rest)) = line.split_once("mod ") {
            assert!(known.contains(identifier(rest)), "{} has no row", identifier(rest));
        }
    }
}

#[test]
fn planted_violations_are_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let plant = |file: &str, text: &str| {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    };
    plant("lib.rs", "pub mod protocol;");
    plant(
        "protocol/mod.rs",
        "//! crate::server is not imported here.\nuse crate::path_uri::PathUri; // crate::cli\n",
    );
    plant("path_uri.rs", "fn text() -> &'static str { \"crate::server\" }\n");
    assert_eq!(violations(&imports_in(directory.path())), Vec::<String>::new());

    plant("protocol/upward.rs", "use crate::{path_uri::{A, B}, session::{self, C}};");
    plant("spawn.rs", "fn f() { let _ = crate::process::x('\"', crate::config::Y); }");
    plant("fs/deep/mod.rs", "use super::super::process::Z;");
    plant("session/mod.rs", "use super::error_map::map;");
    plant("helper.rs", "use crate::cli::main;");
    plant("newcomer.rs", "use crate::protocol::A;");
    let wrong = violations(&imports_in(directory.path())).join("\n");
    for expected in [
        "protocol imports session, which is above it (protocol/upward)",
        "spawn imports process, which is above it",
        "spawn imports config, which its row does not list",
        "fs imports process, which its row does not list (fs/deep/mod)",
        "session imports error_map, which is above it",
        "helper imports cli, which its row does not list",
        "newcomer has no row",
    ] {
        assert!(wrong.contains(expected), "not found: {expected}\nin\n{wrong}");
    }
    assert_eq!(wrong.lines().count(), 7, "{wrong}");
}
