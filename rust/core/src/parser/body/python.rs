//! Calls in Python's syntax: `[name(key=value, …), …]`, or one a line.

use memchr::memchr3;

use super::python_literal::{escaped, parse};
use crate::error::Result;
use crate::json::python_dumps_unicode;
use crate::parser::format::Body;
use crate::parser::machine::{MAX_NAME_BYTES, Machine, Step};
use crate::parser::sink::Kind;
use crate::parser::state::{PythonAt, PythonState};

impl Machine<'_> {
    pub(in crate::parser) fn python(&mut self, text: &str, last: bool) -> Result<Step> {
        let (phase, in_call) = (self.state.phase, self.state.in_call);
        let mut at = 0;
        while at < text.len() && self.state.phase == phase && self.state.in_call == in_call {
            let behind_call = self.state.python.at == PythonAt::AfterCall;
            let Some(done) = self.python_step(&text[at..])? else { return self.unexpected(text, at, last) };
            let ended = !behind_call && self.state.python.at == PythonAt::AfterCall;
            if self.state.phase == phase && !ended {
                self.keep_raw(&text[at..at + done])?;
            }
            at += done;
        }
        Ok(Some(at))
    }

    fn python_step(&mut self, text: &str) -> Result<Step> {
        let Some(first) = text.chars().next() else { return Ok(Some(0)) };
        let width = first.len_utf8();
        let blank = first.is_whitespace();
        let lines = matches!(self.format.map(|format| &format.body), Some(Body::Python { lines: true, .. }));
        let python = &mut self.state.python;
        match python.at {
            PythonAt::Start | PythonAt::AfterCall if blank || (self.state.list && first == ',') => {}
            PythonAt::Start if first == '[' && !self.state.list => self.state.list = true,
            PythonAt::Start | PythonAt::AfterCall
                if (self.state.list || lines) && (first.is_ascii_alphabetic() || first == '_') =>
            {
                python.name = first.into();
                python.at = PythonAt::Name;
            }
            PythonAt::AfterCall if first == ']' && self.state.list => {
                self.state.raw.clear();
                self.state.phase = self.after_body();
            }
            PythonAt::Name if first == '(' => {
                python.key.clear();
                python.at = PythonAt::Key;
            }
            PythonAt::Name if is_name(first) || first == '.' => python.name.push(first),
            PythonAt::Key if is_name(first) => python.key.push(first),
            PythonAt::Key if blank || (first == ',' && python.key.is_empty()) => {}
            PythonAt::Key if first == ')' && python.key.is_empty() => self.end_python_call()?,
            PythonAt::Key if first == '=' && !python.key.is_empty() => {
                self.begin_python_call();
                let python = &mut self.state.python;
                (python.at, python.depth, python.quote, python.streams) = (PythonAt::Value, 0, None, false);
                self.state.text.clear();
            }
            PythonAt::Value => return self.python_value(text, first).map(Some),
            PythonAt::Name | PythonAt::AfterText if blank => {}
            PythonAt::AfterText if first == '"' || first == '\'' => {
                // Strings side by side are one.
                (python.quote, python.at) = (Some(first), PythonAt::Value);
            }
            PythonAt::AfterText if first == ',' || first == ')' => {
                self.sink.value_end()?;
                self.behind_python_value(first)?;
            }
            _ => return Ok(None),
        }
        let python = &self.state.python;
        if python.name.len() > MAX_NAME_BYTES || python.key.len() > MAX_NAME_BYTES {
            return Ok(None);
        }
        Ok(Some(width))
    }

    fn begin_python_call(&mut self) {
        if !self.state.in_call {
            let name = std::mem::take(&mut self.state.python.name);
            self.begin_call(&name, None, true);
        }
    }

    fn end_python_call(&mut self) -> Result<()> {
        self.begin_python_call();
        self.end_call(false)?;
        self.state.python = PythonState { at: PythonAt::AfterCall, ..PythonState::default() };
        Ok(())
    }

    fn behind_python_value(&mut self, end: char) -> Result<()> {
        self.state.python.key.clear();
        self.state.python.at = PythonAt::Key;
        if end == ')' { self.end_python_call() } else { Ok(()) }
    }

    /// A value: a string goes on as it comes, anything else is read to its end.
    fn python_value(&mut self, text: &str, first: char) -> Result<usize> {
        if self.state.python.streams && self.state.python.quote.is_some() {
            return self.python_text(text, first);
        }
        let width = first.len_utf8();
        let python = &mut self.state.python;
        if self.state.text.is_empty() && python.quote.is_none() {
            if first.is_whitespace() {
                return Ok(width);
            }
            if first == '"' || first == '\'' {
                (python.quote, python.streams) = (Some(first), true);
                let key = python.key.clone();
                self.sink.key(&key, Kind::ExactText)?;
                return Ok(width);
            }
        }
        if python.quote.is_none() && python.depth == 0 && (first == ',' || first == ')') {
            let key = python.key.clone();
            let text = std::mem::take(&mut self.state.text);
            let value = parse(text.trim());
            let (kind, text) = match &value {
                Some(value) => (Kind::ExactJson, python_dumps_unicode(value)),
                // An expression is no value: its text is as much of it as can be kept.
                None => (Kind::ExactText, text.trim().to_owned()),
            };
            self.sink.key(&key, kind)?;
            self.sink.value(&text)?;
            self.sink.value_end()?;
            self.behind_python_value(first)?;
            return Ok(width);
        }
        match (python.quote, first) {
            (Some(_), _) if !python.escape.is_empty() => python.escape.clear(),
            (Some(_), '\\') => python.escape.push('\\'),
            (Some(quote), _) if quote == first => python.quote = None,
            (None, '"' | '\'') => python.quote = Some(first),
            (None, '[' | '(' | '{') => python.depth = python.depth.saturating_add(1),
            (None, ']' | ')' | '}') => python.depth = python.depth.saturating_sub(1),
            _ => {}
        }
        self.state.text.push(first);
        self.check(self.state.text.len())?;
        Ok(width)
    }

    /// The inside of a string.
    fn python_text(&mut self, text: &str, first: char) -> Result<usize> {
        let python = &mut self.state.python;
        if !python.escape.is_empty() {
            python.escape.push(first);
            return Ok(match escaped(&python.escape) {
                None => first.len_utf8(),
                Some((shown, used)) => {
                    // An octal escape ends before the first character that is no digit of it.
                    let spare = python.escape.len() - used;
                    python.escape.clear();
                    self.sink.value(&shown)?;
                    first.len_utf8() - spare
                }
            });
        }
        if first == '\\' {
            python.escape.push('\\');
            return Ok(1);
        }
        let quote = python.quote.unwrap_or('"');
        if first == quote {
            (python.quote, python.at) = (None, PythonAt::AfterText);
            return Ok(1);
        }
        let run = memchr3(quote as u8, b'\\', b'\\', text.as_bytes()).unwrap_or(text.len());
        self.sink.value(&text[..run])?;
        Ok(run)
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
