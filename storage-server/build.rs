//! Rebuilds the server when a migration that it embeds has changed.
//!
//! In the repository, both folders are symbolic links to `migrations/` at the top; Cargo follows
//! them here, and packages their files.

fn main() {
    println!("cargo:rerun-if-changed=migrations/postgres");
    println!("cargo:rerun-if-changed=migrations/sqlite");
}
