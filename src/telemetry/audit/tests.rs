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
        log.flush(SOON);
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
    log.flush(SOON);
    std::fs::rename(&path, &moved).unwrap();
    log.record(|| Entry::new("after"));
    log.flush(SOON);
    assert_eq!(
        (lines(&moved)[0]["event"].clone(), lines(&path)[0]["event"].clone()),
        ("before".into(), "after".into())
    );
}

#[test]
fn what_others_chose_is_cut_and_kept_on_one_line() {
    let entry = Entry::new("test").text("name", &"é\n".repeat(5000)).value("value", &"x".repeat(20_000));
    let line = entry.into_line();
    assert!(line.len() < 16 << 10 && line.matches('\n').count() == 1, "{} bytes", line.len());
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["value"], "too large: 20002 bytes");
}

#[test]
fn what_does_not_fit_is_counted_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Open on both ends, so that the writer opens it, fills it and waits.
    let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let log = log(&path);
    for _ in 0..5000 {
        log.record(|| Entry::new("test").text("name", &"x".repeat(500)));
    }
    assert!(log.lost() > 0, "recording does not wait");
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
