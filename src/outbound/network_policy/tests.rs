use std::time::Duration;

use pretty_assertions::assert_eq;
use test_case::test_case;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;

fn restricted(hosts: &[&str]) -> DestinationPolicy {
    DestinationPolicy::Restricted { allowed_hosts: hosts.iter().map(ToString::to_string).collect() }
}

#[test]
fn nothing_is_allowed_before_something_is_published() {
    let controller = NetworkPolicyController::default();
    let policy = controller.policy();
    let refusal = policy.permit("wss", "a.example").unwrap_err();
    assert_eq!(refusal, PolicyRefusal::NotPublished);
    assert!(refusal.to_string().contains("application network policy"));
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    assert!(policy.clone().permit("ws", "127.0.0.1").is_ok());
}

#[test_case("wss", "a.example", true)]
#[test_case("https", "A.Example.", true; "case and one dot")]
#[test_case("https", "a.example..", false; "two dots")]
#[test_case("ws", "a.example", false; "in clear")]
#[test_case("http", "a.example", false; "http in clear")]
#[test_case("wss", "b.a.example", false; "below")]
#[test_case("wss", "xa.example", false; "a longer name")]
#[test_case("wss", "::1", true; "address in brackets")]
fn only_listed_hosts_and_only_encrypted(scheme: &str, host: &str, allowed: bool) {
    let controller = NetworkPolicyController::default();
    assert!(controller.publish(0, restricted(&["a.example", "[::1]"])));
    assert_eq!(controller.policy().permit(scheme, host).is_ok(), allowed);
}

#[test]
fn an_older_revision_is_not_published() {
    let controller = NetworkPolicyController::default();
    let policy = controller.policy();
    let revision = policy.revision();
    policy.invalidate();
    assert!(!controller.publish(revision, DestinationPolicy::Unrestricted));
    assert!(policy.permit("wss", "a.example").is_err());
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    assert!(policy.permit("wss", "a.example").is_ok());
}

#[tokio::test]
async fn narrowing_withdraws_what_is_no_longer_allowed_and_only_that() {
    let controller = NetworkPolicyController::default();
    let policy = controller.policy();
    assert!(controller.publish(0, DestinationPolicy::Unrestricted));
    let (kept, lost) = (policy.permit("wss", "a").unwrap(), policy.permit("wss", "b").unwrap());
    assert!(controller.publish(0, restricted(&["a"])));
    lost.withdrawn().await;
    assert!(timeout(Duration::from_millis(50), kept.withdrawn()).await.is_err());
    // Invalidated and published again before anybody looks: what ran has ended all the same.
    policy.invalidate();
    assert!(controller.publish(policy.revision(), DestinationPolicy::Unrestricted));
    kept.withdrawn().await;
}

#[tokio::test]
async fn a_guarded_stream_breaks_while_it_is_read() {
    let controller = NetworkPolicyController::default();
    let policy = controller.policy();
    assert!(controller.publish(0, DestinationPolicy::Unrestricted));
    let (near, mut far) = tokio::io::duplex(16);
    let mut near = policy.permit("wss", "a").unwrap().guard(near);
    far.write_all(b"x").await.unwrap();
    assert_eq!(near.read_u8().await.unwrap(), b'x');
    let reading = tokio::spawn(async move {
        let read = near.read_u8().await.unwrap_err();
        (read, near.write_u8(1).await.unwrap_err())
    });
    policy.invalidate();
    let (read, write) = reading.await.unwrap();
    for error in [read, write] {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert!(error.to_string().contains("application network policy"), "{error}");
    }
}
