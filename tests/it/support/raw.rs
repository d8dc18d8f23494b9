//! A client that sends what the test says.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::soon;

/// One connection after its handshake.
pub(crate) struct RawClient {
    socket: WebSocketStream<TcpStream>,
    next_id: u64,
    session: String,
    /// What has come besides answers.
    notifications: Vec<Value>,
}

impl RawClient {
    /// A new session.
    pub(crate) async fn connect(url: &str) -> Self {
        Self::initialize(url, Value::Null).await.unwrap()
    }

    /// Breaks the connection and makes another one to the same session, once the server lets go of the first.
    pub(crate) async fn resume(self, url: &str) -> Self {
        let session = self.session;
        drop(self.socket);
        soon(async {
            loop {
                if let Some(client) = Self::initialize(url, session.clone().into()).await {
                    return client;
                }
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// `None` if the server refuses.
    async fn initialize(url: &str, resume: Value) -> Option<Self> {
        let stream = soon(TcpStream::connect(url.trim_start_matches("ws://"))).await.unwrap();
        let (socket, _) = soon(client_async(url, stream)).await.unwrap();
        let mut client = Self { socket, next_id: 0, session: String::new(), notifications: Vec::new() };
        let params = json!({"clientName": "raw", "resumeSessionId": resume});
        client.request("initialize", params).await;
        let welcome = client.receive().await;
        client.session = welcome["result"]["sessionId"].as_str()?.to_owned();
        client.send(json!({"method": "initialized"})).await;
        Some(client)
    }

    /// Sends a request and waits for its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    /// Sends a request.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(json!({"id": self.next_id, "method": method, "params": params})).await;
        self.next_id
    }

    /// The result of a request. Answers to others are dropped.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive().await;
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{message}");
                return message["result"].clone();
            }
            if message.get("method").is_some() {
                self.notifications.push(message);
            }
        }
    }

    /// The next notification, whether it has come already or comes now.
    pub(crate) async fn notification(&mut self) -> Value {
        if self.notifications.is_empty() {
            return self.receive().await;
        }
        self.notifications.remove(0)
    }

    /// The notifications that came before the last answer.
    pub(crate) fn notifications(&self) -> &[Value] {
        &self.notifications
    }

    async fn send(&mut self, message: Value) {
        soon(self.socket.send(Message::text(message.to_string()))).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = soon(self.socket.next()).await.unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }
}
