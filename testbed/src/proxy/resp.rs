//! Messages of Redis' protocol (<https://redis.io/docs/latest/develop/reference/protocol-spec>).

/// Returns the name of a request's command, in upper case.
pub(super) fn command(request: &[u8]) -> String {
    let name = request.split(|&byte| byte == b'\n').nth(2).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).to_uppercase()
}

/// Whether a message from the server answers no request.
pub(super) fn is_push(message: &[u8]) -> bool {
    message.first() == Some(&b'>')
}

/// Returns the length of the first message, or `None` if its end is missing.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")?;
    let head = line + 2;
    let number = || {
        let digits = std::str::from_utf8(&bytes[1..line]).ok();
        digits
            .and_then(|digits| digits.parse::<i64>().ok())
            .expect("Redis' protocol has a number here")
    };
    // Null is -1 of something.
    let count = || usize::try_from(number()).unwrap_or_default();
    match bytes[0] {
        b'$' | b'!' | b'=' if number() < 0 => Some(head),
        b'$' | b'!' | b'=' => Some(head + count() + 2).filter(|&length| length <= bytes.len()),
        b'*' | b'~' | b'>' => parts(bytes, head, count()),
        b'%' => parts(bytes, head, 2 * count()),
        // Attributes precede the value that they describe.
        b'|' => parts(bytes, head, 2 * count() + 1),
        _ => Some(head),
    }
}

fn parts(bytes: &[u8], head: usize, count: usize) -> Option<usize> {
    (0..count).try_fold(head, |at, _| Some(at + length(&bytes[at..])?))
}

#[test]
fn a_message_ends_where_its_last_part_does() {
    let messages = [
        "+OK\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "$4\r\n\r\n\r\n\r\n",
        "*2\r\n$4\r\nEVAL\r\n*1\r\n:33\r\n",
        "%1\r\n+a\r\n*0\r\n",
        "|1\r\n+a\r\n+b\r\n_\r\n",
        ">2\r\n+message\r\n$1\r\nx\r\n",
    ];
    for message in messages {
        let followed = format!("{message}+next\r\n");
        assert_eq!(length(followed.as_bytes()), Some(message.len()), "{message:?}");
        for shorter in 0..message.len() {
            assert_eq!(length(&message.as_bytes()[..shorter]), None, "{message:?} {shorter}");
        }
    }
    assert_eq!(command(b"*2\r\n$7\r\nevalsha\r\n$1\r\nx\r\n"), "EVALSHA");
}
