use base64_simd::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Bytes that travel as standard base64 with padding.
#[derive(Clone, PartialEq, Eq, Default, JsonSchema)]
#[schemars(with = "String", extend("contentEncoding" = "base64"))]
pub struct ByteChunk(Vec<u8>);

impl ByteChunk {
    /// The bytes.
    #[must_use]
    pub fn into_inner(self) -> Vec<u8> {
        self.0
    }

    /// The bytes, borrowed.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for ByteChunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for ByteChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ByteChunk({} bytes)", self.0.len())
    }
}

impl Serialize for ByteChunk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode_to_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for ByteChunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut bytes = String::deserialize(deserializer)?.into_bytes();
        let length = match STANDARD.decode_inplace(&mut bytes) {
            Ok(decoded) => decoded.len(),
            Err(_) => {
                return Err(D::Error::custom("invalid base64: standard alphabet with padding is required"));
            }
        };
        bytes.truncate(length);
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(text: &str) -> Option<Vec<u8>> {
        serde_json::from_value::<ByteChunk>(text.into()).ok().map(ByteChunk::into_inner)
    }

    #[test]
    fn only_canonical_padded_standard_base64_is_accepted() {
        assert_eq!(decode("aGk="), Some(b"hi".to_vec()));
        assert_eq!(decode(""), Some(vec![]));
        for bad in ["aGk", "aGl=", "a-_=", "aGk= ", " aGk=", "aG\nk=", "aGk==", "=", "!!", "YR=="] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_survive_the_wire(bytes: Vec<u8>) {
            let text = serde_json::to_value(ByteChunk::from(bytes.clone())).unwrap();
            prop_assert_eq!(decode(text.as_str().unwrap()), Some(bytes));
        }
    }
}
