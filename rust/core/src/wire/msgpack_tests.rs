use super::*;

#[test]
fn integers_take_the_fewest_bytes_and_come_back() {
    for (value, bytes) in [(0, 1), (127, 1), (128, 2), (255, 2), (256, 3), (65_535, 3), (65_536, 5), (1 << 32, 9)] {
        let mut out = Vec::new();
        write_int(&mut out, value);
        assert_eq!(out.len(), bytes, "{value}");
        assert_eq!(Reader::new(&out).token(), Ok(Token::Uint(u64::try_from(value).unwrap())));
    }
    for (value, bytes) in [(-1, 1), (-32, 1), (-33, 2), (-128, 2), (-129, 3), (-32_769, 5), (i64::MIN, 9)] {
        let mut out = Vec::new();
        write_int(&mut out, value);
        assert_eq!(out.len(), bytes, "{value}");
        assert_eq!(Reader::new(&out).token(), Ok(Token::Int(value)));
    }
}

#[test]
fn heads_take_the_fewest_bytes() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    assert_eq!(written(&|out| write_ext_head(out, 3, 16)), [0xd8, 3]);
    assert_eq!(written(&|out| write_ext_head(out, 3, 0)), [0xc7, 0, 3]);
    assert_eq!(written(&|out| write_ext_head(out, 3, 300)), [0xc8, 1, 44, 3]);
    assert_eq!(written(&|out| write_ext_head(out, 3, 70_000)), [0xc9, 0, 1, 0x11, 0x70, 3]);
    assert_eq!(written(&|out| write_array_head(out, 16)), [0xdc, 0, 16]);
    assert_eq!(written(&|out| write_map_head(out, 70_000)), [0xdf, 0, 1, 0x11, 0x70]);
    assert_eq!(written(&|out| write_str(out, &"x".repeat(40)))[..2], [0xd9, 40]);
}

#[test]
fn a_length_beyond_the_end_is_refused() {
    assert!(Reader::new(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0]).token().is_err());
    assert!(Reader::new(&[0xc6, 0, 0, 0, 9, 1]).token().is_err());
    assert!(Reader::new(&[]).token().is_err());
}

#[test]
fn the_number_of_values_is_bounded() {
    let bytes = vec![0xc0; MAX_TOKENS + 1];
    let mut reader = Reader::new(&bytes);
    assert!((0..MAX_TOKENS).all(|_| reader.token() == Ok(Token::Nil)));
    assert!(reader.token().unwrap_err().to_string().contains("too many values"));
}
