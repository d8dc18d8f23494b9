//! A WebSocket proxy that sees messages, and can cut, change or hold them.

use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{accept_async, client_async};

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fate {
    Pass,
    /// It arrives changed.
    Change(Value),
    /// It does not arrive, and the connection breaks.
    Cut,
    /// It arrives, and the connection breaks before anything comes back.
    PassAndCut,
}

type Rule = Arc<Mutex<dyn FnMut(Way, &Value) -> Fate + Send>>;

/// Stands between a client and a server.
pub(crate) struct MessageProxy {
    url: String,
    task: tokio::task::JoinHandle<()>,
}

impl MessageProxy {
    /// A proxy that asks the rule about every message.
    pub(crate) async fn start(target: &str, rule: impl FnMut(Way, &Value) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let target = target.to_owned();
        let rule: Rule = Arc::new(Mutex::new(rule));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, target.clone(), Arc::clone(&rule)));
            }
        });
        Self { url, task }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for MessageProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: TcpStream, target: String, rule: Rule) -> Option<()> {
    let server = TcpStream::connect(target.trim_start_matches("ws://")).await.ok()?;
    let (server, _) = client_async(target.as_str(), server).await.ok()?;
    let client = accept_async(client).await.ok()?;
    let (mut to_server, mut from_server) = server.split();
    let (mut to_client, mut from_client) = client.split();
    loop {
        let (way, message) = tokio::select! {
            message = from_client.next() => (Way::ToServer, message?.ok()?),
            message = from_server.next() => (Way::ToClient, message?.ok()?),
        };
        let Message::Text(text) = message else { continue };
        let fate = (rule.lock().unwrap())(way, &serde_json::from_str(&text).unwrap());
        let text = match &fate {
            Fate::Cut => return None,
            Fate::Change(value) => value.to_string().into(),
            Fate::Pass | Fate::PassAndCut => text,
        };
        match way {
            Way::ToServer => to_server.send(Message::Text(text)).await.ok()?,
            Way::ToClient => to_client.send(Message::Text(text)).await.ok()?,
        }
        if fate == Fate::PassAndCut {
            return None;
        }
    }
}
