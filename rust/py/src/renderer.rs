//! `Renderer`: bytes in, bytes out.

use fastrender_core as core;
use fastrender_core::conversation::MediaItem;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::convert::detached;
use crate::error::SetupError;

/// Renders requests for one model. Immutable; any number of threads may call it at once.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct Renderer(core::Renderer);

/// A medium that a request refers to.
#[pyclass(frozen, get_all, module = "fastrender._native")]
pub(crate) struct MediaReference {
    /// `image`, `audio` or `video`.
    modality: &'static str,
    /// The content part's kind: `image_url`, `input_audio`, ….
    kind: &'static str,
    /// A URL or base64 data; `None` for a part that names only a uuid.
    source: Option<String>,
    uuid: Option<String>,
}

/// A request that waits for its media, in request order.
#[pyclass(frozen, get_all, module = "fastrender._native")]
pub(crate) struct Pending {
    media: Vec<Py<MediaReference>>,
}

#[pymethods]
impl Renderer {
    /// `spec_json` is `{"model": …, "settings": …}` as `fastrender_core::spec` describes it.
    #[new]
    fn new(py: Python<'_>, spec_json: PyBackedBytes, tokenizer_json: PyBackedBytes) -> PyResult<Self> {
        let spec = serde_json::from_slice(&spec_json)
            .map_err(|error| SetupError::new_err(format!("the render spec is malformed: {error}")))?;
        detached(py, || core::Renderer::new(spec, &tokenizer_json)).map(Self)
    }

    /// Serve one body: the response bytes, or what they wait for.
    #[pyo3(signature = (route, body, request_id=None))]
    fn begin<'py>(
        &self,
        py: Python<'py>,
        route: &str,
        body: PyBackedBytes,
        request_id: Option<PyBackedStr>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.serve(py, route, &body, request_id.as_deref(), core::Effort::Any)
    }

    /// As `begin`, or `None`, at once, for a request that is more than short work.
    #[pyo3(signature = (route, body, request_id=None))]
    fn begin_short<'py>(
        &self,
        py: Python<'py>,
        route: &str,
        body: PyBackedBytes,
        request_id: Option<PyBackedStr>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.serve(py, route, &body, request_id.as_deref(), core::Effort::Short)
    }

    /// Wait until what is loaded in the background is there; whether the fastest encoder is among it.
    fn finish_loading(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.tokenizer().finish_loading())
    }

    /// Counters of the tokenizer's segment cache.
    fn stats(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let stats = self.0.cache_stats();
        [
            ("tokenizer_cache_hits", stats.hits),
            ("tokenizer_cache_misses", stats.misses),
            ("tokenizer_cache_bytes", stats.bytes),
            ("tokenizer_cache_entries", stats.entries),
        ]
        .into()
    }

    /// Which tokenizer implementation encodes, and why.
    #[getter]
    fn backend(&self) -> &str {
        self.0.tokenizer().backend()
    }
}

impl Renderer {
    fn serve<'py>(
        &self,
        py: Python<'py>,
        route: &str,
        body: &[u8],
        request_id: Option<&str>,
        effort: core::Effort,
    ) -> PyResult<Bound<'py, PyAny>> {
        let route = match route {
            "chat" => core::Route::Chat,
            "completions" => core::Route::Completions,
            "tokenize" => core::Route::Tokenize,
            "detokenize" => core::Route::Detokenize,
            other => return Err(PyValueError::new_err(format!("unknown route `{other}`"))),
        };
        match detached(py, || self.0.begin(route, body, request_id, effort))? {
            core::Begun::Done(response) => Ok(PyBytes::new(py, &response).into_any()),
            core::Begun::Lengthy => Ok(py.None().into_bound(py)),
            core::Begun::Pending(media) => {
                let media =
                    media.into_iter().map(|item| Py::new(py, MediaReference::from(item))).collect::<PyResult<_>>()?;
                Ok(Bound::new(py, Pending { media })?.into_any())
            }
        }
    }
}

impl From<MediaItem<'_>> for MediaReference {
    fn from(item: MediaItem<'_>) -> Self {
        Self {
            modality: item.modality.name(),
            kind: item.kind,
            source: item.source.map(std::borrow::Cow::into_owned),
            uuid: item.uuid.map(std::borrow::Cow::into_owned),
        }
    }
}
