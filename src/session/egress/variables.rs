//! What a process is told about its proxy.

use crate::network::proxy::Endpoints;
use crate::process::env::Variables;
use crate::protocol::network::{
    ACTIVE_VARIABLE, ALL_VARIABLES, BYPASS_VARIABLES, HTTP_VARIABLES, OTHER_VARIABLES,
};

/// What is reached without the proxy where a process may bind and reach local addresses of this machine.
const LOCAL: &str = "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16";

/// Lays the variables of a proxy over others. `allows_local` is `allowLocalBinding`; in a network of its own a run reaches
/// nothing without its proxy, so nothing bypasses it.
pub(super) fn lay_over(
    variables: &mut Variables,
    endpoints: Endpoints,
    allows_local: bool,
    in_network_of_its_own: bool,
) {
    let http = format!("http://{}", endpoints.http);
    let all = endpoints.socks.map_or_else(|| http.clone(), |socks| format!("socks5h://{socks}"));
    let bypass = if allows_local && !in_network_of_its_own { LOCAL } else { "" };
    let flag = if allows_local { "1" } else { "0" };
    let groups = [(&HTTP_VARIABLES[..], http.as_str()), (&ALL_VARIABLES, &all), (&BYPASS_VARIABLES, bypass)];
    for (names, value) in groups {
        variables.extend(names.iter().map(|name| entry(name, value)));
    }
    let [local, electron, node] = OTHER_VARIABLES;
    variables.extend(
        [(ACTIVE_VARIABLE, "1"), (local, flag), (electron, "true"), (node, "1")]
            .map(|(name, value)| entry(name, value)),
    );
}

fn entry(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.into(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn laid(socks: bool, allows_local: bool, own_network: bool) -> impl Fn(&str) -> String {
        let mut variables = Variables::from([entry("no_proxy", "*"), entry("KEEP", "1")]);
        let endpoints = Endpoints {
            http: "127.0.0.1:8001".parse().unwrap(),
            socks: socks.then(|| "127.0.0.1:8002".parse().unwrap()),
        };
        lay_over(&mut variables, endpoints, allows_local, own_network);
        move |name| String::from_utf8(variables[name.as_bytes()].clone()).unwrap()
    }

    #[test]
    fn the_table() {
        let of = laid(true, false, false);
        assert_eq!(HTTP_VARIABLES.map(&of), ["http://127.0.0.1:8001"; 21]);
        assert_eq!(ALL_VARIABLES.map(&of), ["socks5h://127.0.0.1:8002"; 4]);
        assert_eq!(BYPASS_VARIABLES.map(&of), [""; 5]);
        assert_eq!(of("CODEX_NETWORK_PROXY_ACTIVE"), "1");
        assert_eq!(of("CODEX_NETWORK_ALLOW_LOCAL_BINDING"), "0");
        assert_eq!(of("ELECTRON_GET_USE_PROXY"), "true");
        assert_eq!(of("NODE_USE_ENV_PROXY"), "1");
        assert_eq!(of("KEEP"), "1");
    }

    #[test]
    fn without_socks_all_use_the_one() {
        assert_eq!(laid(false, false, false)("ALL_PROXY"), "http://127.0.0.1:8001");
    }

    #[test_case(true, false, LOCAL, "1")]
    #[test_case(true, true, "", "1"; "own network")]
    #[test_case(false, false, "", "0"; "no local binding")]
    fn bypass(allows_local: bool, own_network: bool, no_proxy: &str, flag: &str) {
        let of = laid(true, allows_local, own_network);
        assert_eq!(of("NO_PROXY"), no_proxy);
        assert_eq!(of("CODEX_NETWORK_ALLOW_LOCAL_BINDING"), flag);
    }
}
