//! The arguments of a call, bound to parameters as Python binds them.

use minijinja::Value;
use minijinja::value::DynObject;

use super::value::{Outcome, fail};

/// The arguments of a call: positional ones, then named ones.
pub(super) struct Args<'a> {
    pub(super) positional: &'a [Value],
    pub(super) named: Vec<(Value, Value)>,
}

impl<'a> Args<'a> {
    pub(super) const NONE: Args<'static> = Args { positional: &[], named: Vec::new() };

    pub(super) fn new(values: &'a [Value]) -> Self {
        match values.split_last() {
            Some((last, rest)) if last.is_kwargs() => {
                let pairs = last.as_object().and_then(DynObject::try_iter_pairs);
                Self { positional: rest, named: pairs.into_iter().flatten().collect() }
            }
            _ => Self { positional: values, named: Vec::new() },
        }
    }

    /// The arguments after the first `count` positional ones.
    pub(super) fn skip(&self, count: usize) -> Args<'a> {
        Args { positional: self.positional.get(count..).unwrap_or_default(), named: self.named.clone() }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
    }

    /// Give each parameter its argument, as a call of a Python function with these parameters would.
    pub(super) fn bind<const N: usize>(&self, function: &str, names: [&str; N]) -> Outcome<[Option<&Value>; N]> {
        let mut bound = [None; N];
        if self.positional.len() > N {
            return Err(fail(format!("`{function}` takes at most {N} arguments")));
        }
        for (place, value) in self.positional.iter().enumerate() {
            bound[place] = Some(value);
        }
        for (key, value) in &self.named {
            let key = key.as_str().unwrap_or_default();
            let place = names.iter().position(|name| *name == key);
            let place = place.ok_or_else(|| fail(format!("`{function}` has no parameter `{key}`")))?;
            if bound[place].replace(value).is_some() {
                return Err(fail(format!("`{function}` got two values for `{key}`")));
            }
        }
        Ok(bound)
    }
}
