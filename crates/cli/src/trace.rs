//! The trace that the work belongs to, as the environment names it: W3C's `traceparent`. It only
//! reads.

use std::env;

/// The trace id of this process, if its parent has told one.
pub(crate) fn own() -> Option<String> {
    let traceparent = env::var("TRACEPARENT").ok()?;
    trace_id(&traceparent).map(str::to_owned)
}

/// The second field of a `traceparent`: two hexadecimal digits of the version, 32 of the trace, 16
/// of the parent and two of flags. A later version may add fields.
fn trace_id(traceparent: &str) -> Option<&str> {
    let fields: Vec<&str> = traceparent.split('-').collect();
    let (&[version, trace, parent, flags], rest) = fields.split_first_chunk()?;
    let is_hex = |field: &str, len| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        field.len() == len && field.bytes().all(is_digit)
    };
    let is_known = is_hex(version, 2) && version != "ff" && (version != "00" || rest.is_empty());
    let has_form = is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    let is_some = |field: &str| field.bytes().any(|byte| byte != b'0');
    (is_known && has_form && is_some(trace) && is_some(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_traceparent_tells_its_trace_and_anything_else_tells_none() {
        let of = |text: &str| trace_id(&text.replace('T', TRACE)).map(str::to_owned);

        assert_eq!(of("00-T-00f067aa0ba902b7-01").as_deref(), Some(TRACE));
        assert_eq!(of("01-T-00f067aa0ba902b7-01-more").as_deref(), Some(TRACE));
        for none in [
            "",
            "T",
            "00-T-00f067aa0ba902b7",
            "00-T-00f067aa0ba902b7-01-more",
            "ff-T-00f067aa0ba902b7-01",
            "00-T-0000000000000000-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
