//! Rebuilds the crate when the SQL that it embeds has changed.
//!
//! `migrations/<database>` is a link to `<database>/lock` in the workspace's `migrations`. Cargo
//! follows it, and packages a folder of files in its place.

fn main() {
    for database in ["mariadb", "postgres", "sqlite"] {
        println!("cargo:rerun-if-changed=migrations/{database}");
    }
}
