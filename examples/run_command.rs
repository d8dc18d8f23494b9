//! Runs a command in an environment and shows what it tells.
//!
//! `cargo run --example run_command` runs it in this process;
//! `cargo run --example run_command -- ws://127.0.0.1:8765` on a server.

use std::io::Write;

use exec_server::backend::{ExecProcessEvent, RecvError};
use exec_server::environment::{Environment, ExecServerRuntimePaths};
use exec_server::outbound::HttpClientFactory;
use exec_server::path_uri::PathUri;
use exec_server::protocol::process::ExecParams;

/// Runs `echo` and gives its exit code; what it prints goes to `output`.
pub(crate) async fn run(url: Option<String>, output: &mut impl Write) -> anyhow::Result<i32> {
    let environment =
        Environment::create(url, ExecServerRuntimePaths::itself(), HttpClientFactory::default())?;
    let info = environment.info().await?;
    writeln!(output, "a {} shell at {}", info.shell.name, info.shell.path)?;

    let params = ExecParams::new("example", ["/bin/echo", "hello"], PathUri::parse("file:///tmp")?);
    let process = environment.get_exec_backend().start(params).await?.process;

    let (mut events, mut code) = (process.subscribe_events(), -1);
    loop {
        match events.recv().await {
            Ok(ExecProcessEvent::Output(chunk)) => output.write_all(chunk.chunk.as_slice())?,
            Ok(ExecProcessEvent::Exited { exit_code, .. }) => code = exit_code,
            Ok(ExecProcessEvent::Closed { .. }) => return Ok(code),
            Ok(ExecProcessEvent::Failed(why)) => anyhow::bail!(why),
            // A reader that is this slow pages with `read`; `subscribe_events_paced` would make the process wait instead.
            Err(RecvError::Lagged(missed)) => anyhow::bail!("{missed} events were missed"),
            Err(RecvError::Closed) => anyhow::bail!("the events ended early"),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let code = run(std::env::args().nth(1), &mut std::io::stdout()).await?;
    println!("exit code {code}");
    Ok(())
}
