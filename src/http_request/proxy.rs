//! Proxies of the environment, as the HTTP client takes them.

use std::collections::HashSet;

use reqwest::{NoProxy, Proxy};

use crate::outbound::proxy::Variables;

/// The names of the hosts of all proxies.
pub(super) fn hosts(variables: &Variables) -> HashSet<String> {
    variables.urls().filter_map(|url| Some(url.host_str()?.to_owned())).collect()
}

/// The proxies, the first that fits counts.
pub(super) fn for_client(variables: &Variables) -> Vec<Proxy> {
    let Variables { http, https, all, except } = variables.clone();
    let except = except.and_then(|list| NoProxy::from_string(&list));
    let made = [http.map(Proxy::http), https.map(Proxy::https), all.map(Proxy::all)];
    made.into_iter().flatten().flatten().map(|proxy| proxy.no_proxy(except.clone())).collect()
}
