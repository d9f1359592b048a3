//! Turns the value of an expression into the step's output.

use std::io::{self, Write};

use honeyflow_event::Document;
use honeyflow_runtime::Failure;
use serde_json::Value;

/// The largest output, as JSON text.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

pub fn document(value: Value) -> Result<Document, Failure> {
    if serde_json::to_writer(ByteBudget(OUTPUT_BYTES_MAX), &value).is_err() {
        return Err(Failure::reject(
            honeyflow_runtime::codes::OUTPUT_TOO_LARGE,
            format!("the result has more than {OUTPUT_BYTES_MAX} bytes as JSON"),
        ));
    }
    Ok((!value.is_null()).then(|| value.into()))
}

/// A writer that only counts the bytes, and fails when there are too many.
struct ByteBudget(usize);

impl Write for ByteBudget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wf_14_an_output_may_have_a_mebibyte_and_no_byte_more() {
        let text = |bytes: usize| Value::String("x".repeat(bytes - 2));
        assert!(document(text(OUTPUT_BYTES_MAX)).is_ok());
        for too_large in [OUTPUT_BYTES_MAX + 1, OUTPUT_BYTES_MAX * 20] {
            assert_eq!(document(text(too_large)).unwrap_err().code, "output-too-large");
        }
        assert_eq!(document(Value::Null), Ok(None));
    }
}
