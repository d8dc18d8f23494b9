//! A private network that leads to the server what the program sends elsewhere.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use exec_server::sandbox::entrance::Intercepted;
use exec_server::sandbox::{NetworkIsolation, PrivateNetwork, SandboxError, WantedNetwork};
use libtest_mimic::Trial;
use pretty_assertions::assert_eq;
use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};

use crate::support::{PRELUDE, disabled, landlocked, read_only, run, sandboxes, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("connections_elsewhere_come_with_their_destination", connections),
        test("dns_comes_wherever_it_goes", dns),
        test("everything_else_goes_nowhere", everything_else),
        test("all_descriptors_come_also_of_a_transparent_network", many_ports),
        test("nothing_is_redirected_where_that_cannot_be", elsewhere),
    ]
}

fn transparent() -> WantedNetwork {
    WantedNetwork::Private(PrivateNetwork { ports: vec![4301], transparent: true })
}

/// Says its destination to whoever connects elsewhere, as long as there is the listener.
fn tell_destinations(intercepted: Vec<Intercepted>) {
    for Intercepted { flows, .. } in intercepted {
        flows.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = flows.accept() {
                let meant: SocketAddr = match flows.local_addr().unwrap().ip() {
                    IpAddr::V4(_) => ip_original_dst(&stream).unwrap().into(),
                    IpAddr::V6(_) => ipv6_original_dst(&stream).unwrap().into(),
                };
                stream.write_all(meant.to_string().as_bytes()).unwrap();
            }
        });
    }
}

async fn connections() {
    let sandboxes = sandboxes();
    assert_eq!(sandboxes.network_isolation(true).unwrap(), NetworkIsolation::Private);
    let script = format!(
        "{PRELUDE}\n\
        def meant(host, port): return socket.create_connection((host, port), 20).recv(99).decode()\n\
        print(meant('203.0.113.9', 443), meant('10.1.2.3', 1), meant('::ffff:192.0.2.1', 65535))\n\
        print(meant('2001:db8::7', 22) if os.path.exists('/proc/net/if_inet6') else '[2001:db8::7]:22')\n\
        own = socket.create_server(('127.0.0.1', 4400)); print(reach('127.0.0.1', 4400), reach('127.0.0.1', 4401), reach('127.9.9.9', 4401))\n\
        own = socket.create_server(('127.0.0.1', 8080)); print(meant('203.0.113.9', 8080), reach('127.0.0.1', 4301), reach('::1', 9))"
    );
    for context in [read_only(), disabled()] {
        let mut running = run(&sandboxes, &context, transparent(), &script).await;
        let entrance = running.entrance().await;
        let inside = entrance.inside;
        let ports = entrance.intercepted[0].flows.local_addr().unwrap();
        let refused = inside.connect(ports).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "it is the server's own");
        tell_destinations(entrance.intercepted);
        let expected = "203.0.113.9:443 10.1.2.3:1 192.0.2.1:65535\n[2001:db8::7]:22\nOK ECONNREFUSED ECONNREFUSED\n\
            203.0.113.9:8080 OK ECONNREFUSED\n";
        assert_eq!(running.rest().await, expected, "{context}");
    }
}

/// Messages and connections, to servers of the loopback too, and answers come from whom was asked.
async fn dns() {
    let script = format!(
        "{PRELUDE}\n\
        def ask(host):\n  \
            s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)\n  \
            s.settimeout(20); s.connect((host, 53)); s.send(b'question'); return s.recv(99).decode()\n\
        print(ask('127.0.0.53'), ask('203.0.113.53'), ask('127.0.0.1'))\n\
        print(ask('2001:db8::53') if os.path.exists('/proc/net/if_inet6') else 'QUESTION')\n\
        print(reach('203.0.113.53', 53), reach('127.0.0.53', 53))"
    );
    let mut running = run(&sandboxes(), &read_only(), transparent(), &script).await;
    for Intercepted { dns_messages, .. } in running.entrance().await.intercepted {
        dns_messages.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            let mut message = [0; 99];
            while let Ok((length, from)) = dns_messages.recv_from(&mut message) {
                dns_messages.send_to(&message[..length].to_ascii_uppercase(), from).unwrap();
            }
        });
    }
    assert_eq!(running.rest().await, "QUESTION QUESTION QUESTION\nQUESTION\nECONNREFUSED ECONNREFUSED\n");
}

/// Other datagrams vanish; interfaces can be looked at, and not changed.
async fn everything_else() {
    let script = format!(
        "{PRELUDE}\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n\
        print(s.sendto(b'x', ('203.0.113.1', 123)), attempt(lambda: s.recv(9)))\n\
        print(call(41, 16, 3, 0), call(41, 16, 3, 12), call(41, 16, 2, 15), call(41, 16, 3, 4), call(41, 1, 1, 0), call(41, 2, 3, 1))\n\
        link = socket.socket(16, 3, 0)\n\
        link.send(struct.pack('=LHHLL4xLLL', 32, 16, 5, 1, 0, 1, 0, 1)); print(struct.unpack_from('=i', link.recv(99), 16)[0])\n\
        print(attempt(lambda: link.setsockopt(1, 36, 1)))\n\
        print(sorted(name for _, name in socket.if_nameindex()))"
    );
    let mut running = run(&sandboxes(), &read_only(), transparent(), &script).await;
    let _entrance = running.entrance().await;
    let expected = "1 timed out\nOK EPERM EPERM EPERM EPERM EPERM\n-1\nEPERM\n['lo']\n";
    assert_eq!(running.rest().await, expected);
}

/// As many descriptors as there may be.
async fn many_ports() {
    let ports: Vec<u16> = (4301..4357).collect();
    let network = WantedNetwork::Private(PrivateNetwork { ports, transparent: true });
    let mut running = run(&sandboxes(), &read_only(), network, "").await;
    let entrance = running.entrance().await;
    let families = if std::path::Path::new("/proc/net/if_inet6").exists() { 2 } else { 1 };
    assert_eq!((entrance.listeners.len(), entrance.intercepted.len()), (56, families));
}

async fn elsewhere() {
    let refused =
        landlocked(&[exec_server::protocol::sandbox::SandboxGap::ProxyPortAnyHost]).network_isolation(true);
    assert!(matches!(refused, Err(SandboxError::Unavailable { .. })), "{refused:?}");
}
