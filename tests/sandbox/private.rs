//! A network of a run's own: what works in it, and that nothing leads out.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};

use exec_server::sandbox::{NetworkIsolation, SandboxError};
use libtest_mimic::Trial;
use pretty_assertions::assert_eq;

use crate::support::{
    PRELUDE, contexts, disabled, launching, prepare, private, read_only, run, sandboxes, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("only_the_server_s_listeners_are_reached_whatever_the_policy_says", only_the_listeners),
        test("other_kinds_of_sockets_are_refused", other_sockets),
        test("the_loopback_works", the_loopback),
        test("what_lies_on_the_host_is_not_there", the_host),
        test("programs_find_no_descriptor_of_the_server_s", no_descriptors),
        test("connections_wait_for_a_server_that_is_not_ready", the_backlog),
        test("a_start_that_fails_breaks_its_promise", a_broken_promise),
        test("as_many_ports_as_there_may_be", many_ports),
        test("what_is_handed_over_is_given_back", nothing_leaks),
        test("files_stay_free_where_only_the_network_is_isolated", free_files),
    ]
}

/// Addresses outside are unreachable, those of the loopback where nothing listens are refused.
async fn only_the_listeners() {
    let sandboxes = sandboxes();
    assert_eq!(sandboxes.network_isolation(false).unwrap(), NetworkIsolation::Private);
    let script = format!(
        "{PRELUDE}\n\
        peer = socket.create_connection(('127.0.0.1', 4301), 20); peer.sendall(b'ping'); print(peer.recv(9).decode())\n\
        print(reach('203.0.113.1', 80), reach('10.0.0.1', 80), reach('2001:db8::1', 80))\n\
        print(reach('203.0.113.1', 53, socket.SOCK_DGRAM), reach('2001:db8::1', 53, socket.SOCK_DGRAM))\n\
        print(reach('127.0.0.1', 4302), reach('127.0.0.2', 4301), reach('::1', 4301), reach('::ffff:127.0.0.1', 4302))\n\
        print(reach('::ffff:127.0.0.1', 4301), reach('169.254.169.254', 80), reach('0.0.0.0', 4302))"
    );
    for context in contexts() {
        let mut running = run(&sandboxes, &context, private(&[4301]), &script).await;
        let entrance = running.entrance().await;
        entrance.listeners[0].set_nonblocking(false).unwrap();
        let (mut peer, from) = tokio::task::block_in_place(|| entrance.listeners[0].accept()).unwrap();
        assert!(from.ip().is_loopback());
        let mut received = [0; 4];
        peer.read_exact(&mut received).unwrap();
        peer.write_all(b"pong").unwrap();
        let expected = "pong\nENETUNREACH ENETUNREACH ENETUNREACH\nENETUNREACH ENETUNREACH\n\
            ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED\nOK ENETUNREACH ECONNREFUSED\n";
        assert_eq!(running.rest().await, expected, "{context}");
    }
}

async fn other_sockets() {
    let script = format!(
        "{PRELUDE}\n\
        kinds = {{(f, t): call(41, f, t, 0) for f in range(0, 47) for t in (1, 2, 3, 4, 5)}}\n\
        print(sorted(key for key in kinds if kinds[key] == 'OK'), {{kinds[f, t] for f, t in kinds if f not in (2, 10)}})\n\
        print(call(41, 16, 3, 9), call(41, 40, 1, 0), call(41, 1, 1 | 0o2000000, 0), call(41, 17, 3, 0x300))\n\
        print(call(425, 8, (ctypes.c_int * 30)()), call(101, 0, 0, 0, 0), call(41, 2, 3, 255))\n\
        pair = (ctypes.c_int * 2)()\n\
        print(call(53, 1, 1, 0, pair), call(53, 1, 5, 0, pair), call(53, 1, 2, 0, pair), call(53, 2, 1, 0, pair))"
    );
    let mut running = run(&sandboxes(), &disabled(), private(&[4301]), &script).await;
    let expected = "[(2, 1), (2, 2), (10, 1), (10, 2)] {'EPERM'}\nEPERM EPERM EPERM EPERM\nEPERM EPERM EPERM\n\
        OK OK EPERM EPERM\n";
    assert_eq!(running.rest().await, expected);
}

/// Servers and clients inside work as they do outside, and so do event loops.
async fn the_loopback() {
    let script = format!(
        "{PRELUDE}\n\
        import asyncio\n\
        def served(host, family):\n  \
            s = socket.socket(family); s.bind((host, 0)); s.listen(); port = s.getsockname()[1]\n  \
            threading.Thread(target=lambda: s.accept()[0].sendall(b'hello'), daemon=True).start()\n  \
            return socket.create_connection((host, port), 20).recv(9).decode()\n\
        print(served('127.0.0.1', socket.AF_INET), served('127.5.5.5', socket.AF_INET))\n\
        print(served('::1', socket.AF_INET6) if os.path.exists('/proc/net/if_inet6') else 'hello')\n\
        a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))\n\
        a.bind(('127.0.0.1', 0)); b.sendto(b'datagram', a.getsockname()); print(a.recv(99).decode())\n\
        async def loop():\n  \
            server = await asyncio.start_server(lambda r, w: (w.write(b'async'), w.close()), '127.0.0.1', 8123)\n  \
            reader, _ = await asyncio.open_connection('127.0.0.1', 8123)\n  \
            return (await reader.read()).decode(), await asyncio.to_thread(lambda: 1)\n\
        print(*asyncio.run(loop()), flush=True); os._exit(0)"
    );
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &script).await;
    assert_eq!(running.rest().await, "hello hello\nhello\ndatagram\nasync 1\n");
}

/// Neither listeners of the host nor those of another run are reached at their ports.
async fn the_host() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let sandboxes = sandboxes();
    let mut other = run(&sandboxes, &disabled(), private(&[4401]), "import time; time.sleep(1000)").await;
    let theirs = other.entrance().await;
    let script = format!(
        "{PRELUDE}\n\
        print(reach('127.0.0.1', {tcp_port}), reach('127.0.0.1', 4401))\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', {udp_port}))"
    );
    let mut running = run(&sandboxes, &disabled(), private(&[4301]), &script).await;
    assert_eq!(running.rest().await, "ECONNREFUSED ECONNREFUSED\n");
    assert!(tcp.accept().is_err() && udp.recv(&mut [0; 9]).is_err(), "nothing came");
    assert!(theirs.listeners[0].accept().is_err(), "nobody came");
}

/// Neither the program nor what it starts has a socket, and init can be neither looked into nor traced.
async fn no_descriptors() {
    let script = format!(
        "{PRELUDE}\n\
        import stat, subprocess\n\
        def sockets():\n  \
            found = []\n  \
            for fd in range(4096):\n    \
                try: found += [fd] if stat.S_ISSOCK(os.fstat(fd).st_mode) else []\n    \
                except OSError: pass\n  \
            return found\n\
        print(sockets(), sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:3])\n\
        print({{attempt(lambda: os.readlink(f'/proc/1/fd/{{fd}}')) for fd in range(64)}} <= {{'EACCES', 'ENOENT'}}, attempt(lambda: open('/proc/1/mem')))\n\
        pidfd = libc.syscall(434, 1, 0)\n\
        print(pidfd > 0, {{call(438, pidfd, fd, 0) for fd in range(64)}})"
    );
    let mut running = run(&sandboxes(), &disabled(), private(&[4301, 4302]), &script).await;
    assert_eq!(running.rest().await, "[] [0, 1, 2]\nTrue EACCES\nTrue {'EPERM'}\n");
}

/// A program may connect before anybody accepts.
async fn the_backlog() {
    let script = format!(
        "{PRELUDE}\n\
        peer = socket.create_connection(('127.0.0.1', 4301), 20); peer.sendall(b'early'); print('sent'); print(peer.recv(9).decode())"
    );
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &script).await;
    assert_eq!(running.line().await, "sent");
    let mut entrance = running.entrance().await;
    let listener = tokio::net::TcpListener::from_std(entrance.listeners.remove(0)).unwrap();
    let (peer, _) = listener.accept().await.unwrap();
    peer.writable().await.unwrap();
    peer.try_write(b"answer").unwrap();
    assert_eq!(running.rest().await, "answer\n");
}

async fn a_broken_promise() {
    let mut prepared = prepare(&sandboxes(), &read_only(), private(&[4301])).await.unwrap();
    let entrance = prepared.take_entrance().unwrap();
    assert!(prepared.take_entrance().is_none());
    let (_output, theirs) = rustix::pipe::pipe().unwrap();
    let launch = launching(&["/nonexistent/program"], theirs);
    tokio::task::block_in_place(|| exec_server::sandbox::launch::start(launch, prepared)).unwrap_err();
    assert!(entrance.await.is_err());
    let mut by_policy = prepare(&sandboxes(), &read_only(), Default::default()).await.unwrap();
    assert!(by_policy.take_entrance().is_none());
}

async fn many_ports() {
    let ports: Vec<u16> = (4301..4357).collect();
    let script = format!("{PRELUDE}\nprint({{reach('127.0.0.1', port) for port in range(4301, 4357)}})");
    let mut running = run(&sandboxes(), &read_only(), private(&ports), &script).await;
    let entrance = running.entrance().await;
    assert_eq!(running.rest().await, "{'OK'}\n");
    let bound = entrance.listeners.iter().map(|listener| listener.local_addr().unwrap().port());
    assert_eq!(bound.collect::<Vec<_>>(), ports);
    let too_many: Vec<u16> = (4301..4358).collect();
    let refused = prepare(&sandboxes(), &read_only(), private(&too_many)).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Preparation(_)), "{refused}");
    // A port that cannot be had fails the start.
    let twice = prepare(&sandboxes(), &read_only(), private(&[4301, 4301])).await.unwrap();
    let (_output, theirs) = rustix::pipe::pipe().unwrap();
    let launch = launching(&["/bin/true"], theirs);
    tokio::task::block_in_place(|| exec_server::sandbox::launch::start(launch, twice)).unwrap_err();
}

/// No descriptor stays behind, whether an entrance was taken or not.
async fn nothing_leaks() {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let sandboxes = sandboxes();
    let once = async |taken: bool| {
        let mut running = run(&sandboxes, &read_only(), private(&[4301, 4302]), "").await;
        let entrance = if taken { Some(running.entrance().await) } else { None };
        running.rest().await;
        drop((running, entrance));
    };
    once(true).await;
    let before = count();
    for round in 0..20 {
        once(round % 2 == 0).await;
    }
    assert!(count() <= before, "{} instead of {before}", count());
}

async fn free_files() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join(".git");
    let script = format!(
        "{PRELUDE}\n\
        os.mkdir('{0}'); open('{0}/config', 'w').write('made'); os.chmod('{0}/config', 0o640)\n\
        print(open('/proc/self/status').read().split('Seccomp:')[1].split()[0], os.getuid())",
        path.display()
    );
    let mut running = run(&sandboxes(), &disabled(), private(&[4301]), &script).await;
    let user = rustix::process::getuid().as_raw();
    assert_eq!(running.rest().await, format!("2 {user}\n"));
    assert_eq!(std::fs::read_to_string(path.join("config")).unwrap(), "made");
}
