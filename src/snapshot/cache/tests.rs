use std::future::{pending, ready};
use std::sync::atomic::AtomicUsize;

use pretty_assertions::assert_eq;
use tokio::sync::oneshot;
use tokio::time::advance;

use super::*;
use crate::snapshot::shell::{Replay, State};
use crate::snapshot::variables::Changes;

fn snapshot(bytes: usize) -> Snapshot {
    let replay = Replay::Bash { prelude: String::new(), as_startup_file: true };
    Snapshot::new(Changes::default(), State { exported: Vec::new(), script: vec![b'x'; bytes], replay })
        .unwrap()
}

fn key(number: u8) -> Key {
    Key([number; 32])
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Restored(_) => "restored",
        Answer::Captured(_) => "captured",
        Answer::Fallback(Fallback::TurnedOff) => "off",
        Answer::Fallback(Fallback::Failed(_)) => "failed",
        Answer::Fallback(Fallback::TooSoon(_)) => "too soon",
        Answer::Fallback(Fallback::Spent { .. }) => "spent",
    }
}

async fn good(session: &SessionSnapshots, number: u8) -> &'static str {
    word(&session.obtain(key(number), || ready(Ok(snapshot(1)))).await)
}

async fn bad(session: &SessionSnapshots, number: u8, error: CaptureError) -> &'static str {
    word(&session.obtain(key(number), || ready(Err(error))).await)
}

#[tokio::test]
async fn a_snapshot_serves_its_session_and_key_alone() {
    let cache = SnapshotCache::new(1 << 20);
    let (one, two) = (cache.session(), cache.session());
    assert_eq!(good(&one, 1).await, "captured");
    assert_eq!(good(&one, 1).await, "restored");
    assert_eq!(good(&one, 2).await, "captured");
    assert_eq!(good(&two, 1).await, "captured");
    drop(one);
    assert_eq!(cache.table().slots.len(), 1);
    assert_eq!(good(&two, 1).await, "restored");
}

#[tokio::test(start_paused = true)]
async fn three_captures_a_second_apart() {
    let session = SnapshotCache::new(1 << 20).session();
    for _ in 0..3 {
        assert_eq!(bad(&session, 1, CaptureError::Exit).await, "failed");
        advance(Duration::from_millis(999)).await;
        let expected = if session.cache.table().slots[&(session.session, key(1))].failures.spent {
            "spent"
        } else {
            "too soon"
        };
        assert_eq!(good(&session, 1).await, expected);
        advance(Duration::from_millis(1)).await;
    }
    advance(Duration::from_secs(3600)).await;
    assert_eq!(good(&session, 1).await, "spent");
    assert_eq!(good(&session, 2).await, "captured", "another key has captures of its own");
}

#[tokio::test(start_paused = true)]
async fn a_capture_after_a_failure_serves() {
    let session = SnapshotCache::new(1 << 20).session();
    assert_eq!(bad(&session, 1, CaptureError::Exit).await, "failed");
    advance(Duration::from_secs(1)).await;
    assert_eq!(good(&session, 1).await, "captured");
    assert_eq!(good(&session, 1).await, "restored");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_spends_all() {
    let session = SnapshotCache::new(1 << 20).session();
    assert_eq!(bad(&session, 1, CaptureError::Timeout(Duration::from_secs(10))).await, "failed");
    advance(Duration::from_secs(60)).await;
    let answer = session.obtain(key(1), || ready(Ok(snapshot(1)))).await;
    let Answer::Fallback(fallback) = answer else { panic!("{answer:?}") };
    assert!(fallback.to_string().contains("10000 ms"), "{fallback}");
}

#[tokio::test]
async fn those_who_wait_share_one_capture() {
    for outcome in [true, false] {
        let session = Arc::new(SnapshotCache::new(1 << 20).session());
        let (finish, finished) = oneshot::channel();
        let captures = Arc::new(AtomicUsize::new(0));
        let first = {
            let (session, captures) = (Arc::clone(&session), Arc::clone(&captures));
            tokio::spawn(async move {
                let capture = || async move {
                    captures.fetch_add(1, Ordering::SeqCst);
                    finished.await.unwrap()
                };
                word(&session.obtain(key(1), capture).await)
            })
        };
        while captures.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> = (0..5)
            .map(|_| {
                let session = Arc::clone(&session);
                tokio::spawn(async move { good(&session, 1).await })
            })
            .collect();
        tokio::task::yield_now().await;
        finish.send(if outcome { Ok(snapshot(1)) } else { Err(CaptureError::Exit) }).unwrap();
        assert_eq!(first.await.unwrap(), if outcome { "captured" } else { "failed" });
        for other in others {
            let expected: &[&str] = if outcome { &["restored"] } else { &["failed", "too soon"] };
            let word = other.await.unwrap();
            assert!(expected.contains(&word), "{word}");
        }
    }
}

#[tokio::test]
async fn a_capture_ends_with_the_last_who_waits_and_was_none() {
    struct Killed(Arc<AtomicUsize>);
    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let session = SnapshotCache::new(1 << 20).session();
    let kills = Arc::new(AtomicUsize::new(0));
    for round in 1..=5 {
        let killed = Killed(Arc::clone(&kills));
        let endless = || async move {
            let _killed = killed;
            pending().await
        };
        let mut first = Box::pin(session.obtain(key(1), endless));
        let mut second = Box::pin(session.obtain(key(1), || ready(Ok(snapshot(1)))));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(kills.load(Ordering::SeqCst), round - 1, "one still waits");
        drop(second);
        assert_eq!(kills.load(Ordering::SeqCst), round);
    }
    assert_eq!(good(&session, 1).await, "captured");
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_of_sixteen_goes() {
    let cache = SnapshotCache::new(1 << 20);
    let (session, other) = (cache.session(), cache.session());
    assert_eq!(good(&other, 1).await, "captured");
    assert_eq!(bad(&session, 0, CaptureError::Exit).await, "failed");
    for number in 1..16 {
        assert_eq!(good(&session, number).await, "captured");
    }
    // A use without a snapshot is one too.
    assert_eq!(good(&session, 0).await, "too soon");
    assert_eq!(good(&session, 16).await, "captured");
    assert_eq!(good(&session, 0).await, "too soon");
    assert_eq!(good(&session, 1).await, "captured", "it had to go, and its coming back drives out the next");
    assert_eq!(good(&session, 3).await, "restored");
    assert_eq!(good(&session, 2).await, "captured");
    assert_eq!(good(&other, 1).await, "restored");
}

#[tokio::test]
async fn a_capture_whose_place_is_gone_still_serves_those_who_wait() {
    let session = SnapshotCache::new(1 << 20).session();
    let (finish, finished) = oneshot::channel();
    let mut first = Box::pin(session.obtain(key(0), || async { finished.await.unwrap() }));
    assert!(first.as_mut().now_or_never().is_none());
    for number in 1..=16 {
        good(&session, number).await;
    }
    finish.send(Ok(snapshot(1))).unwrap();
    assert_eq!(word(&first.await), "captured");
    assert_eq!(good(&session, 0).await, "captured");
}

#[tokio::test]
async fn one_limit_of_bytes_for_all_sessions() {
    let size = snapshot(1000).size();
    let cache = SnapshotCache::new(3 * size);
    let (one, two) = (cache.session(), cache.session());
    let large = |bytes| move || ready(Ok(snapshot(bytes)));
    for (session, number) in [(&one, 1), (&two, 1), (&one, 2)] {
        assert_eq!(word(&session.obtain(key(number), large(1000)).await), "captured");
    }
    assert_eq!(good(&one, 1).await, "restored");
    assert_eq!(word(&two.obtain(key(2), large(1000)).await), "captured");
    assert_eq!(cache.table().bytes(), 3 * size);
    assert_eq!(good(&one, 1).await, "restored");
    assert_eq!(
        word(&two.obtain(key(1), large(1000)).await),
        "captured",
        "used least recently, in the other session"
    );
    let answer = two.obtain(key(3), large(4000)).await;
    assert_eq!(word(&answer), "failed");
    let Answer::Fallback(fallback) = answer else { unreachable!() };
    assert!(fallback.to_string().contains("snapshot.cache_bytes"), "{fallback}");
    assert_eq!(cache.table().bytes(), 3 * size);
}

#[test]
fn what_keys_depend_on() {
    let of = |change: serde_json::Value| {
        let mut params = serde_json::json!({
            "processId": "p", "argv": ["/bin/sh", "-lc", "x"], "cwd": "file:///", "env": {}, "tty": false,
            "envPolicy": {"inherit": "all", "ignoreDefaultExcludes": false, "exclude": [], "set": {}, "includeOnly": []},
            "shellSnapshot": {"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}},
        });
        for (member, value) in change.as_object().unwrap() {
            params[member] = value.clone();
        }
        Key::of(&serde_json::from_value(params).unwrap())
    };
    let plain = of(json!({}));
    for same in [
        json!({"processId": "q"}),
        json!({"argv": ["/bin/sh", "-lc", "y"]}),
        json!({"env": {"A": "1"}}),
        json!({"tty": true}),
        json!({"pipeStdin": true}),
    ] {
        assert_eq!(of(same.clone()), plain, "{same}");
    }
    for other in [
        json!({"cwd": "file:///tmp"}),
        json!({"arg0": "sh"}),
        json!({"envPolicy": null}),
        json!({"shellSnapshot": {"scopeId": "t", "shell": {"name": "sh", "path": "/bin/sh"}}}),
        json!({"shellSnapshot": {"scopeId": "s", "shell": {"name": "bash", "path": "/bin/sh"}}}),
        json!({"sandbox": {"permissions": {"type": "disabled"}, "workspaceRoots": [], "windowsSandboxLevel": "disabled"}}),
    ] {
        assert_ne!(of(other.clone()), plain, "{other}");
    }
    assert_eq!(of(json!({"shellSnapshot": null})), None);
}
