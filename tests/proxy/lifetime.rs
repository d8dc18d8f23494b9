//! The end of a proxy, and what it refuses to be.

use std::sync::Arc;

use exec_server::network::desk::Desk;
use exec_server::network::proxy::bridge::Bridges;
use exec_server::network::proxy::own::{OwnListeners, Owner, Transport};
use exec_server::network::proxy::site::Site;
use exec_server::network::proxy::upstream::UpstreamSettings;
use exec_server::network::proxy::{LaunchError, Proxy};
use exec_server::protocol::network::{DomainAccess, ProxySettings, UnixSocketAccess};
use tokio::net::TcpStream;

use crate::support::{Connection, Names, Run, Target, echo, launch, settings};

#[tokio::test]
async fn closing_cuts_everything() {
    let port = echo().await;
    let mut run = Run::asking(settings(&["127.0.0.1"]), Names::default(), Box::new(|_| None));
    let (reply, mut tunnel) = run.tunnel("127.0.0.1", port).await;
    assert_eq!(reply.status, 200);
    tunnel.talk(b"x", b"x").await;
    let mut idle = Connection::to(run.http()).await;
    let mut socks = Connection::to(run.socks()).await;
    socks.talk(&[5, 1, 0], &[5, 0]).await;
    let mut asking = Connection::to(run.http()).await;
    asking.send(b"GET http://silent.test/ HTTP/1.1\r\nHost: silent.test\r\n\r\n").await;
    run.asked(1).await;
    run.proxy.close();
    for connection in [&mut tunnel, &mut idle, &mut socks, &mut asking] {
        assert_eq!(connection.rest().await, b"");
    }
    run.proxy.closed().await;
    assert!(TcpStream::connect(run.http()).await.is_err());
    assert!(TcpStream::connect(run.socks()).await.is_err());
}

#[tokio::test]
async fn dropping_is_closing() {
    let (mut tunnel, http) = {
        let port = echo().await;
        let run = Run::allowing(&["127.0.0.1"]);
        let (_, mut tunnel) = run.tunnel("127.0.0.1", port).await;
        tunnel.talk(b"x", b"x").await;
        (tunnel, run.http())
    };
    assert_eq!(tunnel.rest().await, b"");
    while TcpStream::connect(http).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn proxies_do_not_share_anything() {
    let (one, other) = (Run::allowing(&["127.0.0.1"]), Run::allowing(&[]));
    let target = Target::ok().await;
    assert_eq!(one.get("127.0.0.1", target.port).await.status, 200);
    assert_eq!(other.get("127.0.0.1", target.port).await.status, 403);
    let ports = [one.http(), one.socks(), other.http(), other.socks()].map(|address| address.port());
    assert_eq!(std::collections::BTreeSet::from(ports).len(), 4);
}

fn site(own: &Arc<OwnListeners>) -> Arc<Site> {
    Arc::new(Site::new(8, UpstreamSettings::default(), Arc::clone(own)))
}

fn refused(settings: ProxySettings) -> LaunchError {
    let site = site(&Arc::default());
    Proxy::new(&launch(settings, None), "p1".into(), Arc::new(Desk::default()), site).unwrap_err()
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let good = settings(&[]);
    let sockets = [("run/x".to_owned(), UnixSocketAccess::Allow)];
    let rules = [("*".to_owned(), DomainAccess::Deny)];
    for (wrong, field) in [
        (ProxySettings { enabled: false, ..good.clone() }, "networkProxy.proxy.enabled"),
        (ProxySettings { credential_masking: true, ..good.clone() }, "credentialMasking"),
        (ProxySettings { transparent_tcp: true, enable_socks5: false, ..good.clone() }, "enableSocks5"),
        (
            ProxySettings { unix_sockets: Some(sockets.into()), ..good.clone() },
            "`run/x` must be an absolute path",
        ),
        (ProxySettings { domains: Some(rules.into()), ..good.clone() }, "networkProxy.proxy.domains: `*`"),
        (ProxySettings { review_domains: vec!["a:1".to_owned()], ..good }, "reviewDomains: `a:1`"),
    ] {
        let message = refused(wrong).to_string();
        assert!(message.contains(field), "{message}");
    }
}

#[tokio::test]
async fn a_bridge_leads_to_one_endpoint_and_ends() {
    let own = Arc::<OwnListeners>::default();
    let endpoint = format!("127.0.0.1:{}", echo().await).parse().unwrap();
    let bridges = Bridges::new(&[endpoint], &site(&own)).unwrap();
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let door = inside.local_addr().unwrap();
    bridges.serve(inside, endpoint).unwrap();
    let mut connection = Connection::to(door).await;
    connection.talk(b"ping", b"ping").await;
    drop(bridges);
    assert_eq!(connection.rest().await, b"");
}

#[test]
fn a_bridge_does_not_lead_to_the_server() {
    let own = Arc::<OwnListeners>::default();
    let _server = own.add(Owner::Server, Transport::Tcp, 4000);
    let _proxy = own.add(Owner::Proxy, Transport::Tcp, 4001);
    let to = |port: u16| Bridges::new(&[([127, 0, 0, 1], port).into()], &site(&own));
    assert!(to(4000).unwrap_err().to_string().contains("127.0.0.1:4000"));
    assert!(to(4001).is_ok(), "the proxy of another run is one");
}
