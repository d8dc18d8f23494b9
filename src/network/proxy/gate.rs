//! Decides about one destination: by the rules, by the client where they leave it open, and by the addresses behind the
//! name. Whoever is let through gets exactly the addresses that were looked at.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::own::Transport;
use super::report::{Reporter, timestamp};
use super::resolve::known;
use super::site::Site;
use crate::network::desk::Desk;
use crate::policy::egress::{EgressRules, Judgement, Refusal};
use crate::policy::hosts::Host;
use crate::protocol::network::{
    ClientDecision, Decision, DecisionScope, DecisionSource, NetworkProtocol, NetworkRequest,
    PolicyDecisionParams,
};
use crate::protocol::process::ProcessId;

/// How long a lookup may take.
const LOOKUP: Duration = Duration::from_secs(2);
/// Lookups of one proxy at a time, so that it leaves some to others.
const LOOKUPS: usize = 16;
/// Addresses of a name that count.
const ADDRESSES: usize = 64;
/// What a report shows of a method, and of a host that is none.
const SHOWN_CHARS: usize = 253;
/// The reason where the client has overruled the rules, or said nothing that counts.
const NOT_ALLOWED: &str = "not_allowed";
/// The reason why nothing of this server is reached.
pub(super) const OWN_LISTENER: &str = "own_listener";

/// What a process wants to reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt<'a> {
    /// How.
    pub(super) protocol: NetworkProtocol,
    /// As the process writes it, without brackets.
    pub(super) host: &'a str,
    /// The port.
    pub(super) port: u16,
    /// Of HTTP.
    pub(super) method: Option<&'a str>,
    /// Who has connected to the proxy.
    pub(super) peer: Option<SocketAddr>,
}

/// Where an attempt may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// The destination.
    pub(super) host: Host,
    /// Its port.
    pub(super) port: u16,
    /// What to dial, and nothing else. None, where the name is unknown here and may be local.
    pub(super) addresses: Vec<SocketAddr>,
}

/// Why an attempt goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// The destination in its usual form.
    pub(super) host: String,
    /// A word, or what the client says.
    pub(super) reason: String,
    /// That it is blocked, or that the client asks its user.
    pub(super) decision: Decision,
    /// Who has decided.
    pub(super) source: DecisionSource,
    /// What about.
    pub(super) scope: DecisionScope,
}

/// Decides for one proxy.
#[derive(Debug)]
pub(super) struct Gate {
    process_id: ProcessId,
    rules: EgressRules,
    /// How long the client has for an answer. `None`: it is not asked.
    time: Option<Duration>,
    desk: Arc<Desk>,
    reporter: Arc<Reporter>,
    site: Arc<Site>,
    lookups: Arc<Semaphore>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// What a gate is made of.
pub(super) struct Parts {
    pub(super) process_id: ProcessId,
    pub(super) rules: EgressRules,
    pub(super) time: Option<Duration>,
    pub(super) desk: Arc<Desk>,
    pub(super) reporter: Reporter,
    pub(super) site: Arc<Site>,
    pub(super) closing: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Gate {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { process_id, rules, time, desk, reporter, site, closing, tasks } = parts;
        let reporter = Arc::new(reporter);
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        Self { process_id, rules, time, desk, reporter, site, lookups, closing, tasks }
    }

    /// Decides, and reports it. May wait for the client. Cancel-safe: a decision that nobody waits for is not made.
    ///
    /// # Errors
    /// It is blocked.
    pub(super) async fn decide(&self, attempt: &Attempt<'_>) -> Result<Route, Block> {
        let decided = self.examine(attempt).await;
        let (route, source) = decided.inspect_err(|block| self.report_block(attempt, block))?;
        self.report_pass(attempt, &route, source);
        let mode = self.rules.check_mode(attempt.protocol, attempt.method, attempt.port);
        match mode {
            Ok(()) => Ok(route),
            Err(refusal) => {
                let scope = (DecisionScope::NonDomain, DecisionSource::ModeGuard);
                let block = block(&route.host, refusal.reason(), scope);
                self.report_block(attempt, &block);
                Err(block)
            }
        }
    }

    /// Refuses what this proxy cannot do, and reports it.
    pub(super) fn refuse(&self, attempt: &Attempt<'_>, reason: &str) -> Block {
        let scope = (DecisionScope::NonDomain, DecisionSource::ProxyState);
        let host = attempt.host.parse::<Host>().map_or_else(|_| shown(attempt.host), |host| host.to_string());
        let block = block(host, reason, scope);
        self.report_block(attempt, &block);
        block
    }

    pub(super) fn rules(&self) -> &EgressRules {
        &self.rules
    }

    async fn examine(&self, attempt: &Attempt<'_>) -> Result<(Route, DecisionSource), Block> {
        let Ok(host) = attempt.host.parse::<Host>() else {
            return Err(by_rule(shown(attempt.host), Refusal::NotAllowed));
        };
        let source = match self.rules.judge(&host) {
            Judgement::Allowed => DecisionSource::BaselinePolicy,
            Judgement::Unlisted => self.ask(attempt, &host).await?,
            Judgement::Refused(refusal) => return Err(by_rule(&host, refusal)),
        };
        let addresses = self.resolve(&host, attempt.port).await;
        let found: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
        self.rules.check_addresses(&host, &found).map_err(|refusal| by_rule(&host, refusal))?;
        let transport = match attempt.protocol {
            NetworkProtocol::Socks5Udp => Transport::Udp,
            _ => Transport::Tcp,
        };
        if addresses.iter().any(|address| self.site.own.own(transport, *address)) {
            let scope = (DecisionScope::NonDomain, DecisionSource::ProxyState);
            return Err(block(&host, OWN_LISTENER, scope));
        }
        Ok((Route { host, port: attempt.port, addresses }, source))
    }

    async fn ask(&self, attempt: &Attempt<'_>, host: &Host) -> Result<DecisionSource, Block> {
        let Some(time) = self.time else { return Err(by_rule(host, Refusal::NotAllowed)) };
        let request =
            NetworkRequest { protocol: attempt.protocol, host: host.to_string(), port: attempt.port };
        let (decision, reason) = match self.desk.ask(&self.process_id, request, time).await {
            Some(ClientDecision::Allow) => return Ok(DecisionSource::Decider),
            Some(ClientDecision::Deny { reason }) => (Decision::Deny, reason),
            Some(ClientDecision::Ask { reason }) => (Decision::Ask, reason),
            None => (Decision::Deny, NOT_ALLOWED.to_owned()),
        };
        let scope = (DecisionScope::Domain, DecisionSource::Decider);
        Err(Block { decision, ..block(host, reason, scope) })
    }

    /// Nothing where the lookup fails or takes too long.
    async fn resolve(&self, host: &Host, port: u16) -> Vec<SocketAddr> {
        let mut found = match known(host, port) {
            Some(found) => found,
            None => {
                let found = tokio::time::timeout(LOOKUP, self.look_up(host.to_string(), port)).await;
                found.ok().flatten().unwrap_or_default()
            }
        };
        // What is not looked at is not dialled either.
        found.truncate(ADDRESSES);
        found
    }

    /// A lookup has its turn until it ends or the proxy does, also when nobody waits for it any more: the resolver goes
    /// on all the same.
    async fn look_up(&self, name: String, port: u16) -> Option<Vec<SocketAddr>> {
        let turn = Arc::clone(&self.lookups).acquire_owned().await.ok()?;
        let (resolver, closing) = (Arc::clone(&self.site.resolver), self.closing.clone());
        let lookup = self.tasks.spawn(async move {
            let found = closing.run_until_cancelled(resolver.resolve(name, port)).await;
            drop(turn);
            found
        });
        lookup.await.ok()??.ok()
    }

    fn report_pass(&self, attempt: &Attempt<'_>, route: &Route, source: DecisionSource) {
        let by_client = source == DecisionSource::Decider;
        let passed = Block {
            host: route.host.to_string(),
            reason: if by_client { NOT_ALLOWED } else { "allow" }.to_owned(),
            decision: Decision::Allow,
            source,
            scope: DecisionScope::Domain,
        };
        self.report(attempt, &passed, by_client);
    }

    fn report_block(&self, attempt: &Attempt<'_>, block: &Block) {
        self.report(attempt, block, false);
    }

    fn report(&self, attempt: &Attempt<'_>, what: &Block, policy_override: bool) {
        let due = self.reporter.tell(PolicyDecisionParams {
            process_id: self.process_id.clone(),
            timestamp: timestamp(),
            scope: what.scope,
            decision: what.decision,
            source: what.source,
            reason: what.reason.clone(),
            protocol: attempt.protocol,
            host: what.host.clone(),
            port: attempt.port,
            method: attempt.method.map(shown),
            client: attempt.peer.map(|peer| peer.to_string()),
            policy_override,
            count: None,
        });
        if let Some(due) = due {
            let (reporter, closing) = (Arc::clone(&self.reporter), self.closing.clone());
            self.tasks.spawn(async move {
                closing.run_until_cancelled(tokio::time::sleep_until(due)).await;
                reporter.flush();
            });
        }
    }
}

fn by_rule(host: impl ToString, refusal: Refusal) -> Block {
    block(host, refusal.reason(), (DecisionScope::Domain, DecisionSource::BaselinePolicy))
}

fn block(
    host: impl ToString,
    reason: impl Into<String>,
    (scope, source): (DecisionScope, DecisionSource),
) -> Block {
    Block { host: host.to_string(), reason: reason.into(), decision: Decision::Deny, source, scope }
}

/// Of a text that the process writes, what can be shown.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS).collect()
}
