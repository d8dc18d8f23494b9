//! The HTTP client of the library: the same from this process and from a server.

use std::time::Duration;

use exec_server::backend::{ExecServerError, HttpBody, HttpRequest, RedirectPolicy, RequestHeader};
use exec_server::environment::Environment;
use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;

use crate::support::place::Place;
use crate::support::scripted::{ScriptedConnection, ScriptedServer};
use crate::support::soon;
use crate::support::web::{Act, Seen, Web, response};

async fn drain(body: &mut Box<dyn HttpBody>) -> (usize, Option<ExecServerError>) {
    let mut bytes = 0;
    loop {
        match soon(body.next()).await {
            Ok(Some(piece)) => {
                assert!(!piece.is_empty());
                bytes += piece.len();
            }
            Ok(None) => return (bytes, None),
            Err(error) => return (bytes, Some(error)),
        }
    }
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_request_is_made_as_it_was_asked_for(remote: bool) {
    let place = Place::new(remote).await;
    let mut web = Web::start(|_| Act::Send(response("404 Not Here\r\nX-A: 1\r\nX-A: 2", b"body"))).await;
    let header = |name: &str, variable: Option<&str>| RequestHeader {
        name: name.into(),
        value: "v ".into(),
        value_env_var: variable.map(str::to_owned),
    };
    let request = HttpRequest {
        headers: vec![header("X-Plain", None), header("X-Path", Some("PATH"))],
        body: Some(b"sent".to_vec()),
        ..HttpRequest::new("PATCH", format!("{}/p?q=1", web.url))
    };
    let answer = soon(place.environment.get_http_client().request(request)).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (404, &b"body"[..]));
    let values =
        answer.headers.iter().filter(|header| header.name == "x-a").map(|header| header.value.as_str());
    assert_eq!(values.collect::<Vec<_>>(), ["1", "2"]);
    let Seen::Head(head) = web.next().await else { panic!("no request") };
    assert!(head.starts_with("PATCH /p?q=1 HTTP/1.1\r\n"), "{head}");
    for part in ["x-plain: v \r\n", "x-path: v /", "content-length: 4\r\n"] {
        assert!(head.contains(part), "{part} in {head}");
    }
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_body_streams_whatever_its_size(remote: bool) {
    let place = Place::new(remote).await;
    let web = Web::start(|_| Act::Send(response("200 OK", &vec![b'x'; 5_000_000]))).await;
    let client = place.environment.get_http_client();
    for _ in 0..2 {
        let mut answer = soon(client.stream(HttpRequest::new("GET", &web.url))).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(matches!(drain(&mut answer.body).await, (5_000_000, None)));
        assert!(soon(answer.body.next()).await.unwrap().is_none());
    }
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_redirect_is_followed_or_returned(remote: bool) {
    let place = Place::new(remote).await;
    let web = Web::start(|path| match path {
        "/there" => Act::Send(response("200 OK", b"there")),
        _ => Act::Send(response("302 Found\r\nLocation: /there", b"")),
    })
    .await;
    let client = place.environment.get_http_client();
    assert_eq!(soon(client.request(HttpRequest::new("GET", &web.url))).await.unwrap().body, b"there");
    let stop = HttpRequest { redirects: RedirectPolicy::Stop, ..HttpRequest::new("GET", &web.url) };
    assert_eq!(soon(client.request(stop)).await.unwrap().status, 302);
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn failures_are_told_apart(remote: bool) {
    let place = Place::new(remote).await;
    let client = place.environment.get_http_client();
    let web = Web::start(|path| match path {
        "/cut" => Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut".to_vec()),
        _ => Act::Hold(Vec::new()),
    })
    .await;
    let limited =
        HttpRequest { timeout: Some(Duration::from_millis(50)), ..HttpRequest::new("GET", &web.url) };
    for (request, expected, kind) in [
        (HttpRequest::new("GET", "ftp://h/"), -32602, None),
        (HttpRequest::new("GET", "http://127.0.0.1:1"), -32603, Some("connect")),
        (HttpRequest::new("GET", format!("{}/cut", web.url)), -32603, Some("body")),
        (limited, -32603, Some("timeout")),
    ] {
        let error = soon(client.request(request)).await.unwrap_err();
        let ExecServerError::Server { code, data, .. } = error else { panic!("{error}") };
        let told = data.as_ref().and_then(|data| data["kind"].as_str());
        assert_eq!((code, told), (expected, kind));
    }
    let mut answer = soon(client.stream(HttpRequest::new("GET", format!("{}/cut", web.url)))).await.unwrap();
    let (bytes, error) = drain(&mut answer.body).await;
    assert_eq!(bytes, 3);
    assert!(error.unwrap().to_string().contains("failed to read http/request response body"));
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn streams_do_not_disturb_each_other(remote: bool) {
    let place = Place::new(remote).await;
    let web = Web::start(|path| match path {
        "/hold" => Act::Hold(b"HTTP/1.1 200 OK\r\n\r\nbegun".to_vec()),
        _ => Act::Send(response("200 OK", b"whole")),
    })
    .await;
    let client = place.environment.get_http_client();
    let mut held = soon(client.stream(HttpRequest::new("GET", format!("{}/hold", web.url)))).await.unwrap();
    let mut other = soon(client.stream(HttpRequest::new("GET", &web.url))).await.unwrap();
    assert!(matches!(drain(&mut other.body).await, (5, None)));
    assert_eq!(soon(held.body.next()).await.unwrap(), Some(b"begun".to_vec()));
}

struct Scene {
    environment: Environment,
    connection: ScriptedConnection,
    server: ScriptedServer,
}

impl Scene {
    async fn new() -> Self {
        let server = ScriptedServer::start().await;
        let environment = Environment::create_for_tests(Some(server.url())).unwrap();
        environment.start_connecting();
        let connection = server.accept_session(json!({})).await;
        Self { environment, connection, server }
    }

    /// A stream whose request the server has answered, and its id.
    async fn stream(&mut self) -> (Box<dyn HttpBody>, String) {
        let client = self.environment.get_http_client();
        let (answer, id) = tokio::join!(client.stream(HttpRequest::new("GET", "http://h/")), async {
            let call = self.connection.expect("http/request").await;
            assert_eq!(call.params["streamResponse"], true);
            let id = call.params["requestId"].as_str().unwrap().to_owned();
            // Pieces may follow in the same packet.
            self.connection.reply(&call, json!({"status": 200, "headers": [], "bodyBase64": ""})).await;
            self.delta(&id, 1, "aGk=").await;
            id
        });
        (answer.unwrap().body, id)
    }
}

impl Scene {
    async fn delta(&mut self, id: &str, seq: u64, base64: &str) {
        let params =
            json!({"requestId": id, "seq": seq, "deltaBase64": base64, "done": false, "error": null});
        self.connection.notify("http/request/bodyDelta", params).await;
    }
}

#[tokio::test]
async fn a_stream_fails_at_once_with_its_connection() {
    let mut scene = Scene::new().await;
    let (mut body, _) = scene.stream().await;
    drop(scene.connection);
    let (bytes, error) = drain(&mut body).await;
    assert_eq!(bytes, 2);
    assert!(matches!(error, Some(ExecServerError::TransportDisconnected)));
    drop(scene.server);
}

#[tokio::test]
async fn late_pieces_of_a_dropped_stream_go_nowhere() {
    let mut scene = Scene::new().await;
    let (body, first) = scene.stream().await;
    drop(body);
    scene.delta(&first, 2, "aGk=").await;
    let (mut body, second) = scene.stream().await;
    assert_ne!(first, second);
    assert_eq!(soon(body.next()).await.unwrap(), Some(b"hi".to_vec()));
}

#[tokio::test]
async fn a_piece_that_is_missing_fails_the_stream_not_the_connection() {
    let mut scene = Scene::new().await;
    let (mut body, id) = scene.stream().await;
    scene.delta(&id, 3, "aGk=").await;
    let (bytes, error) = drain(&mut body).await;
    assert!(bytes == 2 && error.unwrap().to_string().contains("piece 2"));
    scene.stream().await;
}

#[tokio::test]
async fn a_reader_that_is_too_slow_loses_the_stream_not_the_connection() {
    let mut scene = Scene::new().await;
    let (mut body, id) = scene.stream().await;
    for seq in 2..=300 {
        scene.delta(&id, seq, "aGk=").await;
    }
    scene.stream().await;
    let (bytes, error) = drain(&mut body).await;
    assert!(bytes == 2 * 256 && error.unwrap().to_string().contains("too slowly"), "{bytes}");
}

/// The server may have made it, so it is not made again.
#[tokio::test]
async fn a_request_without_answer_is_not_repeated() {
    let Scene { environment, mut connection, server } = Scene::new().await;
    let request = tokio::spawn({
        let client = environment.get_http_client();
        async move { client.request(HttpRequest::new("POST", "http://h/")).await }
    });
    connection.expect("http/request").await;
    drop(connection);
    assert!(matches!(soon(request).await.unwrap(), Err(ExecServerError::TransportDisconnected)));
    server.accept_resume().await;
}

#[tokio::test]
async fn variables_of_the_executor_need_a_server_that_knows_them() {
    let mut scene = Scene::new().await;
    let secret = RequestHeader { name: "X".into(), value: String::new(), value_env_var: Some("V".into()) };
    let request = HttpRequest { headers: vec![secret], ..HttpRequest::new("GET", "http://h/") };
    let client = scene.environment.get_http_client();
    let error = soon(client.request(request)).await.unwrap_err();
    assert!(
        matches!(&error, ExecServerError::Unsupported(why) if why.contains("httpHeaderEnvVars")),
        "{error}"
    );
    scene.stream().await;
}
