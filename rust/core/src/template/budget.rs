//! What one rendering may use: the engine's fuel, which our own work draws on too, the size of its texts, and the
//! namespaces it leaves behind.
//!
//! Filters and the formatter are plain functions that the engine calls, so the bounds travel with the thread. Work is
//! noted by who does it, in [`work`] and [`work_on`]: what iterates, compares, prints and makes text. It is paid for in
//! [`settle`], when the filter, the operator or the method that it was for comes to its end.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use minijinja::{Error, ErrorKind, State, Value};

use super::strftime::local_now;
use super::value::{Namespace, Outcome, fail};
use super::{Limits, Timestamp};

/// Bytes of text that one unit of fuel pays for where they are copied. The engine asks one unit for 64; this is on top.
const COPIED_BYTES: usize = 64;

/// Bytes of text that one unit of fuel pays for where they are looked at one by one.
const READ_BYTES: usize = 4;

/// Bytes of text that one unit of fuel pays for where they are compared or searched.
const SEARCHED_BYTES: usize = 32;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static EMITTED: Cell<usize> = const { Cell::new(0) };
    static MADE_LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static MADE: Cell<usize> = const { Cell::new(0) };
    static WORK: Cell<u64> = const { Cell::new(0) };
    /// What the engine had left when it was last asked.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static NOW: Cell<Option<Timestamp>> = const { Cell::new(None) };
    static NAMESPACES: RefCell<Vec<Arc<Namespace>>> = const { RefCell::new(Vec::new()) };
}

/// How text is gone over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Copied,
    Read,
    Searched,
}

/// Holds the bounds of the rendering that runs on this thread.
pub(super) struct Rendering(());

impl Rendering {
    /// `now` is what `strftime_now` tells; the clock's time when absent.
    pub(super) fn begin(limits: Limits, now: Option<Timestamp>) -> Self {
        LIMIT.set(limits.output_bytes);
        MADE_LIMIT.set(limits.made_bytes);
        MADE.set(0);
        NOW.set(now);
        EMITTED.set(0);
        WORK.set(0);
        LEFT.set(if limits.fuel > 0 { limits.fuel } else { u64::MAX });
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
        MADE_LIMIT.set(usize::MAX);
        LEFT.set(u64::MAX);
        WORK.set(0);
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

/// Count memory that is about to be taken. It is never given back: what a template lets go of is not known.
pub(super) fn make(bytes: usize) -> Outcome<()> {
    let total = MADE.get().saturating_add(bytes);
    MADE.set(total);
    let limit = MADE_LIMIT.get();
    if total > limit { Err(fail(format!("the template makes more than {limit} bytes of values"))) } else { Ok(()) }
}

/// Note items that are visited; false when there is no fuel for them. For comparisons, which cannot fail: what began
/// them does, in [`settle`]. A value that holds another one twice, again and again, is small and yet has no end.
pub(super) fn visit(count: usize) -> bool {
    let work = WORK.get().saturating_add(count as u64);
    WORK.set(work);
    work <= LEFT.get()
}

pub(super) fn out_of_fuel() -> Error {
    Error::from(ErrorKind::OutOfFuel)
}

/// Note items that are about to be visited or copied.
pub(super) fn work(count: usize) -> Outcome<()> {
    if visit(count) { Ok(()) } else { Err(out_of_fuel()) }
}

/// Note text that is about to be gone over.
pub(super) fn work_on(how: Bytes, bytes: usize) -> Outcome<()> {
    work(
        bytes
            / match how {
                Bytes::Copied => COPIED_BYTES,
                Bytes::Read => READ_BYTES,
                Bytes::Searched => SEARCHED_BYTES,
            },
    )
}

/// Note text that is compared; false as in [`visit`].
pub(super) fn visit_text(bytes: usize) -> bool {
    bytes < SEARCHED_BYTES || visit(bytes / SEARCHED_BYTES)
}

/// Pay for the work that was noted.
pub(super) fn settle(state: &State<'_, '_>) -> Outcome<()> {
    let work = WORK.get();
    if work == 0 {
        return Ok(());
    }
    WORK.set(0);
    state.consume_fuel(work)?;
    LEFT.set(state.fuel_levels().map_or(u64::MAX, |(_, left)| left));
    Ok(())
}

/// Refuse to go on when work was noted that there is no fuel for.
pub(super) fn check_work() -> Outcome<()> {
    work(0)
}

/// Note a text that is about to be made.
pub(super) fn charge(bytes: usize) -> Outcome<()> {
    check_size(bytes)?;
    make(bytes)?;
    work_on(Bytes::Copied, bytes)
}

/// Note items that are about to be collected.
pub(super) fn charge_items(count: usize) -> Outcome<()> {
    check_size(count.saturating_mul(size_of::<Value>()))?;
    work(count)
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
