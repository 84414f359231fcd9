//! Fields whose values outlive the path that errors name them by.

use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// The fields of an object at `path` in a body.
#[derive(Clone, Copy)]
pub(super) struct At<'a, 'p> {
    pub(super) map: &'a Map<'a>,
    pub(super) path: &'p str,
}

impl<'a> At<'a, '_> {
    pub(super) fn error(self, key: &str, expected: &str) -> Error {
        Error::schema(format!("{}.{key}", self.path), format!("`{key}` must be {expected}"))
    }

    pub(super) fn missing(self, key: &str) -> Error {
        self.error(key, "given")
    }

    /// The value read by `read`; null and absence give none.
    fn optional<T>(self, key: &str, expected: &str, read: impl Fn(&'a Json<'a>) -> Option<T>) -> Result<Option<T>> {
        self.map.present(key).map(|value| read(value).ok_or_else(|| self.error(key, expected))).transpose()
    }

    pub(super) fn present(self, key: &str) -> Option<&'a Json<'a>> {
        self.map.present(key)
    }

    pub(super) fn str(self, key: &str) -> Result<Option<&'a str>> {
        self.optional(key, "a string", Json::as_str)
    }

    pub(super) fn object(self, key: &str) -> Result<Option<&'a Map<'a>>> {
        self.optional(key, "an object", Json::as_object)
    }

    pub(super) fn array(self, key: &str) -> Result<Option<&'a [Json<'a>]>> {
        self.optional(key, "a list", Json::as_array)
    }
}
