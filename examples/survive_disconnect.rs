//! A program on a server goes on while the connection is gone, and nothing of what it told is lost.
//!
//! Start a server with `exec-server`, then `cargo run --example survive_disconnect -- ws://127.0.0.1:8765`. A relay in
//! this process stands between the two, so that there is a connection to break.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use exec_server::backend::ExecProcessEvent;
use exec_server::environment::{Environment, EnvironmentConnectionState};
use exec_server::path_uri::PathUri;
use exec_server::protocol::process::ExecParams;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Runs a program that counts, breaks the connection in the middle, and shows all that it told.
pub(crate) async fn run(url: &str, output: &mut impl Write) -> anyhow::Result<()> {
    let server = url.strip_prefix("ws://").context("the URL must begin with ws://")?.trim_end_matches('/');
    let (relay, cut) = relay(server.to_owned()).await?;
    let environment = Environment::create_for_tests(Some(relay))?;
    let mut state = environment.subscribe_connection_state().context("a server has a connection")?;

    let script = "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done";
    let params = ExecParams {
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        ..ExecParams::new("counter", ["/bin/sh", "-c", script], PathUri::parse("file:///tmp")?)
    };
    let process = environment.get_exec_backend().start(params).await?.process;
    let mut events = process.subscribe_events();

    tokio::time::sleep(Duration::from_millis(300)).await;
    cut.send(())?;
    state.wait_for(|state| *state == EnvironmentConnectionState::Disconnected).await?;
    writeln!(output, "the connection is gone")?;

    loop {
        match events.recv().await? {
            ExecProcessEvent::Output(chunk) => output.write_all(chunk.chunk.as_slice())?,
            ExecProcessEvent::Exited { exit_code, .. } => writeln!(output, "exit code {exit_code}")?,
            ExecProcessEvent::Closed { .. } => return Ok(()),
            ExecProcessEvent::Failed(why) => anyhow::bail!(why),
        }
    }
}

/// Passes connections on to the server, until it is told to break them.
async fn relay(server: String) -> anyhow::Result<(String, watch::Sender<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("ws://{}", listener.local_addr()?);
    let (cut, watched) = watch::channel(());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, mut cut) = (server.clone(), watched.clone());
            cut.mark_unchanged();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await?;
                tokio::select! {
                    moved = copy_bidirectional(&mut client, &mut server) => moved.map(drop),
                    _ = cut.changed() => Ok(()),
                }
            });
        }
    });
    Ok((url, cut))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "ws://127.0.0.1:8765".to_owned());
    run(&url, &mut std::io::stdout()).await
}
