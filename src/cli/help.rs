//! Longer texts of `--help`.

pub(super) const SERVE: &str = "\
Examples:
  exec-server
      Serve on ws://127.0.0.1:8765, for this machine only.
  exec-server --listen 0.0.0.0:8765
      Serve the network. A token is made on first use; stderr says where it is.
  exec-server --listen unix:/run/exec-server.sock --listen 127.0.0.1:0
      Serve a unix socket and a port that the kernel chooses. Each URL is a line of stdout.

Settings:
  A flag comes before the environment, the environment before the file, the file before the default.
  File          --config FILE, else $EXEC_SERVER_CONFIG, else /etc/exec-server/config.toml if it exists
  Environment   EXEC_SERVER_ and the key in capitals with _ for the dot: session.detached_ms is
                EXEC_SERVER_SESSION_DETACHED_MS. Lists are separated by commas. RUST_LOG is log.filter.
  All keys      `exec-server config check` prints each with its value and where that came from

Exit codes: 0 ended as asked, 1 a setting or the start failed, 2 wrong arguments.";

pub(super) const CHECK: &str = "\
Takes the same flags as serving, so put it in front of what you are about to run.

Examples:
  exec-server config check
  exec-server config check --config ./exec-server.toml --set session.detached_ms=600000
  EXEC_SERVER_LOG_FORMAT=json exec-server config check | grep ^log

The output is valid TOML; secrets are shown as (set).";

pub(super) const DOCTOR: &str = "\
Takes the same flags as serving. Nothing is judged by settings of the system: a sandbox is built and something runs in
it. For what does not work the output says why, and the exact sysctl, profile or container flag that changes it.

Examples:
  exec-server doctor
  exec-server doctor --json | jq .backend
  exec-server doctor --sandbox-backend landlock

Exit codes: 0 every sandbox policy can be enforced, 1 some only with gaps or not at all, or the settings are wrong,
2 wrong arguments, 3 none.";

pub(super) const HEALTH: &str = "\
Takes the same flags as serving, and reads the same settings, so that it finds the server that they make. It asks
/readyz, for which no token and no certificate is needed, and waits 2 s at most.

Examples:
  exec-server health
  exec-server health --url unix:/run/exec-server.sock
  HEALTHCHECK CMD [\"exec-server\", \"health\"]

Exit codes: 0 ready, 1 not ready, not there or not in time, or the settings are wrong, 2 wrong arguments.";

pub(super) const TOKEN: &str = "\
A file that is there is left alone. To rotate tokens without an interruption, add the new one as a line to the file of
--ws-token-file, give it to the clients, and remove the old line; the server follows the file.

Examples:
  exec-server token new
  exec-server token new --out /etc/exec-server/token
  exec-server token new >> /etc/exec-server/tokens
  exec-server token new --state-dir /var/lib/exec-server";

pub(super) const SCHEMA: &str = "\
The document has every method and notification of both directions, with JSON Schemas (draft 7) of params, results and
facts of errors. It describes this version of the server; no server is asked.

Examples:
  exec-server schema > exec-server.openrpc.json
  exec-server schema | jq -r '.methods[] | .name + \": \" + .summary'
  exec-server schema | jq '{definitions: .components.schemas}' | sed 's|components/schemas|definitions|' > types.json
      The types alone, as one JSON Schema, for generators that know no OpenRPC.";

pub(super) const RUN: &str = "\
Input, output, signals and the exit code pass as if the program ran here. Over a connection that is lost and found
again nothing is lost or repeated. The first two interrupts are the program's, the third ends its whole tree.

Examples:
  exec-server run --url ws://127.0.0.1:8765 -- uname -a
  exec-server run --url ws://127.0.0.1:8765 -t -- bash
  exec-server run --url unix:/run/exec-server.sock --token-file ./token --cwd /src -e CI=1 -- make test
  exec-server run -- make test
      Without --url: in this process, with nothing left behind.

Exit codes: that of PROGRAM, 128 + N if signal N ended it; 125 it could not be run, 126 it is not executable, 127 it
was not found, 141 the reader of the output has gone, 255 the connection was lost for good.";

pub(super) const CP: &str = "\
One side is a path of this machine, the other URL:/PATH. A side that begins with ws://, wss:// or unix:/ is split at the
first :/ behind that, so the path is absolute, and the path of a socket holds no :/. Write ./ in front of a local name
that looks like a URL.

A copy has exactly the bytes and the permission bits (rwx) of its source. It is written beside its place, under a name
that begins with .exec-server-cp-, and takes the place when it is whole; a file that is there is replaced, behind a link
if it is one. With -r links below SRC stay links, and what is neither file, directory nor link is complained about and
left out. Interrupted, it leaves whole files and nothing else.

Examples:
  exec-server cp app.tar ws://127.0.0.1:8765:/srv/app.tar
  exec-server cp -r ws://127.0.0.1:8765:/srv/app/logs ./logs
  exec-server cp --token-file ./token unix:/run/exec-server.sock:/etc/hostname .

Exit codes: 0 everything is copied, 1 something is not, 2 wrong arguments, 130 interrupted, 143 terminated.";

pub(super) const PS: &str = "\
Examples:
  exec-server ps
  exec-server ps --all
  exec-server ps --session 0b9f2c1e-5c3e-4a53-8d8f-6f6a5a6b7c8d";

pub(super) const LOGS: &str = "\
Examples:
  exec-server logs build-1
  exec-server logs -f build-1";

pub(super) const KILL: &str = "\
Without a signal the whole tree ends: SIGTERM, and SIGKILL after the server's grace to whatever is left.

Examples:
  exec-server kill build-1
  exec-server kill -s INT build-1";
