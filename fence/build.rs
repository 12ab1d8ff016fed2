//! Rebuilds the crate when what it installs in databases has changed.

fn main() {
    for database in ["mariadb", "postgres", "redis", "sqlite"] {
        println!("cargo:rerun-if-changed=../migrations/{database}/fence");
    }
}
