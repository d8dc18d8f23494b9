use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::*;

const SOON: Duration = Duration::from_secs(30);

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn log(path: &Path) -> AuditLog {
    AuditLog::open(&AuditTarget::File(path.into())).unwrap()
}

#[test]
fn lines_are_added_to_a_private_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    for name in ["first", "second"] {
        let log = log(&path);
        log.record(|| Entry::new("test").text("name", name).plain("number", 7));
        assert!(log.flush(SOON));
    }
    let lines = lines(&path);
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[1]["event"], &lines[1]["name"], &lines[1]["number"]),
        (&"test".into(), &"second".into(), &7.into())
    );
    let time = lines[0]["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_is_moved_away_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("audit"), directory.path().join("audit.1"));
    let log = log(&path);
    log.record(|| Entry::new("before"));
    assert!(log.flush(SOON));
    std::fs::rename(&path, &moved).unwrap();
    log.record(|| Entry::new("after"));
    assert!(log.flush(SOON));
    assert_eq!(
        (lines(&moved)[0]["event"].clone(), lines(&path)[0]["event"].clone()),
        ("before".into(), "after".into())
    );
}

fn parsed(entry: &Entry) -> Value {
    let line = entry.line();
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
    serde_json::from_str(&line).unwrap()
}

#[test]
fn what_others_chose_is_cut_and_kept_on_one_line() {
    let entry = Entry::new("test").text("name", &"é\n".repeat(5000)).value("value", &"x".repeat(20_000));
    let value = parsed(&entry);
    let name = value["name"].as_str().unwrap();
    assert!(name.len() <= 1024 + '…'.len_utf8() && name.starts_with("é\né") && name.ends_with('…'), "{name}");
    assert_eq!(value["value"], "too large: 20002 bytes");
}

#[test]
fn an_entry_has_16_kib_at_most() {
    let structure = vec!["y"; 1000];
    let large = |entry: Entry, name| entry.text(name, &"x".repeat(2000)).value(name, &structure);
    let line = ["x"; 30].into_iter().fold(Entry::new("test"), large).line();
    assert!(line.len() > 14 << 10 && line.len() < 18 << 10, "{} bytes", line.len());
    assert!(line.contains("too large: 1027 bytes") && line.contains("too large: 4001 bytes"), "{line}");
}

#[test]
fn who_did_it_is_told_once_and_the_time_is_that_of_the_deed() {
    let who = Arc::new(Entry::new("who").text("peer", "here").text("client", "before"));
    let time = std::time::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001);
    let told = parsed(&Entry::at(time, "deed").text("client", "now").by(who));
    let expected = serde_json::json!({
        "time": "2023-11-14T22:13:20.000001Z", "event": "deed", "peer": "here", "client": "now",
    });
    assert_eq!(told, expected);
}

/// A log whose writer waits for ever, and the pipe that it waits for.
fn stuck() -> (AuditLog, std::fs::File, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Open on both ends, so that the writer opens it, fills it and waits.
    let pipe = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let log = log(&path);
    for _ in 0..5000 {
        log.record(|| Entry::new("test").text("name", &"x".repeat(500)));
    }
    assert!(log.lost() > 0, "recording does not wait");
    (log, pipe, directory)
}

#[test]
fn nobody_waits_longer_than_the_limit_for_a_writer_that_is_stuck() {
    let (log, _pipe, _directory) = stuck();
    let (sender, flushed) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(log.flush(Duration::from_millis(50))).unwrap());
    assert_eq!(flushed.recv_timeout(SOON), Ok(false));
}

#[test]
fn what_does_not_fit_is_counted_and_told() {
    let (log, mut pipe, _directory) = stuck();
    let lost_before = log.lost();
    let mut text = Vec::new();
    let mut buffer = [0; 65536];
    while !text.windows(10).any(|window| window == b"audit.lost") {
        let count = std::io::Read::read(&mut pipe, &mut buffer).unwrap();
        text.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8(text).unwrap();
    let written = text.lines().filter(|line| line.contains(r#""event":"test""#)).count();
    assert!(written > 0 && (written as u64) <= 5000 - lost_before, "{written} {lost_before}");
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let missing = AuditTarget::File("/nonexistent/audit".into());
    assert!(AuditLog::open(&missing).unwrap_err().to_string().contains("/nonexistent/audit"));
    assert!(!AuditLog::default().is_on());
}
