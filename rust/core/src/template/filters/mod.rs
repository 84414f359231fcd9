//! Jinja2's filters, with Python's semantics.

mod numbers;
mod selection;
mod sequences;
mod texts;

use minijinja::{State, Value};

use super::value::{Args, Outcome, fail};

/// A filter: the value it is applied to, and its arguments.
pub(super) type Filter = fn(&mut State<'_, '_>, &Value, &Args<'_>) -> Outcome;

/// Every filter, by name.
pub(super) const FILTERS: &[(&str, Filter)] = &[
    ("abs", numbers::abs),
    ("attr", selection::attr),
    ("batch", sequences::batch),
    ("capitalize", texts::capitalize),
    ("center", texts::center),
    ("count", sequences::length),
    ("d", selection::default),
    ("default", selection::default),
    ("dictsort", sequences::dictsort),
    ("e", texts::escape),
    ("escape", texts::escape),
    ("first", sequences::first),
    ("float", numbers::float),
    ("forceescape", texts::force_escape),
    ("format", texts::format),
    ("indent", texts::indent),
    ("int", numbers::int),
    ("items", sequences::items),
    ("join", sequences::join),
    ("last", sequences::last),
    ("length", sequences::length),
    ("list", sequences::list),
    ("lower", texts::lower),
    ("map", selection::map),
    ("max", sequences::max),
    ("min", sequences::min),
    ("reject", selection::reject),
    ("rejectattr", selection::rejectattr),
    ("replace", texts::replace),
    ("reverse", sequences::reverse),
    ("round", numbers::round),
    ("safe", texts::safe),
    ("select", selection::select),
    ("selectattr", selection::selectattr),
    ("slice", sequences::slice),
    ("sort", sequences::sort),
    ("string", texts::string),
    ("sum", sequences::sum),
    ("title", texts::title),
    ("tojson", texts::tojson),
    ("trim", texts::trim),
    ("truncate", texts::truncate),
    ("unique", sequences::unique),
    ("upper", texts::upper),
    ("urlencode", texts::urlencode),
    ("wordcount", texts::wordcount),
];

/// Filters of Jinja2's that we refuse when a template is compiled.
pub(super) const UNSUPPORTED: &[&str] =
    &["filesizeformat", "groupby", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"];

pub(super) fn find(name: &str) -> Option<Filter> {
    FILTERS.iter().find(|(known, _)| *known == name).map(|(_, filter)| *filter)
}

/// A filter that is named by a value, as `map('upper')` does.
fn named(name: &Value) -> Outcome<Filter> {
    let name = name.as_str().ok_or_else(|| fail("a filter is named by text"))?;
    find(name).ok_or_else(|| fail(format!("there is no filter `{name}`")))
}
