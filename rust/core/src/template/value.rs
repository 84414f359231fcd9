//! Python's view of the engine's values: which type a value is, and the types that the engine lacks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::{budget, methods, operators, text};
use crate::json::{Json, Map};

pub(super) type Outcome<T = Value> = Result<T, Error>;

/// Dicts up to this size are searched by comparison, larger ones through an index.
const LINEAR_KEYS: usize = 16;

/// Containers within containers; JSON has at most half of it.
const MAX_NESTING: u32 = 600;

/// A failure while rendering, in our words.
pub(super) fn fail(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// A use of an undefined value that Jinja2 does not forgive.
pub(super) fn undefined_error(action: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, format!("an undefined value cannot be {action}"))
}

/// A value as Python's type system sees it.
pub(super) enum Py<'a> {
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    BigInt(&'a BigInt),
    Float(f64),
    Str(&'a str),
    List(&'a [Value]),
    Tuple(&'a [Value]),
    Dict(&'a Dict),
    Object(&'a DynObject),
}

/// Classify a value.
pub(super) fn py(value: &Value) -> Py<'_> {
    if let Some(text) = value.as_str() {
        return Py::Str(text);
    }
    match value.kind() {
        ValueKind::Undefined => Py::Undefined,
        ValueKind::None => Py::None,
        ValueKind::Bool => Py::Bool(value.is_true()),
        ValueKind::Number => {
            if let Some(number) = value.is_integer().then(|| value.as_i64()).flatten() {
                return Py::Int(i128::from(number));
            }
            match (value.is_integer(), i128::try_from(value.clone()), f64::try_from(value.clone())) {
                (true, Ok(number), _) => Py::Int(number),
                (_, _, Ok(number)) => Py::Float(number),
                _ => Py::None,
            }
        }
        _ => match value.as_object() {
            Some(object) => py_object(value, object),
            None => Py::None,
        },
    }
}

fn py_object<'a>(value: &'a Value, object: &'a DynObject) -> Py<'a> {
    if let Some(dict) = value.downcast_object_ref::<Dict>() {
        Py::Dict(dict)
    } else if let Some(sequence) = value.downcast_object_ref::<Sequence>() {
        match sequence.kind {
            SequenceKind::List => Py::List(&sequence.items),
            SequenceKind::Tuple => Py::Tuple(&sequence.items),
        }
    } else if let Some(number) = value.downcast_object_ref::<BigInt>() {
        Py::BigInt(number)
    } else {
        Py::Object(object)
    }
}

/// The name of a value's Python type, for messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match py(value) {
        Py::Undefined => "undefined",
        Py::None => "NoneType",
        Py::Bool(_) => "bool",
        Py::Int(_) | Py::BigInt(_) => "int",
        Py::Float(_) => "float",
        Py::Str(_) => "str",
        Py::List(_) => "list",
        Py::Tuple(_) => "tuple",
        Py::Dict(_) => "dict",
        Py::Object(_) => {
            if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
                lazy.kind
            } else if let Some(view) = value.downcast_object_ref::<DictView>() {
                view.part.type_name()
            } else if value.downcast_object_ref::<Range>().is_some() {
                "range"
            } else if value.downcast_object_ref::<Broken>().is_some() {
                "str"
            } else if value.downcast_object_ref::<Namespace>().is_some() {
                "namespace"
            } else {
                "object"
            }
        }
    }
}

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
enum SequenceKind {
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
    fn value(kind: SequenceKind, items: Vec<Value>) -> Outcome {
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

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(&Value::from_dyn_object(self.clone()), f)
    }
}

/// A list of these items.
pub(super) fn list(items: Vec<Value>) -> Outcome {
    Sequence::value(SequenceKind::List, items)
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
    entries: Vec<(Value, Value)>,
    depth: u32,
    index: OnceLock<HashMap<Arc<str>, usize>>,
}

impl Dict {
    /// A dict of keys that are known to differ.
    pub(super) fn from_unique(entries: Vec<(Value, Value)>) -> Self {
        let depth = depth_of(entries.iter().map(|(_, value)| value));
        Self { entries, depth, index: OnceLock::new() }
    }

    /// A dict of any pairs: a later value replaces an earlier one in its place.
    pub(super) fn from_pairs(pairs: impl IntoIterator<Item = (Value, Value)>) -> Outcome<Self> {
        let mut entries: Vec<(Value, Value)> = Vec::new();
        let mut strings: HashMap<Arc<str>, usize> = HashMap::new();
        for (key, value) in pairs {
            check_hashable(&key)?;
            let place = match key.to_str() {
                Some(text) => {
                    let next = entries.len();
                    let place = *strings.entry(text).or_insert(next);
                    (place < next).then_some(place)
                }
                None => entries.iter().position(|(old, _)| operators::equal(old, &key)),
            };
            match place {
                Some(place) => entries[place].1 = value,
                None => entries.push((key, value)),
            }
        }
        let dict = Self::from_unique(entries);
        check_depth(dict.depth)?;
        Ok(dict)
    }

    pub(super) fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get_str(&self, key: &str) -> Option<&Value> {
        if self.entries.len() <= LINEAR_KEYS {
            return self.entries.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, value)| value);
        }
        let index = self.index.get_or_init(|| {
            let places = self.entries.iter().enumerate();
            places.filter_map(|(place, (key, _))| Some((key.to_str()?, place))).collect()
        });
        index.get(key).map(|&place| &self.entries[place].1)
    }

    pub(super) fn get(&self, key: &Value) -> Option<&Value> {
        match key.as_str() {
            Some(text) => self.get_str(text),
            None => self.entries.iter().find(|(k, _)| operators::equal(k, key)).map(|(_, value)| value),
        }
    }
}

/// Refuse what Python cannot hash.
pub(super) fn check_hashable(key: &Value) -> Outcome<()> {
    match py(key) {
        Py::List(_) | Py::Dict(_) => Err(fail(format!("a value of type `{}` cannot be a key", type_name(key)))),
        Py::Tuple(_) if !budget::visit(1) => budget::check_visits(),
        Py::Tuple(items) => items.iter().try_for_each(check_hashable),
        _ => Ok(()),
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.get_str(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.entries.iter().map(|(key, _)| key.clone()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries.len())
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

    pub(super) fn set(&self, name: &str, value: Value) {
        let mut attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        match attributes.iter_mut().find(|(key, _)| **key == *name) {
            Some((_, old)) => *old = value,
            None => attributes.push((Arc::from(name), value)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The items that iterating a value gives, as Python's `iter` would; an iterator is used up.
pub(super) fn iterate(value: &Value) -> Outcome<Cow<'_, [Value]>> {
    match py(value) {
        Py::List(items) | Py::Tuple(items) => Ok(Cow::Borrowed(items)),
        Py::Dict(dict) => Ok(Cow::Owned(dict.entries().iter().map(|(key, _)| key.clone()).collect())),
        Py::Str(text) => Ok(Cow::Owned(text.chars().map(Value::from).collect())),
        Py::Undefined => Ok(Cow::Borrowed(&[])),
        Py::Object(_) => {
            if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
                lazy.drain().map(Cow::Owned)
            } else if let Some(view) = value.downcast_object_ref::<DictView>() {
                Ok(Cow::Owned(view.items()))
            } else if let Some(range) = value.downcast_object_ref::<Range>() {
                Ok(Cow::Owned(range.items()))
            } else {
                Err(fail("a value of this type cannot be iterated"))
            }
        }
        _ => Err(fail(format!("a value of type `{}` cannot be iterated", type_name(value)))),
    }
}

/// The length of a value, where it has one.
pub(super) fn length(value: &Value) -> Outcome<usize> {
    match py(value) {
        Py::List(items) | Py::Tuple(items) => Ok(items.len()),
        Py::Dict(dict) => Ok(dict.len()),
        Py::Str(text) => Ok(count_chars(text)),
        Py::Undefined => Ok(0),
        Py::Object(_) => {
            if let Some(view) = value.downcast_object_ref::<DictView>() {
                Ok(view.len())
            } else if let Some(range) = value.downcast_object_ref::<Range>() {
                Ok(range.len)
            } else {
                Err(fail(format!("a value of type `{}` has no length", type_name(value))))
            }
        }
        _ => Err(fail(format!("a value of type `{}` has no length", type_name(value)))),
    }
}

pub(super) fn count_chars(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// JSON as the values that `json.loads` gives.
pub(super) fn from_json(json: &Json<'_>) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Int(value) => Value::from(*value),
        Json::BigInt(text) => big_int(text),
        Json::Float(value) => Value::from(*value),
        Json::Str(text) => Value::from(text.as_ref()),
        Json::BrokenStr(_) => Value::from_object(Broken),
        Json::Array(items) => list_from_json(items),
        Json::Object(map) => Value::from_object(dict_from_json(map)),
    }
}

pub(super) fn list_from_json(items: &[Json<'_>]) -> Value {
    let items: Vec<Value> = items.iter().map(from_json).collect();
    let depth = depth_of(&items);
    Value::from_object(Sequence { kind: SequenceKind::List, items, depth })
}

pub(super) fn dict_from_json(map: &Map<'_>) -> Dict {
    Dict::from_unique(map.iter().map(|(key, value)| (Value::from(key), from_json(value))).collect())
}

/// An integer of any size, from decimal text.
pub(super) fn big_int(text: &str) -> Value {
    text.parse::<i128>().map_or_else(|_| Value::from_object(BigInt(text.to_owned())), Value::from)
}
