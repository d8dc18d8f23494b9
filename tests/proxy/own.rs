//! Nothing of the server itself is reached through its proxies.

use exec_server::network::proxy::own::{Owner, Transport};
use exec_server::protocol::network::{DecisionScope, DecisionSource, ProxySettings};

use crate::support::{Names, Run, Target, settings};

fn open() -> ProxySettings {
    ProxySettings { allow_local_binding: true, ..settings(&["*"]) }
}

#[tokio::test]
async fn a_proxy_does_not_lead_to_itself() {
    let names = Names::default().with("self.test", &[&["127.0.0.1"]]).with("any.test", &[&["::"]]);
    let mut run = Run::new(open(), names);
    let hosts = [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "127.0.0.9",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "self.test",
        "any.test",
    ];
    for (count, host) in hosts.iter().enumerate() {
        let reply = run.get(host, run.http().port()).await;
        assert_eq!(
            (reply.reason().as_str(), reply.header("x-proxy-error")),
            ("own_listener", Some("blocked-by-policy"))
        );
        let (tunnel, _) = run.tunnel(host, run.socks().port()).await;
        assert_eq!(tunnel.status, 403, "{host}");
        let reports = run.reports(2 * (count + 1)).await;
        let last = reports.last().unwrap();
        assert_eq!((last.scope, last.source), (DecisionScope::NonDomain, DecisionSource::ProxyState));
    }
}

#[tokio::test]
async fn a_rule_for_the_address_changes_nothing() {
    let run = Run::allowing(&["127.0.0.1"]);
    assert_eq!(run.get("127.0.0.1", run.http().port()).await.reason(), "own_listener");
}

#[tokio::test]
async fn what_the_server_listens_on_is_not_reached_while_it_listens() {
    let (target, run) = (Target::ok().await, Run::new(open(), Names::default()));
    let listening = run.own.add(Owner::Server, Transport::Tcp, target.port);
    assert_eq!(run.get("127.0.0.1", target.port).await.reason(), "own_listener");
    drop(listening);
    assert_eq!(run.get("127.0.0.1", target.port).await.status, 200);
}

#[tokio::test]
async fn ports_are_free_again_with_their_proxy() {
    let run = Run::new(open(), Names::default());
    let (own, http) = (run.own.clone(), run.http());
    assert!(own.own(Transport::Tcp, http));
    run.proxy.close();
    run.proxy.closed().await;
    assert!(!own.own(Transport::Tcp, http));
}
