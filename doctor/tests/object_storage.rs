//! A store that ignores conditions is found. What real ones do is tested by the commands.

use std::fmt;

use async_trait::async_trait;
use doctor::{Verdict, object_storage::check_conditions};
use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, memory::InMemory, path::Path,
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    IgnoresConditions,
    IgnoresThatAnObjectExists,
    TakesNoWrites,
}

#[derive(Debug)]
struct Store {
    objects: InMemory,
    fault: Fault,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        match (self.fault, &options.mode) {
            (Fault::IgnoresConditions, _) | (Fault::IgnoresThatAnObjectExists, PutMode::Create) => {
                options.mode = PutMode::Overwrite;
            }
            (Fault::TakesNoWrites, _) => {
                return Err(Error::Generic { store: "store", source: "busy".into() });
            }
            _ => {}
        }
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn store_that_ignores_conditions_is_unfit_for_a_fence() {
    let (ok, unfit) = (Verdict::Ok, Verdict::UnfitForFence);
    let path = Path::from("examined");
    for (fault, expected) in [
        (Fault::None, &[ok, ok, ok][..]),
        (Fault::IgnoresConditions, &[unfit, unfit, unfit]),
        // The second creation has made the right condition of the replacement a wrong one.
        (Fault::IgnoresThatAnObjectExists, &[unfit, unfit]),
    ] {
        let store = Store { objects: InMemory::new(), fault };
        let checks = check_conditions(&store, &path).await.unwrap();
        let verdicts: Vec<_> = checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, expected, "{fault:?}: {checks:?}");
        store.head(&path).await.expect_err("nothing is left");
    }
    // An outage is no verdict.
    let store = Store { objects: InMemory::new(), fault: Fault::TakesNoWrites };
    check_conditions(&store, &path).await.unwrap_err();
}
