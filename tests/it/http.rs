//! `http/request` of the real server, against web servers that behave badly.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::server::ServerProcess;
use crate::support::web::{Act, Rpc, Seen, Web, response};

const REQUEST: &str = "http/request";
/// 128 KiB of zeros as a zstd frame: a window of 128 KiB and one block of a repeated byte.
const SMALL_FRAME_OF_ZEROS: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38, 0x03, 0x00, 0x10, 0x00];

async fn server(arguments: &[&str]) -> (ServerProcess, Rpc) {
    let server = ServerProcess::start_with(arguments).await;
    let rpc = Rpc::connect(server.url()).await;
    (server, rpc)
}

fn get(url: &str, extra: Value) -> Value {
    let mut params = json!({"method": "GET", "url": url, "requestId": "r"});
    for (key, value) in extra.as_object().unwrap() {
        params[key] = value.clone();
    }
    params
}

fn streamed(url: &str) -> Value {
    get(url, json!({"streamResponse": true}))
}

#[tokio::test]
async fn the_answer_precedes_the_frames_and_the_last_frame_is_empty() {
    let web = Web::start(|_| Act::Send(response("200 OK", b"hello"))).await;
    let (_server, mut rpc) = server(&[]).await;
    // The second use of the name must find it free.
    for _ in 0..2 {
        let result = rpc.call(REQUEST, streamed(&web.url)).await.unwrap();
        assert_eq!((&result["status"], &result["bodyBase64"]), (&json!(200), &json!("")));
        for (seq, delta, done) in [(1, "aGVsbG8=", false), (2, "", true)] {
            let params =
                json!({"requestId": "r", "seq": seq, "deltaBase64": delta, "done": done, "error": null});
            assert_eq!(rpc.next().await, json!({"method": "http/request/bodyDelta", "params": params}));
        }
    }
}

#[tokio::test]
async fn values_of_the_environment_stay_with_their_origin() {
    let mut other = Web::start(|_| Act::Send(response("200 OK", b""))).await;
    let target = other.url.replace("127.0.0.1", "localhost");
    let redirect = format!("307 Moved\r\nLocation: {target}/");
    let mut web = Web::start(move |_| Act::Send(response(&redirect, b""))).await;
    let (_server, mut rpc) = server(&[]).await;
    let headers = json!([
        {"name": "X-Key", "value": "key ", "valueEnvVar": "PATH"},
        {"name": "X-Plain", "value": "plain"},
    ]);
    let url = web.url.replace("http://", "http://user:word@");
    rpc.call(REQUEST, get(&url, json!({"headers": headers}))).await.unwrap();
    let Seen::Head(first) = web.next().await else { panic!("no request") };
    assert!(first.contains("x-key: key /") && first.contains("authorization: Basic "), "{first}");
    let Seen::Head(second) = other.next().await else { panic!("no request") };
    assert!(second.contains("x-plain: plain") && second.contains(&format!("referer: {}/\r\n", web.url)));
    assert!(!second.contains("x-key") && !second.contains("authorization"), "{second}");
}

#[test_case(response("200 OK", &[b'x'; 1001]); "announced")]
#[test_case([b"HTTP/1.0 200 OK\r\n\r\n", &[b'x'; 1001][..]].concat(); "not announced")]
#[test_case(response("200 OK\r\nContent-Encoding: zstd", SMALL_FRAME_OF_ZEROS); "once it is decoded")]
#[tokio::test]
async fn a_body_above_the_limit_is_an_error(answer: Vec<u8>) {
    let web = Web::start(move |_| Act::Send(answer.clone())).await;
    let (_server, mut rpc) = server(&["--set", "http.max_buffered_bytes=1000"]).await;
    let error = rpc.call(REQUEST, get(&web.url, json!({}))).await.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!("tooLarge")));
    assert!(error["message"].as_str().unwrap().contains("streamResponse"));
}

#[test_case("http://127.0.0.1:1", json!({}), "connect"; "refused")]
#[test_case("http://user:word@name.invalid", json!({}), "dns"; "unknown host")]
#[test_case("WEB/garbage", json!({}), "protocol"; "no HTTP")]
#[test_case("WEB/ftp", json!({}), "redirect"; "redirect to elsewhere")]
#[test_case("WEB/cut", json!({}), "body"; "cut short")]
#[test_case("WEB/hold", json!({"timeoutMs": 50}), "timeout"; "no answer in time")]
#[test_case("WEB/garbage", json!({"timeoutMs": 0}), "timeout"; "no time at all")]
#[test_case("WEBS/hold", json!({}), "tls"; "no TLS")]
#[tokio::test]
async fn errors_say_where_it_failed(url: &str, extra: Value, kind: &str) {
    let web = Web::start(|path| match path {
        "/garbage" => Act::Send(b"what?\r\n\r\n".to_vec()),
        "/ftp" => Act::Send(response("302 Found\r\nLocation: ftp://h/", b"")),
        "/cut" => Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut".to_vec()),
        _ => Act::Hold(Vec::new()),
    })
    .await;
    // A server of this kind that is spoken to in TLS: it greets first.
    let greeting = greeter().await;
    let url = url.replace("WEBS", &greeting).replace("WEB", &web.url);
    let (_server, mut rpc) = server(&[]).await;
    let error = rpc.call(REQUEST, get(&url, extra)).await.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!(kind)), "{error}");
    assert!(!error["message"].as_str().unwrap().contains("word"), "{error}");
}

/// The `https` URL of a server that does not speak TLS.
async fn greeter() -> String {
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            peer.write_all(b"220 greetings\r\n").await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_servers_that_send() {
    let mut web = Web::start(|_| Act::Endless).await;
    let (_server, mut rpc) = server(&[]).await;
    rpc.send(REQUEST, streamed(&web.url)).await;
    assert!(matches!(web.next().await, Seen::Head(_)));
    let Seen::Stalled(sent) = web.next().await else { panic!("it went on") };
    // The buffers of the system's sockets are most of it.
    assert!(sent < 40 << 20, "{sent}");
}

#[test_case(true; "a stream")]
#[test_case(false; "a request without response")]
#[tokio::test]
async fn requests_end_with_their_connection(stream: bool) {
    let head = if stream { "HTTP/1.1 200 OK\r\n\r\nbegun" } else { "" };
    let mut web = Web::start(move |_| Act::Hold(head.into())).await;
    let (_server, mut rpc) = server(&[]).await;
    rpc.send(REQUEST, get(&web.url, json!({"streamResponse": stream}))).await;
    assert!(matches!(web.next().await, Seen::Head(_)));
    // A request that waits for its server holds up no other.
    let mut answered = false;
    rpc.send("environment/status", json!({})).await;
    while !answered {
        answered = rpc.next().await["result"]["status"] == "ready";
    }
    drop(rpc);
    assert_eq!(web.next().await, Seen::Closed);
}

#[tokio::test]
async fn variables_that_are_not_listed_are_refused() {
    let web = Web::start(|_| Act::Send(response("200 OK", b""))).await;
    let (_server, mut rpc) = server(&["--set", "http.header_env_allow=HOME"]).await;
    let header = |variable: &str| json!({"headers": [{"name": "X", "value": "", "valueEnvVar": variable}]});
    assert!(rpc.call(REQUEST, get(&web.url, header("HOME"))).await.is_ok());
    let error = rpc.call(REQUEST, get(&web.url, header("PATH"))).await.unwrap_err();
    assert_eq!(error["code"], -32602);
}

/// Names in `/etc/hosts` of the machine lead to its own addresses.
#[test_case("private", "127.0.0.1"; "private address")]
#[test_case("private", "localhost"; "private name")]
#[test_case("private", "2130706433"; "decimal")]
#[test_case("private", "0x7f.1"; "hex and short")]
#[test_case("private", "0177.0.0.1"; "octal")]
#[test_case("private", "[::ffff:127.0.0.1]"; "mapped")]
#[test_case("127.0.0.1", "localhost"; "the address of a name")]
#[test_case("127.*.*.*", "127.0.0.1"; "a pattern of addresses")]
#[test_case("local*", "LOCALHOST"; "a pattern of names")]
#[tokio::test]
async fn what_is_denied_is_not_reached(denial: &str, host: &str) {
    let mut web = Web::start(|_| Act::Send(response("200 OK", b"reached"))).await;
    let (_server, mut rpc) = server(&["--set", &format!("http.deny=internal.example,{denial}")]).await;
    let url = web.url.replace("127.0.0.1", host);
    let error = rpc.call(REQUEST, get(&url, json!({}))).await.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!("denied")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("http.deny"), "{error}");
    assert!(web.seen.try_recv().is_err(), "it was reached");
}

#[tokio::test]
async fn what_is_not_denied_is_reached_and_leads_nowhere_else() {
    let mut other = Web::start(|_| Act::Send(response("200 OK", b"reached"))).await;
    let target = other.url.replace("127.0.0.1", "localhost");
    let redirect = format!("302 Moved\r\nLocation: {target}/");
    let web = Web::start(move |path| {
        Act::Send(if path == "/away" { response(&redirect, b"") } else { response("200 OK", b"here") })
    })
    .await;
    let (_server, mut rpc) = server(&["--set", "http.deny=localhost,**.example.com"]).await;
    let answer = rpc.call(REQUEST, get(&web.url, json!({}))).await.unwrap();
    assert_eq!(answer["bodyBase64"], "aGVyZQ==");
    let error = rpc.call(REQUEST, get(&format!("{}/away", web.url), json!({}))).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "denied", "{error}");
    let answer =
        rpc.call(REQUEST, get(&format!("{}/away", web.url), json!({"redirectPolicy": "stop"}))).await;
    assert_eq!(answer.unwrap()["status"], 302);
    assert!(other.seen.try_recv().is_err(), "the redirect was followed");
}

#[tokio::test]
async fn a_proxy_is_no_way_around() {
    let mut proxy = Web::start(|_| Act::Send(response("200 OK", b"through the proxy"))).await;
    let environment = format!("HTTP_PROXY={}", proxy.url.replace("127.0.0.1", "localhost"));
    let arguments = ["--set", "http.deny=private"];
    let server = ServerProcess::start_with_environment(&arguments, &environment).await;
    let mut rpc = Rpc::connect(server.url()).await;
    let error = rpc.call(REQUEST, get("http://localhost:1/", json!({}))).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "denied", "{error}");
    let error = rpc.call(REQUEST, get("http://unknown.invalid/", json!({}))).await.unwrap_err();
    assert_eq!(error["data"]["kind"], "dns", "{error}");
    assert!(proxy.seen.try_recv().is_err(), "the proxy was asked");
    let answer = rpc.call(REQUEST, get("http://1.1.1.1/", json!({}))).await.unwrap();
    assert_eq!(answer["status"], 200, "the proxy itself may be private");
}

#[test_case("*", "every host"; "everything")]
#[test_case("http://a", "without scheme"; "a URL")]
#[test_case("10.0.0.0/8", "without scheme"; "a range")]
#[test_case("10.*", "all four parts"; "a part of an address")]
#[test_case("a:80", "without scheme"; "a port")]
fn denials_that_make_no_sense_stop_the_server(value: &str, why: &str) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_exec-server"));
    let output = command.args(["config", "check", "--set", &format!("http.deny={value}")]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("http.deny") && text.contains(why), "{text}");
}
