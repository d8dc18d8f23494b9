//! What of a shell's state comes back: random profiles, compared with a shell that has just read them.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use tokio::runtime::Runtime;

use super::support::{Client, Daemon, Start, work_dir};

/// One line or more of a profile.
#[derive(Debug, Clone)]
struct Item(Vec<u8>);

fn item(parts: &[&[u8]]) -> Item {
    Item([&parts.concat(), b"\n".as_slice()].concat())
}

/// A word of bash and zsh that stands for any bytes, whatever the options are.
fn word(bytes: &[u8]) -> Vec<u8> {
    let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("$'{octal}'").into_bytes()
}

/// Any bytes of a variable, the awkward ones more often.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let awkward = prop::sample::select(b"'\"\\$`\n\t !*?[]{}()#~=:;&|<>\x01\x7f\xff\xc3".to_vec());
    prop::collection::vec(prop_oneof![2 => awkward, 1 => 1_u8..=255, 2 => b'a'..=b'z'], 0..12)
}

fn name() -> impl Strategy<Value = String> {
    "p_[a-c]{1,2}"
}

fn function_name() -> impl Strategy<Value = String> {
    "(p_[d-f]{1,2}|p-[d-f]{1,2}|p:[d-f]|p\\.[d-f])"
}

/// Bodies that a shell may print in another way than they were written.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |text: &str| Just(text.as_bytes().to_vec());
    prop_oneof![
        value().prop_map(|value| [b"printf %s ", word(&value).as_slice()].concat()),
        fixed("local m='_.!~*'\\''()-'; printf '%s' \"$m\" \"a'b\" '$x' \\\\"),
        fixed("cat <<EOT\nhere $1 'q' \"d\" `printf tick`\nEOT"),
        fixed("inner() { printf 'in %s' \"$*\"; }; inner \"$@\" 2>&1 | cat >/dev/null && return 3 || :"),
        fixed("case $1 in a|b) echo x ;; (*) echo y ;; esac; for i in 1 2; do echo $((i << 1)); done"),
        fixed(
            "if [[ $1 == a* && ! -e /x ]]; then echo \"${1%%:*}${2:-$(echo \")\")}\"; fi; ( exit 1 ) & wait"
        ),
        fixed("while read -r line; do echo \"$line\"; done < /dev/null; { echo a; } > /dev/null"),
    ]
}

fn functions() -> impl Strategy<Value = Item> {
    (function_name(), body()).prop_map(|(name, body)| item(&[name.as_bytes(), b"() {\n", &body, b"\n}"]))
}

fn exports() -> impl Strategy<Value = Item> {
    (name(), value()).prop_map(|(name, value)| item(&[b"export p_x", name.as_bytes(), b"=", &word(&value)]))
}

fn aliases() -> impl Strategy<Value = Item> {
    ("(p_[g-h]{1,2}|p-[g-h]|p:[g-h]|-|--)", value())
        .prop_map(|(name, value)| item(&[b"alias -- ", name.as_bytes(), b"=", &word(&value)]))
}

fn arrays(flags: &'static [&'static str]) -> impl Strategy<Value = Item> {
    let list = prop::collection::vec(value(), 0..4);
    (name(), prop::sample::select(flags), list).prop_map(|(name, flags, list)| {
        let elements: Vec<u8> = list.iter().flat_map(|one| [b" ".to_vec(), word(one)].concat()).collect();
        let declared = format!("typeset -{flags} {flags}{name}=(");
        item(&[declared.as_bytes(), &elements, b" )"])
    })
}

fn integers() -> impl Strategy<Value = Item> {
    (name(), any::<i32>(), any::<i32>())
        .prop_map(|(name, one, two)| Item(format!("typeset -ai i_{name}=({one} {two})\n").into_bytes()))
}

/// `pair`: what stands before and after the elements of an association's pair.
fn associations(pair: [&'static str; 3]) -> impl Strategy<Value = Item> {
    let key = value().prop_filter("a key", |key| !key.is_empty());
    (name(), prop::collection::btree_map(key, value(), 0..4)).prop_map(move |(name, map)| {
        let [before, between, after] = pair.map(str::as_bytes);
        let elements = map.iter();
        let elements: Vec<u8> = elements
            .flat_map(|(key, value)| [b" ", before, &word(key), between, &word(value), after].concat())
            .collect();
        item(&[b"typeset -A A", name.as_bytes(), b"=(", &elements, b" )"])
    })
}

fn options(
    on: &'static str,
    off: &'static str,
    names: &'static [&'static str],
) -> impl Strategy<Value = Item> {
    (prop::sample::select(names), any::<bool>()).prop_map(move |(name, wanted)| {
        Item(format!("{} {name}\n", if wanted { on } else { off }).into_bytes())
    })
}

const BASH_OPTIONS: &[&str] = &[
    "allexport",
    "braceexpand",
    "errtrace",
    "functrace",
    "hashall",
    "interactive-comments",
    "noclobber",
    "noglob",
    "notify",
    "nounset",
    "physical",
    "pipefail",
];
const BASH_SHOPTS: &[&str] = &[
    "assoc_expand_once",
    "autocd",
    "cdspell",
    "checkhash",
    "checkwinsize",
    "cmdhist",
    "compat43",
    "dotglob",
    "execfail",
    "extdebug",
    "extglob",
    "extquote",
    "failglob",
    "globasciiranges",
    "globstar",
    "histappend",
    "inherit_errexit",
    "lastpipe",
    "lithist",
    "localvar_inherit",
    "nocasematch",
    "nullglob",
    "patsub_replacement",
    "progcomp",
    "promptvars",
    "shift_verbose",
    "sourcepath",
    "xpg_echo",
];
const ZSH_OPTIONS: &[&str] = &[
    "allexport",
    "autocd",
    "bareglobqual",
    "braceccl",
    "clobber",
    "cshjunkiequotes",
    "extendedglob",
    "globdots",
    "globsubst",
    "ignorebraces",
    "interactivecomments",
    "kshglob",
    "ksharrays",
    "magicequalsubst",
    "nomatch",
    "nullglob",
    "numericglobsort",
    "pipefail",
    "rcexpandparam",
    "rcquotes",
    "shwordsplit",
    "unset",
    "warncreateglobal",
];

fn bash_items() -> impl Strategy<Value = Vec<Item>> {
    let one = prop_oneof![
        exports(),
        functions(),
        aliases(),
        arrays(&["a", "ar", "au", "ax"]),
        integers(),
        associations(["[", "]=", ""]),
        options("set -o", "set +o", BASH_OPTIONS),
        options("shopt -s", "shopt -u", BASH_SHOPTS),
    ];
    prop::collection::vec(one, 0..16)
}

fn zsh_items() -> impl Strategy<Value = Vec<Item>> {
    let one = prop_oneof![
        exports(),
        functions(),
        aliases(),
        arrays(&["a", "aU", "ar", "au"]),
        associations(["", " ", ""]),
        options("setopt", "unsetopt", ZSH_OPTIONS),
    ];
    prop::collection::vec(one, 0..16)
}

/// Everything that is carried, in an order that does not depend on chance.
const BASH_DUMP: &str = r#"set +o; shopt -p | grep -v 'login_shell\|expand_aliases'; alias -p; declare -f; declare -F
for p in ${!Ap_*}; do
  eval "for k in \"\${!$p[@]}\"; do printf '%s %q %q\n' $p \"\$k\" \"\${$p[\$k]}\"; done"
done | LC_ALL=C sort; declare -p HOME ${!Ap_*} | cut -d = -f 1
declare -p HOME ${!p_*} ${!ap_*} ${!i_*} ${!arp_*} ${!aup_*} ${!axp_*}; env -0 | LC_ALL=C sort -z | grep -zv '^_='"#;
/// zsh prints some functions in another way than it has read them; read again they are printed as before.
const ZSH_DUMP: &str = r#"functions=("${(@kv)functions[@]}"); for p in "${(@ok)options}"; do print -r -- "$p ${options[$p]}"; done; functions; alias -L
for p in "${(@ok)parameters}"; do case $p in p_*|Ap_*|a*p_*|fpath) typeset -p $p;; esac; done
env -0 | LC_ALL=C sort -z | grep -zv '^_='"#;

fn start(shell: &str, home: &Path, command: &str) -> Start {
    let path = format!("/bin/{shell}");
    let policy = json!({
        "inherit": "none", "ignoreDefaultExcludes": true, "exclude": [], "set": {"HOME": home}, "includeOnly": [],
    });
    Start::argv([&path, "-lc", command]).no_env().with("envPolicy", policy).cwd(home)
}

async fn dumps(client: &Client, shell: &str, profile: &[u8]) -> [Vec<u8>; 3] {
    let home = work_dir();
    let rc = format!(".{shell}rc");
    std::fs::write(home.path().join(&rc), profile).unwrap();
    let (dump, command) = match shell {
        "bash" => (BASH_DUMP, format!(". ~/{rc}\n{BASH_DUMP}")),
        _ => (ZSH_DUMP, format!(". ~/{rc}; eval '{}'", ZSH_DUMP.replace('\'', r"'\''"))),
    };
    let fresh = client.run(&start(shell, home.path(), &command)).await;
    let request = json!({"scopeId": home.path(), "shell": {"name": shell, "path": format!("/bin/{shell}")}});
    let mut all = vec![fresh.stdout];
    for state in ["captured", "restored"] {
        let start = start(shell, home.path(), dump).with("shellSnapshot", request.clone());
        let answer = client.start(&start).await;
        let told = &answer["shellSnapshot"];
        assert_eq!(*told, json!({"state": state, "reason": null}), "{}", String::from_utf8_lossy(profile));
        all.push(client.finish(&start.id()).await.stdout);
    }
    all.try_into().unwrap()
}

fn round_trips(shell: &str, profiles: impl Strategy<Value = Vec<Item>>) {
    if !Path::new("/bin").join(shell).exists() {
        return eprintln!("skipped: no {shell} here");
    }
    let runtime = Runtime::new().unwrap();
    let daemon = runtime.block_on(Daemon::start());
    let client = runtime.block_on(daemon.client());
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&profiles, |items| {
        let profile: Vec<u8> = items.into_iter().flat_map(|item| item.0).collect();
        let [fresh, captured, restored] = runtime.block_on(dumps(&client, shell, &profile));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        prop_assert!(text(&fresh).contains("HOME="), "{}\n{}", text(&profile), text(&fresh));
        if fresh != captured || captured != restored {
            let [fresh, captured] = [&fresh, &captured].map(|dump| text(dump));
            let lines = |text: &str| text.split(['\n', '\0']).map(str::to_owned).collect::<Vec<_>>();
            let (fresh, captured) = (lines(&fresh), lines(&captured));
            let only = |these: &[String], those: &[String]| {
                these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
            };
            let (lost, new) = (only(&fresh, &captured), only(&captured, &fresh));
            prop_assert!(false, "profile:\n{}\nlost: {lost:#?}\nnew: {new:#?}", text(&profile));
        }
        Ok(())
    });
    drop(client);
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn random_profiles_of_bash() {
    round_trips("bash", bash_items());
}

#[test]
fn random_profiles_of_zsh() {
    round_trips("zsh", zsh_items());
}
