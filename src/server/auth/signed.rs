//! Tokens that a shared secret signed: JWTs by HS256 and nothing else.
//!
//! The library verifies the signature only. Its own rules for claims differ from the contract (types, skew, order), so
//! the claims are checked here.

use std::time::{SystemTime, UNIX_EPOCH};

use base64_simd::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny};

use super::AuthRefusal;

/// What a signed token must prove.
#[derive(Debug)]
pub(super) struct SignedTokens {
    pub(super) key: DecodingKey,
    pub(super) issuer: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) skew_seconds: u64,
}

/// The header of a JWT. Any `crit` names an extension that is not known here.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

#[derive(Deserialize)]
struct Claims {
    exp: i64,
    nbf: Option<i64>,
    iss: Option<String>,
    aud: Option<Audience>,
    /// Read for its type alone.
    #[serde(rename = "sub")]
    _sub: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Many(many) => many.iter().any(|one| one == name),
        }
    }
}

impl SignedTokens {
    pub(super) fn check(&self, token: &str) -> Result<(), AuthRefusal> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.check_at(token, since_epoch.as_secs())
    }

    fn check_at(&self, token: &str, now: u64) -> Result<(), AuthRefusal> {
        let claims = self.verified(token).ok_or(AuthRefusal::InvalidJwt)?;
        let (now, skew) = (i128::from(now), i128::from(self.skew_seconds));
        if now > i128::from(claims.exp) + skew {
            return Err(AuthRefusal::Expired);
        }
        if claims.nbf.is_some_and(|nbf| now < i128::from(nbf) - skew) {
            return Err(AuthRefusal::NotYetValid);
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err(AuthRefusal::Issuer);
        }
        match (&self.audience, &claims.aud) {
            (None, _) => Ok(()),
            (Some(wanted), Some(given)) if given.contains(wanted) => Ok(()),
            (Some(_), _) => Err(AuthRefusal::Audience),
        }
    }

    /// The claims, if the token is well formed and the secret signed it.
    fn verified(&self, token: &str) -> Option<Claims> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let header: Header = decoded(header)?;
        if header.alg != "HS256" || header.crit {
            return None;
        }
        let signed = crypto::verify(signature, message.as_bytes(), &self.key, Algorithm::HS256);
        if matches!(signed, Ok(true)) { decoded(claims) } else { None }
    }
}

/// A base64url part that holds one JSON object.
fn decoded<T: DeserializeOwned>(part: &str) -> Option<T> {
    let bytes = URL_SAFE_NO_PAD.decode_to_vec(part).ok()?;
    // A derived struct would also read itself from a list.
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    if is_object { serde_json::from_slice(&bytes).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::EncodingKey;
    use serde_json::{Value, json};
    use test_case::test_case;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_000_000;

    fn rules() -> SignedTokens {
        let key = DecodingKey::from_secret(SECRET).unwrap();
        SignedTokens { key, issuer: None, audience: None, skew_seconds: 30 }
    }

    fn signed(header: &str, claims: &str, algorithm: Algorithm) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode_to_string(text);
        let message = format!("{}.{}", encode(header), encode(claims));
        let key = EncodingKey::from_secret(SECRET).unwrap();
        let signature = crypto::sign(message.as_bytes(), &key, algorithm).unwrap();
        format!("{message}.{signature}")
    }

    fn jwt(claims: &Value) -> String {
        signed(r#"{"alg":"HS256","typ":"JWT"}"#, &claims.to_string(), Algorithm::HS256)
    }

    #[test_case(json!({"exp": NOW}) => Ok(()); "now")]
    #[test_case(json!({"exp": NOW - 30}) => Ok(()); "within the skew")]
    #[test_case(json!({"exp": NOW - 31}) => Err(AuthRefusal::Expired); "expired")]
    #[test_case(json!({"exp": -1}) => Err(AuthRefusal::Expired); "negative")]
    #[test_case(json!({"exp": i64::MAX}) => Ok(()); "largest")]
    #[test_case(json!({"exp": u64::MAX}) => Err(AuthRefusal::InvalidJwt); "larger than the largest")]
    #[test_case(json!({}) => Err(AuthRefusal::InvalidJwt); "no exp")]
    #[test_case(json!({"exp": null}) => Err(AuthRefusal::InvalidJwt); "null exp")]
    #[test_case(json!({"exp": "1000001"}) => Err(AuthRefusal::InvalidJwt); "text exp")]
    #[test_case(json!({"exp": 1_000_001.5}) => Err(AuthRefusal::InvalidJwt); "fraction exp")]
    #[test_case(json!({"exp": NOW, "nbf": NOW + 30}) => Ok(()); "nbf within the skew")]
    #[test_case(json!({"exp": NOW, "nbf": NOW + 31}) => Err(AuthRefusal::NotYetValid); "nbf ahead")]
    #[test_case(json!({"exp": NOW, "nbf": i64::MIN}) => Ok(()); "smallest nbf")]
    #[test_case(json!({"exp": NOW, "nbf": null}) => Ok(()); "null nbf")]
    #[test_case(json!({"exp": NOW, "nbf": "1"}) => Err(AuthRefusal::InvalidJwt); "text nbf")]
    #[test_case(json!({"exp": NOW, "iss": 1}) => Err(AuthRefusal::InvalidJwt); "issuer type")]
    #[test_case(json!({"exp": NOW, "aud": [1]}) => Err(AuthRefusal::InvalidJwt); "audience type")]
    #[test_case(json!({"exp": NOW, "aud": {}}) => Err(AuthRefusal::InvalidJwt); "audience object")]
    #[test_case(json!({"exp": NOW, "sub": 1}) => Err(AuthRefusal::InvalidJwt); "subject type")]
    #[test_case(json!({"exp": NOW, "sub": "s", "iat": "x", "iss": null, "aud": null}) => Ok(()); "other claims")]
    #[test_case(json!([NOW, null, null, null, null]) => Err(AuthRefusal::InvalidJwt); "a list")]
    fn claims(claims: Value) -> Result<(), AuthRefusal> {
        rules().check_at(&jwt(&claims), NOW)
    }

    #[test_case(json!({"exp": NOW, "iss": "me", "aud": "here"}) => Ok(()); "both")]
    #[test_case(json!({"exp": NOW, "iss": "me", "aud": ["there", "here"]}) => Ok(()); "list")]
    #[test_case(json!({"exp": NOW, "iss": "Me", "aud": "here"}) => Err(AuthRefusal::Issuer); "case")]
    #[test_case(json!({"exp": NOW, "aud": "here"}) => Err(AuthRefusal::Issuer); "no issuer")]
    #[test_case(json!({"exp": NOW, "iss": "me"}) => Err(AuthRefusal::Audience); "no audience")]
    #[test_case(json!({"exp": NOW, "iss": "me", "aud": []}) => Err(AuthRefusal::Audience); "empty list")]
    #[test_case(json!({"exp": 0, "nbf": i64::MAX, "iss": "x"}) => Err(AuthRefusal::Expired); "expiry comes first")]
    #[test_case(json!({"exp": NOW, "nbf": i64::MAX, "iss": "x"}) => Err(AuthRefusal::NotYetValid); "then nbf")]
    #[test_case(json!({"exp": NOW, "iss": "x", "aud": "x"}) => Err(AuthRefusal::Issuer); "then issuer")]
    fn demands(claims: Value) -> Result<(), AuthRefusal> {
        let rules = SignedTokens { issuer: Some("me".into()), audience: Some("here".into()), ..rules() };
        rules.check_at(&jwt(&claims), NOW)
    }

    #[test]
    fn the_largest_skew_does_not_overflow() {
        let rules = SignedTokens { skew_seconds: i64::MAX.unsigned_abs(), ..rules() };
        assert_eq!(rules.check_at(&jwt(&json!({"exp": i64::MAX, "nbf": i64::MIN})), NOW), Ok(()));
    }

    #[test_case(r#"{"alg":"HS256"}"#, Algorithm::HS256 => true; "hs256")]
    #[test_case(r#"{"alg":"HS256","kid":"k","x":[1]}"#, Algorithm::HS256 => true; "other members")]
    #[test_case(r#"{"alg":"hs256"}"#, Algorithm::HS256 => false; "lower case")]
    #[test_case(r#"{"alg":"none"}"#, Algorithm::HS256 => false; "none")]
    #[test_case(r#"{"alg":"HS384"}"#, Algorithm::HS384 => false; "hs384")]
    #[test_case(r#"{"alg":"HS512"}"#, Algorithm::HS512 => false; "hs512")]
    #[test_case(r#"{"alg":"HS256"}"#, Algorithm::HS512 => false; "signed otherwise")]
    #[test_case(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, Algorithm::HS256 => false; "critical")]
    #[test_case(r#"{"alg":"HS256","crit":null}"#, Algorithm::HS256 => false; "null crit")]
    #[test_case(r#"{"alg":"none","alg":"HS256"}"#, Algorithm::HS256 => false; "two algorithms")]
    #[test_case(r#"{}"#, Algorithm::HS256 => false; "no algorithm")]
    #[test_case(r#"["HS256",false]"#, Algorithm::HS256 => false; "list")]
    fn headers(header: &str, algorithm: Algorithm) -> bool {
        let token = signed(header, &json!({"exp": NOW}).to_string(), algorithm);
        rules().check_at(&token, NOW).is_ok()
    }

    #[test]
    fn a_token_has_three_unpadded_parts() {
        let token = jwt(&json!({"exp": NOW}));
        let (message, signature) = token.rsplit_once('.').unwrap();
        let padded = format!("{token}=");
        let swapped = message.replace('.', "..");
        for bad in [
            "",
            ".",
            "..",
            "...",
            "a.b.c",
            message,
            &format!("{message}."),
            &format!("{token}.x"),
            &format!(".{token}"),
            &padded,
            &format!("{swapped}.{signature}"),
            &format!(" {token}"),
        ] {
            assert_eq!(rules().check_at(bad, NOW), Err(AuthRefusal::InvalidJwt), "{bad}");
        }
        assert_eq!(rules().check_at(&token, NOW), Ok(()));
    }
}
