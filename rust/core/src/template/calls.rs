//! Calls of macros, with Jinja2's binding of arguments: a given undefined value is not a missing one.

use std::fmt;
use std::sync::{Arc, LazyLock};

use minijinja::value::{Kwargs, Object, ObjectRepr};
use minijinja::{State, Value};

use super::budget::work;
use super::value::{Args, Bound, Dict, Native, Outcome, fail, tuple, undefined_error};

/// What a call of a macro costs beyond its instructions.
const CALL_WORK: usize = 30;

/// Parameters that a macro has by using them.
pub(super) const REST_POSITIONAL: &str = "varargs";
pub(super) const REST_NAMED: &str = "kwargs";

/// Stands for an argument that was not given.
struct Missing;

impl fmt::Debug for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("missing")
    }
}

impl Object for Missing {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

static MISSING: LazyLock<Value> = LazyLock::new(|| Value::from_object(Missing));

pub(super) fn is_missing(value: &Value) -> bool {
    value.downcast_object_ref::<Missing>().is_some()
}

/// A parameter without a default: what is missing is undefined.
pub(super) fn given(value: &Value) -> Value {
    if is_missing(value) { Value::UNDEFINED } else { value.clone() }
}

/// The parameters of a macro, which is an object of the engine's; `None` for everything else.
fn parameters(callee: &Value) -> Option<Vec<Value>> {
    callee.as_object()?;
    if callee.downcast_object_ref::<Native>().is_some() || callee.downcast_object_ref::<Dict>().is_some() {
        return None;
    }
    let arguments = callee.get_attr("arguments").ok().filter(|arguments| !arguments.is_undefined())?;
    callee.get_attr("caller").ok().filter(|caller| !caller.is_undefined())?;
    arguments.try_iter().ok().map(Iterator::collect)
}

/// The arguments of a call as the engine shall pass them to this callee.
fn arrange(callee: &Value, values: &[Value]) -> Outcome<Vec<Value>> {
    let Some(parameters) = parameters(callee) else { return Ok(values.to_vec()) };
    work(CALL_WORK + parameters.len() + values.len())?;
    let args = Args::new(values);
    let is = |parameter: &Value, name: &str| parameter.as_str() == Some(name);
    let plain = parameters.iter().take_while(|p| !is(p, REST_POSITIONAL) && !is(p, REST_NAMED)).count();
    let takes_positional = parameters.iter().any(|p| is(p, REST_POSITIONAL));
    let takes_caller = callee.get_attr("caller").is_ok_and(|caller| caller.is_true());
    let takes_named = parameters.iter().any(|p| is(p, REST_NAMED));
    let mut arranged = vec![MISSING.clone(); plain];
    for (place, value) in args.positional.iter().take(plain).enumerate() {
        arranged[place] = value.clone();
    }
    let mut rest_named = Vec::new();
    let mut block = None;
    for (key, value) in &args.named {
        let place = parameters[..plain].iter().position(|parameter| parameter.as_str() == key.as_str());
        match place {
            Some(place) if is_missing(&arranged[place]) => arranged[place] = value.clone(),
            Some(_) => return Err(fail(format!("a macro got two values for `{key}`"))),
            None if key.as_str() == Some("caller") && takes_caller => block = Some(value.clone()),
            None if takes_named => rest_named.push((key.clone(), value.clone())),
            None => return Err(fail(format!("a macro has no parameter `{key}`"))),
        }
    }
    let rest = args.positional.get(plain..).unwrap_or_default();
    if takes_positional {
        arranged.push(tuple(rest.to_vec())?);
    } else if !rest.is_empty() {
        return Err(fail(format!("a macro takes {plain} arguments, not {}", args.positional.len())));
    }
    if takes_named {
        arranged.push(Value::from_object(Dict::from_pairs(rest_named)?));
    }
    if let Some(block) = block {
        arranged.push(Value::from(Kwargs::from_iter([("caller", block)])));
    }
    Ok(arranged)
}

/// What the stack holds before a call by name: the arguments, then the name. Gives the arguments to pass.
pub(super) fn arrange_named(state: &State<'_, '_>, values: &[Value]) -> Outcome {
    let (name, args) = values.split_last().expect("the name is pushed last");
    let name = name.as_str().unwrap_or_default();
    match state.lookup(name) {
        Some(callee) if callee.is_undefined() => Err(undefined_error(&format!("called (`{name}`)"))),
        Some(callee) => Ok(Arranged::value(arrange(&callee, args)?)),
        None => Err(undefined_error(&format!("called (`{name}`)"))),
    }
}

/// Call any value.
pub(super) fn call_value(state: &mut State<'_, '_>, callee: &Value, args: &[Value]) -> Outcome {
    if callee.is_undefined() {
        return Err(undefined_error("called"));
    }
    if callee.downcast_object_ref::<Bound>().is_some() || callee.downcast_object_ref::<Native>().is_some() {
        return callee.call(state, args);
    }
    callee.call(state, &arrange(callee, args)?)
}

/// Arguments on their way to the stack; a list would refuse to be deep.
#[derive(Debug)]
struct Arranged(Vec<Value>);

impl Arranged {
    fn value(values: Vec<Value>) -> Value {
        Value::from_object(Arranged(values))
    }
}

impl Object for Arranged {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> minijinja::value::Enumerator {
        minijinja::value::Enumerator::Seq(self.0.len())
    }
}
