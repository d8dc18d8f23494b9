use std::process::ExitCode;

use super::args::KillArgs;
use super::client;
use crate::protocol::process::{ProcessSignal, SignalParams, TerminateParams};

/// Signals a process, or ends its whole tree.
pub(super) fn run(args: KillArgs) -> anyhow::Result<ExitCode> {
    client::block_on(async move {
        let (session, process) = client::find(&args.client, args.session.as_deref(), &args.process).await?;
        let process_id = process.process_id;
        let reached = match args.signal {
            Some(signal) => session.signal(SignalParams { process_id, signal, target: None }).await?,
            None => session.terminate(TerminateParams { process_id, grace_ms: None }).await?,
        };
        if reached {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("exec-server: process {:?} has ended", args.process);
        Ok(ExitCode::FAILURE)
    })
}

/// Reads a signal's name as `kill` takes it: `INT`, `SIGINT`, in any case.
pub(super) fn signal(text: &str) -> Result<ProcessSignal, String> {
    let name = text.to_ascii_uppercase();
    match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => Ok(ProcessSignal::Hangup),
        "INT" => Ok(ProcessSignal::Interrupt),
        "QUIT" => Ok(ProcessSignal::Quit),
        "KILL" => Ok(ProcessSignal::Kill),
        "USR1" => Ok(ProcessSignal::User1),
        "USR2" => Ok(ProcessSignal::User2),
        "TERM" => Ok(ProcessSignal::Terminate),
        "STOP" => Ok(ProcessSignal::Stop),
        "CONT" => Ok(ProcessSignal::Continue),
        _ => Err("expected HUP, INT, QUIT, KILL, USR1, USR2, TERM, STOP or CONT".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_named_as_usual() {
        assert_eq!(signal("int"), Ok(ProcessSignal::Interrupt));
        assert_eq!(signal("SIGUSR1"), Ok(ProcessSignal::User1));
        assert!(signal("9").is_err() && signal("").is_err() && signal("SIG").is_err());
    }
}
