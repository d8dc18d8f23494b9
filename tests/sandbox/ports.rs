//! Without namespaces: TCP to ports that are named, and nothing else.

use std::net::TcpListener;

use exec_server::protocol::sandbox::SandboxGap;
use exec_server::sandbox::{NetworkIsolation, SandboxError, WantedNetwork};
use libtest_mimic::Trial;
use pretty_assertions::assert_eq;

use crate::support::{
    PRELUDE, contexts, disabled, landlocked, prepare, private, read_only, run, sandboxes, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("only_named_ports_are_reached", only_named_ports),
        test("no_socket_goes_round_the_rules", no_way_round),
        test("the_gap_must_be_accepted", the_gap),
        test("what_was_chosen_for_another_backend_is_refused", the_other_backend),
    ]
}

const GAP: [SandboxGap; 1] = [SandboxGap::ProxyPortAnyHost];

async fn only_named_ports() {
    let (open, closed) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    closed.set_nonblocking(true).unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let script = format!(
        "{PRELUDE}\nprint(reach('127.0.0.1', {0}), reach('127.0.0.1', {1}), reach('::1', {1}), reach('203.0.113.1', 80))\n\
        print(attempt(lambda: socket.create_connection(('127.0.0.1', {0}), 20).close()))",
        port(&open),
        port(&closed)
    );
    let server = landlocked(&GAP);
    assert_eq!(server.network_isolation(false).unwrap(), NetworkIsolation::Ports);
    for context in contexts() {
        let mut running = run(&server, &context, WantedNetwork::Ports(vec![port(&open)]), &script).await;
        assert!(running.entrance.is_none());
        assert!(running.gaps.contains(&SandboxGap::ProxyPortAnyHost), "{context}");
        assert_eq!(running.rest().await, "OK EACCES EACCES EACCES\nOK\n", "{context}");
    }
    assert!(closed.accept().is_err(), "nobody came");
}

/// Sockets of other kinds, other ways to connect, and being connected to.
async fn no_way_round() {
    let (open, closed) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    closed.set_nonblocking(true).unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let script = format!(
        "{PRELUDE}\n\
        kinds = {{(f, t, p): call(41, f, t, p) for f in range(0, 47) for t in (1, 2, 3, 4, 5, 10) for p in (0, 6, 17, 132, 256, 262)}}\n\
        print(sorted(key for key in kinds if kinds[key] == 'OK'), {{found for found in kinds.values() if found != 'OK'}})\n\
        def fresh(): return socket.socket()\n\
        there = ('127.0.0.1', {1})\n\
        print(attempt(lambda: fresh().sendto(b'x', socket.MSG_FASTOPEN, there)), attempt(lambda: fresh().sendmsg([b'x'], [], socket.MSG_FASTOPEN, there)))\n\
        deferred = fresh(); deferred.setsockopt(6, 30, 1)\n\
        print(attempt(lambda: deferred.connect(there)), attempt(lambda: fresh().setsockopt(6, 31, b'smc')), attempt(lambda: fresh().sendto(b'x', there)))\n\
        print(attempt(lambda: fresh().bind(('127.0.0.1', 0))), attempt(lambda: fresh().bind(('127.0.0.1', {0}))), attempt(lambda: fresh().listen()))\n\
        met = fresh(); met.connect(('127.0.0.1', {0}))\n\
        unspecified = (ctypes.c_char * 16)()\n\
        print(call(42, met.fileno(), unspecified, 16), attempt(lambda: met.connect(there)))\n\
        print(call(425, 8, (ctypes.c_int * 30)()), call(101, 0, 0, 0, 0), attempt(lambda: socket.socketpair()[0].close()))",
        port(&open),
        port(&closed)
    );
    for context in [read_only(), disabled()] {
        let ports = WantedNetwork::Ports(vec![port(&open)]);
        let mut running = run(&landlocked(&GAP), &context, ports, &script).await;
        let expected = "[(2, 1, 0), (2, 1, 6), (10, 1, 0), (10, 1, 6)] {'EPERM'}\nEPERM EPERM\nEACCES EPERM EPIPE\n\
            EPERM EPERM EPERM\nOK EACCES\nEPERM EPERM OK\n";
        assert_eq!(running.rest().await, expected, "{context}");
    }
    assert!(closed.accept().is_err(), "nobody came");
}

async fn the_gap() {
    let other = [SandboxGap::OutsideMetadata, SandboxGap::ProtectedMetadata];
    let server = landlocked(&other);
    let refused = [
        server.network_isolation(false).map(|_| ()).unwrap_err(),
        prepare(&server, &read_only(), WantedNetwork::Ports(vec![1])).await.map(|_| ()).unwrap_err(),
        prepare(&server, &disabled(), WantedNetwork::Ports(vec![1])).await.map(|_| ()).unwrap_err(),
    ];
    for error in refused {
        let SandboxError::Unavailable { message, gaps } = error else { panic!("{error}") };
        assert_eq!(gaps, GAP);
        assert!(message.contains("sandbox.accept_gaps") && message.contains("proxyPortAnyHost"), "{message}");
    }
}

/// A server whose backend has changed between the question and the start does not take one for the other.
async fn the_other_backend() {
    for context in contexts() {
        let ports = prepare(&sandboxes(), &context, WantedNetwork::Ports(vec![1])).await;
        assert!(matches!(ports, Err(SandboxError::Preparation(_))), "{context}");
        let private = prepare(&landlocked(&GAP), &context, private(&[4301])).await;
        assert!(matches!(private, Err(SandboxError::Unavailable { .. })), "{context}");
    }
}
