//! What one rendering may use, beyond the engine's fuel: the size of its texts, and the namespaces it leaves behind.
//!
//! Filters and the formatter are plain functions that the engine calls, so the bounds travel with the thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use minijinja::{State, Value};

use super::Timestamp;
use super::strftime::local_now;
use super::value::{Namespace, Outcome, fail};

/// Bytes of new text that one unit of fuel pays for. The engine asks one unit for 64; this is on top.
const BYTES_PER_FUEL: usize = 16;

/// Items that one rendering may compare.
const MAX_VISITS: u64 = 20_000_000;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static EMITTED: Cell<usize> = const { Cell::new(0) };
    static VISITS: Cell<u64> = const { Cell::new(0) };
    static NOW: Cell<Option<Timestamp>> = const { Cell::new(None) };
    static NAMESPACES: RefCell<Vec<Arc<Namespace>>> = const { RefCell::new(Vec::new()) };
}

/// Holds the bounds of the rendering that runs on this thread.
pub(super) struct Rendering(());

impl Rendering {
    /// `now` is what `strftime_now` tells; the clock's time when absent.
    pub(super) fn begin(output_bytes: usize, now: Option<Timestamp>) -> Self {
        LIMIT.set(output_bytes);
        NOW.set(now);
        EMITTED.set(0);
        VISITS.set(0);
        Rendering(())
    }
}

impl Drop for Rendering {
    fn drop(&mut self) {
        // Emptied one by one while all are alive: they may form rings and long chains.
        let namespaces = NAMESPACES.take();
        for namespace in &namespaces {
            namespace.clear();
        }
        LIMIT.set(usize::MAX);
    }
}

/// Count text that is written out, be it to the prompt or to a capture.
pub(super) fn emit(bytes: usize) -> Outcome<()> {
    let total = EMITTED.get().saturating_add(bytes);
    EMITTED.set(total);
    check_size(total)
}

/// Refuse a text of this size.
pub(super) fn check_size(bytes: usize) -> Outcome<()> {
    let limit = LIMIT.get();
    if bytes > limit { Err(fail(format!("the template makes more than {limit} bytes of text"))) } else { Ok(()) }
}

/// Count items that are compared or looked through; false when there were too many. A value that holds another one
/// twice, again and again, is small and yet has no end.
pub(super) fn visit(count: usize) -> bool {
    let visits = VISITS.get() + count as u64;
    VISITS.set(visits);
    visits <= MAX_VISITS
}

/// Refuse to go on after too many visits, which comparisons themselves cannot.
pub(super) fn check_visits() -> Outcome<()> {
    if VISITS.get() > MAX_VISITS { Err(fail("the template compares too much")) } else { Ok(()) }
}

/// Pay for text that is about to be made.
pub(super) fn charge(state: &State<'_, '_>, bytes: usize) -> Outcome<()> {
    check_size(bytes)?;
    state.consume_fuel((bytes / BYTES_PER_FUEL) as u64)
}

/// Pay for items that are about to be visited or copied.
pub(super) fn charge_items(state: &State<'_, '_>, count: usize) -> Outcome<()> {
    check_size(count.saturating_mul(size_of::<Value>()))?;
    state.consume_fuel(count as u64)
}

/// The time that this rendering tells: the same one, however often it is asked.
pub(super) fn now() -> Timestamp {
    let now = NOW.get().unwrap_or_else(local_now);
    NOW.set(Some(now));
    now
}

/// A namespace that is emptied when the rendering ends.
pub(super) fn namespace(namespace: Namespace) -> Value {
    let namespace = Arc::new(namespace);
    NAMESPACES.with_borrow_mut(|all| all.push(namespace.clone()));
    Value::from_dyn_object(namespace)
}
