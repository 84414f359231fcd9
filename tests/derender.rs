//! Derender, whole and streamed.
