//! Selected roots and their discovery through a manager, as the seeds have them: rows N3, N6, D6 and D7.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use exec_server::environment::{
    CapabilityDiscoverySnapshot, CapabilityRootLocation, EnvironmentManager,
    ExecutorCapabilityDiscoveryCache, REMOTE_ENVIRONMENT_ID, ResolvedSelectedCapabilityRoot,
    SelectedCapabilityRoot, SelectedCapabilityRootsStatus,
};
use exec_server::outbound::{DestinationPolicy, HttpClientFactory, NetworkPolicyController};
use exec_server::path_uri::PathUri;
use pretty_assertions::assert_eq;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::proxy::CutProxy;
use crate::support::server::ServerProcess;
use crate::support::{soon, until};

const SHORT: Option<Duration> = Some(Duration::from_millis(100));

fn select(environment: &str, path: &str) -> Vec<SelectedCapabilityRoot> {
    let (environment_id, path) = (environment.to_owned(), PathUri::from_host_native_path(path).unwrap());
    vec![SelectedCapabilityRoot {
        id: "root".into(),
        location: CapabilityRootLocation::Environment { environment_id, path },
    }]
}

async fn refused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("ws://{}", listener.local_addr().unwrap())
}

/// What a step does that holds on to the handle of now.
async fn resolve(
    manager: &EnvironmentManager,
    roots: &[SelectedCapabilityRoot],
) -> Vec<ResolvedSelectedCapabilityRoot> {
    let captured = HashMap::from([("x".to_owned(), manager.get_environment("x"))]);
    soon(manager.resolve_selected_capability_roots(roots, &captured)).await
}

async fn snapshot(
    cache: &ExecutorCapabilityDiscoveryCache,
    roots: &[ResolvedSelectedCapabilityRoot],
) -> CapabilityDiscoverySnapshot {
    timeout(Duration::from_secs(10), cache.snapshot(roots, &HashMap::new())).await.unwrap()
}

fn found(snapshot: &CapabilityDiscoverySnapshot) -> Result<String, String> {
    snapshot.roots()[0].result.as_ref().map(|found| found.id.clone()).map_err(Clone::clone)
}

/// N3.
#[tokio::test]
async fn discovery_recovers_with_the_network_policy() {
    let (server, room) = (ServerProcess::start().await, TempDir::new().unwrap());
    let controller = NetworkPolicyController::default();
    let policy = controller.policy();
    let http = HttpClientFactory::default().with_network_policy(policy.clone());
    let manager = EnvironmentManager::without_environments(http);
    manager.upsert_environment("x".into(), server.url().into(), None).unwrap();
    let cache = ExecutorCapabilityDiscoveryCache::default();
    let resolved = resolve(&manager, &select("x", room.path().to_str().unwrap())).await;
    let error = found(&snapshot(&cache, &resolved).await).unwrap_err();
    assert!(error.contains("application network policy"), "{error}");
    assert!(!cache.take_recovered_discovery());
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    assert_eq!(found(&snapshot(&cache, &resolved).await), Ok("root".into()));
    assert!(cache.take_recovered_discovery());
    assert!(!cache.take_recovered_discovery());
}

/// D6, D7.
#[tokio::test]
async fn a_handle_that_is_lost_stays_lost_and_the_next_one_is_reported() {
    let (server, room) = (ServerProcess::start().await, TempDir::new().unwrap());
    let manager = EnvironmentManager::default_for_tests();
    let roots = select("x", room.path().to_str().unwrap());
    let cache = ExecutorCapabilityDiscoveryCache::default();
    manager.upsert_environment("x".into(), refused_address().await, SHORT).unwrap();
    let lost = resolve(&manager, &roots).await;
    assert!(found(&snapshot(&cache, &lost).await).is_err());
    assert!(!cache.take_recovered_discovery());
    manager.upsert_environment("x".into(), server.url().into(), None).unwrap();
    soon(manager.get_environment("x").unwrap().wait_until_ready()).await.unwrap();
    assert!(found(&snapshot(&cache, &lost).await).is_err());
    let next = resolve(&manager, &roots).await;
    assert!(!Arc::ptr_eq(&lost[0].environment, &next[0].environment));
    assert_eq!(found(&snapshot(&cache, &next).await), Ok("root".into()));
    assert!(cache.take_recovered_discovery());
    assert!(!cache.take_recovered_discovery());
    assert!(found(&snapshot(&cache, &lost).await).is_err());
}

/// N6, N7.
#[tokio::test]
async fn inspection_follows_the_connection_of_a_manager() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let manager = EnvironmentManager::create_for_tests(Some(proxy.url()), None).await;
    let environment = manager.default_environment().unwrap();
    soon(environment.info()).await.unwrap();
    let roots = select(REMOTE_ENVIRONMENT_ID, "/plugins/demo");
    let ready = SelectedCapabilityRootsStatus { ready_roots: roots.clone(), warnings: Vec::new() };
    let look = || manager.inspect_selected_capability_roots(&roots);
    assert_eq!(look(), ready);
    let files = environment.get_filesystem_without_reconnect();
    proxy.pause();
    proxy.cut();
    until(|| look() != ready).await;
    assert_eq!(look(), SelectedCapabilityRootsStatus::default());
    let path = PathUri::parse("file:///plugins/demo").unwrap();
    let read = timeout(Duration::from_secs(1), files.read_directory(&path, None)).await.unwrap();
    assert!(read.is_err());
    proxy.resume();
    timeout(Duration::from_secs(5), until(|| look() == ready)).await.unwrap();
}
