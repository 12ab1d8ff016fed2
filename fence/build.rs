//! Rebuilds the crate when the SQL and Lua that it embeds have changed.
//!
//! `migrations/<datastore>` is a link to `<datastore>/fence` in the workspace's `migrations`. Cargo
//! follows it, and packages a folder of files in its place.

fn main() {
    for datastore in ["mariadb", "postgres", "redis", "sqlite"] {
        println!("cargo:rerun-if-changed=migrations/{datastore}");
    }
}
