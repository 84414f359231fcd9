//! Letters in place of their JSON escapes, in text that comes in parts.

/// JSON text with the letters in place of their escapes; the beginning of one waits in `escape`.
pub(super) fn unescaped(escape: &mut String, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if escape.is_empty() && c != '\\' {
            out.push(c);
            continue;
        }
        escape.push(c);
        if matches!(escape.as_bytes(), b"\\" | [b'\\', b'u']) || (escape.starts_with("\\u") && escape.len() < 6) {
            continue;
        }
        // The other half of a pair may follow.
        let unit = |at: usize| escape.get(at + 2..at + 6).and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let second = escape.as_bytes().get(6..);
        match (unit(0), second) {
            (Some(0xd800..=0xdbff), Some(b"" | b"\\" | b"\\u")) => continue,
            (Some(0xd800..=0xdbff), Some([b'\\', b'u', ..])) if escape.len() < 12 => continue,
            (Some(first), Some(_)) => {
                let units: Vec<u16> = std::iter::once(first).chain(unit(6)).collect();
                match String::from_utf16(&units) {
                    Ok(letters)
                        if !letters.contains(|c: char| c < ' ' || c == '"' || c == '\\')
                            && letters_only(escape, &units) =>
                    {
                        out.push_str(&letters);
                    }
                    _ => out.push_str(escape),
                }
            }
            _ => out.push_str(escape),
        }
        escape.clear();
    }
    out
}

/// The escape is nothing but these units.
fn letters_only(escape: &str, units: &[u16]) -> bool {
    escape.len() == 6 * units.len()
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn letters_take_the_place_of_their_escapes() {
        for (text, want) in [
            (r#"{"a": "\u00e9\n"}"#, "{\"a\": \"é\\n\"}"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\ud83dx", r"\ud83dx"),
            (r"\\u00e9", r"\\u00e9"),
            (r"\u0022\u005c\u0007", r"\u0022\u005c\u0007"),
            (r"\uzzzz", r"\uzzzz"),
        ] {
            for cut in 0..=text.len() {
                let mut escape = String::new();
                let (Some(head), Some(tail)) = (text.get(..cut), text.get(cut..)) else { continue };
                let out = unescaped(&mut escape, head) + &unescaped(&mut escape, tail);
                assert_eq!(out + &escape, want, "{text} cut at {cut}");
            }
        }
    }
}
