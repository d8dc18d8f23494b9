//! What is left of sockets where the network is restricted.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;

use super::{Area, forced, stderr};
use crate::support::{Daemon, LIMIT, eventually};

/// No family but the local one, and of that no datagrams; nothing that goes round the filter.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn no_other_sockets(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let script = "import ctypes, errno, socket\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        def call(*a):\n  r = libc.syscall(*a)\n  return errno.errorcode[ctypes.get_errno()] if r < 0 else 'OPEN'\n\
        S, P = (41, 53)\n\
        bad = [(f, t) for f in range(0, 46) for t in (1, 2, 3, 5) if f != 1 and call(S, f, t, 0) == 'OPEN']\n\
        print(bad, {call(S, 1, t | flags, 0) for t in (0, 2, 3, 4, 10) for flags in (0, 0o4000, 0o2000000)})\n\
        pair = (ctypes.c_int * 2)()\n\
        print(call(P, 1, 2, 0, pair), call(P, 1, 3, 0, pair), call(P, 1, 1, 0, pair), call(P, 1, 5, 0, pair))\n\
        print(call(S, ctypes.c_long(1 << 32 | 2), 1, 0), call(425, 8, pair), call(0x40000000 + 41, 2, 1, 0), call(101, 16, 1, 0, 0))\n\
        print(call(248, b'user', b'x', b'y', 1, -2), call(250, 0, -3, 0), call(310, 1, 0, 0, 0, 0, 0))\n\
        print(call(52, 0, pair, pair), call(55, 0, 1, 3, pair, pair))\n";
    let run = client.run(&area.python(script, area.read_only())).await;
    let expected = "[] {'EPERM'}\nEPERM EPERM OPEN OPEN\nEPERM EPERM ENOSYS EPERM\nEPERM EPERM EPERM\nENOTSOCK ENOTSOCK\n";
    assert_eq!(run.text(), expected, "{}", stderr(&run));
}

/// Another architecture's calls end the process.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn another_architecture_is_fatal() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    // getpid by `int 0x80`.
    let script = "import ctypes, mmap\n\
        m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b814000000cd80c3'))\n\
        f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m))); print(f())\n";
    let run = client.run(&area.python(script, area.read_only())).await;
    assert_eq!((run.text().as_str(), &run.exited["signal"], run.exit()), ("", &json!("SIGSYS"), 159));
    assert_eq!(run.exited["sandboxDenied"], true);
}

/// Stream sockets made inside work: by path, relative and absolute, over links, by abstract name, blocking and not.
#[tokio::test]
async fn its_own_sockets_work() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = format!(
        "import os, socket, threading\n\
        def serve(name, kind=socket.SOCK_STREAM):\n  s = socket.socket(socket.AF_UNIX, kind); s.bind(name); s.listen(1)\n  \
        def loop():\n    while True:\n      c, _ = s.accept(); c.sendall(b'hello'); c.close()\n  \
        threading.Thread(target=loop, daemon=True).start()\n\
        def ask(name, kind=socket.SOCK_STREAM):\n  s = socket.socket(socket.AF_UNIX, kind); s.connect(name); return s.recv(9).decode()\n\
        serve('sock'); serve('\\0abstract'); serve('seq', socket.SOCK_SEQPACKET); os.symlink('sock', 'alias')\n\
        print(ask('sock'), ask('{w}/sock'), ask('alias'), ask('./../w/sock'), ask('\\0abstract'), ask('seq', socket.SOCK_SEQPACKET))\n\
        def fails(name, kind=socket.SOCK_STREAM):\n  try: ask(name, kind); return 'REACHED'\n  except OSError as e: return os.strerror(e.errno)\n\
        print(fails('f'), '|', fails('missing'), '|', fails('sock', socket.SOCK_SEQPACKET), '|', fails('\\0nobody'), '|', fails('x' * 107))\n\
        os.mkdir('sub'); os.chdir('sub'); print(ask('../sock'))\n\
        s = socket.socket(socket.AF_UNIX); s.setblocking(False); print(s.connect_ex('../sock'), s.recv(9) if not s.setblocking(True) else 0)\n\
        pool = [threading.Thread(target=lambda: [ask('../sock') for _ in range(20)]) for _ in range(8)]\n\
        [t.start() for t in pool]; [t.join() for t in pool]; print('end')\n",
        w = area.w.display()
    );
    let run = client.run(&area.python(&script, area.workspace_write())).await;
    let expected = "hello hello hello hello hello hello\n\
        Connection refused | No such file or directory | Protocol wrong type for socket | Connection refused | No such file or directory\n\
        hello\n0 b'hello'\nend\n";
    assert_eq!(run.text(), expected, "{}", stderr(&run));
}

/// A connection that must wait holds up nobody else, and can be killed.
#[tokio::test]
async fn a_connection_that_waits_holds_up_nobody() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "import os, socket\n\
        s = socket.socket(socket.AF_UNIX); s.bind('full'); s.listen(0)\n\
        t = socket.socket(socket.AF_UNIX); t.bind('free'); t.listen(9)\n\
        pids = []\n\
        for i in range(4):\n  pid = os.fork()\n  if not pid: socket.socket(socket.AF_UNIX).connect('full'); os._exit(0)\n  pids.append(pid)\n\
        for i in range(5): socket.socket(socket.AF_UNIX).connect('free')\n\
        print('free'); [os.kill(p, 9) for p in pids]; [os.waitpid(p, 0) for p in pids]; print('killed')\n";
    let run = client.run(&area.python(script, area.workspace_write())).await;
    assert_eq!(run.text(), "free\nkilled\n", "{}", stderr(&run));
}

/// An address that changes while it is looked at leads nowhere else.
#[tokio::test]
async fn addresses_cannot_be_swapped() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let host = std::os::unix::net::UnixListener::bind(area.w.join("host")).unwrap();
    host.set_nonblocking(true).unwrap();
    let script = "import ctypes, os, socket, threading, time\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        own = socket.socket(socket.AF_UNIX); own.bind('mine'); own.listen(64)\n\
        def drain():\n  while True: own.accept()[0].close()\n\
        threading.Thread(target=drain, daemon=True).start()\n\
        address = (ctypes.c_char * 110)(*b'\\x01\\0mine\\0')\n\
        stop = False\n\
        def swap():\n  while not stop: address[2:7] = b'host\\0'; address[2:7] = b'mine\\0'\n\
        def link():\n  while not stop:\n    for n in ('mine', 'host'): os.symlink(n, 'l2'); os.rename('l2', 'link')\n\
        [threading.Thread(target=f).start() for f in (swap, link)]\n\
        end = time.monotonic() + 3; n = 0\n\
        while time.monotonic() < end:\n  s = socket.socket(socket.AF_UNIX); n += libc.connect(s.fileno(), address, 7) == 0\n  \
        s = socket.socket(socket.AF_UNIX); s.connect_ex('link')\n\
        stop = True; print('end', n > 0, flush=True); os._exit(0)\n";
    let run = client.run(&area.python(script, area.workspace_write())).await;
    assert_eq!(run.text(), "end True\n", "{}", stderr(&run));
    assert!(host.accept().is_err(), "nobody came");
}

/// The host can be reached with the network enabled, and only then.
#[tokio::test]
async fn enabled_networks_reach_the_host() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script =
        format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')");
    assert_eq!(client.run(&area.python(&script, area.networked())).await.text(), "connected\n");
    let restricted = client.run(&area.python(&script, area.workspace_write())).await;
    assert_eq!((restricted.text().as_str(), restricted.exit()), ("", 1));
    assert!(listener.accept().is_ok() && listener.accept().is_err());
    let vsock = "import socket\ntry: socket.socket(40, 1)\nexcept PermissionError: print('refused')";
    assert_eq!(client.run(&area.python(vsock, area.networked())).await.text(), "refused\n");
}

/// A socket that the program binds in its workspace can be reached from outside.
#[tokio::test]
async fn the_host_reaches_a_socket_of_the_program() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen(1); print('up', flush=True); s.accept()[0].sendall(b'hello')";
    let start = area.python(script, area.workspace_write());
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let socket = area.w.join("sock");
    eventually("it is there", LIMIT, || socket.exists()).await;
    let mut text = String::new();
    UnixStream::connect(socket).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(client.finish(&start.id()).await.exit(), 0);
}
