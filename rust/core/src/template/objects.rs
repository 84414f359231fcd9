//! Python's containers and the like, as objects of the engine: what it has of its own differs too much.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr};
use minijinja::{Error, State, Value};

use super::arguments::Args;
use super::budget::{self, Bytes};
use super::value::{Outcome, Py, fail, pairs_from_json, py, type_name};
use super::{dumps, methods, operators, text};
use crate::json::{Json, Map};

/// Dicts up to this size are searched by comparison, larger ones through an index.
const LINEAR_KEYS: usize = 16;

/// What a container takes on top of its items.
const CONTAINER_BYTES: usize = 64;

/// Longer keys are paid for where they are looked for.
const LONG_KEY: usize = 128;

/// Containers within containers; JSON has at most half of it.
const MAX_NESTING: u32 = 600;

/// How many containers hold this value's innermost one. Bounded, because Rust drops, prints and compares by recursion.
fn depth(value: &Value) -> u32 {
    if value.as_object().is_none() {
        0
    } else if let Some(dict) = value.downcast_object_ref::<Dict>() {
        dict.depth
    } else if let Some(sequence) = value.downcast_object_ref::<Sequence>() {
        sequence.depth
    } else if let Some(view) = value.downcast_object_ref::<DictView>() {
        depth(&view.dict) + 1
    } else if let Some(bound) = value.downcast_object_ref::<Bound>() {
        depth(&bound.receiver) + 1
    } else {
        value.downcast_object_ref::<Lazy>().map_or(0, |lazy| lazy.depth)
    }
}

fn depth_of<'a>(items: impl IntoIterator<Item = &'a Value>) -> u32 {
    items.into_iter().map(depth).max().unwrap_or(0) + 1
}

fn check_depth(depth: u32) -> Outcome<u32> {
    if depth > MAX_NESTING { Err(fail("a value is nested too deeply")) } else { Ok(depth) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceKind {
    List,
    Tuple,
}

/// A list or a tuple.
#[derive(Debug)]
pub(super) struct Sequence {
    kind: SequenceKind,
    items: Vec<Value>,
    depth: u32,
}

impl Sequence {
    pub(super) fn kind(&self) -> SequenceKind {
        self.kind
    }

    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    fn value(kind: SequenceKind, items: Vec<Value>) -> Outcome {
        budget::make(CONTAINER_BYTES + items.len() * size_of::<Value>())?;
        let depth = check_depth(depth_of(&items))?;
        Ok(Value::from_object(Sequence { kind, items, depth }))
    }
}

impl Object for Sequence {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, _key: &str) -> Option<Value> {
        None
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let equal = operators::equal(&Value::from_dyn_object(self.clone()), &Value::from(other.clone()));
        Some(if equal { Ordering::Equal } else { Ordering::Less })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(&Value::from_dyn_object(self.clone()), f)
    }
}

/// A list of these items.
pub(super) fn list(items: Vec<Value>) -> Outcome {
    Sequence::value(SequenceKind::List, items)
}

/// A list of these items, whose depth is known to be small.
pub(super) fn list_of(items: Vec<Value>) -> Value {
    let depth = depth_of(&items);
    Value::from_object(Sequence { kind: SequenceKind::List, items, depth })
}

/// A tuple of these items.
pub(super) fn tuple(items: Vec<Value>) -> Outcome {
    Sequence::value(SequenceKind::Tuple, items)
}

/// A tuple of two that come from a container, so that it is one deeper at most.
pub(super) fn pair(first: Value, second: Value) -> Value {
    let depth = depth(&second) + 1;
    Value::from_object(Sequence { kind: SequenceKind::Tuple, items: vec![first, second], depth })
}

/// A dict: pairs in insertion order.
#[derive(Debug)]
pub(super) struct Dict {
    entries: OnceLock<Vec<(Value, Value)>>,
    /// What `tojson` writes of it, where that is known. Then the entries are made from it when they are asked for: most
    /// templates only print a tool.
    json: Option<Value>,
    depth: u32,
    index: OnceLock<HashMap<Arc<str>, usize>>,
}

impl Dict {
    /// A dict of keys that are known to differ.
    pub(super) fn from_unique(entries: Vec<(Value, Value)>) -> Self {
        let depth = depth_of(entries.iter().map(|(_, value)| value));
        Self { entries: OnceLock::from(entries), json: None, depth, index: OnceLock::new() }
    }

    /// A dict that is printed rather than looked into; `None` if it holds what has no text.
    pub(super) fn from_printed(map: &Map<'_>, scratch: &mut String) -> Option<Self> {
        scratch.clear();
        let depth = dumps::append_map(scratch, map)?;
        let json = Some(Value::from(scratch.as_str()));
        Some(Self { entries: OnceLock::new(), json, depth, index: OnceLock::new() })
    }

    /// What `tojson` without arguments writes, if it is known.
    pub(super) fn json(&self) -> Option<&Value> {
        self.json.as_ref()
    }

    /// A dict of any pairs: a later value replaces an earlier one in its place.
    pub(super) fn from_pairs(pairs: impl IntoIterator<Item = (Value, Value)>) -> Outcome<Self> {
        let mut entries: Vec<(Value, Value)> = Vec::new();
        let mut strings: HashMap<Arc<str>, usize> = HashMap::new();
        for (key, value) in pairs {
            budget::work(2)?;
            budget::make(2 * size_of::<Value>())?;
            check_hashable(&key)?;
            let place = if let Some(text) = key.to_str() {
                budget::work_on(Bytes::Copied, text.len())?;
                let next = entries.len();
                let place = *strings.entry(text).or_insert(next);
                (place < next).then_some(place)
            } else {
                budget::work(2 * entries.len())?;
                entries.iter().position(|(old, _)| operators::equal(old, &key))
            };
            match place {
                Some(place) => entries[place].1 = value,
                None => entries.push((key, value)),
            }
        }
        budget::make(2 * CONTAINER_BYTES)?;
        let dict = Self::from_unique(entries);
        check_depth(dict.depth)?;
        Ok(dict)
    }

    pub(super) fn entries(&self) -> &[(Value, Value)] {
        self.entries.get_or_init(|| match self.json.as_ref().and_then(Value::as_str).map(Json::parse) {
            Some(Ok(Json::Object(map))) => pairs_from_json(&map),
            _ => Vec::new(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    pub(super) fn get_str(&self, key: &str) -> Option<&Value> {
        let entries = self.entries();
        if key.len() > LONG_KEY && !budget::visit(key.len() / 8) {
            return None;
        }
        if entries.len() <= LINEAR_KEYS {
            return entries.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, value)| value);
        }
        let index = self.index.get_or_init(|| {
            let places = entries.iter().enumerate();
            places.filter_map(|(place, (key, _))| Some((key.to_str()?, place))).collect()
        });
        index.get(key).map(|&place| &entries[place].1)
    }

    pub(super) fn get(&self, key: &Value) -> Option<&Value> {
        match key.as_str() {
            Some(text) => self.get_str(text),
            None if !budget::visit(self.len() / 2) => None,
            None => self.entries().iter().find(|(k, _)| operators::equal(k, key)).map(|(_, value)| value),
        }
    }
}

/// Refuse what Python cannot hash.
pub(super) fn check_hashable(key: &Value) -> Outcome<()> {
    match py(key) {
        Py::List(_) | Py::Dict(_) => Err(fail(format!("a value of type `{}` cannot be a key", type_name(key)))),
        Py::Tuple(items) if !budget::visit(1 + items.len()) => budget::check_work(),
        Py::Tuple(items) => items.iter().try_for_each(check_hashable),
        _ => Ok(()),
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let found = self.get_str(key);
        if key.len() > LONG_KEY && budget::check_work().is_err() {
            return Some(Value::from(budget::out_of_fuel()));
        }
        found.cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.entries().iter().map(|(key, _)| key.clone()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.len())
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let equal = operators::equal(&Value::from_dyn_object(self.clone()), &Value::from(other.clone()));
        Some(if equal { Ordering::Equal } else { Ordering::Less })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(&Value::from_dyn_object(self.clone()), f)
    }
}

/// An integer beyond 128 bits, in decimal. It can be shown and compared, not computed with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BigInt(pub(super) String);

impl Object for BigInt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A string with lone surrogates: Python carries it along and fails when it is encoded, which every prompt is.
#[derive(Debug)]
pub(super) struct Broken;

impl Object for Broken {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// A Python iterator: it can be walked once, is always true and has no length.
#[derive(Debug)]
pub(super) struct Lazy {
    kind: &'static str,
    depth: u32,
    rest: Mutex<(std::vec::IntoIter<Value>, Option<String>)>,
}

impl Lazy {
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// `failure` is what happens to who reads past the items.
    pub(super) fn value(kind: &'static str, items: Vec<Value>, failure: Option<Error>) -> Value {
        let failure = failure.map(|error| error.detail().unwrap_or("failed").to_owned());
        let depth = depth_of(&items);
        Value::from_object(Lazy { kind, depth, rest: Mutex::new((items.into_iter(), failure)) })
    }

    pub(super) fn next(&self) -> Outcome<Option<Value>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        match rest.0.next() {
            Some(item) => Ok(Some(item)),
            None => rest.1.take().map_or(Ok(None), |message| Err(fail(message))),
        }
    }

    pub(super) fn drain(&self) -> Outcome<Vec<Value>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let items = rest.0.by_ref().collect();
        rest.1.take().map_or(Ok(items), |message| Err(fail(message)))
    }
}

impl Object for Lazy {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// What a [`DictView`] shows of its dict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DictPart {
    Keys,
    Values,
    Items,
}

impl DictPart {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            DictPart::Keys => "dict_keys",
            DictPart::Values => "dict_values",
            DictPart::Items => "dict_items",
        }
    }
}

/// `keys()`, `values()` or `items()` of a dict.
#[derive(Debug)]
pub(super) struct DictView {
    pub(super) dict: Value,
    pub(super) part: DictPart,
}

impl DictView {
    pub(super) fn len(&self) -> usize {
        self.dict.downcast_object_ref::<Dict>().map_or(0, Dict::len)
    }

    pub(super) fn items(&self) -> Vec<Value> {
        let entries = self.dict.downcast_object_ref::<Dict>().map_or(&[][..], Dict::entries);
        match self.part {
            DictPart::Keys => entries.iter().map(|(key, _)| key.clone()).collect(),
            DictPart::Values => entries.iter().map(|(_, value)| value.clone()).collect(),
            DictPart::Items => entries.iter().map(|(key, value)| pair(key.clone(), value.clone())).collect(),
        }
    }
}

impl Object for DictView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.len() > 0
    }
}

/// `namespace(…)`: attributes that a template may set.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    attributes: Mutex<Vec<(Arc<str>, Value)>>,
}

impl Namespace {
    pub(super) fn new(attributes: Vec<(Arc<str>, Value)>) -> Self {
        Self { attributes: Mutex::new(attributes) }
    }

    pub(super) fn set(&self, name: &str, value: Value) -> Outcome<()> {
        let mut attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, old)) = attributes.iter_mut().find(|(key, _)| **key == *name) {
            *old = value;
        } else {
            budget::make(size_of::<Value>() * 2 + name.len())?;
            attributes.push((Arc::from(name), value));
        }
        budget::work(attributes.len() / LINEAR_KEYS)
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        let many = attributes.len() / LINEAR_KEYS;
        if many > 0 && !budget::visit(many) {
            return Some(Value::from(budget::out_of_fuel()));
        }
        attributes.iter().find(|(key, _)| **key == *name).map(|(_, value)| value.clone())
    }

    pub(super) fn entries(&self) -> Vec<(Arc<str>, Value)> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Let go of everything: two namespaces may hold each other.
    pub(super) fn clear(&self) {
        let attributes = std::mem::take(&mut *self.attributes.lock().unwrap_or_else(PoisonError::into_inner));
        drop(attributes);
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.get(key)
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// What `range(…)` gives.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) start: i64,
    pub(super) stop: i64,
    pub(super) step: i64,
    pub(super) len: usize,
}

impl Range {
    pub(super) fn get(&self, place: usize) -> Option<Value> {
        let offset = i64::try_from(place).ok()?.checked_mul(self.step)?;
        (place < self.len).then(|| Value::from(self.start.wrapping_add(offset)))
    }

    pub(super) fn items(&self) -> Vec<Value> {
        (0..self.len).filter_map(|place| self.get(place)).collect()
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.len > 0
    }
}

/// A method taken from its object without being called.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) receiver: Value,
    pub(super) name: String,
}

impl Object for Bound {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Outcome {
        methods::call(state, &self.receiver, &self.name, args)
    }
}

/// A function of the template's world, called with its arguments as they are on the stack.
pub(super) struct Native {
    pub(super) name: &'static str,
    pub(super) body: fn(&mut State<'_, '_>, &Args<'_>) -> Outcome,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<function {}>", self.name)
    }
}

impl Object for Native {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Outcome {
        (self.body)(state, &Args::new(args))
    }
}
