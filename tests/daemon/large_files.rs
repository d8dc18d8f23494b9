//! Files that are answered in parts.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::stdio::StdioServer;
use super::support::{Client, Daemon, LIMIT, Start, eventually, unbase64, uri, work_dir};

/// What one part has of a file.
const PART: usize = 192 << 10;
const MIB: usize = 1 << 20;

/// No two parts of it are alike.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8) as u64)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(bytes)
        .collect()
}

fn written(directory: &Path, bytes: usize) -> (PathBuf, Vec<u8>) {
    let (path, content) = (directory.join(bytes.to_string()), content(bytes));
    std::fs::write(&path, &content).unwrap();
    (path, content)
}

fn params(path: &Path) -> Value {
    json!({"path": uri(path), "sandbox": null})
}

fn data(answer: &Value) -> Vec<u8> {
    unbase64(answer["dataBase64"].as_str().unwrap())
}

/// Around what is answered whole, and around the ends of parts.
const SIZES: [usize; 10] = [
    MIB - 1,
    MIB,
    MIB + 1,
    6 * PART - 1,
    6 * PART,
    6 * PART + 1,
    6 * PART + 2,
    7 * PART,
    9_999_991,
    40 * MIB,
];

#[tokio::test]
async fn every_size_is_whole() {
    let (daemon, place) = (Daemon::start().await, work_dir());
    let client = daemon.client().await;
    for size in SIZES {
        let (path, content) = written(place.path(), size);
        assert!(data(&client.ok("fs/readFile", params(&path)).await) == content, "{size}");
    }
}

#[tokio::test]
async fn over_standard_output_it_is_one_line() {
    let place = work_dir();
    let mut server = StdioServer::start();
    let mut wanted = Vec::new();
    let call = |id: usize, method: &str, params: Value| {
        json!({"id": id, "method": method, "params": params}).to_string() + "\n"
    };
    server.send(call(100, "initialize", json!({"clientName": "test"})).as_bytes()).await;
    server.send(b"{\"method\":\"initialized\"}\n").await;
    for (id, size) in SIZES[..9].iter().enumerate() {
        let (path, content) = written(place.path(), *size);
        server.send(call(id, "fs/readFile", params(&path)).as_bytes()).await;
        wanted.push(content);
    }
    server.end_input();
    let messages = server.rest().await;
    for (id, content) in wanted.iter().enumerate() {
        let answer = messages.iter().find(|message| message["id"] == id).unwrap();
        assert!(data(&answer["result"]) == *content, "{}", content.len());
    }
}

/// Answers and output come between messages, never inside one: else the client could read nothing.
#[tokio::test]
async fn others_are_answered_beside_it() {
    let (daemon, place) = (Daemon::start().await, work_dir());
    let client = daemon.client().await;
    let (path, content) = written(place.path(), 16 * MIB);
    let flood = Start::sh("head -c 30000000 /dev/zero");
    client.start(&flood).await;
    let asked = join_all((0..6).map(|_| client.send("fs/readFile", params(&path)))).await;
    for _ in 0..200 {
        client.round_trip().await;
    }
    for id in asked {
        assert!(data(&client.answer(id).await.unwrap()) == content);
    }
    assert_eq!(client.finish(&flood.id()).await.stdout.len(), 30_000_000);
}

/// How far the server has read the file.
fn position(daemon: &Daemon, path: &Path) -> u64 {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let is_it =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path);
    let Some(entry) = descriptors.flatten().find(is_it) else { return 0 };
    let number = entry.file_name().into_string().unwrap();
    let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{number}", daemon.pid())).unwrap_or_default();
    let position = info.lines().find_map(|line| line.strip_prefix("pos:"));
    position.map_or(0, |text| text.trim().parse().unwrap())
}

/// A client that has asked for a file and reads no further than the buffers of the connection reach.
async fn in_the_middle(daemon: &Daemon, path: &Path) -> (Client, i64) {
    let client = daemon.client().await;
    client.pause(true);
    let asked = client.send("fs/readFile", params(path)).await;
    eventually("the file is being read", LIMIT, || position(daemon, path) > MIB as u64).await;
    (client, asked)
}

#[tokio::test]
async fn what_follows_on_the_same_path_waits() {
    let (daemon, place) = (Daemon::start().await, work_dir());
    let (path, content) = written(place.path(), 40 * MIB);
    let (client, asked) = in_the_middle(&daemon, &path).await;
    let new = json!({"path": uri(&path), "dataBase64": "bmV3", "atomic": false, "sandbox": null});
    let write = client.send("fs/writeFile", new).await;
    client.pause(false);
    assert!(data(&client.answer(asked).await.unwrap()) == content);
    client.answer(write).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
}

#[test_case(10 * MIB; "cut to a quarter")]
#[test_case(0; "emptied")]
#[tokio::test]
async fn a_file_that_is_cut_meanwhile_is_answered_as_far_as_it_goes(left: usize) {
    let (daemon, place) = (Daemon::start().await, work_dir());
    let (path, content) = written(place.path(), 40 * MIB);
    let (client, asked) = in_the_middle(&daemon, &path).await;
    std::fs::File::options().write(true).open(&path).unwrap().set_len(left as u64).unwrap();
    client.pause(false);
    let answer = data(&client.answer(asked).await.unwrap());
    assert!(answer.len() >= left && answer.len() < content.len(), "{}", answer.len());
    assert!(content.starts_with(&answer));
    client.round_trip().await;
}

#[tokio::test]
async fn a_file_that_grows_meanwhile_is_answered_up_to_its_size() {
    let (daemon, place) = (Daemon::start().await, work_dir());
    let (path, content) = written(place.path(), 40 * MIB);
    let (client, asked) = in_the_middle(&daemon, &path).await;
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"more", content.len() as u64).unwrap();
    client.pause(false);
    assert!(data(&client.answer(asked).await.unwrap()) == content);
}

#[tokio::test]
async fn a_client_that_goes_in_the_middle_leaves_nothing() {
    let (daemon, place) = (Daemon::start().await, work_dir());
    let (path, content) = written(place.path(), 40 * MIB);
    let other = daemon.client().await;
    other.round_trip().await;
    let before = daemon.descriptors();
    for _ in 0..5 {
        let (client, _) = in_the_middle(&daemon, &path).await;
        client.abort().await;
    }
    daemon.descriptors_back(before).await;
    assert!(data(&other.ok("fs/readFile", params(&path)).await) == content);
}

#[tokio::test]
async fn the_end_of_the_server_comes_in_the_middle_too() {
    let (mut daemon, place) = (Daemon::start().await, work_dir());
    let (path, _) = written(place.path(), 40 * MIB);
    let (client, asked) = in_the_middle(&daemon, &path).await;
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.ended(Duration::from_secs(10)).await.success());
    client.pause(false);
    client.end().await;
    assert!(client.answered(asked).is_none(), "half an answer is none");
}
