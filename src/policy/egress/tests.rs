use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use test_case::test_case;

use super::{Authority, EgressError, EgressRules, Judgement, Refusal};
use crate::policy::hosts::{Host, is_public};
use crate::protocol::network::{DomainAccess, NetworkProtocol, ProxyMode, ProxySettings};

fn settings(domains: &[(&str, DomainAccess)], allow_local_binding: bool) -> ProxySettings {
    ProxySettings {
        domains: Some(domains.iter().map(|(text, access)| ((*text).to_owned(), *access)).collect()),
        allow_local_binding,
        ..ProxySettings::closed()
    }
}

fn rules(domains: &[(&str, DomainAccess)], local: bool) -> EgressRules {
    EgressRules::new(&settings(domains, local)).unwrap()
}

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

use DomainAccess::{Allow, Deny, None as Nothing};
const LOCAL: Judgement = Judgement::Refused(Refusal::NotAllowedLocal);
const DENIED: Judgement = Judgement::Refused(Refusal::Denied);

#[test_case(&[("a.test", Allow)], "A.test.", Judgement::Allowed; "allowed in any spelling")]
#[test_case(&[("a.test", Allow)], "b.test", Judgement::Unlisted; "not named")]
#[test_case(&[("a.test", Nothing)], "a.test", Judgement::Unlisted; "none says nothing")]
#[test_case(&[("*", Allow), ("*.a.test", Deny)], "x.a.test", DENIED; "deny before allow")]
#[test_case(&[("localhost", Deny), ("localhost.", Allow)], "localhost", DENIED; "deny before local")]
#[test_case(&[("*", Allow)], "localhost", LOCAL; "a wildcard does not open localhost")]
#[test_case(&[("*", Allow)], "127.0.0.1.", LOCAL; "a wildcard does not open loopback")]
#[test_case(&[("127.0.0.?", Allow)], "127.0.0.1", LOCAL; "nor does one within an address")]
#[test_case(&[("localhost", Allow)], "127.0.0.1", LOCAL; "localhost is not its address")]
#[test_case(&[("127.0.0.1", Allow)], "localhost", LOCAL; "an address is not its name")]
#[test_case(&[("127.0.0.1", Allow)], "[::ffff:127.0.0.1]", Judgement::Allowed; "a mapped address is the same")]
#[test_case(&[("127.0.0.1", Allow)], "64:ff9b::7f00:1", LOCAL; "a translated one leads elsewhere")]
#[test_case(&[("*", Allow)], "64:ff9b::a00:1", LOCAL; "translated private")]
#[test_case(&[("*", Allow)], "2002:a00:1::", LOCAL; "tunnelled private")]
#[test_case(&[("*", Allow)], "[::127.0.0.1]", LOCAL; "compatible loopback")]
#[test_case(&[("*", Allow)], "0.0.0.0", LOCAL; "unspecified")]
#[test_case(&[("*", Allow)], "169.254.169.254", LOCAL; "metadata")]
#[test_case(&[("10.1.1.1", Deny), ("*", Allow)], "::ffff:10.1.1.1", DENIED; "denied in disguise")]
#[test_case(&[("*", Allow)], "2130706433", Judgement::Allowed; "a number is a name for now")]
#[test_case(&[("127.0.0.1", Allow)], "127.1", Judgement::Unlisted; "and is no literal")]
fn judgements(domains: &[(&str, DomainAccess)], text: &str, expected: Judgement) {
    assert_eq!(rules(domains, false).judge(&host(text)), expected);
}

#[test]
fn local_binding_leaves_the_rules() {
    let rules = rules(&[("*", Allow), ("127.0.0.2", Deny)], true);
    assert_eq!(rules.judge(&host("127.0.0.1")), Judgement::Allowed);
    assert_eq!(rules.judge(&host("localhost")), Judgement::Allowed);
    assert_eq!(rules.judge(&host("127.0.0.2")), DENIED);
    assert_eq!(
        EgressRules::new(&settings(&[], true)).unwrap().judge(&host("localhost")),
        Judgement::Unlisted
    );
}

#[test]
fn review_comes_before_allow_and_after_deny() {
    let mut settings = settings(&[("*", Allow), ("bad.test", Deny)], false);
    settings.review_domains = vec!["**.pay.test".to_owned(), "bad.test".to_owned(), "10.0.0.1".to_owned()];
    let rules = EgressRules::new(&settings).unwrap();
    assert_eq!(rules.judge(&host("www.pay.test")), Judgement::Unlisted);
    assert_eq!(rules.judge(&host("other.test")), Judgement::Allowed);
    assert_eq!(rules.judge(&host("bad.test")), DENIED);
    assert_eq!(rules.judge(&host("10.0.0.1")), LOCAL);
}

#[test_case("a.test", &["93.184.216.34", "2606:2800::1"], false, Ok(()); "public")]
#[test_case("a.test", &["93.184.216.34", "10.0.0.1"], false, Err(Refusal::NotAllowedLocal); "one is private")]
#[test_case("a.test", &["::ffff:169.254.169.254"], false, Err(Refusal::NotAllowedLocal); "mapped")]
#[test_case("a.test", &[], false, Err(Refusal::NotAllowedLocal); "unknown")]
#[test_case("a.test", &[], true, Ok(()); "unknown where local is allowed")]
#[test_case("a.test", &["10.0.0.1"], true, Ok(()); "private where local is allowed")]
#[test_case("a.test", &["10.6.6.6"], true, Err(Refusal::Denied); "a name for what is denied")]
#[test_case("a.test", &["64:ff9b::a06:606"], true, Err(Refusal::Denied); "and in disguise")]
#[test_case("localhost", &["127.0.0.1", "::1"], false, Ok(()); "localhost")]
#[test_case("localhost", &["10.0.0.1"], false, Err(Refusal::NotAllowedLocal); "localhost somewhere else")]
#[test_case("x.localhost", &["127.0.0.1"], false, Err(Refusal::NotAllowedLocal); "below localhost")]
#[test_case("127.0.0.1", &["127.0.0.1"], false, Ok(()); "a literal is judged by its text")]
fn addresses(name: &str, found: &[&str], local: bool, expected: Result<(), Refusal>) {
    let rules = rules(&[("*", Allow), ("localhost", Allow), ("10.6.6.*", Deny)], local);
    let found: Vec<IpAddr> = found.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(rules.check_addresses(&host(name), &found), expected);
}

#[test_case(NetworkProtocol::Http, Some("GET"), 80, None)]
#[test_case(NetworkProtocol::Http, Some("HEAD"), 80, None)]
#[test_case(NetworkProtocol::Http, Some("OPTIONS"), 80, None)]
#[test_case(NetworkProtocol::Http, Some("get"), 80, Some(Refusal::MethodNotAllowed); "methods have case")]
#[test_case(NetworkProtocol::Http, Some("POST"), 80, Some(Refusal::MethodNotAllowed))]
#[test_case(NetworkProtocol::Http, None, 80, Some(Refusal::MethodNotAllowed); "no method")]
#[test_case(NetworkProtocol::HttpsConnect, Some("CONNECT"), 80, Some(Refusal::MitmRequired))]
#[test_case(NetworkProtocol::Socks5Tcp, None, 443, Some(Refusal::MitmRequired))]
#[test_case(NetworkProtocol::Socks5Tcp, None, 80, Some(Refusal::MethodNotAllowed))]
#[test_case(NetworkProtocol::Socks5Udp, None, 53, Some(Refusal::MethodNotAllowed))]
fn reading_only(protocol: NetworkProtocol, method: Option<&str>, port: u16, expected: Option<Refusal>) {
    let mut settings = settings(&[], false);
    assert_eq!(EgressRules::new(&settings).unwrap().check_mode(protocol, method, port), Ok(()));
    settings.mode = ProxyMode::Limited;
    let rules = EgressRules::new(&settings).unwrap();
    assert_eq!(rules.check_mode(protocol, method, port).err(), expected);
}

#[test_case("*", Deny, "`*` denies every host")]
#[test_case("**.*", Deny, "`**.*` denies every host")]
#[test_case("a.test:443", Allow, "domains: `a.test:443` is not a pattern of hosts"; "port")]
#[test_case("http://a.test", Nothing, "without scheme"; "scheme, though it says nothing")]
#[test_case("10.0.0.0/8", Deny, "without scheme, port and path"; "range")]
#[test_case("", Allow, "`` is not a pattern"; "empty")]
#[test_case("**", Allow, "`**` is not a pattern"; "two stars")]
#[test_case("[::1", Allow, "`[::1` is not a pattern"; "bracket")]
fn what_is_no_rule(pattern: &str, access: DomainAccess, message: &str) {
    let error = EgressRules::new(&settings(&[(pattern, access)], false)).unwrap_err().to_string();
    assert!(error.contains(message) && error.contains("networkProxy.proxy.domains"), "{error}");
}

#[test]
fn other_mistakes() {
    let mut wrong = settings(&[], false);
    wrong.review_domains = vec!["a b".to_owned()];
    let error = EgressRules::new(&wrong).unwrap_err().to_string();
    assert!(error.starts_with("networkProxy.proxy.reviewDomains: `a b`"), "{error}");
    wrong.review_domains = vec!["a".to_owned(); super::MAX_PATTERNS + 1];
    assert_eq!(EgressRules::new(&wrong).unwrap_err(), EgressError::TooMany);
    let open = settings(&[("*", Allow)], false);
    assert!(EgressRules::new(&open).is_ok());
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        any::<u32>()
            .prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(0x64_ff9b_u128 << 96 | u128::from(bits)))),
        any::<u32>()
            .prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(0x2002_u128 << 112 | u128::from(bits) << 80))),
    ]
}

proptest! {
    #[test]
    fn wildcards_open_what_is_public_and_nothing_else(address in any_address()) {
        let judged = rules(&[("*", Allow)], false).judge(&address.into());
        prop_assert_eq!(judged, if is_public(address) { Judgement::Allowed } else { LOCAL });
    }

    #[test]
    fn an_address_opens_itself_and_nothing_else(address in any_address(), other in any_address()) {
        let rules = rules(&[(&address.to_string(), Allow)], false);
        prop_assert_eq!(rules.judge(&address.into()), Judgement::Allowed);
        if Host::from(other) != Host::from(address) && !is_public(other) {
            prop_assert_eq!(rules.judge(&other.into()), LOCAL);
        }
    }

    #[test]
    fn what_is_denied_stays_denied(address in any_address(), local in any::<bool>(), name in "[a-z]{1,8}\\.test") {
        let text = address.to_string();
        let rules = rules(&[("*", Allow), (&text, Deny)], local);
        prop_assert_eq!(rules.judge(&address.into()), DENIED);
        prop_assert_eq!(rules.check_addresses(&host(&name), &[address]), Err(Refusal::Denied));
    }

    #[test]
    fn names_lead_to_public_addresses_only(found in prop::collection::vec(any_address(), 0..4), name in "[a-z0-9]{1,9}(\\.test)?") {
        prop_assume!(name != "localhost" && matches!(host(&name), Host::Name(_)));
        let is_open = rules(&[("*", Allow)], false).check_addresses(&host(&name), &found).is_ok();
        prop_assert_eq!(is_open, !found.is_empty() && found.iter().all(|address| is_public(*address)));
    }
}

#[test_case("a.test", "a.test", None; "host")]
#[test_case("A.test.:8080", "A.test.", Some(8080); "host and port, as written")]
#[test_case("a.test:", "a.test", None; "empty port")]
#[test_case("[::1]", "::1", None; "address in brackets")]
#[test_case("[::1]:443", "::1", Some(443); "address in brackets and port")]
#[test_case("127.0.0.1:0", "127.0.0.1", Some(0); "port 0")]
fn authorities(text: &str, host: &str, port: Option<u16>) {
    assert_eq!(text.parse(), Ok(Authority { host: host.to_owned(), port }));
}

#[test_case("")]
#[test_case(":80")]
#[test_case("::1"; "no brackets")]
#[test_case("a:b")]
#[test_case("a:+80"; "sign")]
#[test_case("a: 80"; "space")]
#[test_case("a:65536"; "too large")]
#[test_case("u@a")]
#[test_case("a/b")]
#[test_case("a\\b"; "backslash")]
#[test_case("[a.test]:80"; "name in brackets")]
#[test_case("[::1"; "open")]
#[test_case("[::1]80"; "no colon")]
#[test_case("a\u{e9}:80"; "not ASCII")]
fn what_is_no_authority(text: &str) {
    assert!(text.parse::<Authority>().is_err());
}

#[test]
fn authorities_that_mean_the_same() {
    let same = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| text.parse::<Authority>().unwrap());
        one.is_same(&other, 80)
    };
    assert!(same("A.test", "a.test.:80"));
    assert!(same("[::ffff:127.0.0.1]:80", "127.0.0.1"));
    assert!(same("a..b", "A..B"));
    assert!(!same("a.test", "a.test:81"));
    assert!(!same("a.test", "b.test"));
    assert!(!same("127.0.0.1", "2130706433"));
}

proptest! {
    #[test]
    fn an_authority_comes_back(text in "[\\[\\]a-z0-9.:@+]{0,12}") {
        if let Ok(authority) = text.parse::<Authority>() {
            prop_assert_eq!(authority.to_string().parse(), Ok(authority));
        }
    }
}
