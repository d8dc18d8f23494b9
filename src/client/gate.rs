//! What a server does not announce is not sent to it.

use super::session::Session;
use crate::backend::{ExecServerError, Result};
use crate::policy::{Files, Policy, Surroundings};
use crate::protocol::discovery::CapabilityRootDiscoverRequest;
use crate::protocol::environment::Capabilities;
use crate::protocol::network::ProxySettings;
use crate::protocol::process::{ExecParams, StartOptions, StartParams};
use crate::protocol::sandbox::{SandboxContext, WindowsSandboxSelection};

/// The params to send to this server.
///
/// # Errors
/// [`ExecServerError::Protocol`] and [`ExecServerError::Unsupported`] naming what the server lacks.
pub(super) async fn admit(
    session: &Session,
    mut exec: ExecParams,
    options: StartOptions,
) -> Result<Box<StartParams>> {
    if is_plain(&exec, &options) {
        return Ok(Box::new(StartParams { exec, options }));
    }
    let capabilities = session.info().await?.capabilities;
    check(&exec, &options, &capabilities)?;
    if !capabilities.shell_snapshot_v2 {
        exec.shell_snapshot = None;
    }
    Ok(Box::new(StartParams { exec, options }))
}

/// Whether every server understands it.
fn is_plain(exec: &ExecParams, options: &StartOptions) -> bool {
    exec.shell_snapshot.is_none()
        && exec.network_proxy.is_none()
        && !wants_mxc(exec.sandbox.as_ref())
        && *options == StartOptions::default()
}

fn wants_mxc(sandbox: Option<&SandboxContext>) -> bool {
    sandbox.is_some_and(|sandbox| sandbox.windows_sandbox_selection == WindowsSandboxSelection::Mxc)
}

/// Passes if the server can have this sandbox context.
///
/// # Errors
/// What is made of the reason.
fn admit_mxc(
    sandbox: Option<&SandboxContext>,
    capabilities: &Capabilities,
    error: fn(String) -> ExecServerError,
) -> Result<()> {
    if wants_mxc(sandbox) && !capabilities.windows_mxc {
        let why = "exec-server does not support the requested MXC Windows sandbox";
        return Err(error(why.to_owned()));
    }
    Ok(())
}

/// Passes if the server can have the sandbox context of a file call.
///
/// # Errors
/// [`ExecServerError::Unsupported`].
pub(super) fn admit_sandbox(sandbox: Option<&SandboxContext>, capabilities: &Capabilities) -> Result<()> {
    admit_mxc(sandbox, capabilities, ExecServerError::Unsupported)
}

/// Passes if the server can honour the sandboxes of all roots, or there is nothing to honour.
///
/// # Errors
/// [`ExecServerError::Protocol`].
pub(super) fn admit_roots(
    roots: &[CapabilityRootDiscoverRequest],
    capabilities: &Capabilities,
) -> Result<()> {
    for root in roots {
        admit_mxc(root.sandbox.as_ref(), capabilities, ExecServerError::Protocol)?;
    }
    let is_restricted =
        |root: &CapabilityRootDiscoverRequest| root.sandbox.as_ref().is_some_and(restricts_reading);
    if !capabilities.capability_discovery_sandbox && roots.iter().any(is_restricted) {
        return refuse("exec-server does not support sandboxed capability discovery");
    }
    Ok(())
}

/// Whether something may not be read under a context. One that this side does not understand counts as such.
fn restricts_reading(context: &SandboxContext) -> bool {
    match Policy::of(context, &Surroundings::default()).map(|policy| policy.files) {
        Ok(Files::Unlimited) => false,
        Ok(Files::Limited(files)) => !files.reads_everything(),
        Err(_) => true,
    }
}

/// Passes if the server can be asked for an inventory under a sandbox.
///
/// # Errors
/// [`ExecServerError::Protocol`].
pub(super) fn admit_inventory(sandbox: Option<&SandboxContext>, capabilities: &Capabilities) -> Result<()> {
    if !capabilities.capability_discovery_v2 {
        return refuse(
            "capability inventory is unavailable: the exec-server does not announce `capabilityDiscoveryV2`",
        );
    }
    admit_mxc(sandbox, capabilities, ExecServerError::Protocol)
}

fn check(exec: &ExecParams, options: &StartOptions, capabilities: &Capabilities) -> Result<()> {
    admit_mxc(exec.sandbox.as_ref(), capabilities, ExecServerError::Protocol)?;
    if let Some(launch) = &exec.network_proxy {
        check_proxy(&launch.proxy, capabilities)?;
    }
    require(options.size.is_none() || capabilities.process_control, "a window size", "processControl")?;
    require(options.limits.is_none() || capabilities.process_limits, "process limits", "processLimits")
}

fn check_proxy(proxy: &ProxySettings, capabilities: &Capabilities) -> Result<()> {
    if !capabilities.network_proxy_launch {
        return refuse("selected exec-server does not support executor-local network proxy launches");
    }
    if !proxy.review_domains.is_empty() && !capabilities.network_proxy_review_domains {
        return refuse("selected exec-server does not support managed network review domains");
    }
    if proxy.transparent_tcp && !capabilities.network_proxy_transparent_tcp {
        return refuse("selected exec-server does not support managed network transparent TCP");
    }
    if proxy.credential_masking && !capabilities.credential_masking {
        return refuse("selected exec-server does not support credential masking");
    }
    if !proxy.credential_providers.is_empty() && !capabilities.credential_masking_custom_providers {
        return refuse("selected exec-server does not support credential providers defined by the client");
    }
    Ok(())
}

fn refuse(why: &str) -> Result<()> {
    Err(ExecServerError::Protocol(why.to_owned()))
}

/// Passes if the server announces what is wanted.
///
/// # Errors
/// [`ExecServerError::Unsupported`] naming both.
pub(super) fn require(announced: bool, wanted: &str, capability: &str) -> Result<()> {
    if announced {
        return Ok(());
    }
    let why = format!("the exec-server does not support {wanted}: it does not announce `{capability}`");
    Err(ExecServerError::Unsupported(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use test_case::test_case;

    fn exec(extra: Value) -> ExecParams {
        let mut params =
            json!({"processId": "p", "argv": ["true"], "cwd": "file:///", "env": {}, "tty": false});
        params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(params).unwrap()
    }

    fn proxied(extra: Value) -> Value {
        let mut proxy = json!({
            "enabled": true, "enableSocks5": true, "enableSocks5Udp": true, "allowUpstreamProxy": true,
            "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": false
        });
        proxy.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"networkProxy": {"proxy": proxy}})
    }

    fn options(value: Value) -> StartOptions {
        serde_json::from_value(value).unwrap()
    }

    #[test_case(proxied(json!({})), json!({}), "networkProxyLaunch",
        "does not support executor-local network proxy launches")]
    #[test_case(proxied(json!({"reviewDomains": ["a.b"]})), json!({}), "networkProxyReviewDomains",
        "does not support managed network review domains")]
    #[test_case(proxied(json!({"transparentTcp": true})), json!({}), "networkProxyTransparentTcp",
        "does not support managed network transparent TCP")]
    #[test_case(proxied(json!({"credentialMasking": true})), json!({}), "credentialMasking",
        "credential masking")]
    #[test_case(proxied(json!({"credentialProviders": {"x": {}}})), json!({}),
        "credentialMaskingCustomProviders", "credential providers")]
    #[test_case(json!({"sandbox": {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "mxc"}}), json!({}),
        "windowsMxc", "does not support the requested MXC Windows sandbox")]
    #[test_case(json!({}), json!({"size": {"rows": 1, "cols": 1}}), "processControl", "processControl")]
    #[test_case(json!({}), json!({"limits": {"wallMs": 1}}), "processLimits", "processLimits")]
    fn what_a_server_lacks_is_refused(params: Value, extra: Value, capability: &str, part: &str) {
        let (exec, options) = (exec(params), options(extra));
        assert!(!is_plain(&exec, &options));
        let mut announced = serde_json::to_value(Capabilities::default()).unwrap();
        for flag in announced.as_object_mut().unwrap().values_mut() {
            *flag = true.into();
        }
        let all = serde_json::from_value(announced.clone()).unwrap();
        assert!(check(&exec, &options, &all).is_ok());
        announced[capability] = false.into();
        let lacking = serde_json::from_value(announced).unwrap();
        let error = check(&exec, &options, &lacking).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn what_every_server_knows_needs_no_question() {
        let exec = exec(
            json!({"sandbox": {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}}),
        );
        assert!(is_plain(&exec, &StartOptions::default()));
    }
}
