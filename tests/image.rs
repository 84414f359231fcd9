//! Pixels against `tests/golden/images.json`: what torch, torchvision, Pillow and transformers made of the same images.

use std::fmt::Write;

use fastrender_core::image::{
    Dtype, Filter, Flavour, ImageProcessor, LookupTable, Normalisation, Resizer, Rgb, Size, SizeRule,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn golden(section: &str) -> Vec<Value> {
    let mut golden: Value = serde_json::from_str(include_str!("golden/images.json")).expect("it is JSON");
    let Value::Array(rows) = golden[section].take() else { panic!("{section} is no list") };
    assert!(!rows.is_empty());
    rows
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("it has this shape")
}

/// Half of a SHA-256.
fn digest(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in &Sha256::digest(bytes)[..16] {
        write!(text, "{byte:02x}").expect("a string takes all");
    }
    text
}

/// The bytes that `noise` of `make_images.py` gives.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let byte = |i: u64| {
        let x = (i + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)).to_be_bytes()[0]
    };
    (1..=count as u64).map(byte).collect()
}

fn picture(kind: &str, seed: u64, size: Size) -> Vec<u8> {
    let mut pixels = noise(size.width * size.height * 3, seed);
    if kind == "harsh" {
        for byte in &mut pixels {
            *byte = if *byte >= 128 { 255 } else { 0 };
        }
    }
    pixels
}

#[derive(Deserialize)]
struct Resize {
    kind: String,
    seed: u64,
    from: [usize; 2],
    to: [usize; 2],
    filter: Filter,
    flavour: Flavour,
    sha256: String,
}

#[test]
fn resizes_are_those_of_torch_and_pillow() {
    let mut resizer = Resizer::new();
    let mut wrong = Vec::new();
    for row in golden("resize") {
        let Resize { kind, seed, from, to, filter, flavour, sha256 } = read(&row);
        let from = Size::new(from[0], from[1]);
        let pixels = picture(&kind, seed, from);
        let image = Rgb::new(&pixels, from).expect("it can be made");
        if digest(&resizer.resize(image, Size::new(to[0], to[1]), filter, flavour)) != sha256 {
            wrong.push(row.to_string());
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn lookup_tables_are_those_of_transformers() {
    for row in golden("lookup") {
        let normalisation: Normalisation = read(&json!({
            "mean": row["mean"], "std": row["std"], "rescale_factor": 1.0 / 255.0, "arithmetic": row["arithmetic"],
        }));
        let table = LookupTable::new(&normalisation, read(&row["dtype"])).expect("it can be made");
        assert_eq!(digest(table.as_bytes()), row["sha256"], "{row}");
    }
}

#[test]
fn sizes_are_those_of_smart_resize() {
    for row in golden("smart_resize") {
        let (height, width, factor, min_pixels, max_pixels, want): (_, _, usize, _, _, Option<[usize; 2]>) = read(&row);
        let (merge_size, temporal_patch_size) = (2, 2);
        let patch_size = factor / merge_size;
        let rule = SizeRule::Smart { patch_size, merge_size, temporal_patch_size, min_pixels, max_pixels };
        let got = rule.apply(Size::new(width, height)).ok().map(|size| [size.height, size.width]);
        assert_eq!(got, want, "{row}");
    }
}

/// The settings that `make_images.py` calls by this name.
fn processor(row: &Value) -> ImageProcessor {
    let clip = ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]);
    let half = ([0.5; 3], [0.5; 3]);
    let (patch_size, min_pixels, max_pixels, (mean, std)) = match row["config"].as_str() {
        Some("qwen2") => (14, 3136, 12_845_056, clip),
        Some("qwen3") => (16, 65_536, 16_777_216, half),
        Some("small") => (16, 4096, 65_536, half),
        _ => panic!("{row}"),
    };
    let arithmetic = if row["flavour"] == "aten" { "fused" } else { "pillow" };
    let normalisation = json!({ "mean": mean, "std": std, "rescale_factor": 1.0 / 255.0, "arithmetic": arithmetic });
    let plain = read::<Dtype>(&row["dtype"]) == Dtype::Uint8;
    let spec = json!({
        "size": {
            "kind": "smart", "patch_size": patch_size, "merge_size": 2, "temporal_patch_size": 2,
            "min_pixels": min_pixels, "max_pixels": max_pixels,
        },
        "filter": "bicubic",
        "flavour": row["flavour"],
        "dtype": row["dtype"],
        "normalisation": if plain { Value::Null } else { normalisation },
        "layout": "qwen_patches",
        "fields": { "pixels": "pixel_values", "grid": "image_grid_thw" },
    });
    ImageProcessor::new(read(&spec)).expect("the settings are right")
}

#[test]
fn whole_processors_are_those_of_transformers() {
    for row in golden("processor") {
        let [width, height]: [usize; 2] = read(&row["size"]);
        let pixels = picture("noise", read(&row["seed"]), Size::new(width, height));
        let processed = processor(&row).process(&pixels, width, height).expect("it can be made");
        assert_eq!(json!(processed.plan().grid), row["grid"], "{row}");
        assert_eq!(json!(processed.plan().rows()), row["shape"][0], "{row}");
        assert_eq!(digest(&processed.pixels()), row["sha256"], "{row}");
    }
}
