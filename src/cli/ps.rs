use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::args::PsArgs;
use super::client;
use crate::protocol::process::{ProcessState, ProcessSummary};

/// Lists the running processes of a server, or all that it remembers, a line each.
pub(super) fn run(args: PsArgs) -> anyhow::Result<ExitCode> {
    client::block_on(async move {
        let mut rows = vec![["SESSION", "PROCESS", "PID", "STATE", "AGE", "COMMAND"].map(str::to_owned)];
        for session in client::sessions(&args.client, args.session.as_deref()).await? {
            let observed = client::observe(&args.client, &session.session_id).await?;
            let processes = observed.list().await?.processes.into_iter();
            let shown = processes.filter(|process| args.all || process.state != ProcessState::Closed);
            rows.extend(shown.map(|process| row(&session.session_id, &process)));
        }
        std::io::stdout().lock().write_all(table(&rows).as_bytes())?;
        Ok(ExitCode::SUCCESS)
    })
}

fn row(session: &str, process: &ProcessSummary) -> [String; 6] {
    let state = match (process.state, process.exit_code) {
        (ProcessState::Running, _) => "running".to_owned(),
        (_, Some(code)) => format!("exited {code}"),
        (_, None) => "exited".to_owned(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_millis(process.started_at_ms));
    [
        session.to_owned(),
        printable(process.process_id.as_str()),
        process.pid.to_string(),
        state,
        short_age(age),
        process.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    ]
}

/// A terminal must not act on what a process is called.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|char| if char.is_control() { char.escape_default().collect() } else { vec![char] })
        .collect()
}

fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_alphanumeric() || "-_./:=,+@%".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", printable(word))
    }
}

fn short_age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

/// Columns as wide as their widest cell; the last one is not filled up.
fn table(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells: String =
                row[..5].iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  ")).collect();
            format!("{cells}{}\n", row[5])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_safe_and_aligned() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted(""), "''");
        assert_eq!(printable("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        let rows = [
            ["A", "B", "C", "D", "E", "F"].map(str::to_owned),
            ["aaa", "b", "c", "d", "e", "f g"].map(str::to_owned),
        ];
        assert_eq!(table(&rows), "A    B  C  D  E  F\naaa  b  c  d  e  f g\n");
        assert_eq!(short_age(Duration::from_secs(7200)), "2h");
    }
}
