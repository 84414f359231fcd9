//! `Renderer`: bytes in, bytes out; the answers to what it renders, too.

use std::sync::Arc;

use fastrender_core as core;
use fastrender_core::derender::{Derenderer, Kind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::convert::detached;
use crate::error::SetupError;
use crate::media::{Pending, Request};

/// Renders requests for one model. Immutable; any number of threads may call it at once.
#[pyclass(frozen, module = "fastrender._native")]
pub(crate) struct Renderer(pub(crate) core::Renderer, pub(crate) Arc<Derenderer>);

/// What a route's body is given to.
enum Route {
    Render(core::Route),
    Derender(Kind),
}

#[pymethods]
impl Renderer {
    /// `spec_json` is `{"model": …, "settings": …}` as `fastrender_core::spec` describes it.
    #[new]
    fn new(py: Python<'_>, spec_json: PyBackedBytes, tokenizer_json: PyBackedBytes) -> PyResult<Self> {
        let spec = serde_json::from_slice(&spec_json)
            .map_err(|error| SetupError::new_err(format!("the render spec is malformed: {error}")))?;
        detached(py, || {
            let renderer = core::Renderer::new(spec, &tokenizer_json)?;
            let derenderer = Derenderer::new(&renderer)?;
            Ok(Self(renderer, Arc::new(derenderer)))
        })
    }

    /// Serve one body: the response bytes, or what they wait for.
    #[pyo3(signature = (route, body, request_id=None))]
    fn begin<'py>(
        renderer: &Bound<'py, Self>,
        route: &str,
        body: PyBackedBytes,
        request_id: Option<PyBackedStr>,
    ) -> PyResult<Bound<'py, PyAny>> {
        serve(renderer, route, body, request_id, core::Effort::Any)
    }

    /// As `begin`, or `None`, at once, for a request that is more than short work.
    #[pyo3(signature = (route, body, request_id=None))]
    fn begin_short<'py>(
        renderer: &Bound<'py, Self>,
        route: &str,
        body: PyBackedBytes,
        request_id: Option<PyBackedStr>,
    ) -> PyResult<Bound<'py, PyAny>> {
        serve(renderer, route, body, request_id, core::Effort::Short)
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

fn serve<'py>(
    renderer: &Bound<'py, Renderer>,
    route: &str,
    body: PyBackedBytes,
    request_id: Option<PyBackedStr>,
    effort: core::Effort,
) -> PyResult<Bound<'py, PyAny>> {
    let py = renderer.py();
    let route = match route {
        "chat" => Route::Render(core::Route::Chat),
        "completions" => Route::Render(core::Route::Completions),
        "tokenize" => Route::Render(core::Route::Tokenize),
        "detokenize" => Route::Render(core::Route::Detokenize),
        "chat_derender" => Route::Derender(Kind::Chat),
        "completions_derender" => Route::Derender(Kind::Completion),
        other => return Err(PyValueError::new_err(format!("unknown route `{other}`"))),
    };
    let Renderer(core, derenderer) = renderer.get();
    let route = match route {
        Route::Render(route) => route,
        Route::Derender(kind) => {
            return Ok(match detached(py, || derenderer.derender(kind, &body, effort))? {
                Some(response) => PyBytes::new(py, &response).into_any(),
                None => py.None().into_bound(py),
            });
        }
    };
    match detached(py, || core.begin(route, &body, request_id.as_deref(), effort))? {
        core::Begun::Done(response) => Ok(PyBytes::new(py, &response).into_any()),
        core::Begun::Lengthy => Ok(py.None().into_bound(py)),
        core::Begun::Pending(pending) => {
            let request = Request { route, body, id: request_id };
            Ok(Bound::new(py, Pending::new(renderer.clone().unbind(), request, pending))?.into_any())
        }
    }
}
