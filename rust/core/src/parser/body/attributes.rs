//! Attributes of tags, as models spell them.

/// The value of `name="…"` in a tag's text.
pub(super) fn value<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = tag;
    while let Some(at) = rest.find(name) {
        let begins = rest[..at].chars().next_back().is_none_or(char::is_whitespace);
        let behind = &rest[at + name.len()..];
        if begins && let Some(quoted) = behind.strip_prefix("=\"") {
            return quoted.split_once('"').map(|(value, _)| value);
        }
        rest = behind;
    }
    None
}

/// A name without the quotes around it.
pub(super) fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote).map(|text| text.strip_suffix(quote).unwrap_or(text));
    inner('"').or_else(|| inner('\'')).unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_by_their_whole_name() {
        assert_eq!(value(r#" name="city" string="true""#, "name"), Some("city"));
        assert_eq!(value(r#" name="city" string="true""#, "string"), Some("true"));
        assert_eq!(value(r#" name="a string=b""#, "string"), None);
        assert_eq!(value(r#" rename="x" name="y""#, "name"), Some("y"));
        assert_eq!(value(r#" name="x"#, "name"), None);
    }

    #[test]
    fn quotes_of_a_name_are_no_part_of_it() {
        assert_eq!(unquoted("\"city\""), "city");
        assert_eq!(unquoted("'city'"), "city");
        assert_eq!(unquoted("city"), "city");
    }
}
