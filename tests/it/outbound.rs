//! The way to a server: proxies, TLS, and what the application's network policy allows.

use std::ffi::OsString;
use std::time::Duration;

use exec_server::backend::{ExecServerError, HttpRequest};
use exec_server::environment::{
    ClientOptions, Environment, EnvironmentConnectionState, ExecServerRuntimePaths,
};
use exec_server::outbound::{
    DestinationPolicy, HttpClientFactory, NetworkPolicy, NetworkPolicyController, OutboundProxyPolicy,
};
use pretty_assertions::assert_eq;
use test_case::test_case;

use crate::support::events::{complete, rest};
use crate::support::gateway::{AUTHORITY, Gateway, Kind};
use crate::support::params::script;
use crate::support::scripted::ScriptedServer;
use crate::support::server::ServerProcess;
use crate::support::soon;
use crate::support::web::{Act, Web, response};

fn factory(variables: &[(&str, String)]) -> HttpClientFactory {
    let environment = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    HttpClientFactory::with_environment(OutboundProxyPolicy::ReqwestDefault, environment.collect())
}

fn remote(url: &str, outbound: HttpClientFactory) -> Environment {
    Environment::remote(url, ClientOptions { outbound, ..ClientOptions::default() }).unwrap()
}

/// A server that goes by names that only a proxy can resolve.
async fn named_server() -> ServerProcess {
    ServerProcess::start_with(&["--set", "server.allowed_hosts=h.invalid,no-such-host.invalid"]).await
}

fn reason(error: ExecServerError) -> ExecServerError {
    match error {
        ExecServerError::ConnectionAttempt(shared) => (*shared).clone(),
        other => other,
    }
}

#[test_case("http_proxy", "http"; "its own variable")]
#[test_case("HTTP_PROXY", "http"; "in capitals")]
#[test_case("all_proxy", "http"; "the one for all")]
#[test_case("ALL_PROXY", "https"; "a proxy with TLS")]
#[tokio::test]
async fn a_server_is_reached_through_the_proxy_of_the_environment(variable: &str, scheme: &str) {
    let server = named_server().await;
    let kind = if scheme == "https" { Kind::Https } else { Kind::Http(200) };
    let mut proxy = Gateway::start(kind, server.url()).await;
    let variables = [
        (variable, format!("{scheme}://us%65r:pass@localhost:{}", proxy.port)),
        ("SSL_CERT_FILE", AUTHORITY.to_owned()),
    ];
    let environment = remote("ws://no-such-host.invalid:8765/", factory(&variables));
    soon(environment.info()).await.unwrap();
    let head = proxy.asked().await;
    let lines: Vec<&str> = head.lines().collect();
    assert_eq!(
        lines,
        [
            "CONNECT no-such-host.invalid:8765 HTTP/1.1",
            "Host: no-such-host.invalid:8765",
            "Proxy-Connection: Keep-Alive",
            "Proxy-Authorization: Basic dXNlcjpwYXNz",
            ""
        ]
    );
    let backend = environment.get_exec_backend();
    let process = soon(backend.start(script("p", "echo through"))).await.unwrap().process;
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("through\n".into(), 0));
}

#[test_case("socks5://u:p@", true, "u:p h.invalid:80"; "with credentials")]
#[test_case("socks5h://", false, "h.invalid:80"; "without")]
#[tokio::test]
async fn a_server_is_reached_through_socks(prefix: &str, asks: bool, expected: &str) {
    let server = named_server().await;
    let mut proxy = Gateway::start(Kind::Socks { asks }, server.url()).await;
    let variables = [("ALL_PROXY", format!("{prefix}127.0.0.1:{}", proxy.port))];
    soon(remote("ws://h.invalid", factory(&variables)).info()).await.unwrap();
    assert_eq!(proxy.asked().await, expected);
}

#[test_case(407)]
#[test_case(502)]
#[tokio::test]
async fn a_proxy_that_refuses_is_a_failure_with_its_status(status: u16) {
    let proxy = Gateway::start(Kind::Http(status), "127.0.0.1:1").await;
    let variables = [("http_proxy", format!("http://127.0.0.1:{}", proxy.port))];
    let error = soon(remote("ws://h.invalid", factory(&variables)).wait_until_ready()).await.unwrap_err();
    let ExecServerError::Connect { status: seen, reason, .. } = reason(error) else {
        panic!("another failure")
    };
    assert_eq!(seen, Some(status));
    assert!(reason.contains("the proxy 127.0.0.1") && reason.contains(&status.to_string()), "{reason}");
}

#[tokio::test]
async fn a_silent_proxy_is_within_the_connect_limit() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let variables = [("http_proxy", format!("http://{}", listener.local_addr().unwrap()))];
    let connect_timeout = Duration::from_millis(100);
    let options =
        ClientOptions { outbound: factory(&variables), connect_timeout, ..ClientOptions::default() };
    let environment = Environment::remote("ws://h.invalid", options).unwrap();
    let error = reason(soon(environment.wait_until_ready()).await.unwrap_err());
    assert!(matches!(error, ExecServerError::ConnectTimeout { limit, .. } if limit == connect_timeout));
}

/// A token for this machine stays on it, whatever the environment says about proxies.
#[test_case("127.0.0.1")]
#[test_case("localhost")]
#[tokio::test]
async fn this_machine_is_never_reached_through_a_proxy(host: &str) {
    let server = ServerProcess::start().await;
    let mut proxy = Gateway::start(Kind::Http(200), server.url()).await;
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let variables = [("http_proxy", url.clone()), ("all_proxy", url)];
    let options = ClientOptions {
        bearer_token: Some("s3cret".into()),
        outbound: factory(&variables),
        ..ClientOptions::default()
    };
    let port = server.url().rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let environment = Environment::remote(&format!("ws://{host}:{port}"), options).unwrap();
    soon(environment.info()).await.unwrap();
    assert!(!proxy.was_asked());
}

#[tokio::test]
async fn who_is_exempt_is_reached_directly() {
    let mut proxy = Gateway::start(Kind::Http(200), "127.0.0.1:1").await;
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let variables = [("http_proxy", url), ("NO_PROXY", "h.invalid".to_owned())];
    let error = soon(remote("ws://h.invalid", factory(&variables)).wait_until_ready()).await.unwrap_err();
    assert!(matches!(reason(error), ExecServerError::Connect { status: None, .. }));
    assert!(!proxy.was_asked());
}

/// The proxy sees whereto, and TLS.
#[test_case(false; "directly")]
#[test_case(true; "through a proxy")]
#[tokio::test]
async fn a_token_travels_in_tls(through_proxy: bool) {
    let server = ScriptedServer::start().await;
    let tls = Gateway::start(Kind::Tls, &server.url()).await;
    let mut proxy = Gateway::start(Kind::Http(200), &format!("127.0.0.1:{}", tls.port)).await;
    let mut variables = vec![("CODEX_CA_CERTIFICATE", AUTHORITY.to_owned())];
    let url = if through_proxy {
        variables.push(("https_proxy", format!("http://127.0.0.1:{}", proxy.port)));
        "wss://devbox.invalid/x".to_owned()
    } else {
        format!("wss://localhost:{}/x", tls.port)
    };
    let options = ClientOptions {
        bearer_token: Some("s3cret".into()),
        outbound: factory(&variables),
        ..ClientOptions::default()
    };
    let environment = Environment::remote(&url, options).unwrap();
    environment.start_connecting();
    let connection = server.accept_session(serde_json::json!({})).await;
    let authorization = connection.headers.iter().find(|(name, _)| name == "authorization").unwrap();
    assert_eq!(authorization.1, "Bearer s3cret");
    if through_proxy {
        let head = proxy.asked().await;
        assert!(head.starts_with("CONNECT devbox.invalid:443 HTTP/1.1\r\n") && !head.contains("s3cret"));
    }
}

#[test_case("wss://127.0.0.1", &[]; "an authority that is not trusted")]
#[test_case("wss://other.invalid", &[("SSL_CERT_FILE", AUTHORITY)]; "a certificate of another")]
#[test_case("wss://127.0.0.1", &[("SSL_CERT_FILE", "/nonexistent")]; "a file of certificates that is not there")]
#[tokio::test]
async fn nobody_is_talked_to_who_cannot_prove_who_he_is(url: &str, variables: &[(&str, &str)]) {
    let server = ScriptedServer::start().await;
    let tls = Gateway::start(Kind::Tls, &server.url()).await;
    let proxy = Gateway::start(Kind::Http(200), &format!("127.0.0.1:{}", tls.port)).await;
    let mut variables: Vec<_> = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    // It takes names to the same place, and is passed by for this machine.
    variables.push(("https_proxy", format!("http://127.0.0.1:{}", proxy.port)));
    let environment = remote(&format!("{url}:{}", tls.port), factory(&variables));
    let error = soon(environment.wait_until_ready()).await.unwrap_err().to_string();
    assert!(error.contains("no TLS connection"), "{error}");
}

fn controlled() -> (NetworkPolicyController, NetworkPolicy, HttpClientFactory) {
    let controller = NetworkPolicyController::default();
    let policy = controller.policy();
    let factory = factory(&[]).with_network_policy(policy.clone());
    (controller, policy, factory)
}

/// N3, as far as it is not about discovery.
#[tokio::test]
async fn a_policy_is_asked_before_anything_is_dialled_and_may_change_its_mind() {
    let server = ServerProcess::start().await;
    let (controller, policy, factory) = controlled();
    // Even the name is not looked up.
    let lost = remote("ws://no-such-host.invalid", factory.clone());
    let environment = remote(server.url(), factory);
    for environment in [&lost, &environment] {
        let error = soon(environment.info()).await.unwrap_err().to_string();
        assert!(error.contains("application network policy"), "{error}");
    }
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    soon(environment.info()).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_no_longer_allowed_ends_and_comes_back_with_the_permission() {
    let server = ServerProcess::start().await;
    let (controller, policy, factory) = controlled();
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    let environment = remote(server.url(), factory);
    let backend = environment.get_exec_backend();
    let process = soon(backend.start(script("p", "sleep 0.5; echo kept"))).await.unwrap().process;
    let mut states = environment.subscribe_connection_state().unwrap();
    let restricted = DestinationPolicy::Restricted { allowed_hosts: vec!["elsewhere.example".into()] };
    assert!(controller.publish(policy.revision(), restricted));
    soon(states.wait_for(|state| *state == EnvironmentConnectionState::Disconnected)).await.unwrap();
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("kept\n".into(), 0));
}

#[tokio::test]
async fn a_socket_in_the_file_system_is_asked_about_as_well() {
    let (controller, policy, factory) = controlled();
    let environment = remote("unix:/nonexistent/socket", factory);
    for allowed in [false, true] {
        if allowed {
            assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
        }
        let error = soon(environment.wait_until_ready()).await.unwrap_err().to_string();
        assert_eq!(error.contains("application network policy"), !allowed, "{error}");
    }
}

/// Requests of the local environment are connections of this process.
#[tokio::test]
async fn local_requests_ask_the_policy_at_every_hop() {
    let web = Web::start(|path| match path {
        "/hold" => Act::Hold(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart".to_vec()),
        _ => Act::Send(response("200 OK", b"hello")),
    })
    .await;
    let (controller, policy, factory) = controlled();
    let environment = Environment::local(ExecServerRuntimePaths::itself(), &factory);
    let http = environment.get_http_client();
    let get = |path: &str| HttpRequest::new("GET", format!("{}{path}", web.url));
    let error = soon(http.request(get("/"))).await.unwrap_err();
    assert!(error.to_string().contains("application network policy is not yet available"), "{error}");
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    assert_eq!(soon(http.request(get("/"))).await.unwrap().body, b"hello");
    let mut streamed = soon(http.stream(get("/hold"))).await.unwrap();
    assert_eq!(soon(streamed.body.next()).await.unwrap().unwrap(), b"part");
    let ending = tokio::spawn(async move { streamed.body.next().await });
    policy.invalidate();
    let error = soon(ending).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("application network policy no longer allows"), "{error}");
}
