//! Text of others as characters that are seen. (pure)
//!
//! Invariant: what comes out does not steer a terminal, adds no lines, and looks like nothing else.

/// Others write labels and names; what they wrote must not steer our terminal or add lines, nor
/// look like something else.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => cleaned.push(' '),
            c if is_unseen(c) => cleaned.extend(c.escape_unicode()),
            c => cleaned.push(c),
        }
    }
    cleaned
}

/// Whether a character steers the terminal, turns the order of its neighbours round, or is not seen
/// at all: Unicode's `Default_Ignorable_Code_Point`, but for the 16 variation selectors that stand
/// behind emoji.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// JSON may hold characters above U+001F as they are, and a terminal obeys some of them.
pub(crate) fn escape(json: String) -> String {
    if !json.contains(is_unseen) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unseen(c) {
            let units = c
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<String>();
            escaped += &units;
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_text_round_or_hides_is_made_visible() {
        let turns = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        let hides = ('\u{200b}'..='\u{200f}').chain([
            '\u{61c}',
            '\u{ad}',
            '\u{2060}',
            '\u{feff}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{115f}',
            '\u{3164}',
        ]);
        let breaks = ['\u{2028}', '\u{2029}'];
        for c in turns.chain(hides).chain(breaks) {
            let text = format!("ad{c}min");

            let seen = format!("ad\\u{{{:x}}}min", u32::from(c));
            assert_eq!(clean(&text), seen);
            let json = escape(serde_json::to_string(&text).unwrap());
            assert!(json.is_ascii(), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
        for plain in ["é", "日本", "שלום", "e\u{301}", "🦀", "a b\u{a0}c"] {
            assert_eq!(
                (clean(plain), escape(plain.into())),
                (plain.into(), plain.into())
            );
        }
    }

    #[test]
    fn what_steers_a_terminal_is_shown_as_it_is_written() {
        assert_eq!(clean("\u{1b}[2J\u{7f}\u{9b}é"), "\\u{1b}[2J\\u{7f}\\u{9b}é");
        assert_eq!(clean("a\r\nb\tc"), "a  b c");
    }

    #[test]
    fn json_says_the_same_and_cannot_steer_the_terminal() {
        let text = "\u{1b}\u{7f}\u{9b}2Jé";

        let json = escape(serde_json::to_string(text).unwrap());

        assert_eq!(json, r#""\u001b\u007f\u009b2Jé""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
