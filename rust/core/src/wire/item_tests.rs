use proptest::prelude::*;

use super::*;

const FIRST: &str = "83ac706978656c5f76616c75657382a46461746193a7666c6f61743332920202d803000000000000803f0000004000004040\
    a56669656c6492a4666c617483ab6b6565705f6f6e5f637075c2a6736c696365739291930002c091930203c0a364696d00ae696d6167655f67\
    7269645f74687782a46461746193a5696e7436349103c71803010000000000000001000000000000000200000000000000a56669656c6492a7\
    6261746368656481ab6b6565705f6f6e5f637075c3a17382a46461746193a862666c6f617431369101d503c03fa56669656c6492a673686172\
    656482ab6b6565705f6f6e5f637075c2aa62617463685f73697a6502";
const FIRST_METADATA: &str = "81ae696d6167655f677269645f74687782a46461746193a5696e7436349103c718030100000000000000010000\
    00000000000200000000000000a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c3";
const SECOND_DIMENSION: &str = "81a16182a46461746193a7666c6f61743136920201d60300400045a56669656c6492a4666c617483ab6b65\
    65705f6f6e5f637075c2a6736c69636573929293c0c0c0930002c09293c0c0c0930203c0a364696d01";
const NESTED: &str = "84a16e82a4646174619293a4626f6f6c9101d4030193a575696e7438920003c70003a56669656c6492a76261746368656481\
    ab6b6565705f6f6e5f637075c2a17a82a464617461c0a56669656c6492a673686172656482ab6b6565705f6f6e5f637075c2aa62617463685f\
    73697a6501a16682a464617461cb3ff8000000000000a56669656c6492a673686172656482ab6b6565705f6f6e5f637075c2aa62617463685f\
    73697a6501a2736382a46461746193a5696e74363490d7030700000000000000a56669656c6492a76261746368656481ab6b6565705f6f6e5f\
    637075c2";
const TRANSPOSED: &str = "81a17882a46461746193a862666c6f61743136920202d703803f404000408040a56669656c6492a762617463686564\
    81ab6b6565705f6f6e5f637075c2";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn tensor(dtype: &'static str, shape: &[u64], bytes: &[u8]) -> Data<'static> {
    Data::Tensor(Tensor { dtype: dtype.into(), shape: shape.to_vec(), bytes: Cow::Owned(bytes.to_vec()) })
}

fn element(name: &'static str, data: Data<'static>, field: Field) -> Element<'static> {
    Element { name: name.into(), data, field }
}

fn shared(batch_size: u64) -> Field {
    Field { keep_on_cpu: false, kind: Kind::Shared { batch_size } }
}

fn first() -> Item<'static> {
    let floats: Vec<u8> = [0f32, 1., 2., 3.].iter().flat_map(|value| value.to_le_bytes()).collect();
    let grid = Data::Tensor(Tensor::int64(&[3], &[1, 1, 2]));
    Item {
        elements: vec![
            element("pixel_values", tensor("float32", &[2, 2], &floats), Field::flat_from_sizes([2, 1], 0)),
            element("image_grid_thw", grid, Field::BATCHED_ON_CPU),
            element("s", tensor("bfloat16", &[1], &[0xc0, 0x3f]), shared(2)),
        ],
    }
}

fn vectors() -> Vec<(Item<'static>, Vec<u8>)> {
    let second_dimension =
        element("a", tensor("float16", &[2, 1], &[0, 0x40, 0, 0x45]), Field::flat_from_sizes([2, 1], 1));
    let nested = Data::List(vec![tensor("bool", &[1], &[1]), tensor("uint8", &[0, 3], &[])]);
    let number = Data::Tensor(Tensor::int64(&[], &[7]));
    let nested = vec![
        element("n", nested, Field::BATCHED),
        element("z", Data::Nil, shared(1)),
        element("f", Data::Float(1.5), shared(1)),
        element("sc", number, Field::BATCHED),
    ];
    let transposed = tensor("bfloat16", &[2, 2], &[0x80, 0x3f, 0x40, 0x40, 0x00, 0x40, 0x80, 0x40]);
    vec![
        (first(), unhex(FIRST)),
        (Item { elements: vec![second_dimension] }, unhex(SECOND_DIMENSION)),
        (Item { elements: nested }, unhex(NESTED)),
        (Item { elements: vec![element("x", transposed, Field::BATCHED)] }, unhex(TRANSPOSED)),
    ]
}

#[test]
fn items_are_written_and_read_as_vllm_does() {
    for (item, bytes) in vectors() {
        let mut out = Vec::new();
        item.write(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(Item::parse(&bytes), Ok(item));
    }
}

#[test]
fn metadata_is_what_stays_on_the_cpu_or_is_declared() {
    let mut out = Vec::new();
    assert!(first().write_metadata(&[], &mut out));
    assert_eq!(out, unhex(FIRST_METADATA));
    let mut out = Vec::new();
    assert!(first().write_metadata(&["s"], &mut out));
    assert_eq!(Item::parse(&out).unwrap().elements, first().elements[1..]);
    let mut out = Vec::new();
    assert!(!Item::default().write_metadata(&["s"], &mut out));
    assert!(out.is_empty());
}

#[test]
fn keys_may_come_in_any_order() {
    // {"x": {"field": ["shared", {"batch_size": 2, "keep_on_cpu": true}], "data": -1}}
    let mut bytes = Vec::new();
    mp::write_map_head(&mut bytes, 1);
    mp::write_str(&mut bytes, "x");
    mp::write_map_head(&mut bytes, 2);
    mp::write_str(&mut bytes, "field");
    mp::write_array_head(&mut bytes, 2);
    mp::write_str(&mut bytes, "shared");
    mp::write_map_head(&mut bytes, 2);
    mp::write_str(&mut bytes, "batch_size");
    mp::write_uint(&mut bytes, 2);
    mp::write_str(&mut bytes, "keep_on_cpu");
    mp::write_bool(&mut bytes, true);
    mp::write_str(&mut bytes, "data");
    mp::write_int(&mut bytes, -1);
    let field = Field { keep_on_cpu: true, kind: Kind::Shared { batch_size: 2 } };
    assert_eq!(Item::parse(&bytes), Ok(Item { elements: vec![element("x", Data::Int(-1), field)] }));
}

#[test]
fn what_is_no_item_is_refused() {
    let good = unhex(TRANSPOSED);
    let swapped = |from: &[u8], to: &[u8]| {
        let at = good.windows(from.len()).position(|window| window == from).unwrap();
        [&good[..at], to, &good[at + from.len()..]].concat()
    };
    for (bytes, message) in [
        (swapped(b"batched", b"batchex"), "an unknown kind of field"),
        (swapped(b"bfloat16", b"bfloat17"), "a tensor of an unknown dtype"),
        (swapped(&[0x92, 2, 2], &[0x92, 2, 3]), "a tensor whose bytes do not fit its shape"),
        (swapped(&[0xd7, 3], &[0xd7, 1]), "a tensor whose bytes are not inline"),
        (swapped(b"field", b"fielt"), "a key that an element does not have"),
        (swapped(b"keep_on_cpu", b"keep_on_gpu"), "an argument that the field does not have"),
        ([&good[..], &[0]].concat(), "bytes after the end"),
        (good[..good.len() - 1].to_vec(), "the bytes end too early"),
        (Vec::new(), "the bytes end too early"),
    ] {
        let error = Item::parse(&bytes).unwrap_err();
        assert!(error.to_string().contains(message), "{error}: {message}");
        assert_eq!(error.status(), 400);
    }
    let deep = [&[0x81, 0xa1, b'x', 0x81, 0xa4][..], b"data", &vec![0x91; 100_000]].concat();
    assert!(Item::parse(&deep).unwrap_err().to_string().contains("nested too deeply"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Item::parse(&bytes));
    }

    #[test]
    fn damaged_items_are_refused_or_written_back(
        which in 0..4usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = vectors().swap_remove(which).1;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(item) = Item::parse(&bytes) {
            let mut out = Vec::new();
            item.write(&mut out);
            // Compared as text: a float that is not a number equals nothing.
            prop_assert_eq!(format!("{:?}", Item::parse(&out)), format!("{:?}", Ok::<_, crate::Error>(item)));
        }
    }
}
