//! The names of locks.

use anyhow::{Context, bail, ensure};
use fence::{Holder, ResourceName};
use lock_client::{Order, backend::Backend};

use super::{busy, granted};

pub(crate) async fn names_differ_byte_by_byte(backend: &impl Backend) -> anyhow::Result<()> {
    let longest = "a".repeat(511);
    let (almost, umlauts) = (format!("{longest}b"), "\u{e4}".repeat(256));
    let longest = format!("{longest}a");
    let names = [
        "a",
        "A",
        "a ",
        "stra\u{df}e",
        "strasse",
        "\u{e9}",
        "e\u{301}",
        "a'\\\"%s",
        "ä",
        "a/b",
        "a.b",
        "a%b",
        "a_b",
        "a%2Fb",
        "%",
        "_",
        "\u{1f512}",
        &longest,
        &almost,
        &umlauts,
    ];
    for (number, lock) in names.into_iter().enumerate() {
        granted(backend, lock, &Holder::random(), 600_000)
            .await
            .with_context(|| format!("name {number}"))?;
        busy(backend, lock, &Holder::random(), Order::Unordered).await?;
    }
    Ok(())
}

/// Anyone may write to the tables without this library. So the database itself takes the names that
/// [`ResourceName`] takes, and no others. `acquire` acquires a lock in SQL.
pub(crate) async fn names_of_no_lock_are_rejected(
    mut acquire: impl AsyncFnMut(&str) -> Result<(), sqlx::Error>,
) -> anyhow::Result<()> {
    let texts = ["", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/./b", "a/../b", "../a"];
    let controls = ('\0'..='\u{9f}').filter(|character| character.is_control());
    let controls = controls.map(|control| format!("a{control}b"));
    let too_long = ["a".repeat(513), "\u{e4}".repeat(257)];
    for name in texts.map(str::to_owned).into_iter().chain(controls).chain(too_long) {
        ensure!(name.parse::<ResourceName>().is_err());
        match acquire(&name).await {
            Ok(()) => bail!("{name:?} is acquired"),
            // PostgreSQL has no text with this character.
            Err(_) if name.contains('\0') => {}
            Err(error) => {
                let error = error.to_string();
                let words = ["name must", "too long for column 'in_name'"];
                ensure!(words.iter().any(|words| error.contains(words)), "{name:?}: {error}");
            }
        }
    }
    for name in ["...", ".a/b.", "a/.../b", " ", "~\u{a0}", "\u{c2}\u{89c2}", "a\\x01", "[%_]"] {
        ensure!(name.parse::<ResourceName>().is_ok());
        acquire(name).await.with_context(|| format!("{name:?}"))?;
    }
    Ok(())
}
