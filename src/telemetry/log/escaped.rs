//! Escapes control characters in the fields of a text log. Fields contain names that clients
//! choose, and a line must stay one event.

use std::fmt::{self, Write};

use tracing::field::Field;
use tracing_subscriber::field::{MakeExt, RecordFields};
use tracing_subscriber::fmt::format::{self, FormatFields, Writer};

#[derive(Debug)]
pub(super) struct Escaped;

impl<'w> FormatFields<'w> for Escaped {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        format::debug_fn(write_field)
            .delimited(" ")
            .format_fields(writer, fields)
    }
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    write!(Escaping(writer), "{value:?}")
}

/// Writes control characters as escapes.
struct Escaping<'a, W>(&'a mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = from.chars();
            if let Some(control) = characters.next() {
                write!(self.0, "{}", control.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn log_event_is_one_line_with_any_names() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(Escaped)
            .with_ansi(false)
            .without_time()
            .with_writer(lines.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let name = "a\nERROR forged\u{1b}[31m\r\u{7f}é";
            tracing::warn!(namespace = %name, quoted = name, number = 7, "refused {name}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let escaped = "a\\nERROR forged\\u{1b}[31m\\r\\u{7f}é";
        let expected = format!("refused {escaped} namespace={escaped} quoted=\"{escaped}\" number=7\n");
        assert!(text.ends_with(&expected), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
