//! A body that does not match the digest in its head was changed on its way.

use crate::{
    database::get,
    terraform::{STATE, lock},
    wire,
    world::World,
};

const RESOURCE: &str = "/v1/resources/r";
/// Of the body `{}`.
const MD5: &str = "mZFLkyvTelC5g8XnyQrpOw==";
const SHA_256: &str = "sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:";
/// Of an empty body.
const OTHER_MD5: &str = "1B2M2Y8AsgTpgAmY7PhCfg==";
const OTHER_SHA_256: &str = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
const OTHER_SHA_512: &str = "sha-512=:z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==:";

#[tokio::test]
async fn body_that_does_not_match_its_digest_is_rejected() {
    let world = World::on_sqlite(&[]).await;
    assert_eq!(lock(&world.server, "", "a").await.status, 200);
    let send = async |(method, path): (&str, &str), header: &str, digest: &str| {
        let headers =
            [("Fencing-Token", "1"), ("Content-Type", "application/json"), (header, digest)];
        wire::request(world.server.url(), method, path, &headers, "{}").await
    };
    let upload = format!("{STATE}?ID=a");
    let requests = [("PUT", RESOURCE), ("POST", upload.as_str())];
    let wrong = [
        ("Content-MD5", OTHER_MD5),
        ("Content-MD5", "none"),
        ("Content-Digest", OTHER_SHA_256),
        ("Content-Digest", OTHER_SHA_512),
        ("Content-Digest", "sha-256=RBNvo1WzZ4oRRq0W"),
        ("Content-Digest", &format!("{SHA_256}, {OTHER_SHA_512}")),
        ("Content-Digest", &format!("md5=:{OTHER_MD5}:")),
    ];
    for request in requests.into_iter().chain([("LOCK", STATE), ("POST", "/v1/transactions")]) {
        for (header, digest) in &wrong {
            let rejected = send(request, header, digest).await;
            assert_eq!(rejected.problem(), "400 malformed-request", "{request:?} {digest}");
            let detail = rejected.json()["detail"].to_string().to_lowercase();
            let expected = format!("does not match its {}", header.to_lowercase());
            assert!(detail.contains(&expected), "{request:?}: {detail}");
        }
    }
    for path in [RESOURCE, STATE] {
        assert_eq!(get(&world.server, path).await.status, 404);
    }
    // The controls: digests that match, and an algorithm that is not known.
    for (request, created) in requests.into_iter().zip([RESOURCE, STATE]) {
        for (header, digest) in
            [("Content-MD5", MD5), ("Content-Digest", SHA_256), ("Content-Digest", "unixsum=7")]
        {
            assert!(send(request, header, digest).await.status < 300, "{request:?} {digest}");
        }
        assert_eq!(get(&world.server, created).await.text(), "{}");
    }
}
