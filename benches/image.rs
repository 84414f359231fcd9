//! The image path by stage, at 1024×1024: each beside the copy of as many bytes, which is its floor.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fastrender_core::hash::{Factors, MmHasher};
use fastrender_core::image::{Filter, Flavour, ImageProcessor, Resizer, Rgb, Size};
use fastrender_core::wire::base64::{self, Wrapping};
use serde_json::json;

const SIDE: usize = 1024;

fn picture() -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..SIDE * SIDE * 3).map(|_| next()).collect()
}

fn processor(patch_size: usize, dtype: &str) -> ImageProcessor {
    let half = json!({ "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "rescale_factor": 1.0 / 255.0, "arithmetic": "fused" });
    let spec = json!({
        "size": {
            "kind": "smart", "patch_size": patch_size, "merge_size": 2, "temporal_patch_size": 2,
            "min_pixels": 3136, "max_pixels": if patch_size == 14 { 980 * 980 } else { 12_845_056 },
        },
        "filter": "bicubic",
        "flavour": "aten",
        "dtype": dtype,
        "normalisation": (dtype != "uint8").then_some(half),
        "layout": "qwen_patches",
        "fields": { "pixels": "pixel_values", "grid": "image_grid_thw" },
    });
    ImageProcessor::new(serde_json::from_value(spec).expect("a spec")).expect("a processor")
}

fn resize(c: &mut Criterion) {
    let pixels = picture();
    let image = Rgb::new(&pixels, Size::new(SIDE, SIDE)).expect("an image");
    let mut resizer = Resizer::new();
    for (name, flavour) in [("aten", Flavour::Aten), ("pillow", Flavour::Pillow)] {
        for side in [980, 512] {
            c.bench_function(&format!("resize/bicubic_{name}_1024_to_{side}"), |b| {
                b.iter(|| resizer.resize(black_box(image), Size::new(side, side), Filter::Bicubic, flavour));
            });
        }
    }
}

fn process(c: &mut Criterion) {
    let pixels = picture();
    for (name, patch, dtype) in [
        ("patchify_p16_u8", 16, "uint8"),
        ("patchify_p16_bf16", 16, "bfloat16"),
        ("resize_and_patchify_p14_u8", 14, "uint8"),
        ("resize_and_patchify_p14_bf16", 14, "bfloat16"),
    ] {
        let processor = processor(patch, dtype);
        c.bench_function(&format!("process/{name}"), |b| {
            b.iter(|| processor.process(black_box(&pixels), SIDE, SIDE));
        });
    }
}

fn encode(c: &mut Criterion) {
    let pixels = picture().repeat(2);
    let mut out = Vec::with_capacity(base64::encoded_length(pixels.len()));
    c.bench_function("wire/memcpy_8.4MB_floor", |b| {
        let source = vec![7u8; base64::encoded_length(pixels.len())];
        b.iter(|| {
            out.clear();
            out.extend_from_slice(black_box(&source));
        });
    });
    c.bench_function("wire/base64_encode_6.3MB", |b| {
        b.iter(|| {
            out.clear();
            base64::encode(&[&black_box(&pixels)[..100], &pixels[100..]], &mut out);
        });
    });
    out.clear();
    base64::encode(&[&pixels], &mut out);
    let mut back = Vec::with_capacity(pixels.len() + 8);
    c.bench_function("wire/base64_decode_8.4MB", |b| {
        b.iter(|| {
            back.clear();
            base64::decode(black_box(&out), Wrapping::Allowed, &mut back)
        });
    });
}

fn hash(c: &mut Criterion) {
    let bytes = &picture()[..300_000];
    let factors = Factors { model_id: "Qwen/Qwen3-VL-2B-Instruct", ..Factors::default() };
    for (name, hasher) in [("blake3", MmHasher::Blake3), ("sha256", MmHasher::Sha256)] {
        c.bench_function(&format!("hash/{name}_300KB"), |b| b.iter(|| hasher.image(black_box(bytes), None, factors)));
    }
}

criterion_group!(benches, resize, process, encode, hash);
criterion_main!(benches);
