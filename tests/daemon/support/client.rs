//! A raw JSON-RPC client: it records what comes, in order, and decides nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{LIMIT, Start, tls, unbase64};

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}
type Web = WebSocketStream<Box<dyn Socket>>;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With a close frame of this code; 1005 stands for one without a code.
    Closed(u16),
    /// Without one.
    Lost,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Answered with this status.
    Status(u16),
    /// Not answered.
    Broken,
}

/// An error answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Value,
}

impl RpcError {
    pub(crate) fn kind(&self) -> &str {
        self.data["kind"].as_str().unwrap_or("")
    }
}

/// One message and its place among all that came.
#[derive(Debug, Clone)]
struct Arrived {
    place: usize,
    message: Value,
}

#[derive(Debug, Default)]
struct Log {
    count: usize,
    answers: HashMap<String, Vec<Arrived>>,
    events: HashMap<String, Vec<Arrived>>,
    /// What is said and asked about networks.
    network: Vec<Value>,
    pings: usize,
    end: Option<End>,
}

/// What one process did, from its notifications.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    pub(crate) seqs: Vec<u64>,
    pub(crate) methods: Vec<String>,
    /// The params of `process/exited`.
    pub(crate) exited: Value,
    /// The params of `process/closed`.
    pub(crate) closed: Value,
}

impl Run {
    pub(crate) fn exit(&self) -> i64 {
        self.exited["exitCode"].as_i64().expect("an exit code")
    }

    /// Whatever it wrote to its standard output or terminal.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(if self.pty.is_empty() { &self.stdout } else { &self.pty }).into_owned()
    }

    /// Asserts numbers 1, 2, 3 …, exactly one exited and one closed, and closed last.
    #[track_caller]
    pub(crate) fn assert_whole(&self) {
        let expected: Vec<u64> = (1..=self.seqs.len() as u64).collect();
        assert_eq!(self.seqs, expected, "numbers have holes, repeats or another order");
        let count = |name: &str| self.methods.iter().filter(|method| *method == name).count();
        assert_eq!((count("process/exited"), count("process/closed")), (1, 1), "{:?}", self.methods);
        assert_eq!(self.methods.last().map(String::as_str), Some("process/closed"));
    }

    fn add(&mut self, message: &Value) {
        let params = &message["params"];
        let method = message["method"].as_str().unwrap_or_default();
        self.methods.push(method.to_owned());
        self.seqs.push(params["seq"].as_u64().expect("a seq"));
        match method {
            "process/output" => {
                let bytes = unbase64(params["chunk"].as_str().expect("a chunk"));
                match params["stream"].as_str() {
                    Some("stdout") => self.stdout.extend(bytes),
                    Some("stderr") => self.stderr.extend(bytes),
                    Some("pty") => self.pty.extend(bytes),
                    other => panic!("stream {other:?}"),
                }
            }
            "process/exited" => self.exited = params.clone(),
            "process/closed" => self.closed = params.clone(),
            other => panic!("unexpected notification {other}"),
        }
    }
}

/// A connection.
pub(crate) struct Client {
    sink: Mutex<Option<SplitSink<Web, Message>>>,
    log: watch::Receiver<Log>,
    shared: watch::Sender<Log>,
    paused: watch::Sender<bool>,
    reader: JoinHandle<()>,
    next_id: AtomicI64,
    session: std::sync::Mutex<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("session", &self.session_id()).finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A plain upgrade request for the URL of a server.
pub(crate) fn upgrade(url: &str) -> Request {
    let url = if url.starts_with("unix:") { "ws://localhost/" } else { url };
    url.into_client_request().expect("a URL")
}

impl Client {
    /// Connects and upgrades; no handshake yet.
    pub(crate) async fn connect(url: &str) -> Self {
        Self::try_connect(url, upgrade(url)).await.expect("the upgrade succeeds")
    }

    /// As [`Self::connect`], with a request of one's own.
    pub(crate) async fn try_connect(url: &str, request: Request) -> Result<Self, Refused> {
        let socket: Box<dyn Socket> = if let Some(path) = url.strip_prefix("unix:") {
            Box::new(UnixStream::connect(path).await.expect("the socket can be connected"))
        } else {
            let address = url.trim_start_matches("ws://");
            let socket = TcpStream::connect(address).await.expect("the port can be connected");
            socket.set_nodelay(true).expect("no delay");
            Box::new(socket)
        };
        Self::upgraded(socket, request).await
    }

    /// Connects to a `wss://` URL. Broken is also what has no handshake.
    pub(crate) async fn try_connect_tls(
        url: &str,
        connector: &TlsConnector,
        lines: &[(&'static str, &str)],
    ) -> Result<Self, Refused> {
        let Ok(socket) = tls::connect(connector, url).await else { return Err(Refused::Broken) };
        let mut request = upgrade(url);
        for (name, value) in lines {
            request.headers_mut().insert(*name, value.parse().expect("a value"));
        }
        Self::upgraded(Box::new(socket), request).await
    }

    async fn upgraded(socket: Box<dyn Socket>, request: Request) -> Result<Self, Refused> {
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match timeout(LIMIT, client_async_with_config(request, socket, Some(config))).await {
            Ok(Ok((web, _))) => Ok(Self::over(web)),
            Ok(Err(Error::Http(response))) => Err(Refused::Status(response.status().as_u16())),
            Ok(Err(_)) => Err(Refused::Broken),
            Err(_) => panic!("the upgrade was not answered"),
        }
    }

    fn over(web: Web) -> Self {
        let (sink, stream) = web.split();
        let (shared, log) = watch::channel(Log::default());
        let paused = watch::Sender::new(false);
        let reader = tokio::spawn(record(stream, shared.clone(), paused.subscribe()));
        let (next_id, session) = (AtomicI64::new(1), std::sync::Mutex::default());
        Self { sink: Mutex::new(Some(sink)), log, shared, paused, reader, next_id, session }
    }

    /// A connection with a session of its own.
    pub(crate) async fn ready(url: &str) -> Self {
        let client = Self::connect(url).await;
        client.handshake(json!({"clientName": "test"})).await.expect("a new session");
        client
    }

    /// A connection that takes up a session again.
    pub(crate) async fn resume(url: &str, session: &str) -> Result<Self, RpcError> {
        let client = Self::connect(url).await;
        client.handshake(json!({"clientName": "test", "resumeSessionId": session})).await?;
        Ok(client)
    }

    /// As [`Self::resume`], again until the server has noticed that the holder is gone.
    pub(crate) async fn resume_when_free(url: &str, session: &str) -> Self {
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            match Self::resume(url, session).await {
                Ok(client) => return client,
                Err(error) => assert_eq!(error.code, -32010, "{error:?}"),
            }
            assert!(tokio::time::Instant::now() < deadline, "the session was not freed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A connection that looks on.
    pub(crate) async fn observe(url: &str, session: &str) -> Self {
        let client = Self::connect(url).await;
        let params = json!({"clientName": "observer", "observeSessionId": session});
        client.handshake(params).await.expect("the session can be observed");
        client
    }

    /// `initialize` and `initialized`.
    pub(crate) async fn handshake(&self, params: Value) -> Result<Value, RpcError> {
        self.try_handshake(params).await.expect("the connection lives")
    }

    /// As [`Self::handshake`]; `None` when the connection ends meanwhile.
    pub(crate) async fn try_handshake(&self, params: Value) -> Option<Result<Value, RpcError>> {
        let id = self.send("initialize", params).await;
        let result = match self.answer_or_end(id).await? {
            Ok(result) => result,
            Err(error) => return Some(Err(error)),
        };
        let session = result["sessionId"].as_str().expect("a session id");
        session.clone_into(&mut self.session.lock().expect("not poisoned"));
        self.notify("initialized", json!({})).await;
        Some(Ok(result))
    }

    pub(crate) fn session_id(&self) -> String {
        self.session.lock().expect("not poisoned").clone()
    }

    /// Sends any message; false when the connection is over.
    pub(crate) async fn raw(&self, message: Message) -> bool {
        let mut sink = self.sink.lock().await;
        match sink.as_mut() {
            Some(sink) => sink.send(message).await.is_ok(),
            None => false,
        }
    }

    pub(crate) async fn text(&self, text: &str) -> bool {
        self.raw(Message::text(text)).await
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) {
        self.text(&json!({"method": method, "params": params}).to_string()).await;
    }

    /// Sends a request and returns its id without waiting.
    pub(crate) async fn send(&self, method: &str, params: Value) -> i64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.text(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Waits for the answer of a request. `None` when the connection ends without one.
    pub(crate) async fn answer_or_end(&self, id: i64) -> Option<Result<Value, RpcError>> {
        let key = id.to_string();
        let mut log = self.log.clone();
        let wait = log.wait_for(|log| log.answers.contains_key(&key) || log.end.is_some());
        let found = timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("request {id} was not answered"));
        let found = found.ok()?;
        Some(outcome(&found.answers.get(&key)?.first()?.message))
    }

    pub(crate) async fn answer(&self, id: i64) -> Result<Value, RpcError> {
        self.answer_or_end(id).await.unwrap_or_else(|| panic!("the connection ended before answer {id}"))
    }

    /// The answer, if it has come.
    pub(crate) fn answered(&self, id: i64) -> Option<Result<Value, RpcError>> {
        Some(outcome(&self.log.borrow().answers.get(&id.to_string())?.first()?.message))
    }

    /// All answers to an id so far, whole.
    pub(crate) fn answers(&self, id: &Value) -> Vec<Value> {
        let log = self.log.borrow();
        let all = log.answers.get(&id.to_string()).into_iter().flatten();
        all.map(|arrived| arrived.message.clone()).collect()
    }

    /// Waits until the id has so many answers.
    pub(crate) async fn answers_of(&self, id: Value, count: usize) -> Vec<Value> {
        let mut log = self.log.clone();
        let key = id.to_string();
        let enough = |log: &Log| log.answers.get(&key).is_some_and(|all| all.len() >= count);
        let wait = log.wait_for(|log| enough(log) || log.end.is_some());
        let wait = timeout(LIMIT, wait).await.map(drop);
        wait.unwrap_or_else(|_| panic!("{count} answers to {id} did not come"));
        self.answers(&id)
    }

    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// A call that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, method: &str, params: Value) -> impl Future<Output = Value> {
        let place = std::panic::Location::caller();
        let method = method.to_owned();
        async move {
            let result = self.call(&method, params).await;
            result.unwrap_or_else(|error| panic!("{place}: {method} failed: {error:?}"))
        }
    }

    /// A call that must fail.
    #[track_caller]
    pub(crate) fn error(&self, method: &str, params: Value) -> impl Future<Output = RpcError> {
        let place = std::panic::Location::caller();
        let method = method.to_owned();
        async move {
            match self.call(&method, params).await {
                Ok(result) => panic!("{place}: {method} succeeded: {result}"),
                Err(error) => error,
            }
        }
    }

    /// Whether the server still answers on this connection, and how fast.
    pub(crate) async fn round_trip(&self) -> Duration {
        let began = std::time::Instant::now();
        self.ok("environment/status", json!({})).await;
        began.elapsed()
    }

    #[track_caller]
    pub(crate) fn start(&self, start: &Start) -> impl Future<Output = Value> {
        self.ok("process/start", start.params())
    }

    /// Starts and waits for `process/closed`.
    pub(crate) async fn run(&self, start: &Start) -> Run {
        self.start(start).await;
        self.finish(&start.id()).await
    }

    /// Waits for `process/closed` and gives all that was pushed.
    pub(crate) async fn finish(&self, process: &str) -> Run {
        self.wait_event(process, "process/closed").await;
        self.so_far(process)
    }

    /// Waits until a process has such a notification and gives its params.
    pub(crate) async fn wait_event(&self, process: &str, method: &str) -> Value {
        self.wait_events(process, &format!("{method} of {process}"), |events| {
            events.iter().rev().find(|event| event["method"] == method).map(|event| event["params"].clone())
        })
        .await
    }

    /// Waits until something can be made of the notifications of a process.
    pub(crate) async fn wait_events<T>(
        &self,
        process: &str,
        what: &str,
        mut find: impl FnMut(&[&Value]) -> Option<T>,
    ) -> T {
        let mut log = self.log.clone();
        let mut found = None;
        let wait = log.wait_for(|log| {
            let events = log.events.get(process).map(Vec::as_slice).unwrap_or_default();
            found = find(&events.iter().map(|arrived| &arrived.message).collect::<Vec<_>>());
            found.is_some() || log.end.is_some()
        });
        let timed_out = timeout(LIMIT, wait).await.map(drop).is_err();
        match found {
            Some(found) => found,
            None if timed_out => panic!("{what} did not come; so far {:?}", self.so_far(process)),
            None => panic!("the connection ended before {what}"),
        }
    }

    /// Waits until something can be made of what was said and asked about networks.
    pub(crate) async fn wait_network<T>(&self, what: &str, mut find: impl FnMut(&[Value]) -> Option<T>) -> T {
        let mut log = self.log.clone();
        let mut found = None;
        let wait = log.wait_for(|log| {
            found = find(&log.network);
            found.is_some() || log.end.is_some()
        });
        let timed_out = timeout(LIMIT, wait).await.map(drop).is_err();
        match found {
            Some(found) => found,
            None if timed_out => panic!("{what} did not come; so far {:?}", self.log.borrow().network),
            None => panic!("the connection ended before {what}"),
        }
    }

    /// The question with this number, counted from 1.
    pub(crate) async fn question(&self, number: i64) -> Value {
        let what = format!("question {number}");
        self.wait_network(&what, |all| all.iter().find(|message| message["id"] == number).cloned()).await
    }

    /// Answers a question of the server.
    pub(crate) async fn decide(&self, number: i64, decision: Value) {
        self.text(&json!({"id": number, "result": {"decision": decision}}).to_string()).await;
    }

    /// Waits until the output of a process holds a text.
    pub(crate) async fn wait_output(&self, process: &str, needle: &str) {
        self.wait_events(process, &format!("output {needle:?}"), |events| {
            let mut bytes = Vec::new();
            for event in events.iter().filter(|event| event["method"] == "process/output") {
                bytes.extend(unbase64(event["params"]["chunk"].as_str()?));
            }
            bytes.windows(needle.len()).any(|window| window == needle.as_bytes()).then_some(())
        })
        .await;
    }

    /// What was pushed for a process until now.
    pub(crate) fn so_far(&self, process: &str) -> Run {
        let mut run = Run::default();
        for arrived in self.log.borrow().events.get(process).into_iter().flatten() {
            run.add(&arrived.message);
        }
        run
    }

    /// The place of an answer, and of the first notification of a process, among all messages.
    pub(crate) fn places(&self, id: i64, process: &str) -> (Option<usize>, Option<usize>) {
        let log = self.log.borrow();
        let first = |all: Option<&Vec<Arrived>>| Some(all?.first()?.place);
        (first(log.answers.get(&id.to_string())), first(log.events.get(process)))
    }

    /// The chunks pushed for a process since the last call, with their numbers.
    pub(crate) fn take_chunks(&self, process: &str) -> Vec<(u64, Vec<u8>)> {
        let mut events = Vec::new();
        self.shared.send_modify(|log| {
            events = log.events.remove(process).unwrap_or_default();
        });
        let params = events.iter().map(|arrived| &arrived.message["params"]);
        params
            .filter_map(|params| Some((params["seq"].as_u64()?, unbase64(params["chunk"].as_str()?))))
            .collect()
    }

    /// Forgets what was pushed for a process.
    pub(crate) fn forget(&self, process: &str) {
        self.shared.send_modify(|log| {
            log.events.remove(process);
        });
    }

    pub(crate) async fn write(&self, process: &str, write_id: &str, bytes: &[u8]) -> Value {
        let result = self.ok("process/write", write_params(process, write_id, bytes)).await;
        result["status"].clone()
    }

    /// Stops or goes on reading the socket; pings go unanswered meanwhile.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Pings that came.
    pub(crate) fn pings(&self) -> usize {
        self.log.borrow().pings
    }

    pub(crate) fn ended(&self) -> Option<End> {
        self.log.borrow().end
    }

    /// Waits for the end of the connection.
    pub(crate) async fn end(&self) -> End {
        let mut log = self.log.clone();
        let wait = log.wait_for(|log| log.end.is_some());
        let found = timeout(LIMIT, wait).await.expect("the connection does not end");
        found.expect("the log lives").end.expect("an end")
    }

    /// Drops the connection as a crash would: no close frame.
    pub(crate) async fn abort(mut self) {
        self.sink.get_mut().take();
        self.reader.abort();
        // An abort is an error of the task; awaiting it is what makes the socket be gone.
        (&mut self.reader).await.ok();
    }

    /// Ends the connection with a close frame and waits for the server's.
    pub(crate) async fn close(self) -> End {
        if let Some(sink) = self.sink.lock().await.as_mut() {
            sink.send(Message::Close(None)).await.ok();
        }
        self.end().await
    }
}

pub(crate) fn write_params(process: &str, write_id: &str, bytes: &[u8]) -> Value {
    json!({"processId": process, "writeId": write_id, "chunk": super::base64(bytes)})
}

fn outcome(message: &Value) -> Result<Value, RpcError> {
    match message.get("error") {
        None => Ok(message["result"].clone()),
        Some(error) => Err(RpcError {
            code: error["code"].as_i64().expect("a code"),
            message: error["message"].as_str().expect("a message").to_owned(),
            data: error["data"].clone(),
        }),
    }
}

async fn record(mut stream: SplitStream<Web>, log: watch::Sender<Log>, mut paused: watch::Receiver<bool>) {
    loop {
        if paused.wait_for(|paused| !paused).await.is_err() {
            return;
        }
        let message = tokio::select! {
            message = stream.next() => message,
            _ = paused.changed() => continue,
        };
        let end = match message {
            Some(Ok(Message::Close(frame))) => End::Closed(frame.map_or(1005, |frame| frame.code.into())),
            Some(Ok(message)) => {
                log.send_modify(|log| log.take(&message));
                continue;
            }
            Some(Err(_)) | None => End::Lost,
        };
        log.send_modify(|log| log.end = Some(end));
        return;
    }
}

impl Log {
    fn take(&mut self, message: &Message) {
        let text = match message {
            Message::Text(text) => text.as_str(),
            Message::Ping(_) => {
                self.pings += 1;
                return;
            }
            Message::Pong(_) => return,
            other => panic!("the server sends text, not {other:?}"),
        };
        let message: Value = serde_json::from_str(text).expect("JSON");
        let arrived = Arrived { place: self.count, message };
        self.count += 1;
        let method = arrived.message["method"].as_str();
        if method.is_some_and(|method| method.starts_with("network/")) {
            self.network.push(arrived.message);
        } else if let Some(process) = arrived.message["params"]["processId"].as_str() {
            self.events.entry(process.to_owned()).or_default().push(arrived);
        } else if let Some(id) = arrived.message.get("id") {
            self.answers.entry(id.to_string()).or_default().push(arrived);
        }
    }
}
