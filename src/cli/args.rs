//! What the program understands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::help;
pub use super::serve_args::ServeArgs;
use crate::protocol::process::ProcessSignal;

/// The version, and the commit that it is built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")");

/// Runs processes and serves files for coding agents, over JSON-RPC on WebSocket.
///
/// Without a command it serves: an agent connects, starts programs, follows their output and reads and changes files.
/// Sessions outlive their connections, so an agent that was cut off finds its processes again.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "exec-server", version = VERSION, after_long_help = help::SERVE, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// What to do instead of serving.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Look at settings.
    Config {
        /// What about them.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Say what this machine can do for the server, and how to make it do more.
    Doctor(Box<DoctorArgs>),
    /// Ask a server on this machine whether it is ready.
    Health(Box<HealthArgs>),
    /// Make tokens for clients.
    Token {
        /// What about them.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Print what a shell needs to complete commands and flags.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man {
        /// Of one command instead of the program.
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
    /// Print the protocol as an OpenRPC document, for generators of clients.
    #[command(after_long_help = help::SCHEMA)]
    Schema,
    /// Run a program on a server, as if it ran here.
    Run(RunArgs),
    /// Copy files to or from a server.
    Cp(CpArgs),
    /// List the processes of a server.
    Ps(PsArgs),
    /// Print the output of a process.
    Logs(LogsArgs),
    /// End a process with all that came of it, or signal it.
    Kill(KillArgs),
}

/// What to do with tokens.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum TokenCommand {
    /// Make a token of 256 random bits, and print it unless it is to be written.
    #[command(after_long_help = help::TOKEN)]
    New(NewTokenArgs),
}

/// Arguments of `token new`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NewTokenArgs {
    /// Write it to a new file, for its owner only.
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub out: Option<PathBuf>,
    /// Write it to the file `token` of a state directory, where a server looks for one that it needs.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// What to do with settings.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings and print each with its value and where that came from.
    #[command(after_long_help = help::CHECK)]
    Check(Box<ServeArgs>),
}

/// Arguments of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::DOCTOR)]
pub struct DoctorArgs {
    /// Say it in JSON.
    #[arg(long)]
    pub json: bool,
    /// How the server would serve.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Arguments of `health`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::HEALTH)]
pub struct HealthArgs {
    /// The address to ask, as in --listen. Without it the first one of the settings.
    #[arg(long)]
    pub url: Option<String>,
    /// How the server serves.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// How to reach a server.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ClientArgs {
    /// The server: ws://HOST:PORT or unix:/path.
    #[arg(long, env = "EXEC_SERVER_URL", default_value = "ws://127.0.0.1:8765")]
    pub url: String,
    /// File with the token to send.
    #[arg(long, value_name = "FILE", env = "EXEC_SERVER_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
}

/// Arguments of `run`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::RUN)]
pub struct RunArgs {
    /// The server: ws://HOST:PORT or unix:/path. Without it the program runs in this process.
    #[arg(long, env = "EXEC_SERVER_URL")]
    pub url: Option<String>,
    /// File with the token to send.
    #[arg(long, value_name = "FILE", env = "EXEC_SERVER_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// Give the program a terminal.
    #[arg(short = 't', long)]
    pub tty: bool,
    /// Directory to start in, from the server's own one. Without it the server's own, or here the current one.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Set a variable of the program; repeatable.
    #[arg(short = 'e', long = "env", value_name = "K=V", value_parser = assignment)]
    pub env: Vec<(String, String)>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<String>,
}

/// Arguments of `cp`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::CP)]
pub struct CpArgs {
    /// File with the token to send.
    #[arg(long, value_name = "FILE", env = "EXEC_SERVER_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// Copy a directory with everything below it.
    #[arg(short, long)]
    pub recursive: bool,
    /// What to copy: a path of this machine, or URL:/PATH for one of a server.
    #[arg(value_name = "SRC")]
    pub source: OsString,
    /// Where to: a path, or URL:/PATH. Into it, if it is a directory.
    #[arg(value_name = "DST")]
    pub destination: OsString,
}

/// Arguments of `ps`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::PS)]
pub struct PsArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Show processes that have ended, too.
    #[arg(short, long)]
    pub all: bool,
    /// Only this session.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
}

/// Arguments of `logs`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::LOGS)]
pub struct LogsArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The session of the process, when several have one of that id.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Go on until the process ends.
    #[arg(short, long)]
    pub follow: bool,
    /// The process.
    #[arg(value_name = "ID")]
    pub process: String,
}

/// Arguments of `kill`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::KILL)]
pub struct KillArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The session of the process, when several have one of that id.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Send this signal to its process group, instead of ending its whole tree.
    #[arg(short, long, value_name = "SIG", value_parser = super::kill::signal)]
    pub signal: Option<ProcessSignal>,
    /// The process.
    #[arg(value_name = "ID")]
    pub process: String,
}

/// Splits `K=V` at its first `=`.
pub(super) fn assignment(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;
    use test_case::test_case;

    fn parse(words: &[&str]) -> Result<Cli, ErrorKind> {
        Cli::try_parse_from([&["exec-server"], words].concat()).map_err(|error| error.kind())
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_teaches_at_every_level() {
        for words in [
            &["--help"][..],
            &["config", "check", "--help"],
            &["doctor", "--help"],
            &["health", "--help"],
            &["token", "new", "--help"],
            &["schema", "--help"],
            &["run", "--help"],
            &["cp", "--help"],
            &["ps", "--help"],
        ] {
            let error = Cli::try_parse_from([&["exec-server"], words].concat()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DisplayHelp);
            assert!(error.to_string().contains("Examples:"), "{words:?}");
        }
        assert_eq!(parse(&["--version"]), Err(ErrorKind::DisplayVersion));
    }

    #[test]
    fn a_program_keeps_its_own_arguments() {
        let Ok(Cli { command: Some(Command::Run(args)), .. }) =
            parse(&["run", "-t", "-e", "A=b=c", "--cwd", "/x", "--", "ls", "-l", "--", "-t"])
        else {
            panic!("not parsed")
        };
        assert_eq!(args.command, ["ls", "-l", "--", "-t"]);
        assert_eq!(args.env, [("A".into(), "b=c".into())]);
        assert!(args.tty);
    }

    #[test_case(&["run"]; "no program")]
    #[test_case(&["run", "-e", "A", "--", "x"]; "no value")]
    #[test_case(&["cp", "f"]; "no destination")]
    #[test_case(&["logs"]; "no process")]
    #[test_case(&["config"]; "no config command")]
    #[test_case(&["token"]; "no token command")]
    #[test_case(&["token", "new", "--out", "x", "--state-dir", "y"]; "two places")]
    #[test_case(&["completions", "csh"]; "another shell")]
    #[test_case(&["serve"]; "unknown command")]
    #[test_case(&["--listen", "stdio", "ps"]; "flags of serving before a command")]
    fn usage_errors(words: &[&str]) {
        assert!(parse(words).is_err());
    }
}
