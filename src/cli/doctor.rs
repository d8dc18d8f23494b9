use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use super::args::DoctorArgs;
use super::{limits, sandboxes, settings};
use crate::doctor::{Check, Diagnosis, Status};
use crate::protocol::sandbox::SandboxGap;

/// Says what this machine can do, as the server would use it with these settings.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let settings = settings::load(&args.serve)?;
    let state_dir = sandboxes::state_directory(&settings.config);
    let cgroup = limits::home(&settings.config.limits.cgroup);
    let cgroup = cgroup.as_ref().map_err(|reason| *reason);
    let diagnosis = Diagnosis::make(&sandboxes::on_trial(&settings.config), state_dir.as_deref(), cgroup);
    let text =
        if args.json { serde_json::to_string_pretty(&diagnosis)? + "\n" } else { in_words(&diagnosis) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(diagnosis.exit_code()))
}

fn in_words(diagnosis: &Diagnosis) -> String {
    let mut text = format!("{}\n\n", diagnosis.place);
    for check in &diagnosis.checks {
        line(&mut text, check);
    }
    text.push('\n');
    text.push_str(&conclusion(diagnosis));
    text
}

fn line(text: &mut String, check: &Check) {
    let status = match check.status {
        Status::Ok => "ok",
        Status::Warning => "warning",
        Status::Missing => "missing",
        Status::Info => "info",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{status:8} {:16} {}", check.name, check.message);
    for fix in &check.fixes {
        let _ = writeln!(text, "{:8} {:16} fix: {fix}", "", "");
    }
}

fn conclusion(diagnosis: &Diagnosis) -> String {
    let Some(backend) = diagnosis.backend else {
        return "No sandbox policy can be enforced here: every start and file call that asks for one is refused.\n"
            .to_owned();
    };
    let backend = backend.name();
    if diagnosis.gaps.is_empty() {
        return format!("Sandbox policies are enforced by {backend}, without gaps.\n");
    }
    let names = |gaps: &[SandboxGap]| gaps.iter().map(|gap| gap.name()).collect::<Vec<_>>().join(", ");
    format!(
        "Sandbox policies are enforced by {backend}, which may leave open: {}.\n\
         A policy for which that would matter is refused, unless sandbox.accept_gaps names it.\n",
        names(&diagnosis.gaps)
    )
}
