//! Python's `str.format`.

use minijinja::Value;

use super::budget::{Bytes, check_size, work, work_on};
use super::layout::{Spec, append_signed, digits, float, general, pad, radix};
use super::operators::{self, Number};
use super::text;
use super::value::{Args, Outcome, Py, fail, py, type_name};
use crate::json::python_float;

/// `format.format(*args, **kwargs)`, without access to private attributes.
pub(super) fn str_format(format: &str, args: &Args<'_>) -> Outcome<String> {
    let mut fields = Fields { args, automatic: 0 };
    let mut out = String::with_capacity(format.len());
    fields.append(&mut out, format, 2)?;
    Ok(out)
}

struct Fields<'a> {
    args: &'a Args<'a>,
    automatic: usize,
}

impl Fields<'_> {
    fn append(&mut self, out: &mut String, format: &str, depth: usize) -> Outcome<()> {
        work_on(Bytes::Read, format.len())?;
        let mut rest = format;
        while let Some(place) = rest.find(['{', '}']) {
            out.push_str(&rest[..place]);
            let brace = &rest[place..=place];
            rest = &rest[place + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                out.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" || depth == 0 {
                return Err(fail("a brace in a format stands alone"));
            }
            let mut open = 1;
            let end = rest.find(|c| {
                open += i32::from(c == '{') - i32::from(c == '}');
                open == 0
            });
            let end = end.ok_or_else(|| fail("a field of a format is not closed"))?;
            self.append_field(out, &rest[..end], depth)?;
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(())
    }

    fn append_field(&mut self, out: &mut String, field: &str, depth: usize) -> Outcome<()> {
        work(2)?;
        let name_end = field.find(['!', ':']).unwrap_or(field.len());
        let (name, mut rest) = field.split_at(name_end);
        let value = self.lookup(name)?;
        let mut conversion = None;
        if let Some(after) = rest.strip_prefix('!') {
            conversion = after.chars().next();
            rest = after.get(1..).unwrap_or_default();
        }
        let mut spec = String::new();
        if let Some(after) = rest.strip_prefix(':') {
            self.append(&mut spec, after, depth - 1)?;
        }
        let value = match conversion {
            None => value,
            Some('s') => Value::from(text::to_string(&value)?),
            Some('r' | 'a') => {
                let mut shown = String::new();
                text::append_repr(&mut shown, &value)?;
                Value::from(shown)
            }
            Some(other) => return Err(fail(format!("a format has no conversion `!{other}`"))),
        };
        let before = out.len();
        append_formatted(out, &value, &spec)?;
        check_size(out.len())?;
        work_on(Bytes::Copied, out.len() - before)
    }

    /// The value of `0.attribute[key]`.
    fn lookup(&mut self, name: &str) -> Outcome {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut path) = name.split_at(end);
        let missing = || fail(format!("a format names `{first}`, which is missing"));
        let mut value = if first.is_empty() || first.bytes().all(|b| b.is_ascii_digit()) {
            let place = if first.is_empty() {
                self.automatic += 1;
                self.automatic - 1
            } else {
                first.parse().map_err(|_| missing())?
            };
            self.args.positional.get(place).ok_or_else(missing)?.clone()
        } else {
            self.args.named(first).ok_or_else(missing)?.clone()
        };
        while !path.is_empty() {
            work(2)?;
            if let Some(rest) = path.strip_prefix('.') {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                value = operators::get_attribute(&value, &rest[..end])?;
                path = &rest[end..];
            } else {
                let close = path.find(']').ok_or_else(|| fail("a bracket in a format is not closed"))?;
                let key = path.get(1..close).unwrap_or_default();
                let key = key.parse::<i64>().map_or_else(|_| Value::from(key), Value::from);
                value = operators::get_item(&value, &key)?;
                path = &path[close + 1..];
            }
        }
        Ok(value)
    }
}

fn parse_spec(text: &str) -> Outcome<Spec> {
    let mut spec = Spec::default();
    let characters: Vec<char> = text.chars().take(2).collect();
    let mut rest = text.chars().peekable();
    if characters.len() == 2 && "<>=^".contains(characters[1]) {
        spec.fill = rest.next();
        spec.align = rest.next();
    } else if let Some(align) = rest.next_if(|c| "<>=^".contains(*c)) {
        spec.align = Some(align);
    }
    spec.sign = rest.next_if(|c| "+- ".contains(*c));
    spec.alternate = rest.next_if_eq(&'#').is_some();
    if rest.next_if_eq(&'0').is_some() {
        spec.zero = true;
        spec.fill = spec.fill.or(Some('0'));
        spec.align = spec.align.or(Some('='));
    }
    spec.width = digits(&mut rest)?.unwrap_or(0);
    spec.grouping = rest.next_if(|c| ",_".contains(*c));
    if rest.next_if_eq(&'.').is_some() {
        spec.precision = Some(digits(&mut rest)?.ok_or_else(|| fail("a format lacks its precision"))?);
    }
    spec.kind = rest.next();
    if rest.next().is_some() {
        return Err(fail(format!("`{text}` is not a format")));
    }
    Ok(spec)
}

/// `format(value, spec)`.
fn append_formatted(out: &mut String, value: &Value, spec: &str) -> Outcome<()> {
    if spec.is_empty() {
        return text::append(out, value);
    }
    let spec = parse_spec(spec)?;
    work(spec.precision.unwrap_or(0))?;
    let bad = || fail(format!("a value of type `{}` cannot be laid out that way", type_name(value)));
    match (py(value), operators::number(value)) {
        (Py::Str(shown), _) => {
            if !matches!(spec.kind, None | Some('s')) || spec.grouping.is_some() || spec.sign.is_some() {
                return Err(bad());
            }
            let shown: String = shown.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
            let align = spec.align.map_or('<', |align| if spec.zero && align == '=' { '<' } else { align });
            pad(out, "", &shown, &spec, align);
            Ok(())
        }
        (_, Some(Number::Int(number))) if matches!(spec.kind, None | Some('d' | 'n' | 'x' | 'X' | 'b' | 'o' | 'c')) => {
            if spec.precision.is_some() {
                return Err(bad());
            }
            let align = spec.align.unwrap_or('>');
            match spec.kind {
                Some('c') => {
                    let character = u32::try_from(number).ok().and_then(char::from_u32).ok_or_else(bad)?;
                    pad(out, "", &character.to_string(), &spec, spec.align.unwrap_or('<'));
                }
                Some(kind @ ('x' | 'X' | 'b' | 'o')) => {
                    let (prefix, digits) = radix(number, kind);
                    append_signed(
                        out,
                        &grouped(&digits, &spec, 4),
                        if spec.alternate { prefix } else { "" },
                        &spec,
                        align,
                    );
                }
                _ => append_signed(out, &grouped(&number.to_string(), &spec, 3), "", &spec, align),
            }
            Ok(())
        }
        (_, Some(number)) => {
            let number = operators::float(number);
            let align = spec.align.unwrap_or('>');
            let shown = match spec.kind {
                None if spec.precision.is_none() => python_float(number),
                None => {
                    let shown = general(number, spec.precision.unwrap_or(0).max(1), false);
                    if shown.contains(['.', 'e', 'n']) { shown } else { format!("{shown}.0") }
                }
                Some('%') => format!("{}%", float(number * 100.0, 'f', spec.precision.unwrap_or(6), false)),
                Some('n') => float(number, 'g', spec.precision.unwrap_or(6), spec.alternate),
                Some(kind) if "eEfFgG".contains(kind) => {
                    float(number, kind, spec.precision.unwrap_or(6), spec.alternate)
                }
                Some(_) => return Err(bad()),
            };
            append_signed(out, &grouped(&shown, &spec, 3), "", &spec, align);
            Ok(())
        }
        _ => Err(bad()),
    }
}

/// Put the grouping character between groups of digits of the whole part.
fn grouped(number: &str, spec: &Spec, size: usize) -> String {
    let Some(separator) = spec.grouping else { return number.to_owned() };
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let end = number.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(number.len());
    let (whole, rest) = number.split_at(end);
    let mut out = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(size) {
            out.push(separator);
        }
        out.push(digit);
    }
    out.push_str(rest);
    out
}
