//! JSON objects that keep the order of their keys, as Python's dicts do.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Json;

/// Objects up to this size are searched by comparison, larger ones by hashing.
const LINEAR_KEYS: usize = 16;

type Entry<'a> = (Cow<'a, str>, Json<'a>);

/// A JSON object in the order its keys were first written.
#[derive(Debug, Clone, Default)]
pub struct Map<'a>(Entries<'a>);

#[derive(Debug, Clone)]
enum Entries<'a> {
    Few(Vec<Entry<'a>>),
    // Boxed, so that a value is no larger for the sake of objects that are rare.
    Many(Box<Indexed<'a>>),
}

impl Default for Entries<'_> {
    fn default() -> Self {
        Entries::Few(Vec::new())
    }
}

#[derive(Debug, Clone, Default)]
struct Indexed<'a> {
    entries: Vec<Entry<'a>>,
    /// Places in `entries` by the hash of the key.
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl<'a> Indexed<'a> {
    /// Entries in this order; a key that comes again sets the value of the first.
    fn new(entries: Vec<Entry<'a>>) -> Self {
        let mut indexed = Self {
            entries: Vec::with_capacity(entries.len()),
            places: HashTable::with_capacity(entries.len()),
            hasher: DefaultHashBuilder::default(),
        };
        for (key, value) in entries {
            indexed.set(key, value);
        }
        indexed
    }

    fn place(&self, key: &str) -> Option<usize> {
        self.places.find(self.hasher.hash_one(key), |place| self.entries[*place].0 == key).copied()
    }

    fn set(&mut self, key: Cow<'a, str>, value: Json<'a>) {
        if let Some(place) = self.place(&key) {
            self.entries[place].1 = value;
            return;
        }
        let Self { entries, places, hasher } = self;
        let rehash = |place: &usize| hasher.hash_one(entries[*place].0.as_ref());
        places.insert_unique(hasher.hash_one(key.as_ref()), entries.len(), rehash);
        entries.push((key, value));
    }
}

impl<'a> Map<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    fn entries(&self) -> &[Entry<'a>] {
        match &self.0 {
            Entries::Few(entries) => entries,
            Entries::Many(indexed) => &indexed.entries,
        }
    }

    fn entries_mut(&mut self) -> &mut [Entry<'a>] {
        match &mut self.0 {
            Entries::Few(entries) => entries,
            Entries::Many(indexed) => &mut indexed.entries,
        }
    }

    fn place(&self, key: &str) -> Option<usize> {
        match &self.0 {
            Entries::Few(entries) => entries.iter().position(|(k, _)| k == key),
            Entries::Many(indexed) => indexed.place(key),
        }
    }

    pub fn len(&self) -> usize {
        self.entries().len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        self.place(key).map(|place| &self.entries()[place].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json<'a>> {
        self.place(key).map(|place| &mut self.entries_mut()[place].1)
    }

    /// The value, unless it is absent or null.
    pub fn present(&self, key: &str) -> Option<&Json<'a>> {
        self.get(key).filter(|value| !value.is_null())
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// Set a key: in place when it exists, else at the end, as a Python dict does.
    pub fn insert(&mut self, key: impl Into<Cow<'a, str>>, value: Json<'a>) {
        let key = key.into();
        match &mut self.0 {
            Entries::Many(indexed) => indexed.set(key, value),
            Entries::Few(entries) => match entries.iter_mut().find(|(k, _)| *k == key) {
                Some(entry) => entry.1 = value,
                None => self.push(key, value),
            },
        }
    }

    /// Append a key that is known to be new.
    pub fn push(&mut self, key: impl Into<Cow<'a, str>>, value: Json<'a>) {
        match &mut self.0 {
            Entries::Many(indexed) => indexed.set(key.into(), value),
            Entries::Few(entries) => {
                entries.push((key.into(), value));
                if entries.len() > LINEAR_KEYS {
                    self.0 = Entries::Many(Box::new(Indexed::new(std::mem::take(entries))));
                }
            }
        }
    }

    /// Take a key out. Costs a pass over the object.
    pub fn remove(&mut self, key: &str) -> Option<Json<'a>> {
        let place = self.place(key)?;
        match &mut self.0 {
            Entries::Few(entries) => Some(entries.remove(place).1),
            Entries::Many(indexed) => {
                let mut entries = std::mem::take(&mut indexed.entries);
                let (_, value) = entries.remove(place);
                *self = entries.into_iter().collect();
                Some(value)
            }
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json<'a>)> + Clone {
        self.entries().iter().map(|(key, value)| (key.as_ref(), value))
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries().iter().map(|(key, _)| key.as_ref())
    }
}

impl PartialEq for Map<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.entries() == other.entries()
    }
}

/// Pairs in this order; a key that comes again sets the value of the first.
impl<'a> FromIterator<Entry<'a>> for Map<'a> {
    fn from_iter<I: IntoIterator<Item = Entry<'a>>>(pairs: I) -> Self {
        let mut entries: Vec<Entry<'a>> = pairs.into_iter().collect();
        if entries.len() > LINEAR_KEYS {
            return Self(Entries::Many(Box::new(Indexed::new(entries))));
        }
        let mut i = 1;
        while i < entries.len() {
            match entries[..i].iter().position(|(key, _)| *key == entries[i].0) {
                Some(first) => entries[first].1 = entries.remove(i).1,
                None => i += 1,
            }
        }
        Self(Entries::Few(entries))
    }
}

impl<'a> IntoIterator for Map<'a> {
    type Item = Entry<'a>;
    type IntoIter = std::vec::IntoIter<Entry<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {
            Entries::Few(entries) => entries.into_iter(),
            Entries::Many(indexed) => indexed.entries.into_iter(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_objects_behave_as_small_ones() {
        for size in [LINEAR_KEYS - 1, LINEAR_KEYS, LINEAR_KEYS + 1, 1000] {
            let mut map = Map::new();
            for i in 0..size {
                map.insert(format!("k{i}"), Json::Int(0));
            }
            for i in 0..size {
                map.insert(format!("k{i}"), Json::Int(i64::try_from(i).unwrap()));
            }
            assert_eq!(map.len(), size);
            assert_eq!(map.remove("k3"), Some(Json::Int(3)));
            assert_eq!(map.remove("k3"), None);
            assert_eq!(map.get("k7"), Some(&Json::Int(7)));
            map.insert("k3", Json::Null);
            assert!(map.contains_key("k3") && map.present("k3").is_none());
            assert_eq!(map.keys().last(), Some("k3"));
            let keys: Vec<String> = map.keys().take(5).map(str::to_owned).collect();
            assert_eq!(keys, ["k0", "k1", "k2", "k4", "k5"]);
            assert_eq!(map.clone(), map.into_iter().collect());
        }
    }
}
