//! Selected roots: which are ready, what they are bound to, and what is remembered of them. Rows D6 to D10, N3 and N6 of
//! the contract, as far as they need no registry of environments.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exec_server::environment::{
    CapabilityRootLocation, ClientOptions, Environment, ExecutorCapabilityDiscoveryCache, Readiness,
    ResolvedSelectedCapabilityRoot, SelectedCapabilityRoot, SelectedCapabilityRootsStatus,
    inspect_selected_capability_roots, resolve_selected_capability_roots,
};
use exec_server::path_uri::PathUri;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::messages::{Fate, MessageProxy, Way};
use crate::support::place::Room;
use crate::support::proxy::CutProxy;
use crate::support::sandbox::reading;
use crate::support::scripted::ScriptedServer;
use crate::support::server::ServerProcess;
use crate::support::{PATIENCE, soon, until};

fn select(id: &str, environment: &str, path: &Path) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot {
        id: id.to_owned(),
        location: CapabilityRootLocation::Environment {
            environment_id: environment.to_owned(),
            path: PathUri::from_native_path(path).unwrap(),
        },
    }
}

fn at(url: &str) -> Arc<Environment> {
    let options = ClientOptions { connect_timeout: Duration::from_secs(5), ..ClientOptions::default() };
    Arc::new(Environment::remote(url, options).unwrap())
}

fn bound(root: &SelectedCapabilityRoot, environment: &Arc<Environment>) -> ResolvedSelectedCapabilityRoot {
    ResolvedSelectedCapabilityRoot { selected_root: root.clone(), environment: Arc::clone(environment) }
}

/// An address at which nobody listens.
async fn refused_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("ws://{}", listener.local_addr().unwrap())
}

/// What a snapshot says of each root: its id, or an error.
async fn snapshot(
    cache: &ExecutorCapabilityDiscoveryCache,
    roots: &[ResolvedSelectedCapabilityRoot],
) -> Vec<Result<String, String>> {
    let snapshot = soon(cache.snapshot(roots, &HashMap::new())).await;
    let asked: Vec<_> = roots.iter().map(|root| &root.selected_root).collect();
    assert_eq!(snapshot.roots().iter().map(|root| &root.selected_root).collect::<Vec<_>>(), asked);
    snapshot.roots().iter().map(|root| root.result.clone().map(|found| found.id.clone())).collect()
}

fn inspect(
    roots: &[SelectedCapabilityRoot],
    known: &[(&str, &Arc<Environment>)],
) -> SelectedCapabilityRootsStatus {
    let known: HashMap<&str, &Arc<Environment>> = known.iter().copied().collect();
    inspect_selected_capability_roots(roots, |id| known.get(id).map(|known| Arc::clone(known)))
}

/// N6.
#[tokio::test]
async fn inspection_follows_the_connection_and_touches_nothing() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = at(&proxy.url());
    let root = select("demo@1", "remote", Path::new("/plugins/demo"));
    let look = || inspect(std::slice::from_ref(&root), &[("remote", &environment)]);
    let ready = SelectedCapabilityRootsStatus { ready_roots: vec![root.clone()], warnings: Vec::new() };
    assert_eq!(look(), SelectedCapabilityRootsStatus::default());
    soon(environment.info()).await.unwrap();
    assert_eq!(look(), ready);
    proxy.pause();
    proxy.cut();
    until(|| look() != ready).await;
    assert_eq!(look(), SelectedCapabilityRootsStatus::default());
    assert_eq!(environment.readiness(), Readiness::Recovering);
    proxy.resume();
    timeout(Duration::from_secs(5), until(|| look() == ready)).await.unwrap();
}

#[tokio::test]
async fn inspection_warns_of_what_will_not_get_better_by_itself() {
    let failed = at(&refused_url().await);
    soon(failed.wait_until_ready()).await.unwrap_err();
    let here = Arc::new(Environment::create_for_tests(None).unwrap());
    let roots = [
        select("a", "failed", Path::new("/a")),
        select("b", "unknown", Path::new("/b")),
        select("c", "here", Path::new("/c")),
        select("d", "unknown", Path::new("/d")),
        select("e", "failed", Path::new("/e")),
    ];
    let status = inspect(&roots, &[("failed", &failed), ("here", &here)]);
    assert_eq!(status.ready_roots, [roots[2].clone()]);
    let [failure, b, d] = status.warnings.as_slice() else { panic!("{status:?}") };
    assert!(failure.contains("`failed`") && failure.contains("refused"), "{failure}");
    for (warning, root) in [(b, "`b`"), (d, "`d`")] {
        assert!(warning.contains("references unavailable environment `unknown`"), "{warning}");
        assert!(warning.contains(root), "{warning}");
    }
}

#[tokio::test]
async fn a_captured_handle_counts_whatever_its_state() {
    let dead = at(&refused_url().await);
    let alive = Arc::new(Environment::create_for_tests(None).unwrap());
    let roots = [
        select("3", "kept", Path::new("/3")),
        select("1", "none", Path::new("/1")),
        select("2", "kept", Path::new("/2")),
        select("4", "here", Path::new("/4")),
    ];
    let captured = HashMap::from([("kept".to_owned(), Some(Arc::clone(&dead))), ("none".to_owned(), None)]);
    let lookup = |_: &str| Some(Arc::clone(&alive));
    let resolved = soon(resolve_selected_capability_roots(&roots, &captured, lookup)).await;
    let ids: Vec<_> = resolved.iter().map(|root| root.selected_root.id.as_str()).collect();
    assert_eq!(ids, ["3", "2", "4"]);
    assert!(resolved[..2].iter().all(|root| Arc::ptr_eq(&root.environment, &dead)));
    assert!(Arc::ptr_eq(&resolved[2].environment, &alive));
    // Nothing was dialled.
    assert_eq!(dead.readiness(), Readiness::Starting);
    assert!(!dead.startup_finished());
}

#[tokio::test]
async fn a_handle_that_is_not_captured_counts_when_it_is_ready() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = at(&proxy.url());
    let (root, none) = ([select("r", "e", Path::new("/r"))], HashMap::new());
    let resolve = async || {
        let resolved = resolve_selected_capability_roots(&root, &none, |_| Some(Arc::clone(&environment)));
        soon(resolved).await.len()
    };
    // A lazy one is started for the next time.
    assert_eq!(resolve().await, 0);
    until(|| environment.readiness() == Readiness::Ready).await;
    assert_eq!(resolve().await, 1);
    proxy.pause();
    proxy.cut();
    until(|| environment.readiness() == Readiness::Recovering).await;
    assert_eq!(resolve().await, 0);
    let unknown = resolve_selected_capability_roots(&root, &none, |_| None);
    assert_eq!(soon(unknown).await.len(), 0);
}

/// One that failed before gets one attempt each time, shared by its roots.
#[tokio::test]
async fn a_handle_that_failed_gets_one_attempt() {
    let server = ScriptedServer::start().await;
    let options = ClientOptions { initialize_timeout: PATIENCE, ..ClientOptions::default() };
    let environment = Arc::new(Environment::remote(&server.url(), options).unwrap());
    let (first, ()) = tokio::join!(environment.wait_until_ready(), async { drop(server.accept_raw().await) });
    first.unwrap_err();
    let roots = [select("a", "e", Path::new("/a")), select("b", "e", Path::new("/b"))];
    let none = HashMap::new();
    let resolve = || resolve_selected_capability_roots(&roots, &none, |_| Some(Arc::clone(&environment)));
    let (resolved, ()) = tokio::join!(soon(resolve()), async { drop(server.accept_raw().await) });
    assert_eq!(resolved.len(), 0);
    let (resolved, _connection) = tokio::join!(soon(resolve()), server.accept_session(json!({})));
    assert_eq!(resolved.len(), 2);
}

/// D6 and D7: what one handle says never counts for another, and a recovery is told once.
#[tokio::test]
async fn a_result_counts_for_the_handle_it_came_through() {
    let room = Room::new();
    let server = ServerProcess::start().await;
    let root = select("root", "captured", &room.path(""));
    let (old, new) = (at(&refused_url().await), at(server.url()));
    let cache = ExecutorCapabilityDiscoveryCache::default();
    let through = |environment: &Arc<Environment>| [bound(&root, environment)];
    assert!(snapshot(&cache, &through(&old)).await[0].is_err());
    assert!(!cache.take_recovered_discovery());
    assert_eq!(snapshot(&cache, &through(&new)).await, [Ok("root".to_owned())]);
    assert!(cache.take_recovered_discovery());
    assert!(!cache.take_recovered_discovery());
    assert!(snapshot(&cache, &through(&old)).await[0].is_err());
    assert_eq!(snapshot(&cache, &through(&new)).await, [Ok("root".to_owned())]);
    assert!(!cache.take_recovered_discovery(), "what is remembered does not recover");
}

/// N3, as far as the cache goes: what did not reach the executor is tried again, through the same handle.
#[tokio::test]
async fn a_failure_to_connect_is_not_remembered() {
    let room = Room::new();
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    proxy.pause();
    let root = [bound(&select("r", "e", &room.path("")), &at(&proxy.url()))];
    let cache = ExecutorCapabilityDiscoveryCache::default();
    assert!(snapshot(&cache, &root).await[0].is_err());
    assert!(!cache.take_recovered_discovery());
    proxy.resume();
    assert_eq!(snapshot(&cache, &root).await, [Ok("r".to_owned())]);
    assert!(cache.take_recovered_discovery());
    assert!(!cache.take_recovered_discovery());
}

/// Requests that a proxy has seen.
struct Counted {
    environment: Arc<Environment>,
    requests: Arc<AtomicUsize>,
    _proxy: MessageProxy,
    _server: ServerProcess,
}

impl Counted {
    async fn new() -> Self {
        let server = ServerProcess::start().await;
        let requests = Arc::<AtomicUsize>::default();
        let seen = Arc::clone(&requests);
        let rule = move |way: Way, message: &Value| {
            if way == Way::ToServer && message["method"] == "capabilityRoots/discoverV1" {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Fate::Pass
        };
        let proxy = MessageProxy::start(server.url(), rule).await;
        Self { environment: at(&proxy.url()), requests, _proxy: proxy, _server: server }
    }

    fn requests(&self) -> usize {
        self.requests.swap(0, Ordering::Relaxed)
    }
}

/// D8 and D10.
#[tokio::test]
async fn many_roots_are_asked_for_together_and_told_in_order() {
    let room = Room::new();
    let (counted, other) = (Counted::new().await, Counted::new().await);
    let mut roots: Vec<_> = (0..130)
        .map(|number| bound(&select(&format!("r{number}"), "e", &room.path("")), &counted.environment))
        .collect();
    roots.insert(65, bound(&select("other", "o", &room.path("")), &other.environment));
    let cache = ExecutorCapabilityDiscoveryCache::default();
    let told = snapshot(&cache, &roots).await;
    let ids: Vec<_> = roots.iter().map(|root| Ok(root.selected_root.id.clone())).collect();
    assert_eq!(told, ids);
    assert_eq!((counted.requests(), other.requests()), (2, 1));
    assert_eq!(snapshot(&cache, &roots).await, ids);
    assert_eq!((counted.requests(), other.requests()), (0, 0));
}

/// What the executor said of a root is remembered, be it that the root is not there; another sandbox is another question.
#[tokio::test]
async fn answers_are_remembered_by_root_and_sandbox() {
    let room = Room::new();
    let counted = Counted::new().await;
    std::fs::create_dir(room.path("here")).unwrap();
    let roots = [
        bound(&select("here", "e", &room.path("here")), &counted.environment),
        bound(&select("gone", "e", &room.path("gone")), &counted.environment),
    ];
    let cache = ExecutorCapabilityDiscoveryCache::default();
    for _ in 0..3 {
        let told = snapshot(&cache, &roots).await;
        assert!(told[0].is_ok() && told[1].as_ref().is_err_and(|text| text.contains("gone")), "{told:?}");
    }
    assert_eq!(counted.requests(), 1);
    let only_gone = HashMap::from([("e".to_owned(), reading(&[&room.path("gone")], &[]))]);
    for _ in 0..2 {
        let told = soon(cache.snapshot(&roots, &only_gone)).await;
        assert!(told.roots().iter().all(|root| root.result.is_err()));
    }
    assert_eq!(counted.requests(), 1);
    assert!(snapshot(&cache, &roots).await[0].is_ok());
}

/// One more than is kept costs the one that was used longest ago, and no other.
#[tokio::test]
async fn what_does_not_fit_costs_the_oldest_result_alone() {
    const KEPT: usize = 1_024;
    let room = Room::new();
    let place = room.path("place");
    std::fs::create_dir(&place).unwrap();
    let environment = Arc::new(Environment::create_for_tests(None).unwrap());
    let roots: Vec<_> =
        (0..=KEPT).map(|number| bound(&select(&format!("r{number}"), "e", &place), &environment)).collect();
    let cache = ExecutorCapabilityDiscoveryCache::default();
    assert!(snapshot(&cache, &roots[..KEPT]).await.iter().all(Result::is_ok));
    // The first is used again, so that the second is the oldest when the last comes.
    assert!(snapshot(&cache, &roots[..1]).await[0].is_ok());
    assert!(snapshot(&cache, &roots[KEPT..]).await[0].is_ok());
    std::fs::remove_dir(&place).unwrap();
    assert!(snapshot(&cache, &roots[1..2]).await[0].is_err(), "the oldest is kept");
    // What it was asked for again has taken the place of the third.
    let mut rest = roots;
    rest.drain(1..3);
    assert!(snapshot(&cache, &rest).await.iter().all(Result::is_ok));
}

/// Results of an environment that nobody holds any more are dropped, and no other environment inherits them.
#[tokio::test]
async fn a_cache_holds_no_environment() {
    let room = Room::new();
    let counted = Counted::new().await;
    let root = select("r", "e", &room.path(""));
    let cache = ExecutorCapabilityDiscoveryCache::default();
    let short_lived = Arc::new(Environment::create_for_tests(None).unwrap());
    let seen = Arc::downgrade(&short_lived);
    assert!(snapshot(&cache, &[bound(&root, &short_lived)]).await[0].is_ok());
    drop(short_lived);
    assert_eq!(seen.strong_count(), 0);
    assert!(snapshot(&cache, &[bound(&root, &counted.environment)]).await[0].is_ok());
    assert_eq!(counted.requests(), 1);
}

fn found(id: &str, path: &str) -> Value {
    json!({"id": id, "path": path, "plugin": null, "skills": [], "namespaceManifests": [], "warnings": [],
        "error": null})
}

/// D9, and an answer of the wrong length.
#[test_case(vec![found("a", "file:///a"), found("x", "file:///b"), found("c", "file:///x")], [true, false, false];
    "another id and another path")]
#[test_case(vec![found("b", "file:///b"), found("a", "file:///a"), found("c", "file:///c")], [false, false, true];
    "in another order")]
#[test_case(vec![found("a", "file:///a"), found("b", "file:///b")], [false, false, false]; "one too few")]
#[test_case(vec![found("a", "file:///a"); 4], [false, false, false]; "one too many")]
#[tokio::test]
async fn an_answer_counts_for_the_root_that_it_names(answer: Vec<Value>, good: [bool; 3]) {
    let server = ScriptedServer::start().await;
    let environment = at(&server.url());
    let roots = ["a", "b", "c"].map(|id| {
        let path = format!("/{id}");
        bound(&select(id, "e", Path::new(&path)), &environment)
    });
    let script = async {
        let mut connection = server.accept_session(json!({})).await;
        let call = connection.expect("capabilityRoots/discoverV1").await;
        connection.reply(&call, json!({"roots": answer})).await;
        connection
    };
    let cache = ExecutorCapabilityDiscoveryCache::default();
    let (told, _connection) = tokio::join!(snapshot(&cache, &roots), script);
    assert_eq!(told.iter().map(Result::is_ok).collect::<Vec<_>>(), good, "{told:?}");
}

/// A snapshot that is given up leaves nothing behind that a later one could trip over.
#[tokio::test]
async fn a_snapshot_may_be_given_up() {
    let server = ScriptedServer::start().await;
    let environment = at(&server.url());
    let root = [bound(&select("a", "e", Path::new("/a")), &environment)];
    let cache = ExecutorCapabilityDiscoveryCache::default();
    let mut connection = {
        let given_up = async {
            let mut connection = server.accept_session(json!({})).await;
            connection.expect("capabilityRoots/discoverV1").await;
            connection
        };
        tokio::select! {
            _ = snapshot(&cache, &root) => panic!("nobody answered"),
            connection = given_up => connection,
        }
    };
    let script = async {
        let call = connection.expect("capabilityRoots/discoverV1").await;
        connection.reply(&call, json!({"roots": [found("a", "file:///a")]})).await;
    };
    let (told, ()) = tokio::join!(snapshot(&cache, &root), script);
    assert_eq!(told, [Ok("a".to_owned())]);
    assert!(!cache.take_recovered_discovery());
}
