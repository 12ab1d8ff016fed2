//! Rows of the databases as structs, column by column.
//!
//! Not by `derive(FromRow)`: its crate compiles the drivers of the databases a second time, for the machine
//! that builds.

/// Implements [`FromRow`](sqlx::FromRow) for a struct whose fields are named like the columns.
macro_rules! from_row {
    ($struct:ident { $($column:ident),+ $(,)? }) => {
        from_row!($struct, sqlx::postgres::PgRow, $($column),+);
        from_row!($struct, sqlx::sqlite::SqliteRow, $($column),+);
    };
    ($struct:ident, $row:ty, $($column:ident),+) => {
        impl sqlx::FromRow<'_, $row> for $struct {
            fn from_row(row: &$row) -> Result<Self, sqlx::Error> {
                Ok(Self { $($column: sqlx::Row::try_get(row, stringify!($column))?),+ })
            }
        }
    };
}
pub(super) use from_row;
