//! A server that does what the test says.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use super::soon;

/// The id that scripted sessions have.
pub(crate) const SESSION: &str = "session-1";

/// Accepts connections one at a time.
pub(crate) struct ScriptedServer {
    listener: TcpListener,
    url: String,
}

/// One connection after its upgrade.
pub(crate) struct ScriptedConnection {
    socket: WebSocketStream<TcpStream>,
    /// Header names and values of the upgrade, in order.
    pub(crate) headers: Vec<(String, String)>,
}

/// A request, or a notification, which has no id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl ScriptedServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The next TCP connection.
    pub(crate) async fn accept_raw(&self) -> TcpStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    /// The next connection, upgraded.
    pub(crate) async fn accept(&self) -> ScriptedConnection {
        let stream = self.accept_raw().await;
        let mut headers = Vec::new();
        #[expect(clippy::result_large_err, reason = "the shape of the callback")]
        let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            for (name, value) in request.headers() {
                headers.push((name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
            }
            Ok(response)
        };
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let socket = soon(accept_hdr_async_with_config(stream, look, Some(config))).await.unwrap();
        ScriptedConnection { socket, headers }
    }

    /// The next connection, answered with a new session whose server announces these capabilities.
    pub(crate) async fn accept_session(&self, capabilities: Value) -> ScriptedConnection {
        let mut connection = self.accept().await;
        let initialize = connection.expect("initialize").await;
        assert_eq!(initialize.params["resumeSessionId"], Value::Null);
        connection.reply(&initialize, welcome(capabilities)).await;
        connection.expect("initialized").await;
        connection
    }

    /// The next connection, which must resume the session.
    pub(crate) async fn accept_resume(&self) -> ScriptedConnection {
        let mut connection = self.accept().await;
        let initialize = connection.expect("initialize").await;
        assert_eq!(initialize.params["resumeSessionId"], SESSION);
        connection.reply(&initialize, welcome(json!({}))).await;
        connection.expect("initialized").await;
        connection
    }
}

/// The result of `initialize`.
pub(crate) fn welcome(capabilities: Value) -> Value {
    let info = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities});
    json!({"sessionId": SESSION, "environmentInfo": info})
}

impl ScriptedConnection {
    /// The next message of the client; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            match soon(self.socket.next()).await? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next call, which must be of this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Call {
        let message = self.next().await.unwrap_or_else(|| panic!("the client left before {method}"));
        let call = Call {
            id: message["id"].clone(),
            method: message["method"].as_str().unwrap_or_default().to_owned(),
            params: message["params"].clone(),
        };
        assert_eq!(call.method, method, "{message}");
        call
    }

    pub(crate) async fn reply(&mut self, call: &Call, result: Value) {
        self.text(json!({"id": call.id, "result": result}).to_string()).await;
    }

    pub(crate) async fn fail(&mut self, call: &Call, code: i64, message: &str) {
        self.text(json!({"id": call.id, "error": {"code": code, "message": message}}).to_string()).await;
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.text(json!({"method": method, "params": params}).to_string()).await;
    }

    /// `process/output` on stdout.
    pub(crate) async fn output(&mut self, process: &str, seq: u64, base64: &str) {
        let params = json!({"processId": process, "seq": seq, "stream": "stdout", "chunk": base64});
        self.notify("process/output", params).await;
    }

    pub(crate) async fn exited(&mut self, process: &str, seq: u64, code: i32) {
        self.notify("process/exited", json!({"processId": process, "seq": seq, "exitCode": code})).await;
    }

    pub(crate) async fn closed(&mut self, process: &str, seq: u64) {
        self.notify("process/closed", json!({"processId": process, "seq": seq})).await;
    }

    /// Answers the next start.
    pub(crate) async fn started(&mut self, process: &str) {
        let start = self.expect("process/start").await;
        assert_eq!(start.params["processId"], process);
        self.reply(&start, json!({"processId": process, "sandboxType": "none"})).await;
    }

    pub(crate) async fn text(&mut self, text: String) {
        self.send(Message::text(text)).await;
    }

    pub(crate) async fn binary(&mut self, bytes: Vec<u8>) {
        self.send(Message::Binary(Bytes::from(bytes))).await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        // A client that has gone is noticed by what it does next.
        let _ = soon(self.socket.send(message)).await;
    }
}

/// What a read answers: chunks by number and base64 text.
pub(crate) fn read_result(
    chunks: &[(u64, &str)],
    next_seq: u64,
    exit_code: Option<i32>,
    closed: bool,
) -> Value {
    let chunks: Vec<_> =
        chunks.iter().map(|(seq, chunk)| json!({"seq": seq, "stream": "stdout", "chunk": chunk})).collect();
    json!({"chunks": chunks, "nextSeq": next_seq, "exited": exit_code.is_some(), "exitCode": exit_code,
        "closed": closed, "failure": null, "sandboxDenied": false})
}
