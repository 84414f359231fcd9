//! A template's source on its way to the engine: Jinja2's lexical rules where the engine's differ.
//!
//! Line breaks are made one kind, `{% generation %}` becomes a scope of its own, string literals get Python's
//! escapes, and what we do not support is refused with its line. Line numbers never change.

use std::fmt::Write;

use super::percent::parse_int;
use crate::error::{Error, Result};

/// The longest template. Real ones have up to 60 kB.
const MAX_SOURCE: usize = 1 << 20;

/// The most bytes of one tag outside its strings: the engine's parser recurses over them. Real ones have up to 350.
const MAX_TAG: usize = 16 << 10;

/// The most bytes of all tags, each squared: what the engine may spend on folding constants.
const MAX_TAG_WORK: usize = 100_000_000;

/// The most `elif` branches of a template, for the same reason.
const MAX_BRANCHES: usize = 1000;

/// A name in the scope that stands for a `{% generation %}`, to tell it from others.
pub(super) const GENERATION: &str = "__generation__";

const UNSUPPORTED_TAGS: [&str; 7] = ["autoescape", "block", "do", "extends", "from", "import", "include"];

/// Make the source one that the engine reads as Jinja2 would read the original.
pub(super) fn prepare(source: &str) -> Result<String> {
    if source.len() > MAX_SOURCE {
        return Err(Error::template(format!("a chat template may have {MAX_SOURCE} bytes")));
    }
    let source = normalize_newlines(source);
    let mut scanner =
        Scanner { rest: &source, line: 1, branches: 0, tag_work: 0, out: String::with_capacity(source.len()) };
    scanner.run()?;
    Ok(scanner.out)
}

fn normalize_newlines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
    branches: usize,
    tag_work: usize,
    out: String,
}

impl<'a> Scanner<'a> {
    /// Move bytes to the output as they are.
    fn copy(&mut self, bytes: usize) -> &'a str {
        let (head, tail) = self.rest.split_at(bytes);
        self.line += memchr::memchr_iter(b'\n', head.as_bytes()).count();
        self.out.push_str(head);
        self.rest = tail;
        head
    }

    fn fail<T>(&self, message: &str) -> Result<T> {
        Err(Error::template(format!("line {}: {message}", self.line)))
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let next = memchr::memchr_iter(b'{', self.rest.as_bytes())
                .find(|&place| matches!(self.rest.as_bytes().get(place + 1), Some(b'{' | b'%' | b'#')));
            let Some(place) = next else {
                self.copy(self.rest.len());
                return Ok(());
            };
            self.copy(place);
            match self.rest.as_bytes()[1] {
                b'#' => {
                    let Some(end) = self.rest.find("#}") else { return self.fail("a comment is not closed") };
                    self.copy(end + 2);
                }
                b'%' => self.block()?,
                _ => {
                    self.copy(2);
                    self.tag("}}")?;
                }
            }
        }
    }

    fn block(&mut self) -> Result<()> {
        self.copy(2);
        if matches!(self.rest.as_bytes().first(), Some(b'-' | b'+')) {
            self.copy(1);
        }
        self.skip_space();
        let name_end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let name = &self.rest[..name_end];
        if UNSUPPORTED_TAGS.contains(&name) {
            return self.fail(&format!("the tag `{name}` is not supported"));
        }
        match name {
            "raw" => return self.raw(),
            // Only a scope is left of it: the spans that it marks are for training.
            "generation" | "endgeneration" => {
                self.rest = &self.rest[name_end..];
                if name == "generation" {
                    self.out.push_str("with ");
                    self.out.push_str(GENERATION);
                    self.out.push_str("=0 ");
                } else {
                    self.out.push_str("endwith");
                }
                self.skip_space();
                if !self.rest.trim_start_matches(['-', '+']).starts_with("%}") {
                    return self.fail(&format!("the tag `{name}` takes no arguments"));
                }
            }
            "elif" => {
                self.branches += 1;
                if self.branches > MAX_BRANCHES {
                    return self.fail("too many `elif` branches");
                }
            }
            _ => {}
        }
        self.tag("%}")
    }

    fn skip_space(&mut self) {
        let space = self.rest.len() - self.rest.trim_start().len();
        self.copy(space);
    }

    /// A raw block: nothing in it is looked at. Unlike other tags, Jinja2's keeps a newline after it.
    fn raw(&mut self) -> Result<()> {
        self.copy("raw".len());
        self.skip_space();
        if self.rest.starts_with("%}") {
            self.out.push('+');
        } else if !self.rest.starts_with("-%}") {
            return self.fail("the tag `raw` takes no arguments");
        }
        let mut from = 0;
        while let Some(place) = self.rest[from..].find("{%") {
            let inner = self.rest[from + place + 2..].trim_start_matches(['-', '+']).trim_start();
            if let Some(after) = inner.strip_prefix("endraw") {
                let after = after.trim_start().trim_start_matches(['-', '+']);
                if let Some(after) = after.strip_prefix("%}") {
                    self.copy(self.rest.len() - after.len());
                    return Ok(());
                }
            }
            from += place + 2;
        }
        self.fail("a raw block is not closed")
    }

    /// The inside of a tag, up to and with its end.
    fn tag(&mut self, end: &str) -> Result<()> {
        let mut open = 0usize;
        let mut size = 0usize;
        loop {
            if size > MAX_TAG {
                return self.fail("a tag is too long");
            }
            let Some(&byte) = self.rest.as_bytes().first() else { return self.fail("a tag is not closed") };
            if open == 0 && self.rest.starts_with(end) {
                self.copy(end.len());
                self.tag_work += size * size;
                if self.tag_work > MAX_TAG_WORK {
                    return self.fail("the tags are too long together");
                }
                return Ok(());
            }
            match byte {
                b'\'' | b'"' => {
                    self.string(byte)?;
                    size += 2;
                    continue;
                }
                b'(' | b'[' | b'{' => open += 1,
                b')' | b']' | b'}' => open = open.saturating_sub(1),
                _ => {}
            }
            let width = self.rest.chars().next().map_or(1, char::len_utf8);
            self.copy(width);
            size += width;
        }
    }

    fn string(&mut self, quote: u8) -> Result<()> {
        let bytes = self.rest.as_bytes();
        let mut place = 1;
        let mut escaped = false;
        loop {
            match bytes.get(place) {
                None => return self.fail("a string is not closed"),
                Some(b'\\') => {
                    escaped = true;
                    place += 2;
                }
                Some(&byte) if byte == quote => break,
                Some(_) => place += 1,
            }
        }
        if !escaped {
            self.copy(place + 1);
            return Ok(());
        }
        let text = unescape(&self.rest[1..place]).or_else(|message| self.fail(message))?;
        let breaks = memchr::memchr_iter(b'\n', &bytes[..place]).count();
        self.out.push(char::from(quote));
        for character in text.chars() {
            match character {
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                _ if u32::from(character) == u32::from(quote) => {
                    self.out.push('\\');
                    self.out.push(character);
                }
                _ => self.out.push(character),
            }
        }
        self.out.push(char::from(quote));
        // The line breaks that the literal held, now space between tokens: what follows keeps its line.
        self.out.extend(std::iter::repeat_n('\n', breaks));
        self.line += breaks;
        self.rest = &self.rest[place + 1..];
        Ok(())
    }
}

/// Python's string escapes, as Jinja2 applies them: the text is first made ASCII, so a character beyond it is an
/// escape itself.
fn unescape(text: &str) -> std::result::Result<String, &'static str> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        let Some(escape) = rest.next() else { return Err("a string ends in a backslash") };
        let digits = |rest: &mut std::str::Chars<'_>, count: usize| {
            let head = rest.as_str().get(..count).ok_or("an escape is too short")?;
            let code = if head.bytes().all(|b| b.is_ascii_hexdigit()) { parse_int(head, 16) } else { None };
            *rest = rest.as_str()[count..].chars();
            let code = code.and_then(|code| u32::try_from(code).ok()).ok_or("an escape wants hexadecimal digits")?;
            char::from_u32(code).ok_or("an escape is not a character")
        };
        match escape {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(escape),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            'x' => out.push(digits(&mut rest, 2)?),
            'u' => out.push(digits(&mut rest, 4)?),
            'U' => out.push(digits(&mut rest, 8)?),
            'N' => return Err("the escape `\\N{…}` is not supported"),
            '0'..='7' => {
                let mut code = u32::from(escape) - u32::from('0');
                for _ in 0..2 {
                    let Some(digit) = rest.clone().next().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    rest.next();
                }
                out.push(char::from_u32(code).ok_or("an escape is not a character")?);
            }
            _ if escape.is_ascii() => {
                out.push('\\');
                out.push(escape);
            }
            // The backslash pairs with the one that stands for the character.
            _ => {
                let code = u32::from(escape);
                out.push('\\');
                let _ = match code {
                    0..=0xff => write!(out, "x{code:02x}"),
                    0x100..=0xffff => write!(out, "u{code:04x}"),
                    _ => write!(out, "U{code:08x}"),
                };
            }
        }
    }
    Ok(out)
}
