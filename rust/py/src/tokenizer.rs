//! `Tokenizer`: text to ids and back, for tests and for those who want nothing else.

use fastrender_core::tokenizer::{Tokenizer as CoreTokenizer, Truncation, TruncationSide};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::convert::detached;
use crate::error::SetupError;

/// A tokenizer. Immutable but for its caches; any number of threads may use it at once.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct Tokenizer(CoreTokenizer);

#[pymethods]
impl Tokenizer {
    /// `spec_json` is the `tokenizer` of a render spec; the defaults are what tokenizer.json says alone.
    #[new]
    #[pyo3(signature = (tokenizer_json, spec_json=None))]
    fn new(py: Python<'_>, tokenizer_json: PyBackedBytes, spec_json: Option<PyBackedBytes>) -> PyResult<Self> {
        let spec = spec_json
            .map_or_else(|| Ok(fastrender_core::spec::TokenizerSpec::default()), |spec| serde_json::from_slice(&spec))
            .map_err(|error| SetupError::new_err(format!("the tokenizer's spec is malformed: {error}")))?;
        detached(py, || CoreTokenizer::new(&tokenizer_json, &spec)).map(Self)
    }

    /// Which implementation encodes, and why.
    #[getter]
    fn backend(&self) -> &str {
        self.0.backend()
    }

    /// Ids as little-endian 32-bit integers.
    #[pyo3(signature = (text, *, add_special_tokens=true, max_length=None, truncation_side="right"))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: PyBackedStr,
        add_special_tokens: bool,
        max_length: Option<usize>,
        truncation_side: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let truncation = truncation(max_length, truncation_side)?;
        let ids = detached(py, || self.0.encode(&*text, add_special_tokens, truncation))?;
        Ok(PyBytes::new(py, &little_endian(&ids)))
    }

    /// Ids as [`Self::encode`] gives them, and where each is in the text: start and end in characters, as ids are.
    #[pyo3(signature = (text, *, add_special_tokens=true, max_length=None, truncation_side="right"))]
    fn encode_with_offsets<'py>(
        &self,
        py: Python<'py>,
        text: PyBackedStr,
        add_special_tokens: bool,
        max_length: Option<usize>,
        truncation_side: &str,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let truncation = truncation(max_length, truncation_side)?;
        let encoding = detached(py, || self.0.encode_with_offsets(&*text, add_special_tokens, truncation))?;
        let offsets: Vec<u32> = encoding.offsets.iter().flat_map(|&(start, end)| [start, end]).collect();
        Ok((PyBytes::new(py, &little_endian(&encoding.ids)), PyBytes::new(py, &little_endian(&offsets))))
    }

    #[pyo3(signature = (ids, *, skip_special_tokens=true))]
    fn decode(&self, py: Python<'_>, ids: Vec<u32>, skip_special_tokens: bool) -> PyResult<String> {
        detached(py, || self.0.decode(&ids, skip_special_tokens))
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    #[getter]
    fn max_token_id(&self) -> u32 {
        self.0.max_token_id()
    }

    /// Characters of the longest piece of the vocabulary.
    #[getter]
    fn longest_token_chars(&self) -> usize {
        self.0.longest_token_chars()
    }

    /// Hits, misses, bytes and entries of the cache of segments.
    fn cache_stats(&self) -> (u64, u64, u64, u64) {
        let stats = self.0.cache_stats();
        (stats.hits, stats.misses, stats.bytes, stats.entries)
    }
}

fn truncation(max_length: Option<usize>, side: &str) -> PyResult<Option<Truncation>> {
    let side = match side {
        "left" => TruncationSide::Left,
        "right" => TruncationSide::Right,
        other => {
            return Err(PyValueError::new_err(format!("unknown truncation side `{other}`; known: left, right")));
        }
    };
    Ok(max_length.map(|max_length| Truncation { max_length, side }))
}

fn little_endian(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
