//! A session in which every method is used, recorded as it is spoken.

use std::path::Path;

use serde_json::{Value, json};

use super::validator::Sender;
use crate::networking::target::Target;
use crate::support::stdio::StdioServer;
use crate::support::{Start, base64, uri, work_dir};

/// A message and who has sent it.
pub(super) type Spoken = (Sender, Value);

/// A connection on standard input and output. Questions are answered with yes.
struct Talk {
    server: StdioServer,
    spoken: Vec<Spoken>,
    calls: i64,
}

impl Talk {
    async fn say(&mut self, message: Value) {
        self.server.send(format!("{message}\n").as_bytes()).await;
        self.spoken.push((Sender::Client, message));
    }

    async fn listen(&mut self) {
        let message = self.server.next().await.expect("the server goes on");
        self.spoken.push((Sender::Server, message.clone()));
        if message["method"] == "network/policyRequest" {
            self.say(json!({"id": message["id"], "result": {"decision": {"type": "allow"}}})).await;
        }
    }

    /// The first message of the server like this one, whenever it comes.
    async fn hears(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let from_server = |spoken: &&Spoken| spoken.0 == Sender::Server && wanted(&spoken.1);
            if let Some((_, message)) = self.spoken.iter().find(from_server) {
                return message.clone();
            }
            self.listen().await;
        }
    }

    /// The answer, whatever it is.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        self.say(json!({"id": id, "method": method, "params": params})).await;
        self.hears(|message| message["id"] == id && message.get("method").is_none()).await
    }

    async fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        answer.get("result").unwrap_or_else(|| panic!("{method}: {answer}")).clone()
    }

    async fn fails(&mut self, method: &str, params: Value) {
        let answer = self.call(method, params).await;
        assert!(answer.get("error").is_some(), "{method}: {answer}");
    }

    async fn closed(&mut self, process: &str) {
        self.hears(|message| {
            message["method"] == "process/closed" && message["params"]["processId"] == process
        })
        .await;
    }
}

/// Everything that is said in it.
pub(super) async fn record() -> Vec<Spoken> {
    let mut talk = Talk { server: StdioServer::start(), spoken: Vec::new(), calls: 0 };
    let place = work_dir();
    talk.ok("initialize", json!({"clientName": "recorder", "resumeSessionId": null})).await;
    talk.say(json!({"method": "initialized", "params": {}})).await;
    surroundings(&mut talk, place.path()).await;
    processes(&mut talk, place.path()).await;
    files(&mut talk, place.path()).await;
    open_files(&mut talk, place.path()).await;
    let target = Target::at("127.0.0.1").await;
    http(&mut talk, target.port).await;
    networks(&mut talk, target.port).await;
    talk.server.end_input();
    talk.spoken.extend(talk.server.rest().await.into_iter().map(|message| (Sender::Server, message)));
    talk.spoken
}

async fn surroundings(talk: &mut Talk, place: &Path) {
    let skill = place.join("skills/one");
    std::fs::create_dir_all(skill.join("agents")).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: one\ndescription: a skill\n---\n").unwrap();
    std::fs::write(skill.join("agents/openai.yaml"), "interface:\n  display_name: One\n").unwrap();
    for method in ["session/list", "environment/info", "environment/status"] {
        talk.ok(method, json!({})).await;
    }
    let keys = json!({"cwd": uri(place), "configPaths": [["model"]], "requirementsPaths": []});
    talk.ok("environmentConfig/read", keys).await;
    let roots = json!({"roots": [{"id": "a", "path": uri(place), "sandbox": null}]});
    talk.ok("capabilityRoots/discoverV1", roots).await;
    talk.ok("capabilities/discoverV2", json!({"cwd": uri(place)})).await;
}

async fn processes(talk: &mut Talk, place: &Path) {
    let snapshot = json!({"scopeId": "s", "shell": {"name": "bash", "path": "/bin/bash"}});
    let full = Start::argv(["/bin/bash", "-c", "read line; echo $line; read line"])
        .cwd(place)
        .tty(true)
        .with("metadata", json!({"threadId": "6f1c1c0e-4d0e-4a30-9d5b-0a6b6f9ad2b1", "toolCallId": "c"}))
        .with("envPolicy", json!({"inherit": "core", "ignoreDefaultExcludes": false, "exclude": ["X*"], "set": {"A": "b"}, "includeOnly": []}))
        .with("shellSnapshot", snapshot)
        .with("size", json!({"rows": 30, "cols": 100}))
        .with("limits", json!({"wallMs": 600_000, "openFiles": 64, "outputBytes": null}))
        .with("sandbox", Value::Null);
    let id = full.id();
    talk.ok("process/start", full.params()).await;
    talk.ok("process/write", json!({"processId": id, "chunk": base64(b"word\n"), "writeId": "w"})).await;
    talk.ok("process/read", json!({"processId": id, "afterSeq": 0, "maxBytes": null, "waitMs": 20_000}))
        .await;
    talk.ok("process/resize", json!({"processId": id, "rows": 24, "cols": 80})).await;
    talk.ok("process/signal", json!({"processId": id, "signal": "user1", "target": "leader"})).await;
    talk.ok("process/list", json!({})).await;
    talk.ok("process/terminate", json!({"processId": id, "graceMs": 0})).await;
    talk.closed(&id).await;
    let cat = Start::argv(["/bin/cat"]).stdin().with("arg0", json!("dog"));
    talk.ok("process/start", cat.params()).await;
    talk.fails("process/start", cat.params()).await;
    talk.ok("process/closeStdin", json!({"processId": cat.id()})).await;
    talk.closed(&cat.id()).await;
    talk.fails("process/start", Start::argv(["/nonexistent"]).params()).await;
    confined(talk, place).await;
}

/// Whether they succeed is up to the machine.
async fn confined(talk: &mut Talk, place: &Path) {
    let entry = |path: Value, access: &str| json!({"path": path, "access": access});
    let special = |kind: Value| json!({"type": "special", "value": kind});
    let entries = [
        entry(special(json!({"kind": "root"})), "read"),
        entry(special(json!({"kind": "current_working_directory"})), "write"),
        entry(special(json!({"kind": "project_roots", "subpath": "a"})), "none"),
        entry(json!({"type": "path", "path": uri(&place.join("b"))}), "deny"),
    ];
    let sandbox = json!({
        "permissions": {"type": "managed", "network": "restricted",
            "file_system": {"type": "restricted", "entries": entries, "glob_scan_max_depth": 3}},
        "policyContext": {"cwd": uri(place), "workspaceRoots": [uri(place)]},
        "workspaceRoots": [], "windowsSandboxLevel": "disabled", "useLegacyLandlock": false,
    });
    let start = Start::argv(["/bin/true"]).cwd(place).with("sandbox", sandbox.clone());
    if talk.call("process/start", start.params()).await.get("result").is_some() {
        talk.closed(&start.id()).await;
    }
    talk.call("fs/readFile", json!({"path": uri(&place.join("skills/one/SKILL.md")), "sandbox": sandbox}))
        .await;
}

async fn files(talk: &mut Talk, place: &Path) {
    let at = |name: &str| json!(uri(&place.join(name)));
    talk.ok("fs/watchMissing", json!({"watchId": 1, "missing": [at("f")], "present": null})).await;
    talk.ok("fs/writeFile", json!({"path": at("f"), "dataBase64": base64(b"text"), "atomic": true})).await;
    talk.hears(|message| message["method"] == "fs/missingChanged").await;
    talk.ok("fs/createDirectory", json!({"path": at("d"), "recursive": null, "followSymlinks": false})).await;
    talk.ok("fs/createSymlink", json!({"path": at("l"), "target": "f"})).await;
    talk.ok("fs/getMetadata", json!({"path": at("l"), "sandbox": null})).await;
    talk.fails("fs/getMetadata", json!({"path": at("none")})).await;
    talk.ok("fs/canonicalize", json!({"path": at("l")})).await;
    talk.ok("fs/readDirectory", json!({"path": at(""), "links": true})).await;
    let options =
        json!({"maxDepth": 3, "maxDirectories": 9, "maxEntries": 99, "followDirectorySymlinks": false});
    talk.ok("fs/walk", json!({"path": at(""), "options": options})).await;
    talk.ok("fs/setPermissions", json!({"path": at("f"), "mode": "640"})).await;
    talk.ok("fs/copy", json!({"sourcePath": at("f"), "destinationPath": at("g"), "recursive": false})).await;
    talk.ok("fs/rename", json!({"sourcePath": at("g"), "destinationPath": at("h"), "replace": null})).await;
    talk.fails("fs/rename", json!({"sourcePath": at("f"), "destinationPath": at("h")})).await;
    talk.ok("fs/remove", json!({"path": at("h"), "recursive": false, "force": null})).await;
}

async fn open_files(talk: &mut Talk, place: &Path) {
    let path = json!(uri(&place.join("f")));
    talk.ok("fs/readFile", json!({"path": path, "followSymlinks": true})).await;
    talk.ok("fs/open", json!({"handleId": "h", "path": path, "mode": "replace", "sandbox": null})).await;
    talk.ok("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": base64(b"more")})).await;
    talk.ok("fs/close", json!({"handleId": "h"})).await;
    talk.ok("fs/open", json!({"handleId": "r", "path": path})).await;
    talk.ok("fs/readBlock", json!({"handleId": "r", "offset": 1, "len": 100})).await;
    talk.fails("fs/readBlock", json!({"handleId": "none", "offset": 1, "len": 100})).await;
}

async fn http(talk: &mut Talk, port: u16) {
    let url = format!("http://127.0.0.1:{port}/");
    let request = json!({
        "method": "POST", "url": url, "headers": [{"name": "a", "value": "b", "valueEnvVar": null}],
        "bodyBase64": base64(b"body"), "timeoutMs": 20_000, "redirectPolicy": "stop", "requestId": "r",
        "streamResponse": true,
    });
    talk.ok("http/request", request).await;
    talk.hears(|message| message["method"] == "http/request/bodyDelta" && message["params"]["done"] == true)
        .await;
    talk.fails("http/request", json!({"method": "GET", "url": "http://name.invalid/", "requestId": "s"}))
        .await;
}

/// The client is asked, and told.
async fn networks(talk: &mut Talk, port: u16) {
    let proxy = json!({
        "enabled": true, "enableSocks5": true, "enableSocks5Udp": true, "allowUpstreamProxy": false,
        "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": false,
        "domains": {"127.0.0.1": "allow", "a.invalid": "deny"}, "unixSockets": {"/s": "deny"},
        "reviewDomains": ["127.0.0.1"], "transparentTcp": false,
    });
    let launch = json!({
        "proxy": proxy, "policyDecisionTimeoutMs": 20_000, "auditMetadata": {"conversationId": "c"},
    });
    let start = Start::bash(&format!("curl -s http://127.0.0.1:{port}/")).with("networkProxy", launch);
    talk.ok("process/start", start.params()).await;
    talk.hears(|message| message["method"] == "network/policyDecision").await;
    talk.closed(&start.id()).await;
}
