//! Programs that know nothing of their proxy, in a transparent run.

use std::net::UdpSocket;

use serde_json::{Value, json};

use super::target::Target;
use super::{asking, launch};
use crate::support::{Daemon, Start, sandbox};

/// Connects without a proxy to what its arguments name, says what came, and goes on.
const CONNECT: &str = r#"
import errno, socket, sys
for host, port in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        # One address: after a reset while it connects, it would try the next.
        host = host if ':' in host else socket.gethostbyname(host)
        s = socket.create_connection((host, int(port)), 30)
        s.sendall(b'GET / HTTP/1.0\r\n\r\n')
        print(s.recv(999).decode().rpartition('\n')[2] or 'closed', flush=True)
    except OSError as error:
        print(errno.errorcode.get(error.errno, str(error)), flush=True)
"#;

fn connecting(to: &[(&str, u16)], mut launch: Value) -> Start {
    launch["proxy"]["transparentTcp"] = json!(true);
    let arguments = to.iter().flat_map(|(host, port)| [(*host).to_owned(), port.to_string()]);
    let argv = ["/usr/bin/python3", "-c", CONNECT].map(str::to_owned).into_iter().chain(arguments);
    Start::argv(argv).with("sandbox", sandbox::read_only("enabled")).with("networkProxy", launch)
}

/// An address of this machine that is not of the loopback.
fn address() -> String {
    let route = UdpSocket::bind("0.0.0.0:0").unwrap();
    route.connect("203.0.113.1:9").expect("this test needs an address beside the loopback");
    route.local_addr().unwrap().ip().to_string()
}

#[tokio::test]
async fn connections_go_by_the_rules_without_the_program_s_doing() {
    let (daemon, target, address) = (Daemon::start().await, Target::at("0.0.0.0").await, address());
    let client = daemon.client().await;
    let info = client.ok("environment/info", json!({})).await;
    assert_eq!(info["capabilities"]["networkProxyTransparentTcp"], true);
    let allowed = connecting(&[(&address, target.port)], launch(&json!({&address: "allow"})));
    let run = client.run(&allowed).await;
    assert_eq!((run.text().as_str(), target.hits()), ("HIT\n", 1));
    let refused = connecting(
        &[(&address, target.port), ("127.0.0.1", target.port), ("::ffff:127.0.0.1", target.port)],
        launch(&json!({"*": "allow"})),
    );
    let run = client.run(&refused).await;
    let lines: Vec<_> = run.text().lines().map(str::to_owned).collect();
    assert_eq!(lines, ["ECONNRESET", "ECONNREFUSED", "ECONNREFUSED"]);
    assert_eq!(target.hits(), 1, "nothing else was reached");
}

/// The client is asked about the name, not about the address that stands for it.
#[tokio::test]
async fn names_are_seen_by_the_rules() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = connecting(&[("some.example", 80), ("denied.example", 443)], {
        let mut launch = asking(&json!({"denied.example": "deny"}));
        launch["proxy"]["allowLocalBinding"] = json!(true);
        launch
    });
    client.start(&start).await;
    let request = json!({"protocol": "socks5_tcp", "host": "some.example", "port": 80});
    assert_eq!(client.question(1).await["params"]["request"], request);
    client.decide(1, json!({"type": "deny", "reason": "not today"})).await;
    assert_eq!(client.finish(&start.id()).await.text(), "ECONNRESET\nECONNRESET\n");
}

/// Who finds the listener and connects to it himself gets nowhere.
#[tokio::test]
async fn the_listener_itself_leads_nowhere() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "import socket\n\
        ports = {int(line.split()[1].split(':')[1], 16) for line in open('/proc/net/tcp') if line.split()[3] == '0A'}\n\
        found = []\n\
        for port in ports:\n  \
            try: s = socket.create_connection(('127.0.0.1', port), 20); s.sendall(b'GET http://127.0.0.1/ HTTP/1.0\\r\\n\\r\\n'); s.shutdown(1); found.append(s.recv(99)[:12])\n  \
            except OSError as error: found.append(type(error).__name__)\n\
        print(len(ports), 'ConnectionResetError' in found)";
    let mut launch = launch(&json!({"127.0.0.1": "allow"}));
    launch["proxy"]["transparentTcp"] = json!(true);
    let start = Start::argv(["/usr/bin/python3", "-c", script])
        .with("sandbox", sandbox::read_only("restricted"))
        .with("networkProxy", launch);
    // HTTP, SOCKS, DNS, and what is redirected.
    assert_eq!(client.run(&start).await.text(), "4 True\n");
}
