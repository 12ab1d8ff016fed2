//! Rebuilds the server when one of the migrations that it embeds has changed.

fn main() {
    println!("cargo:rerun-if-changed=../migrations/postgres/storage");
    println!("cargo:rerun-if-changed=../migrations/sqlite/storage");
}
