//! How a value of a key is read from text or TOML, and shown as TOML.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::schema::LONGEST_MS;
use super::words::{
    AcceptedGap, AuditTarget, AuthMode, BackendChoice, HostName, HostPort, LogFilter, LogFormat, TokenDigest,
    VariableName,
};
use super::{AddressError, ListenAddress};
use crate::policy::hosts::Denial;

/// The numbers that a key takes, in its own unit; meaningless for keys that are no number.
pub(super) type Bounds = RangeInclusive<i64>;

/// What a layer gives for a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Input<'a> {
    /// A variable or `--set`; lists are separated by commas.
    Text(&'a str),
    /// The values of a repeatable flag, or the one value of another.
    Words(&'a [String]),
    /// A value of the file.
    Toml(&'a toml::Value),
}

/// What would have been right, for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueError(pub(super) String);

impl From<AddressError> for ValueError {
    fn from(error: AddressError) -> Self {
        Self(error.to_string())
    }
}

/// A type that a key may have.
pub(super) trait Setting: Sized {
    /// Never shown, not even in a message about a bad one.
    const SECRET: bool = false;
    /// The bounds of a key that names none.
    const BOUNDS: Bounds = 0..=i64::MAX;

    fn read(input: Input<'_>, bounds: &Bounds) -> Result<Self, ValueError>;

    fn show(&self) -> toml::Value;
}

/// A type whose values are one string: what the list and optional types are made of.
pub(super) trait Word: FromStr<Err: Display> + Display {
    const SECRET: bool = false;
}

/// A word that may be missing; the empty string stands for that.
trait Optional: Word {}

impl Optional for AuthMode {}
impl Optional for AuditTarget {}
impl Optional for HostPort {}

impl Word for AuditTarget {}
impl Word for ListenAddress {}
impl Word for HostName {}
impl Word for HostPort {}
impl Word for AuthMode {}
impl Word for BackendChoice {}
impl Word for AcceptedGap {}
impl Word for LogFormat {}
impl Word for LogFilter {}
impl Word for VariableName {}
impl Word for Denial {}
impl Word for TokenDigest {
    const SECRET: bool = true;
}

fn text<'a>(input: Input<'a>) -> Result<&'a str, ValueError> {
    match input {
        Input::Text(text) => Ok(text),
        Input::Toml(toml::Value::String(text)) => Ok(text),
        Input::Words([word]) => Ok(word),
        _ => Err(ValueError("expected a string".into())),
    }
}

fn word<T: Word>(text: &str) -> Result<T, ValueError> {
    text.parse().map_err(|error: T::Err| ValueError(error.to_string()))
}

fn number(input: Input<'_>, bounds: &Bounds, unit: &str) -> Result<i64, ValueError> {
    let number = match input {
        Input::Toml(toml::Value::Integer(number)) => Some(*number),
        Input::Text(text) => text.parse().ok(),
        Input::Words([word]) => word.parse().ok(),
        _ => None,
    };
    let (low, high) = (bounds.start(), bounds.end());
    number
        .filter(|number| bounds.contains(number))
        .ok_or_else(|| ValueError(format!("expected a whole number{unit} from {low} to {high}")))
}

fn shown(number: impl TryInto<i64>) -> toml::Value {
    toml::Value::Integer(number.try_into().unwrap_or(i64::MAX))
}

impl<T: Word> Setting for T {
    const SECRET: bool = <T as Word>::SECRET;

    fn read(input: Input<'_>, _: &Bounds) -> Result<Self, ValueError> {
        word(text(input)?)
    }

    fn show(&self) -> toml::Value {
        self.to_string().into()
    }
}

impl<T: Word> Setting for Vec<T> {
    const SECRET: bool = <T as Word>::SECRET;

    fn read(input: Input<'_>, _: &Bounds) -> Result<Self, ValueError> {
        match input {
            Input::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
            Input::Text(text) => text.split(',').map(|item| word(item.trim())).collect(),
            Input::Words(words) => words.iter().map(|item| word(item)).collect(),
            Input::Toml(toml::Value::String(one)) => Ok(vec![word(one)?]),
            Input::Toml(toml::Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().ok_or_else(|| ValueError("expected a list of strings".into())))
                .map(|item| word(item?))
                .collect(),
            Input::Toml(_) => Err(ValueError("expected a list of strings".into())),
        }
    }

    fn show(&self) -> toml::Value {
        self.iter().map(ToString::to_string).collect::<Vec<_>>().into()
    }
}

impl<T: Optional> Setting for Option<T> {
    fn read(input: Input<'_>, _: &Bounds) -> Result<Self, ValueError> {
        let text = text(input)?;
        if text.is_empty() { Ok(None) } else { word(text).map(Some) }
    }

    fn show(&self) -> toml::Value {
        self.as_ref().map(ToString::to_string).unwrap_or_default().into()
    }
}

impl Setting for Option<PathBuf> {
    fn read(input: Input<'_>, _: &Bounds) -> Result<Self, ValueError> {
        let text = text(input)?;
        if text.contains('\0') {
            return Err(ValueError("expected a path".into()));
        }
        Ok((!text.is_empty()).then(|| text.into()))
    }

    fn show(&self) -> toml::Value {
        self.as_deref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default().into()
    }
}

impl Setting for String {
    fn read(input: Input<'_>, _: &Bounds) -> Result<Self, ValueError> {
        text(input).map(str::to_owned)
    }

    fn show(&self) -> toml::Value {
        self.as_str().into()
    }
}

impl Setting for bool {
    fn read(input: Input<'_>, _: &Bounds) -> Result<Self, ValueError> {
        if let Input::Toml(toml::Value::Boolean(value)) = input {
            return Ok(*value);
        }
        match (input, text(input)) {
            (Input::Toml(_), _) => Err(ValueError("expected `true` or `false`".into())),
            (_, Ok("true")) => Ok(true),
            (_, Ok("false")) => Ok(false),
            _ => Err(ValueError("expected `true` or `false`".into())),
        }
    }

    fn show(&self) -> toml::Value {
        (*self).into()
    }
}

impl Setting for u64 {
    fn read(input: Input<'_>, bounds: &Bounds) -> Result<Self, ValueError> {
        number(input, bounds, "").map(i64::unsigned_abs)
    }

    fn show(&self) -> toml::Value {
        shown(*self)
    }
}

impl Setting for NonZeroUsize {
    const BOUNDS: Bounds = 1..=1 << 30;

    fn read(input: Input<'_>, bounds: &Bounds) -> Result<Self, ValueError> {
        let number = number(input, bounds, "")?;
        usize::try_from(number)
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| ValueError("expected a whole number above 0".into()))
    }

    fn show(&self) -> toml::Value {
        shown(self.get())
    }
}

/// Whole milliseconds. All are bounded: a clock plus the longest time must not overflow.
impl Setting for Duration {
    const BOUNDS: Bounds = 0..=LONGEST_MS;

    fn read(input: Input<'_>, bounds: &Bounds) -> Result<Self, ValueError> {
        number(input, bounds, " of milliseconds").map(|number| Self::from_millis(number.unsigned_abs()))
    }

    fn show(&self) -> toml::Value {
        shown(self.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn from_text<T: Setting>(text: &str) -> Result<T, ValueError> {
        T::read(Input::Text(text), &T::BOUNDS)
    }

    #[test_case("0"; "zero")]
    #[test_case("-1"; "negative")]
    #[test_case("many"; "a word")]
    #[test_case("1.5"; "a fraction")]
    #[test_case("99999999999999999999"; "too long")]
    fn a_count_is_a_positive_number(text: &str) {
        let error = from_text::<NonZeroUsize>(text).unwrap_err();
        assert_eq!(error.0, "expected a whole number from 1 to 1073741824");
    }

    #[test]
    fn a_switch_has_two_words() {
        assert_eq!((from_text::<bool>("true"), from_text::<bool>("false")), (Ok(true), Ok(false)));
        assert_eq!(bool::read(Input::Toml(&true.into()), &bool::BOUNDS), Ok(true));
        for wrong in
            [Input::Text("yes"), Input::Text(""), Input::Toml(&1.into()), Input::Toml(&"true".into())]
        {
            assert!(bool::read(wrong, &bool::BOUNDS).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_end_at_thirty_days() {
        assert_eq!(from_text::<Duration>("2592000000"), Ok(Duration::from_secs(30 * 86400)));
        assert!(from_text::<Duration>("2592000001").is_err());
    }

    #[test]
    fn lists_come_by_comma_by_word_and_by_toml() {
        fn names(input: Input<'_>) -> Result<toml::Value, ValueError> {
            Vec::<HostName>::read(input, &(0..=0)).map(|list| list.show())
        }
        let expected = Ok(toml::Value::from(vec!["a", "b.c"]));
        assert_eq!(names(Input::Text("a, b.c")), expected);
        assert_eq!(names(Input::Words(&["a".into(), "b.c".into()])), expected);
        assert_eq!(names(Input::Toml(&toml::Value::from(vec!["a", "b.c"]))), expected);
        assert_eq!(names(Input::Toml(&"a".into())), Ok(vec!["a"].into()));
        assert_eq!(names(Input::Text(" ")), Ok(toml::Value::Array(vec![])));
        assert!(names(Input::Toml(&vec![1, 2].into())).is_err());
    }

    #[test]
    fn an_empty_string_unsets_what_is_optional() {
        assert_eq!(from_text::<Option<PathBuf>>(""), Ok(None));
        assert_eq!(from_text::<Option<AuthMode>>(""), Ok(None));
        assert!(from_text::<Option<AuthMode>>("trust-me").is_err());
    }
}
