use super::*;

/// A picture of two pixels, (1, 2, 3) each.
const PNG: &str = "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000000f49444154789c636464626660600000\
    002a0008da58ee440000000049454e44ae426082";

const WHITE: IoConfig<'static> = IoConfig { image_mode: "RGB", rgba_background_color: [255; 3] };

fn png() -> Vec<u8> {
    (0..PNG.len()).step_by(2).map(|at| u8::from_str_radix(&PNG[at..at + 2], 16).unwrap()).collect()
}

fn factors(model_id: &str) -> Factors<'_> {
    Factors { model_id, ..Factors::default() }
}

fn both(hash: impl Fn(MmHasher) -> String) -> (String, String) {
    (hash(MmHasher::Blake3), hash(MmHasher::Sha256)[..16].to_owned())
}

fn mapping<'a>(entries: impl IntoIterator<Item = (&'a str, Value<'a>)>) -> Value<'a> {
    Value::Mapping(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn ndarray<'a>(dtype: &'a str, shape: &[i64], data: Value<'a>) -> Value<'a> {
    let shape = Value::Sequence(shape.iter().map(|side| Value::Int(*side)).collect());
    let array = mapping([("dtype", Value::Str(dtype.into())), ("shape", shape), ("data", data)]);
    Value::Tagged("ndarray", Box::new(array))
}

#[test]
fn images_by_their_bytes() {
    let plain = both(|hasher| hasher.image(&png(), None, factors("m")).unwrap());
    assert_eq!(plain.0, "620ddec34dfa5c7cd107d1cfd25b8c93ad00fe61853804c15f9a41ebb65317b1");
    assert_eq!(plain.1, "3b7c10b1af79ed09");
    let converted = both(|hasher| hasher.image(&png(), Some(WHITE), factors("m")).unwrap());
    assert_eq!(converted.0, "0c38cdcbd8c58491966a34059c959c4657113f6dc089e292b60a619c6d5a878c");
    assert_eq!(converted.1, "60680f73c56922b2");
    let hello = MmHasher::Blake3.image(b"hello", None, factors("Qwen/Qwen3-VL-2B-Instruct")).unwrap();
    assert_eq!(hello, "a068cc8a0df72f63cc9f86ac8e4eee39350b4add9c3e35b2c8cb1e0412b8fdde");
    let hello = MmHasher::Blake3.image(b"hello", Some(WHITE), factors("m")).unwrap();
    assert_eq!(hello, "6119f652ca41480fa8789c2dd7b35e888bd132dd8973c077745bf3f62e089744");
    assert_eq!(MmHasher::Sha512.image(&png(), None, factors("m")).unwrap().len(), 128);
}

#[test]
fn uuids_alone_and_with_settings() {
    let processor = Json::parse(r#"{"min_pixels": 784, "size": {"a": 1.5, "b": null, "c": [true, 2]}}"#).unwrap();
    let media_io = Json::parse(r#"{"image": {"image_mode": "L"}, "video": {"num_frames": 3}}"#).unwrap();
    let with =
        Factors { model_id: "m", media_io_kwargs: media_io.as_object(), mm_processor_kwargs: processor.as_object() };
    let hash = both(|hasher| hasher.uuid("image", "myuuid", with).unwrap());
    assert_eq!(hash.0, "32d421a6e86e2016f0c69d519b9bbcb85074ec191fb4f1fcc4f721cd4f330f78");
    assert_eq!(hash.1, "8381c60cc6d15d84");
    assert_eq!(MmHasher::Blake3.uuid("image", "myuuid", factors("m")).unwrap(), "myuuid");
}

#[test]
fn settings_of_other_modalities_do_not_count() {
    let processor = Json::parse(r#"{"videos_kwargs": {"fps": 1}, "audio_kwargs": {}}"#).unwrap();
    let media_io = Json::parse(r#"{"video": {"num_frames": 3}, "image": {}}"#).unwrap();
    let with =
        Factors { model_id: "m", media_io_kwargs: media_io.as_object(), mm_processor_kwargs: processor.as_object() };
    assert_eq!(MmHasher::Blake3.uuid("image", "u", with).unwrap(), "u");
    assert_ne!(MmHasher::Blake3.uuid("video", "u", with).unwrap(), "u");
    assert_ne!(MmHasher::Blake3.uuid("vision_chunk", "u", with).unwrap(), "u");
}

#[test]
fn other_kinds_of_items() {
    let colours = [1, 2, 3, 1, 2, 3];
    let rows = ndarray("|u1", &[1, 2, 3], Value::Bytes(&colours));
    let picture = mapping([("mode", Value::Str("RGB".into())), ("data", rows)]);
    let hash = |modality, value: Value<'_>| both(|hasher| hasher.item(modality, value.clone(), factors("m")).unwrap());
    let image = hash("image", Value::Tagged("image", Box::new(picture)));
    assert_eq!(image.0, "c5ed7d61a3a40b5b3204a1094fe9bab467d71931322476e95a23a8ca5d2d5962");
    assert_eq!(image.1, "f1161a96cf45f929");
    let floats = [0, 0, 0, 0x3f, 0, 0, 0, 0xbf];
    let audio = hash("audio", ndarray("<f4", &[2], Value::Bytes(&floats)));
    assert_eq!(audio.0, "94fcbdcf7053328b1e91ee1086d15e85035cfa630963da0561a38de90e1f175d");
    let metadata = mapping([("fps", Value::Float(2.0)), ("n", Value::Int(3))]);
    let frames = ndarray("|u1", &[1, 2, 2, 3], Value::Bytes(&[0; 12]));
    let video = hash("video", Value::Sequence(vec![Value::Tagged("video", Box::new(frames)), metadata]));
    assert_eq!(video.0, "d013c31da11fdfe42c4ce0348141432da6f46c5a783235c7327c5948bc4194d4");
    assert_eq!(video.1, "d4137f11aa7b7018");
}

#[test]
fn bare_arguments() {
    let values = [0, 0, 0x80, 0x3f, 0, 0, 0, 0x40];
    let tensor = Value::Tagged("tensor", Box::new(ndarray("<f4", &[1, 2], Value::Bytes(&values))));
    let hash = MmHasher::Blake3.digest(vec![("x", tensor)]);
    assert_eq!(hash, "2f030fb131c7ab3e02776bfde224f877a9b9c59008ec6d9565635cec996b950f");
}

#[test]
fn what_python_cannot_hash_is_refused() {
    for text in [r#"{"a": 18446744073709551616}"#, r#"{"a": ["\ud800"]}"#] {
        let json = Json::parse(text).unwrap();
        let with = Factors { model_id: "m", media_io_kwargs: None, mm_processor_kwargs: json.as_object() };
        assert_eq!(MmHasher::Blake3.image(b"x", None, with).unwrap_err().status(), 400, "{text}");
    }
}
