//! The settings in a URL.

use lock_client::postgres::Postgres;

#[test]
fn setting_that_is_not_known_is_rejected() {
    for setting in ["sslmod=verify-full", "tls-ca=/ca.pem", "target=any", "SSLMODE=require"] {
        let error = Postgres::open(&format!("postgres://db/locks?{setting}")).unwrap_err();
        let text = error.to_string();
        let name = setting.split('=').next().unwrap();
        assert!(text.contains(&format!("`{name}` is no setting here")), "{text}");
        assert!(text.contains("the settings are sslmode, sslrootcert"), "{text}");
    }
    let documented = "connect_timeout=3&application_name=app&sslmode=require&keepalives_idle=9";
    Postgres::open(&format!("postgres://db/locks?{documented}")).unwrap();
    // What is no setting, but a password.
    for password in ["se?cret", "se,cret/x", "se,cret?x", "se:cret#x"] {
        for hosts in ["db", "a,b"] {
            let url = format!("postgres://me:{password}@{hosts}/locks");
            let text = Postgres::open(&url).unwrap_err().to_string();
            assert!(text.contains("write %2F") && !text.contains("cret"), "{url}: {text}");
        }
    }
}
