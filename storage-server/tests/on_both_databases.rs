//! Tests that run on several stores.

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

/// Runs each test on SQLite and on PostgreSQL. `object_storage::run_all` runs them on object storage, each in
/// a folder of its own.
macro_rules! on_all_stores {
    ($arguments:expr => $($test:ident,)*) => {
        $crate::on_both_databases::on_both_databases!($arguments => $($test,)*);

        pub(crate) mod object_storage {
            pub(crate) async fn run_all(storage: &testbed::ObjectStorage) {
                $(
                    let folder = concat!(module_path!(), "::", stringify!($test)).replace("::", "/");
                    println!("{folder}");
                    let world = $crate::object_storage::world(storage, &folder, $arguments);
                    super::$test(world.await).await;
                )*
            }
        }
    };
}
pub(crate) use on_all_stores;
