//! Recognises the HTTP request that nearly all are: one whole, plain POST of JSON in one piece.
//!
//! This is no HTTP server: whatever is unusual about a request (a second one behind it, a body still on its way or in
//! chunks, an upgrade, an expectation, a header twice) is `None`, and left to the server's own parser.

/// Headers of a request that is recognised. More leave it to the server.
const MAX_HEADERS: usize = 32;

/// One POST request with a JSON body.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainRequest<'a> {
    /// Path and query as written.
    pub target: &'a str,
    pub authorization: Option<&'a [u8]>,
    /// `X-Request-Id`.
    pub request_id: Option<&'a str>,
    pub body: &'a [u8],
}

/// Read `data`, all that was received, as one plain request.
pub fn read_plain_request(data: &[u8]) -> Option<PlainRequest<'_>> {
    if !data.starts_with(b"POST /") {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(data) else { return None };
    let body = &data[head..];
    let mut content_type = None;
    let mut content_length = None;
    let mut authorization = None;
    let mut request_id = None;
    for header in request.headers.iter() {
        let place = match header.name {
            name if name.eq_ignore_ascii_case("content-type") => &mut content_type,
            name if name.eq_ignore_ascii_case("content-length") => &mut content_length,
            name if name.eq_ignore_ascii_case("authorization") => &mut authorization,
            name if name.eq_ignore_ascii_case("x-request-id") => &mut request_id,
            name if is_unusual(name) => return None,
            name if name.eq_ignore_ascii_case("connection") => {
                if header.value.eq_ignore_ascii_case(b"keep-alive") {
                    continue;
                }
                return None;
            }
            _ => continue,
        };
        if place.replace(header.value).is_some() {
            return None;
        }
    }
    let request_id = match request_id {
        Some(id) if !id.is_ascii() => return None,
        id => id.and_then(|id| std::str::from_utf8(id).ok()),
    };
    let plain = request.version == Some(1)
        && content_type == Some(b"application/json".as_slice())
        && content_length.and_then(number) == Some(body.len());
    plain.then_some(PlainRequest { target: request.path?, authorization, request_id, body })
}

/// Headers that change how a request is read or answered.
fn is_unusual(name: &str) -> bool {
    const NAMES: [&str; 6] =
        ["transfer-encoding", "content-encoding", "expect", "upgrade", "trailer", "proxy-connection"];
    NAMES.iter().any(|unusual| name.eq_ignore_ascii_case(unusual))
}

/// A length in plain digits, which `parse` alone does not ask for.
fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n";

    #[test]
    fn a_plain_request_is_read() {
        let data = format!("{HEAD}X-Request-Id: r1\r\nAuthorization: Bearer k\r\nContent-Length: 2\r\n\r\n{{}}");
        let want =
            PlainRequest { target: "/tokenize", authorization: Some(b"Bearer k"), request_id: Some("r1"), body: b"{}" };
        assert_eq!(read_plain_request(data.as_bytes()), Some(want));
    }

    #[test]
    fn whatever_is_unusual_is_left_to_the_server() {
        let whole = format!("{HEAD}Content-Length: 2\r\n\r\n{{}}");
        assert!(read_plain_request(whole.as_bytes()).is_some());
        for cut in 0..whole.len() {
            assert_eq!(read_plain_request(&whole.as_bytes()[..cut]), None, "{cut} bytes");
        }
        assert_eq!(read_plain_request(whole.repeat(2).as_bytes()), None);
        for (from, to) in [
            ("POST", "PUT"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("Content-Length: 2", "Content-Length: +2"),
            ("Content-Length: 2", "Content-Length: 2\r\nContent-Length: 2"),
            ("Content-Length: 2", "Transfer-Encoding: chunked"),
            ("Content-Length: 2", "Content-Length: 2\r\ntransfer-encoding: chunked"),
            ("Content-Length: 2", "Content-Length : 2"),
            ("Host: h", "Host: h\r\nConnection: close"),
            ("Host: h", "Host: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c"),
            ("Host: h", "Host: h\r\nExpect: 100-continue"),
            ("Host: h", "Host: h\r\nContent-Encoding: gzip"),
            ("Host: h", "Host: h\r\nX-Request-Id: \u{e9}"),
            ("application/json", "application/json; charset=utf-8"),
        ] {
            assert!(whole.contains(from));
            assert_eq!(read_plain_request(whole.replace(from, to).as_bytes()), None, "{to}");
        }
    }
}
