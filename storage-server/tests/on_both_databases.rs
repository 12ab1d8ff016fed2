//! Tests that run on SQLite and on PostgreSQL.

/// Runs each test on SQLite and on PostgreSQL, with the arguments given to the server.
macro_rules! on_both_databases {
    ($arguments:expr => $($test:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::world::World::on_sqlite($arguments).await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::world::World::on_postgres($arguments).await).await;
            })*
        }
    };
}
pub(crate) use on_both_databases;
