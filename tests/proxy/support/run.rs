use std::future::poll_fn;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use exec_server::network::desk::{Desk, Outgoing};
use exec_server::network::proxy::guest::Guest;
use exec_server::network::proxy::own::OwnListeners;
use exec_server::network::proxy::site::Site;
use exec_server::network::proxy::upstream::UpstreamSettings;
use exec_server::network::proxy::{Endpoints, Proxy};
use exec_server::protocol::network::{
    ClientDecision, DomainAccess, NetworkProxyLaunch, NetworkRequest, PolicyDecisionParams, ProxySettings,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Connection, Names};

/// What the client says when it is asked; `None` is an answer that does not count.
pub(crate) type Answers = Box<dyn Fn(&NetworkRequest) -> Option<ClientDecision> + Send>;

/// What has come to the client.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) questions: Vec<NetworkRequest>,
    pub(crate) reports: Vec<PolicyDecisionParams>,
}

/// A proxy with a client.
pub(crate) struct Run {
    pub(crate) proxy: Proxy,
    pub(crate) endpoints: Endpoints,
    pub(crate) own: Arc<OwnListeners>,
    pub(crate) names: Arc<Names>,
    heard: watch::Receiver<Heard>,
    client: JoinHandle<()>,
}

/// Settings that allow these patterns.
pub(crate) fn settings(allow: &[&str]) -> ProxySettings {
    ProxySettings {
        domains: Some(allow.iter().map(|text| ((*text).to_owned(), DomainAccess::Allow)).collect()),
        ..ProxySettings::closed()
    }
}

pub(crate) fn launch(proxy: ProxySettings, decision_ms: Option<u64>) -> NetworkProxyLaunch {
    NetworkProxyLaunch {
        proxy,
        audit_metadata: None,
        environment_id: None,
        execution_id: None,
        policy_decision_timeout_ms: decision_ms.and_then(NonZeroU64::new),
    }
}

impl Run {
    /// A proxy that allows these patterns and asks nobody.
    pub(crate) fn allowing(allow: &[&str]) -> Self {
        Self::new(settings(allow), Names::default())
    }

    pub(crate) fn new(settings: ProxySettings, names: Names) -> Self {
        Self::full(launch(settings, None), names, 64, UpstreamSettings::default(), Box::new(|_| None))
    }

    /// A proxy whose client is asked.
    pub(crate) fn asking(settings: ProxySettings, names: Names, answers: Answers) -> Self {
        Self::full(launch(settings, Some(5000)), names, 64, UpstreamSettings::default(), answers)
    }

    pub(crate) fn full(
        launch: NetworkProxyLaunch,
        names: Names,
        connections: usize,
        upstream: UpstreamSettings<'_>,
        answers: Answers,
    ) -> Self {
        let (own, names) = (Arc::new(OwnListeners::default()), Arc::new(names));
        let site = Site::new(connections, upstream, Arc::clone(&own)).with_resolver(names.clone());
        let desk = Arc::new(Desk::default());
        let (client, heard) = attend(&desk, answers);
        let proxy = Proxy::new(&launch, "p1".into(), desk, Arc::new(site)).unwrap();
        let doors = proxy.bind().unwrap();
        let endpoints = doors.endpoints();
        proxy.serve(doors, &Guest::default()).unwrap();
        Self { proxy, endpoints, own, names, heard, client }
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.endpoints.http
    }

    pub(crate) fn socks(&self) -> SocketAddr {
        self.endpoints.socks.unwrap()
    }

    /// Asks the proxy for a page.
    pub(crate) async fn get(&self, host: &str, port: u16) -> super::Reply {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        super::exchange(self.http(), request.as_bytes()).await
    }

    /// Asks the proxy for a tunnel.
    pub(crate) async fn tunnel(&self, host: &str, port: u16) -> (super::Reply, Connection) {
        let mut connection = Connection::to(self.http()).await;
        connection.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
        (connection.reply_to("CONNECT").await, connection)
    }

    /// The reports, once there are so many.
    pub(crate) async fn reports(&mut self, count: usize) -> Vec<PolicyDecisionParams> {
        let heard = self.heard.wait_for(|heard| heard.reports.len() >= count);
        let heard = tokio::time::timeout(Duration::from_secs(10), heard).await;
        heard.expect("reports come").unwrap().reports.clone()
    }

    /// The questions so far.
    pub(crate) fn questions(&self) -> Vec<NetworkRequest> {
        self.heard.borrow().questions.clone()
    }

    /// Waits until the client was asked so often.
    pub(crate) async fn asked(&mut self, count: usize) {
        let heard = self.heard.wait_for(|heard| heard.questions.len() >= count);
        tokio::time::timeout(Duration::from_secs(10), heard).await.expect("questions come").unwrap();
    }

    /// The client goes away.
    pub(crate) async fn leave(&mut self) {
        self.client.abort();
        assert!((&mut self.client).await.is_err());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.client.abort();
    }
}

/// Takes the client's seat. A question for which there is no decision stays open, if its host begins with `silent`.
fn attend(desk: &Arc<Desk>, answers: Answers) -> (JoinHandle<()>, watch::Receiver<Heard>) {
    let (tell, heard) = watch::channel(Heard::default());
    let seat = desk.attach();
    let task = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            match poll_fn(|cx| seat.poll_next(cx)).await {
                Outgoing::Report(report) => tell.send_modify(|heard| heard.reports.push(*report)),
                Outgoing::Question(question) => {
                    let request = question.params.request.clone();
                    tell.send_modify(|heard| heard.questions.push(request.clone()));
                    if request.host.starts_with("silent") {
                        open.push(question);
                    } else {
                        question.answer(answers(&request));
                    }
                }
            }
        }
    });
    (task, heard)
}
