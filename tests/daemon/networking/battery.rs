//! Attempts to get past the proxy of an enforced run, by everything that a program can think of. What counts is that no
//! connection reached what the rules forbid, and that the server is as well as before.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::{Value, json};
use test_case::test_case;
use tokio::net::{TcpListener, UdpSocket};

use super::launch;
use super::target::Target;
use crate::support::{Client, Daemon, Start, sandbox, work_dir};

/// What each attempt has: `T` and `U`, forbidden ports of TCP and UDP on 127.0.0.1, 127.0.0.3 and ::1; `A`, an allowed one
/// on 127.0.0.2; `D`, the server's; `OH` and `OS`, the proxy of another run that may reach `T`; `H` and `S`, its own.
const PRELUDE: &str = r#"
import array, ctypes, fcntl, os, socket, struct, subprocess, sys, time
T, U, A, D, OH, OS = (int(os.environ[name]) for name in ('T', 'U', 'A', 'D', 'OH', 'OS'))
H, S = (int(os.environ[name].rpartition(':')[2]) for name in ('HTTP_PROXY', 'ALL_PROXY'))
W = os.environ['W']
libc = ctypes.CDLL(None, use_errno=True)
socket.setdefaulttimeout(3)
WORD = b'GET / HTTP/1.0\r\n\r\n'
def direct(host, port=None, family=None):
    s = socket.socket(family or (socket.AF_INET6 if ':' in host else socket.AF_INET))
    s.connect((host, port or T)); s.sendall(WORD); s.recv(99)
def udp(host, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(b'hello', (host, U))
def raw(data, port=None, more=b''):
    s = socket.create_connection(('127.0.0.1', port or H)); s.sendall(data if isinstance(data, bytes) else data.encode())
    got = s.recv(4096)
    if more: s.sendall(more); got += s.recv(4096)
    return got
def get(host, port=None):
    authority = f'{host}:{port or T}'
    return raw(f'GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n')
def tunnel(host, port=None):
    authority = f'{host}:{port or T}'
    return raw(f'CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n', more=WORD)
def socks(address, port=None, command=1, door=None):
    s = socket.create_connection(('127.0.0.1', door or S)); s.sendall(b'\x05\x01\x00'); s.recv(2)
    s.sendall(b'\x05' + bytes([command]) + b'\x00' + address + struct.pack('>H', port or T))
    got = s.recv(99); s.sendall(WORD); return got + s.recv(99)
def named(name): return b'\x03' + bytes([len(name)]) + (name if isinstance(name, bytes) else name.encode())
def four(host): return b'\x01' + socket.inet_aton(host)
def six(host): return b'\x04' + socket.inet_pton(socket.AF_INET6, host)
def kind(family, type, proto=0):
    s = socket.socket(family, type, proto); s.connect(('127.0.0.1', T)); s.send(WORD); s.recv(99)
def body(head, inner=None):
    inner = inner or f'GET http://127.0.0.1:{T}/ HTTP/1.1\r\nHost: 127.0.0.1:{T}\r\n\r\n'
    return raw(f'POST http://127.0.0.2:{A}/ HTTP/1.1\r\nHost: 127.0.0.2:{A}\r\n{head}\r\n\r\n{inner}', more=WORD)
"#;

/// Ways around the proxy.
const AROUND: [&str; 44] = [
    "direct('127.0.0.1')",
    "direct('127.0.0.3')",
    "direct('localhost')",
    "direct('0.0.0.0')",
    "direct('::1')",
    "direct('::')",
    "direct('::ffff:127.0.0.1')",
    "direct('127.0.0.1', family=socket.AF_INET)",
    "direct('127.0.0.2', A)",
    "direct('127.0.0.1', D)",
    "direct('127.0.0.1', OH)",
    "direct('127.0.0.1', OS)",
    "direct('192.0.2.1', 80)",
    "direct('169.254.169.254', 80)",
    "udp('127.0.0.1')",
    "udp('127.0.0.3')",
    "udp('::1', socket.AF_INET6)",
    "udp('255.255.255.255')",
    "udp('224.0.0.1')",
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 0)); s.connect(('127.0.0.1', U)); s.send(b'x')",
    "socket.getaddrinfo('forbidden.example', 80)",
    "s = socket.socket(socket.AF_UNIX); s.connect(W + '/socket'); s.send(WORD)",
    "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['ABSTRACT']); s.send(WORD)",
    "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', W + '/socket')",
    "a, b = socket.socketpair(); a.connect(W + '/socket'); a.send(WORD)",
    "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(b'x' * 8, ('127.0.0.1', 0))",
    "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255).sendto(b'x' * 40, ('127.0.0.1', 0))",
    "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768).bind(('lo', 0))",
    "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).send(b'x' * 20)",
    "s = socket.socket(40, socket.SOCK_STREAM); s.connect((2, T)); s.send(WORD)",
    "kind(socket.AF_INET, socket.SOCK_STREAM, 262)",
    "kind(socket.AF_INET, socket.SOCK_STREAM, 132)",
    "kind(socket.AF_INET, socket.SOCK_SEQPACKET, 132)",
    "kind(43, socket.SOCK_STREAM, 0)",
    "kind(socket.AF_INET, socket.SOCK_DGRAM, 136)",
    "s = socket.socket(); s.sendto(WORD, 0x20000000, ('127.0.0.1', T)); s.recv(99)",
    "s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, 30, 1); s.connect(('127.0.0.1', T)); s.send(WORD); s.recv(9)",
    "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0'); s.connect(('127.0.0.1', T)); s.send(WORD)",
    "libc.unshare(0x10000000 | 0x40000000); direct('127.0.0.1')",
    "f = os.open('/proc/1/ns/net', 0); libc.setns(f, 0x40000000); direct('127.0.0.1')",
    "for pid in range(1, 9):\n  p = libc.syscall(434, pid, 0)\n  for fd in range(3, 40):\n   s = libc.syscall(438, p, fd, 0)\n   if s >= 0: os.write(s, WORD)",
    "for fd in range(3, 1024):\n  try: os.write(fd, WORD)\n  except OSError: pass",
    "print('OPEN') if libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0 else None",
    "subprocess.run(['curl', '-s', '--noproxy', '*', '-m', '3', f'http://127.0.0.1:{T}/', f'http://localhost:{T}/'])",
];

/// Ways through it.
const THROUGH: [&str; 64] = [
    "get('127.0.0.1')",
    "get('localhost')",
    "get('LOCALHOST.')",
    "get('127.0.0.1.')",
    "get('127.0.0.3')",
    "get('127.1')",
    "get('2130706433')",
    "get('0x7f000001')",
    "get('0177.0.0.1')",
    "get('017700000001')",
    "get('0x7f.1')",
    "get('0')",
    "get('0.0.0.0')",
    "get('[::1]')",
    "get('[::]')",
    "get('[::ffff:127.0.0.1]')",
    "get('[::ffff:7f00:1]')",
    "get('[::127.0.0.1]')",
    "get('[64:ff9b::7f00:1]')",
    "get('[2002:7f00:1::]')",
    "get('[::1%25lo]')",
    "get('127.0.0.2@127.0.0.1')",
    "get(f'127.0.0.2:{A}@127.0.0.1')",
    "get('127.0.0.1%2f127.0.0.2')",
    "get('127.0.0.2\\\\@127.0.0.1')",
    "get('127.0.0.2#@127.0.0.1')",
    "get('127\u{3002}0\u{3002}0\u{3002}1')",
    "get('\u{2460}\u{2461}\u{2466}.0.0.1')",
    "get('a.127.0.0.1.nip.invalid')",
    "raw(f'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{T}\\r\\n\\r\\n')",
    "raw(f'GET http://127.0.0.2:{A}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{T}\\r\\n\\r\\n')",
    "raw(f'GET http://127.0.0.1:{T}/ HTTP/1.1\\r\\nHost: 127.0.0.2:{A}\\r\\n\\r\\n')",
    "raw(f'GET / HTTP/1.1\\r\\nHost: 127.0.0.2:{A}\\r\\nHost: 127.0.0.1:{T}\\r\\n\\r\\n')",
    "raw(f'GET ws://127.0.0.1:{T}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{T}\\r\\nConnection: upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n')",
    "raw(f'GET ftp://127.0.0.1:{T}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{T}\\r\\n\\r\\n')",
    "raw(f'GET http://127.0.0.1:{T}/ HTTP/1.0\\r\\n\\r\\n')",
    "raw(f'GET http://127.0.0.2:{A}/ HTTP/1.1\\r\\nHost: 127.0.0.2:{A}\\r\\nX-Unix-Socket: {W}/socket\\r\\n\\r\\n')",
    "raw(f'GET http://127.0.0.2:{A}/ HTTP/1.1\\r\\nHost: 127.0.0.2:{A}\\r\\n\\r\\nGET http://127.0.0.1:{T}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{T}\\r\\n\\r\\n')",
    "body('Content-Length: 4\\r\\nTransfer-Encoding: chunked', '0\\r\\n\\r\\n' + f'GET http://127.0.0.1:{T}/ HTTP/1.1\\r\\n\\r\\n')",
    "body('Content-Length: 0\\r\\nContent-Length: 44')",
    "body('Content-Length: +0')",
    "body('Transfer-Encoding: xchunked')",
    "body('Transfer-Encoding : chunked', '0\\r\\n\\r\\n' + f'GET http://127.0.0.1:{T}/ HTTP/1.1\\r\\n\\r\\n')",
    "body('Transfer-Encoding: chunked, identity', '0\\r\\n\\r\\n' + f'GET http://127.0.0.1:{T}/ HTTP/1.1\\r\\n\\r\\n')",
    "body('Transfer-Encoding: chunked', 'ffffffffffffffff1\\r\\nx')",
    "body('X: y\\n\\nGET http://127.0.0.1/ HTTP/1.1')",
    "tunnel('127.0.0.1')",
    "tunnel('localhost')",
    "tunnel('[::1]')",
    "tunnel('2130706433')",
    "raw(f'CONNECT 127.0.0.1:{T} HTTP/1.1\\r\\nHost: 127.0.0.2:{A}\\r\\n\\r\\n', more=WORD)",
    "raw(f'CONNECT http://127.0.0.1:{T}/ HTTP/1.1\\r\\nHost: 127.0.0.2:{A}\\r\\n\\r\\n', more=WORD)",
    "raw(f'CONNECT 127.0.0.2:{A} HTTP/1.1\\r\\n\\r\\n', more=f'CONNECT 127.0.0.1:{T} HTTP/1.1\\r\\n\\r\\n'.encode())",
    "tunnel('127.0.0.1', D); tunnel('127.0.0.2', D); get('127.0.0.2', D)",
    "tunnel('127.0.0.1', OH); tunnel('127.0.0.2', OH); get('127.0.0.2', OH); socks(four('127.0.0.2'), OS)",
    "tunnel('127.0.0.1', H); tunnel('127.0.0.2', H); get('localhost', H); get('127.0.0.2', S)",
    "socks(four('127.0.0.1'))",
    "socks(four('127.0.0.3'))",
    "socks(six('::1'))",
    "socks(six('::ffff:127.0.0.1'))",
    "socks(named('localhost')); socks(named('127.0.0.1')); socks(named('127.1')); socks(named('0x7f000001'))",
    "socks(named(b'127.0.0.2\\x00.invalid')); socks(named(b'127.0.0.1\\x00')); socks(named(b''))",
    "socks(four('127.0.0.1'), command=2); socks(four('127.0.0.1'), command=9)",
    "c = socket.create_connection(('127.0.0.1', S)); c.sendall(b'\\x05\\x01\\x00'); c.recv(2); c.sendall(b'\\x05\\x03\\x00\\x01' + bytes(6)); r = c.recv(99); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor f in (0, 1): u.sendto(bytes([0, 0, f]) + four('127.0.0.1') + struct.pack('>H', U) + b'x', ('127.0.0.1', struct.unpack('>H', r[8:10])[0]))",
];

/// Inside a run: every attempt in a process of its own, then what is allowed, as a proof that the run could have reached
/// something.
fn script(attempts: &[&str]) -> String {
    let mut script = PRELUDE.to_owned();
    for attempt in attempts {
        let lines = format!("if not os.fork():\n try:\n  {}\n", attempt.replace('\n', "\n  "));
        script.push_str(&format!("{lines} finally: os._exit(0)\nos.wait()\n"));
    }
    script.push_str(
        "print('allowed', b'HIT' in get('127.0.0.2', A) and b'HIT' in socks(four('127.0.0.2'), A))\n",
    );
    script
}

/// What must not be reached.
struct Forbidden {
    tcp: Vec<Target>,
    udp: Vec<UdpSocket>,
    unix: [UnixListener; 2],
    name: String,
}

impl Forbidden {
    async fn new(directory: &std::path::Path) -> Self {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut tcp = vec![Target::on(first)];
        for address in ["127.0.0.3", "::1"] {
            // Another program may have this port there, and is then as forbidden; a machine may have no IPv6.
            if let Ok(listener) = TcpListener::bind((address, port)).await {
                tcp.push(Target::on(listener));
            }
        }
        let first = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut udp = vec![first];
        for address in ["127.0.0.3", "::1", "0.0.0.0"] {
            udp.extend(UdpSocket::bind((address, port)).await.ok());
        }
        let name = format!("exec-server-battery-{}", uuid::Uuid::new_v4());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let unix = [
            UnixListener::bind(directory.join("socket")).unwrap(),
            UnixListener::bind_addr(&abstract_name).unwrap(),
        ];
        unix.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        Self { tcp, udp, unix, name }
    }

    /// What has been reached after all.
    fn reached(&self) -> Vec<String> {
        let mut reached = Vec::new();
        for (number, target) in self.tcp.iter().enumerate().filter(|(_, target)| target.hits() > 0) {
            reached.push(format!("TCP {number}: {}", target.hits()));
        }
        for socket in &self.udp {
            if socket.try_recv(&mut [0; 99]).is_ok() {
                reached.push(format!("UDP {:?}", socket.local_addr()));
            }
        }
        reached.extend(
            self.unix.iter().filter_map(|unix| unix.accept().ok()).map(|peer| format!("unix {peer:?}")),
        );
        reached
    }
}

/// A run without a sandbox whose proxy may reach what is forbidden to the other; the ports of its listeners.
async fn other_run(client: &Client) -> (u16, u16) {
    let start = Start::sh("echo $HTTP_PROXY $ALL_PROXY; read line")
        .stdin()
        .with("networkProxy", launch(&json!({"127.0.0.1": "allow"})));
    client.start(&start).await;
    client.wait_output(&start.id(), "\n").await;
    let text = client.so_far(&start.id()).text();
    let ports: Vec<u16> =
        text.split_whitespace().map(|url| url.rsplit(':').next().unwrap().parse().unwrap()).collect();
    (ports[0], ports[1])
}

#[test_case("namespaces", "enabled", &AROUND; "around, with namespaces")]
#[test_case("namespaces", "restricted", &AROUND; "around, with namespaces and no network")]
#[test_case("landlock", "enabled", &AROUND; "around, with landlock")]
#[test_case("namespaces", "enabled", &THROUGH; "through, with namespaces")]
#[test_case("landlock", "restricted", &THROUGH; "through, with landlock")]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_forbidden_is_reached(backend: &str, network: &str, attempts: &[&str]) {
    let setup = Daemon::setup()
        .set("sandbox.backend", backend)
        .set("sandbox.accept_gaps", "proxyPortAnyHost,outsideMetadata,protectedMetadata");
    let daemon = setup.start().await;
    let client = daemon.client().await;
    let before = daemon.descriptors();
    let directory = work_dir();
    let forbidden = Forbidden::new(directory.path()).await;
    let allowed = Target::at("127.0.0.2").await;
    let (http, socks) = other_run(&client).await;
    let server = daemon.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let numbers = [
        ("T", forbidden.tcp[0].port.to_string()),
        ("U", forbidden.udp[0].local_addr().unwrap().port().to_string()),
        ("A", allowed.port.to_string()),
        ("D", server),
        ("OH", http.to_string()),
        ("OS", socks.to_string()),
        ("W", directory.path().to_str().unwrap().to_owned()),
        ("ABSTRACT", forbidden.name.clone()),
    ];
    let start = Start::argv(["/usr/bin/python3", "-c", &script(attempts)])
        .with("sandbox", sandbox::workspace(directory.path(), network))
        .with("enforceManagedNetwork", json!(true))
        .with("networkProxy", launch(&json!({"127.0.0.2": "allow"})));
    let start = numbers.iter().fold(start, |start, (name, value)| start.env(name, value));
    let run = client.run(&start).await;
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.text().trim(), "allowed True", "{told}");
    assert_eq!(forbidden.reached(), Vec::<String>::new());
    assert!(attempts == THROUGH || allowed.hits() == 2, "reached without the proxy: {}", allowed.hits());
    client.round_trip().await;
    client.ok("process/list", Value::Null).await;
    assert!(daemon.descriptors() < before + 32, "{} descriptors, {before} before", daemon.descriptors());
}
